"""From a connection to a session: new ones, resumed ones, and local ones.

A session is global unless local sessions are on, or the server is read-only: then it is known to
this server alone, costs no txn, and ends with this server's role. A local session that creates an
ephemeral becomes a global one first, if that is allowed (`upgrade`).

A leader that was deposed may not know it, and then a session that it does not know may live under
its successor. So before a client is told that its session has ended, a quorum confirms that the
server still leads (R15); an unconfirmed leader does not answer until its role ends.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from keepfast.quorum import Confirmations
from keepfast.replica.connection import Connection, Phase
from keepfast.replica.forwarder import Forwarder
from keepfast.replica.proposer import Proposer
from keepfast.replica.service import Service
from keepfast.replica.sessions import MAX_EXPIRED, SessionTracker, first_session_id
from keepfast.replica.throttle import ConnectionThrottle
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    CreateSessionTxn,
    MalformedRecord,
    OpCode,
    SessionId,
    codec_of,
    encode,
    encode_frame,
)

_NO_PASSWORD: Final = bytes(16)
_CREATE_SESSION: Final = OpCode.CREATE_SESSION.value


class Handshake:
    """Handles the connect requests of one server."""

    def __init__(self, service: Service, throttle: ConnectionThrottle) -> None:
        self._service = service
        self._throttle = throttle
        # What creates global sessions: at most one of the two exists, for the duration of a role.
        self.proposer: Proposer | None = None
        self.forwarder: Forwarder | None = None
        self._next_session = first_session_id(service.options.server_id, service.wall_ms)
        # Local sessions.
        self.local = SessionTracker(service.options.tick_ms)
        # Those of them that become global ones: the txn that creates them is on its way.
        self._upgrading: set[int] = set()
        # Asks the others whether this server still leads; None: it is alone, or does not lead.
        self.confirmations: Confirmations | None = None
        # Clients of sessions that a leader does not know, and the round that each waits for.
        self._unknown: deque[tuple[int, Connection]] = deque()

    def greet(self, connection: Connection, payloads: list[bytes]) -> list[bytes]:
        """Handle the frames before the session is there; returns those that can be handled now."""
        service = self._service
        if connection.phase is Phase.NEW:
            service.greeted[connection] = None
            service.statistics.received += 1
            connection.received += 1
            try:
                request = codec_of(ConnectRequest).decode(payloads.pop(0))
            except MalformedRecord as error:
                service.close(connection, f"not a connect request: {error}")
                return []
            self._connect(connection, request)
        if connection.phase is Phase.CONNECTING:
            # A client may send requests before it knows its session.
            connection.queue.extend(payloads)
            return []
        return payloads if connection.phase is Phase.OPEN else []

    def _connect(self, connection: Connection, request: ConnectRequest) -> None:
        service = self._service
        throttle = self._throttle
        if not throttle.admits(service.now_ms, is_new=request.session_id == 0):
            service.statistics.throttle_refusals += 1
            service.close(connection, "too many connections at once")
            return
        service.statistics.token_deficit.add(throttle.deficit)
        service.statistics.connects += 1
        connection.wants_read_only_byte = request.read_only is not None
        if service.is_read_only and not request.read_only:
            service.close(connection, "this server is read-only, and its client is not")
            return
        if request.last_zxid_seen > service.last_zxid:
            service.close(
                connection,
                f"client has seen zxid {request.last_zxid_seen:#x}, "
                f"our last is {service.last_zxid:#x}: it must try another server",
            )
            return
        options = service.options
        timeout_ms = min(
            max(request.timeout_ms, options.min_session_timeout_ms), options.max_session_timeout_ms
        )
        session_id = request.session_id
        if session_id:
            self._reconnect(connection, session_id, timeout_ms, request.password)
        elif not service.is_writable:
            service.close(connection, "no new session while the disk is full")
        else:
            session_id = self._new_id()
            connection.phase = Phase.CONNECTING
            connection.identify(session_id, timeout_ms)
            if service.is_read_only or options.has_local_sessions:
                self.local.track(session_id, timeout_ms, service.now_ms)
                connection.caller = connection.caller._replace(is_local=True)
                self.welcome(connection)
            else:
                self._create_session(connection)

    def _reconnect(
        self, connection: Connection, session_id: SessionId, timeout_ms: int, password: bytes | None
    ) -> None:
        service = self._service
        service.statistics.revalidations += 1
        connection.identify(session_id, timeout_ms)
        if not service.passwords.admits(session_id, password):
            self.found(connection, is_valid=False)
            return
        earlier = service.connections.get(session_id)
        if earlier is not None:
            service.close(earlier, "its client has connected again")
        if session_id in self.local:
            self.local.track(session_id, timeout_ms, service.now_ms)
            is_local = session_id not in self._upgrading
            connection.caller = connection.caller._replace(is_local=is_local)
            self.found(connection, is_valid=True)
        elif self.proposer is not None:
            ending = self.proposer.ending.get(session_id)
            if ending is not None:
                # Its end may still be undone: nobody is notified of it before it is committed.
                connection.phase = Phase.CONNECTING
                ending.append(connection)
                return
            if self.proposer.revalidate(session_id, timeout_ms, service.server_id):
                self.found(connection, is_valid=True)
                return
            connection.phase = Phase.CONNECTING
            round_ = 0 if self.confirmations is None else self.confirmations.ask()
            self._unknown.append((round_, connection))
            self.release()
        elif self.forwarder is not None:
            # Also for a session that is not known here: it may be newer than what we have.
            connection.phase = Phase.CONNECTING
            self.forwarder.revalidate(connection)
        elif session_id in service.sessions:
            self.found(connection, is_valid=True)
        else:
            service.close(connection, "whether its session is alive cannot be known now")

    def release(self) -> None:
        """Answer clients with unknown sessions, once a quorum confirms that we lead."""
        confirmed = 0 if self.confirmations is None else self.confirmations.last
        while self._unknown and self._unknown[0][0] <= confirmed:
            self.found(self._unknown.popleft()[1], is_valid=False)

    def _new_id(self) -> SessionId:
        """An id that no session ever had."""
        service, passwords = self._service, self._service.passwords
        if passwords.secret and passwords.is_older(self._next_session):
            # A secret that came into use while this server was running: use it from then on.
            later = first_session_id(service.options.server_id, service.wall_ms)
            if not passwords.is_older(later):
                self._next_session = later
        session_id = SessionId(self._next_session)
        self._next_session += 1
        return session_id

    def _create_session(self, connection: Connection) -> None:
        service = self._service
        timeout = CreateSessionTxn(connection.timeout_ms)
        if self.proposer is not None:
            self.proposer.owners[connection.session_id] = service.server_id
            self.proposer.propose(connection.caller, 0, _CREATE_SESSION, timeout, connection)
        elif self.forwarder is not None:
            self.forwarder.create_session(connection)

    def upgrade(self, connection: Connection) -> None:
        """Make a local session a global one; what its client asks for next comes after that.

        Until the txn is applied, nobody but this server knows that its client lives.
        """
        self._upgrading.add(connection.session_id)
        connection.caller = connection.caller._replace(is_local=False)
        self._create_session(connection)

    def created(self, session_id: int, connection: Connection | None) -> None:
        """A session was created by a txn."""
        if session_id in self._upgrading:
            self._upgrading.discard(session_id)
            self.local.forget(session_id)
            self._service.sessions.touch(session_id, self._service.now_ms)
            if connection is not None:
                connection.free_until = -1  # the other tracker may want to hear of it more often
        if connection is not None and connection.phase is Phase.CONNECTING:
            updates = self._service.statistics.updates
            self._service.note(updates, connection, _CREATE_SESSION, 0, connection.opened_ms)
            self.welcome(connection)

    def found(self, connection: Connection, is_valid: bool) -> None:
        """Whether the session that a client came back with lives is known now."""
        if connection.phase is Phase.CLOSED:
            return
        if is_valid:
            self.welcome(connection)
            return
        refusal = ConnectResponse(0, 0, SessionId(0), _NO_PASSWORD, self._flag(connection))
        self._service.send(connection, encode_frame(encode(refusal)))
        self._service.close(connection, "unknown session or wrong password")

    def _flag(self, connection: Connection) -> bool | None:
        return self._service.is_read_only if connection.wants_read_only_byte else None

    def welcome(self, connection: Connection) -> None:
        """The session exists: reply; what the client has sent since can be handled now."""
        service, session_id = self._service, connection.session_id
        answer = ConnectResponse(
            0,
            connection.timeout_ms,
            session_id,
            self._service.passwords.of(session_id),
            self._flag(connection),
        )
        connection.phase = Phase.OPEN
        service.strangers.pop(connection, None)
        service.connections[session_id] = connection
        service.send(connection, encode_frame(encode(answer)))
        early = [item for item in connection.queue if isinstance(item, bytes)]
        connection.queue.clear()
        if early:
            service.ready.append((connection, early))

    def touch(self, connection: Connection) -> bool:
        """A sign of life of a client; False: its session has ended."""
        service, session_id = self._service, connection.session_id
        tracker = self.local if session_id in self.local else service.sessions
        until = tracker.touch(session_id, service.now_ms)
        is_free = not (connection.is_held_up or connection.owes_identity)
        connection.free_until = until if is_free else -1
        return until >= 0

    def tick(self) -> None:
        """End the local sessions whose clients are silent."""
        for session_id in self.local.expired(self._service.now_ms, MAX_EXPIRED):
            self._service.statistics.expired_sessions += 1
            connection = self._service.connections.get(session_id)
            if connection is not None:
                self._service.close(connection, "the session expired")

    def end_role(self) -> None:
        """The role ends: who comes back with a local session is told that it has ended."""
        self.proposer = self.forwarder = self.confirmations = None
        self.local = SessionTracker(self._service.options.tick_ms)
        self._upgrading.clear()
        self._unknown.clear()

    def end_local(self, connection: Connection) -> None:
        """A client closes its local session."""
        self.local.forget(connection.session_id)
