"""From a connection to a session: new ones, those that come back, and those of one server alone.

A session is global unless local sessions are on, or the server is read-only: then it is known to
this server alone, costs no txn, and ends with this server's role. A local session that creates an
ephemeral becomes a global one first, if that is allowed (`upgrade`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keepfast.replica.connection import Connection, Phase
from keepfast.replica.sessions import SessionTracker, first_session_id
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    CreateSessionTxn,
    MalformedRecord,
    OpCode,
    ServerId,
    SessionId,
    codec_of,
    encode,
    encode_frame,
    session_password,
)

if TYPE_CHECKING:
    from keepfast.replica.replica import Replica

_NO_PASSWORD: Final = bytes(16)
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value


class Handshake:
    """Greets the connections of one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._next_session = first_session_id(replica.options.server_id, replica.wall_ms)
        # Sessions of this server alone.
        self.local = SessionTracker(replica.options.tick_ms)
        # Connections that sent something: a change of the role ends them.
        self.greeted: dict[Connection, None] = {}

    def greet(self, connection: Connection, payloads: list[bytes]) -> list[bytes]:
        """Handle the frames before the session is there; gives those that can be handled now."""
        replica = self._replica
        if connection.phase is Phase.NEW:
            if not replica.is_serving:
                replica.close(connection, "the server has no leader and serves nobody")
                return []
            self.greeted[connection] = None
            replica.statistics.received += 1
            connection.received += 1
            try:
                request = codec_of(ConnectRequest).decode(payloads.pop(0))
            except MalformedRecord as error:
                replica.close(connection, f"not a connect request: {error}")
                return []
            self._connect(connection, request)
        if connection.phase is Phase.CONNECTING:
            # A client may send requests before it knows its session.
            connection.queue.extend(payloads)
            return []
        return payloads if connection.phase is Phase.OPEN else []

    def _connect(self, connection: Connection, request: ConnectRequest) -> None:
        replica = self._replica
        throttle = replica.throttle.connections
        if not throttle.admits(replica.now_ms, is_new=request.session_id == 0):
            replica.statistics.throttle_refusals += 1
            replica.close(connection, "too many connections at once")
            return
        replica.statistics.token_deficit.add(throttle.deficit)
        replica.statistics.connects += 1
        connection.wants_read_only_byte = request.read_only is not None
        if replica.is_read_only and not request.read_only:
            replica.close(connection, "this server is read-only, and its client is not")
            return
        if request.last_zxid_seen > replica.last_zxid:
            replica.close(
                connection,
                f"client has seen zxid {request.last_zxid_seen:#x}, "
                f"our last is {replica.last_zxid:#x}: it must try another server",
            )
            return
        options = replica.options
        timeout_ms = min(
            max(request.timeout_ms, options.min_session_timeout_ms), options.max_session_timeout_ms
        )
        session_id = request.session_id
        if session_id:
            self._reconnect(connection, session_id, timeout_ms, request.password)
        elif not replica.is_writable:
            replica.close(connection, "no new session while the disk is full")
        else:
            session_id = SessionId(self._next_session)
            self._next_session += 1
            connection.phase = Phase.CONNECTING
            connection.identify(session_id, timeout_ms)
            if replica.is_read_only or options.has_local_sessions:
                self.local.track(session_id, timeout_ms, replica.now_ms)
                connection.caller = connection.caller._replace(is_local=True)
                self.welcome(connection)
            else:
                self._create_session(connection)

    def _reconnect(
        self, connection: Connection, session_id: SessionId, timeout_ms: int, password: bytes | None
    ) -> None:
        replica = self._replica
        replica.statistics.revalidations += 1
        earlier = replica.connections.get(session_id)
        if earlier is not None:
            replica.close(earlier, "its client has connected again")
        connection.identify(session_id, timeout_ms)
        if password != session_password(session_id):
            self.found(connection, is_valid=False)
        elif session_id in self.local:
            self.local.track(session_id, timeout_ms, replica.now_ms)
            connection.caller = connection.caller._replace(is_local=True)
            self.found(connection, is_valid=True)
        elif session_id not in replica.sessions:
            self.found(connection, is_valid=False)
        elif replica.proposer is not None:
            owner = ServerId(replica.options.server_id)
            found = replica.proposer.revalidate(session_id, timeout_ms, owner)
            self.found(connection, is_valid=found)
        elif replica.forwarder is not None:
            connection.phase = Phase.CONNECTING
            replica.forwarder.revalidate(connection)
        else:
            self.found(connection, is_valid=True)

    def _create_session(self, connection: Connection) -> None:
        replica = self._replica
        timeout = CreateSessionTxn(connection.timeout_ms)
        if replica.proposer is not None:
            replica.proposer.owners[connection.session_id] = ServerId(replica.options.server_id)
            replica.proposer.propose(connection.caller, 0, _CREATE_SESSION, timeout, connection)
        elif replica.forwarder is not None:
            replica.forwarder.create_session(connection)

    def upgrade(self, connection: Connection) -> None:
        """Make a local session a global one; what its client asks for next comes behind that."""
        self.local.forget(connection.session_id)
        connection.caller = connection.caller._replace(is_local=False)
        self._create_session(connection)

    def created(self, connection: Connection | None) -> None:
        """A session was created by a txn."""
        if connection is not None and connection.phase is Phase.CONNECTING:
            self._replica.note_created(connection)
            self.welcome(connection)

    def found(self, connection: Connection, is_valid: bool) -> None:
        """Whether the session that a client came back with lives is known now."""
        if connection.phase is Phase.CLOSED:
            return
        if is_valid:
            self.welcome(connection)
            return
        refusal = ConnectResponse(0, 0, SessionId(0), _NO_PASSWORD, self._flag(connection))
        self._replica.send(connection, encode_frame(encode(refusal)))
        self._replica.close(connection, "unknown session or wrong password")

    def _flag(self, connection: Connection) -> bool | None:
        return self._replica.is_read_only if connection.wants_read_only_byte else None

    def welcome(self, connection: Connection) -> None:
        """The session is there: answer, then handle what the client has sent since."""
        replica, session_id = self._replica, connection.session_id
        answer = ConnectResponse(
            0,
            connection.timeout_ms,
            session_id,
            session_password(session_id),
            self._flag(connection),
        )
        connection.phase = Phase.OPEN
        replica.throttle.welcomed(connection)
        replica.connections[session_id] = connection
        replica.send(connection, encode_frame(encode(answer)))
        early = [item for item in connection.queue if isinstance(item, bytes)]
        connection.queue.clear()
        replica.handle_all(connection, early)

    def touch(self, connection: Connection) -> bool:
        """A sign of life of a client; False: its session has ended."""
        replica = self._replica
        connection.touched_ms = replica.now_ms
        is_held_up = connection.is_stalled or connection.is_throttled or connection.owes_identity
        connection.free_ms = -1 if is_held_up else replica.now_ms
        tracker = self.local if connection.caller.is_local else replica.sessions
        return tracker.touch(connection.session_id, replica.now_ms)

    def tick(self) -> None:
        """End the local sessions whose clients are silent."""
        for session_id in self.local.expired(self._replica.now_ms):
            self._replica.statistics.expired_sessions += 1
            connection = self._replica.connections.get(session_id)
            if connection is not None:
                self._replica.close(connection, "the session expired")

    def end_local(self, connection: Connection) -> None:
        """A client closes its local session."""
        self.local.forget(connection.session_id)
