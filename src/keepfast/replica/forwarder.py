"""The learner's half of a server: writes go to the leader, and come back as committed txns.

Xids start over on every connection, so session and xid do not identify a request (R15). The order
does: the requests of one session that this server forwards reach the leader in their order and are
committed in their order, refused ones too. So each of them is remembered until its txn arrives,
even if its connection is gone by then.

Txns of requests that the client sent through another server, before it moved here, come too. Those
are distinguished by zxid: the reply to REVALIDATE says how far the leader had proposed when the
session moved; what other servers still forward afterwards it refuses with SESSION_MOVED. An Apache
leader does not send it. Then everything received before the reply counts as that, which leaves a
window of the length of its own request queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from keepfast.replica.connection import Connection
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.proposals import Proposal
from keepfast.replica.reply_order import answer_sync
from keepfast.replica.service import Service
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

_NO_ZXID: Final = Zxid(-1)
_SYNC: Final = OpCode.SYNC.value
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value


class Forwarded(NamedTuple):
    """A write that the leader was sent, and whom to answer, if its connection is still there."""

    connection: Connection
    waiting: PendingWrite


class _Sync(NamedTuple):
    connection: Connection
    waiting: PendingWrite
    xid: int
    body: bytes


class Forwarder:
    """Forwards clients' writes to the leader and answers them when they are committed.

    Created for one leader, and discarded with it.
    """

    def __init__(self, service: Service, send: Callable[[bytes], None]) -> None:
        self._service = service
        self._send = send
        self.sessions = TouchTable(service.tree)
        self._syncs: deque[_Sync] = deque()
        # Syncs that the leader answered, with the last txn that was committed before.
        self._answered: deque[tuple[Zxid, _Sync]] = deque()
        self._connecting: dict[int, Connection] = {}
        # Clients that came back, by session, in the order in which the leader was asked.
        self._returning: dict[int, deque[Connection]] = {}
        # Writes without a txn so far, by session, in the order in which they were forwarded.
        self._forwarded: dict[int, deque[Forwarded]] = {}

    def create_session(self, connection: Connection) -> None:
        """Ask for a new session."""
        session_id = connection.session_id
        self._connecting[session_id] = connection
        self._forward(session_id, 0, _CREATE_SESSION, encode_int(connection.timeout_ms), None)

    def revalidate(self, connection: Connection) -> None:
        """Ask whether the session of a client that came back lives."""
        session_id = connection.session_id
        returning = self._returning.setdefault(session_id, deque())
        for earlier in returning:
            self._service.close(earlier, "its client has connected again")
        returning.append(connection)
        body = encode(RevalidateRequest(session_id, connection.timeout_ms))
        self._send(encode(QuorumPacket(PacketType.REVALIDATE.value, _NO_ZXID, body)))

    def on_revalidated(
        self, session_id: SessionId, is_valid: bool, proposed: Zxid, received: Zxid
    ) -> Connection | None:
        """The leader's answer; returns the connection that it decides on now, if there is one.

        `proposed`: how far it had proposed then, -1 if it does not say; `received`: how far its
        proposals have come here.
        """
        returning = self._returning.get(session_id)
        if returning is None:
            return None
        connection = returning.popleft()
        if not returning:
            del self._returning[session_id]
        connection.moved_at = max(proposed, received)
        if proposed >= 0:
            # What was forwarded on earlier connections was proposed up to that point.
            self._forwarded.pop(session_id, None)
        if is_valid and session_id not in self.sessions:
            # It lives, and the txn that creates it is on its way here.
            self._connecting[session_id] = connection
            return None
        return connection

    def forward(self, connection: Connection, waiting: PendingWrite, body: bytes) -> None:
        """Pass a write on."""
        session_id = connection.session_id
        forwarded = Forwarded(connection, waiting)
        queue = self._forwarded.get(session_id)
        if queue is None:
            self._forwarded[session_id] = deque((forwarded,))
        else:
            queue.append(forwarded)
        self._forward(session_id, waiting.xid, waiting.op, body, connection.ids)

    def take(self, session_id: int, cxid: int, zxid: Zxid, type_: int) -> Forwarded | None:
        """The write that this txn, the next one of its session, is the outcome of.

        None: it was not forwarded from here.
        """
        queue = self._forwarded.get(session_id)
        if queue is None:
            return None
        found = queue[0]
        if (
            found.waiting.xid != cxid
            or zxid <= found.connection.moved_at
            # The end of a silent session is nobody's request, whatever its cxid is; and a request
            # to end one has no other outcome: this is what became of a write that the client sent
            # through another server.
            or (type_ == _CLOSE_SESSION) is not (found.waiting.op == _CLOSE_SESSION)
        ):
            return None
        queue.popleft()
        if not queue:
            del self._forwarded[session_id]
        return found

    def sync(self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes) -> None:
        """Ask the leader to report when everything in flight now is committed."""
        self._syncs.append(_Sync(connection, waiting, xid, body))
        self._forward(connection.session_id, xid, _SYNC, body, connection.ids)

    def on_synced(self, last_committed: Zxid) -> None:
        """The leader's answer to the oldest sync; it holds once that txn is applied here."""
        if self._syncs:
            self._answered.append((last_committed, self._syncs.popleft()))
            self.release(self._service.tree.last_zxid)

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to release."""
        return bool(self._answered)

    def release(self, applied: Zxid) -> None:
        """Answer the syncs whose txns are applied."""
        while self._answered and self._answered[0][0] <= applied:
            answer_sync(self._service, *self._answered.popleft()[1])

    def proposal_of(self, entry: LogEntry) -> Proposal:
        """The txn with whoever waits for it here."""
        session_id, cxid, zxid, _, type_ = entry.header
        if type_ == _CREATE_SESSION:
            connecting = self._connecting.pop(session_id, None)
            return Proposal(zxid, entry, _CREATE_SESSION, cxid, connecting, None, None)
        found = self.take(session_id, cxid, zxid, type_)
        if found is not None:
            connection, waiting = found
            op, request = waiting.op, waiting.request
            return Proposal(zxid, entry, op, cxid, connection, waiting, request)
        return Proposal(zxid, entry, type_, cxid, None, None, None)

    def _forward(
        self, session_id: SessionId, xid: int, op: int, body: bytes, ids: tuple[Id, ...] | None
    ) -> None:
        self._send(encode_request_packet(session_id, xid, op, body, ids))
