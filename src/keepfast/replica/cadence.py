"""When a snapshot is due: after a number of records, or of their bytes.

A snapshot costs as much as the tree has znodes. If it came after a fixed number of records, each
write on a tree of millions would pay for dozens of znodes; so the number grows with the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from keepfast.replica.proposals import Append

_PARTS: Final = 1000


class CadenceOptions(msgspec.Struct, frozen=True):
    """How much is logged between two snapshots."""

    # Records; 0: no snapshots are taken. Low: the disk writes snapshots all the time. High: a start
    # replays more records.
    every: int = 100_000
    # The same by bytes of records; 0: however many.
    every_bytes: int = 4 << 30
    # At least this many records per 100 znodes of the tree; 0: whatever its size. Low: writes to a
    # large tree pay for snapshots. High: a start replays many records, each of which takes as long
    # as loading 5 znodes.
    every_percent: int = 0


class SnapshotCadence:
    """Counts what is logged, up to randomised limits, so that servers do not snapshot in step."""

    def __init__(self, options: CadenceOptions, draw: Callable[[int], int]) -> None:
        """`draw` gives a random number from 0 to below its argument."""
        self._options = options
        self._draw = draw
        self.restart()

    def restart(self) -> None:
        """A snapshot begins: count again, up to between half and all of the limits."""
        share = (1 + self._draw(_PARTS + 1) / _PARTS) / 2
        self._records = self._bytes = 0
        self._due_per_znode = share * self._options.every_percent / 100
        every, every_bytes = self._options.every, self._options.every_bytes
        self._due: float = max(round(every * share), 1) if every else inf
        self._due_bytes: float = every_bytes * share if every and every_bytes else inf

    def count(self, records: list[Append]) -> None:
        """Records go to the log."""
        self._records += len(records)
        self._bytes += sum([len(record.entry) for record in records])

    def is_due(self, znodes: int) -> bool:
        """Whether it is time for the next one, of a tree with this many znodes."""
        if self._bytes >= self._due_bytes:
            return True
        return self._records >= self._due and self._records >= self._due_per_znode * znodes
