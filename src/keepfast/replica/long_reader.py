"""A learner's next txn, if it has very many changes: computed in slices before it is applied.

Until it is installed, the tree and all that is read from it are those before the txn; so it counts
as not applied, like one that is still waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keepfast.replica.replies import reply_in_slices
from keepfast.replica.service import Service
from keepfast.tree import LongTxn, is_long, read_long
from keepfast.wire import LogEntry, OpCode, decode_entry

# An operation of a txn takes at least this many bytes; the type of a txn stands after the first 28.
_MIN_BYTES: Final = 4
_TYPE_AT: Final = slice(28, 32)
_LONG_TYPES: Final = frozenset(
    op.value.to_bytes(4, "big", signed=True) for op in (OpCode.MULTI, OpCode.CLOSE_SESSION)
)


class ReadyTxn:
    """A txn that is being computed; `txn` is None if it has to be applied in one piece."""

    __slots__ = ("data", "entry", "is_done", "reply_body", "slices", "txn")

    def __init__(self, service: Service, data: bytes) -> None:
        self.data = data
        self.entry: LogEntry = decode_entry(data)
        self.txn: LongTxn | None = None
        self.reply_body: bytes | None = None
        size = service.options.prepare.slice_size
        self.is_done = not is_long(self.entry, size)
        self.slices = self._work_out(service, size)

    def _work_out(self, service: Service, size: int) -> Iterator[None]:
        txn = yield from read_long(service.tree, self.entry, size)
        if txn is not None and txn.results:
            self.reply_body = yield from reply_in_slices(txn.results, size)
        self.txn = txn


class LongReader:
    """Works out the next txn of a learner, if it is long."""

    __slots__ = ("_has_turn", "_min_bytes", "_ready", "_service")

    def __init__(self, service: Service) -> None:
        self._service = service
        self._min_bytes = _MIN_BYTES * service.options.prepare.slice_size
        self._ready: ReadyTxn | None = None
        # Whether a slice may be done now: one in each turn.
        self._has_turn = False

    def is_ready(self, data: bytes) -> bool:
        """Whether the next txn may be applied now. Raises ReplayConflict."""
        if len(data) < self._min_bytes or data[_TYPE_AT] not in _LONG_TYPES:
            return True
        ready = self._ready
        if ready is None or ready.data is not data:
            ready = self._ready = ReadyTxn(self._service, data)
        elif self._has_turn and not ready.is_done:
            self._has_turn = False
            ready.is_done = next(ready.slices, self) is self
        if not ready.is_done:
            self._service.has_more_work = True
        return ready.is_done

    def give_turn(self) -> None:
        """Others had their turn."""
        self._has_turn = self._ready is not None

    def take(self, data: bytes) -> ReadyTxn | None:
        """What was computed for a txn that is applied now."""
        ready = self._ready
        if ready is None or ready.data is not data:
            return None
        self._ready = None
        return ready

    def forget(self) -> None:
        """The role is over."""
        self._ready = None
