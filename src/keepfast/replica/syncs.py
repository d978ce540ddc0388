"""Replies that wait for the writes of others: syncs, and refusals that are no txns."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from keepfast.replica.connection import NO_OPERATION, PendingWrite
from keepfast.wire import (
    ErrorCode,
    MalformedRecord,
    OpCode,
    SyncRequest,
    Zxid,
    codec_of,
    encode_reply,
    encode_string,
)

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection
    from keepfast.replica.replica import Replica

_HEADER_SIZE: Final = Struct(">ii").size
_SYNC: Final = OpCode.SYNC.value


class _Waiting(NamedTuple):
    zxid: Zxid
    connection: Connection
    waiting: PendingWrite
    xid: int
    body: bytes
    code: int


class Syncs:
    """What is answered when everything that was under way when it came has been applied."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: deque[_Waiting] = deque()

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to release."""
        return bool(self._waiting)

    def ask(self, connection: Connection, xid: int, payload: bytes) -> None:
        """Handle a sync."""
        waiting = PendingWrite(self._replica.now_ms, xid, _SYNC)
        connection.queue.append(waiting)
        forwarder = self._replica.forwarder
        try:
            body = encode_string(codec_of(SyncRequest).decode(payload, _HEADER_SIZE).path)
        except MalformedRecord:
            self.answer_behind_writes(connection, waiting, xid, b"", ErrorCode.MARSHALLING_ERROR)
            return
        if forwarder is not None:
            forwarder.sync(connection, waiting, xid, body)
        else:
            self.answer_behind_writes(connection, waiting, xid, body)

    def answer_behind_writes(
        self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes, code: int = 0
    ) -> None:
        """Answer when all txns that are proposed now are applied."""
        proposer = self._replica.proposer
        if proposer is not None and proposer.proposals:
            found = _Waiting(proposer.last_proposed, connection, waiting, xid, body, code)
            self._waiting.append(found)
        else:
            self.answer(connection, waiting, xid, body, code)

    def release(self, applied: Zxid) -> None:
        """Answer what waited for txns up to this one."""
        while self._waiting and self._waiting[0].zxid <= applied:
            self.answer(*self._waiting.popleft()[1:])

    def answer(
        self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes, code: int = 0
    ) -> None:
        """Answer now."""
        replica = self._replica
        op = NO_OPERATION if code else _SYNC
        replica.note(replica.statistics.slow_reads, connection, op, xid, waiting.since_ms)
        replica.answer(connection, waiting, encode_reply(xid, replica.last_zxid, code, body))

    def clear(self) -> None:
        """Forget all of it: the connections are gone."""
        self._waiting.clear()
