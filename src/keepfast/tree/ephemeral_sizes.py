"""The size of a session's list of ephemerals, once all prepared txns are applied.

The txn that ends a session names every ephemeral of it (R12), and has to fit into one record (R13).
So a leader tracks the size of each growing list, without walking it for every create.
"""

from __future__ import annotations

from typing import NamedTuple

from keepfast.tree.pending import PendingChanges
from keepfast.wire import encode_text

_LENGTH_BYTES = 4


class EphemeralTotal(NamedTuple):
    """How many ephemerals a session has, and the bytes of their paths in a closeSession."""

    number: int
    size: int


class EphemeralSizes:
    """What each session has; counted when first asked for."""

    __slots__ = ("_pending", "_steps", "_totals")

    def __init__(self, pending: PendingChanges) -> None:
        self._pending = pending
        self._totals: dict[int, EphemeralTotal] = {}
        # What the txn being prepared did, so that a failed multi can be undone; None: it was
        # counted then, with what this txn had done before.
        self._steps: list[tuple[int, EphemeralTotal | None]] = []

    def begin(self) -> None:
        """The next txn is prepared."""
        if self._steps:
            self._steps.clear()

    def total(self, session_id: int) -> EphemeralTotal:
        """All of a session."""
        total = self._totals.get(session_id)
        if total is None:
            paths = self._pending.ephemerals(session_id)
            total = EphemeralTotal(len(paths), sum(map(path_size, paths)))
            self._totals[session_id] = total
            self._steps.append((session_id, None))
        return total

    def added(self, session_id: int, path: str) -> None:
        """An ephemeral is created."""
        self._change(session_id, 1, path_size(path))

    def removed(self, session_id: int, path: str) -> None:
        """An ephemeral is deleted."""
        self._change(session_id, -1, -path_size(path))

    def ended(self, session_id: int) -> None:
        """The session is closed."""
        self._totals.pop(session_id, None)

    def roll_back(self) -> None:
        """The txn being prepared is dropped."""
        for session_id, before in reversed(self._steps):
            if before is None:
                self._totals.pop(session_id, None)
            elif session_id in self._totals:
                self._totals[session_id] = before
        self._steps.clear()

    def _change(self, session_id: int, number: int, size: int) -> None:
        total = self._totals.get(session_id)
        if total is not None:
            self._totals[session_id] = EphemeralTotal(total.number + number, total.size + size)
            self._steps.append((session_id, total))


def path_size(path: str) -> int:
    """The bytes of a path in a txn."""
    return _LENGTH_BYTES + (len(path) if path.isascii() else len(encode_text(path)))
