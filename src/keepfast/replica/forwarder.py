"""The learner's half of a server: writes go to the leader, and come back as committed txns.

Requests of one client reach the leader in their order and are committed in their order, so the
txn of a session that is committed next answers the oldest write that its connection waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from keepfast.replica.proposals import Proposal
from keepfast.replica.sessions import TouchTable
from keepfast.wire import (
    Id,
    LogEntry,
    OpCode,
    PacketType,
    QuorumPacket,
    RevalidateRequest,
    SessionId,
    Zxid,
    encode,
    encode_int,
    encode_request_packet,
)

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection, PendingWrite
    from keepfast.replica.replica import Replica

_NO_ZXID: Final = Zxid(-1)
_SYNC: Final = OpCode.SYNC.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value


class _Sync(NamedTuple):
    connection: Connection
    waiting: PendingWrite
    xid: int
    body: bytes


class Forwarder:
    """See the module. Made for the time under one leader, and thrown away with it."""

    def __init__(self, replica: Replica, send: Callable[[bytes], None]) -> None:
        self._replica = replica
        self._send = send
        self.sessions = TouchTable(replica.tree)
        self._syncs: deque[_Sync] = deque()
        # Syncs that the leader answered, with the last txn that was committed before.
        self._answered: deque[tuple[Zxid, _Sync]] = deque()
        self._connecting: dict[int, Connection] = {}

    def create_session(self, connection: Connection) -> None:
        """Ask for a new session."""
        session_id = connection.session_id
        self._connecting[session_id] = connection
        self._forward(session_id, 0, _CREATE_SESSION, encode_int(connection.timeout_ms), None)

    def revalidate(self, connection: Connection) -> None:
        """Ask whether the session of a client that came back lives."""
        session_id = connection.session_id
        self._connecting[session_id] = connection
        body = encode(RevalidateRequest(session_id, connection.timeout_ms))
        self._send(encode(QuorumPacket(PacketType.REVALIDATE.value, _NO_ZXID, body)))

    def on_revalidated(self, session_id: SessionId, is_valid: bool) -> None:
        """The leader's answer."""
        connection = self._connecting.pop(session_id, None)
        if connection is not None:
            self._replica.handshake.found(connection, is_valid)

    def forward(self, connection: Connection, xid: int, op: int, body: bytes) -> None:
        """Pass a write on."""
        self._forward(connection.session_id, xid, op, body, connection.ids)

    def sync(self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes) -> None:
        """Ask the leader to tell when all that is under way now is committed."""
        self._syncs.append(_Sync(connection, waiting, xid, body))
        self._forward(connection.session_id, xid, _SYNC, body, connection.ids)

    def on_synced(self, last_committed: Zxid) -> None:
        """The leader's answer to the oldest sync; it holds once that txn is applied here."""
        if self._syncs:
            self._answered.append((last_committed, self._syncs.popleft()))
            self.release_syncs(self._replica.tree.last_zxid)

    def release_syncs(self, applied: Zxid) -> None:
        """Answer the syncs whose txns are applied."""
        while self._answered and self._answered[0][0] <= applied:
            self._replica.syncs.answer(*self._answered.popleft()[1])

    def proposal_of(self, entry: LogEntry) -> Proposal:
        """The txn with whoever waits for it here."""
        header = entry.header
        session_id = header.session_id
        if header.type == _CREATE_SESSION:
            connecting = self._connecting.pop(session_id, None)
            return Proposal(entry, _CREATE_SESSION, header.cxid, connecting, None, None)
        connection = self._replica.connections.get(session_id)
        if connection is not None:
            waiting = connection.waits_for(header.cxid)
            if waiting is not None:
                request = waiting.request
                return Proposal(entry, waiting.op, header.cxid, connection, waiting, request)
        return Proposal(entry, header.type, header.cxid, None, None, None)

    def _forward(
        self, session_id: SessionId, xid: int, op: int, body: bytes, ids: tuple[Id, ...] | None
    ) -> None:
        self._send(encode_request_packet(session_id, xid, op, body, ids))
