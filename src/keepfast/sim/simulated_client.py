"""A simulated client: one session at a time, over the real bytes of the client protocol.

It keeps to what every ZooKeeper client does: one connection, replies in the order of the requests,
pings, another server when one is silent, its watches set again when it is back, and a new session
when its old one has ended. Where clients differ, such as in how they number their requests, is part
of `ClientHabits`. What it asks for is the workload's choice.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from keepfast.sim.agenda import MS, Appointment
from keepfast.sim.ledger import Violation
from keepfast.sim.network import Endpoint, Place, Stream
from keepfast.sim.operations import LASTING, Operation, SessionView, Watch
from keepfast.sim.options import ClientHabits
from keepfast.tree import WatchKind
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    ErrorCode,
    EventType,
    ExistsRequest,
    FrameParser,
    OpCode,
    ReplyHeader,
    ServerId,
    SessionId,
    SetWatches,
    SetWatches2,
    WatcherEvent,
    Xid,
    Zxid,
    codec_of,
    decode_multi_reply,
    decode_reply,
    encode,
    encode_frame,
    encode_int,
    encode_multi_request,
    format_zxid,
)

if TYPE_CHECKING:
    from keepfast.sim.simulated_world import World

_HEADER: Final = codec_of(ReplyHeader)
_HEADER_SIZE: Final = 16
_FIRST_PLACE: Final = 100
_RETRY_MS: Final = 30
# How long a client stays at a server that takes no writes before it looks for another one.
_SEEK_MS: Final = 1000
_NO_BODY: Final = frozenset((OpCode.DELETE, OpCode.CLOSE_SESSION, OpCode.REMOVE_WATCHES))
_MULTIS: Final = frozenset((OpCode.MULTI, OpCode.MULTI_READ))
_ONE_TIME: Final = (WatchKind.DATA, WatchKind.CHILD)
_PING_FRAME: Final = encode_frame(encode_int(Xid.PING) + encode_int(OpCode.PING))


class ClientPhase(Enum):
    """The state of a client's connection."""

    IDLE = "idle"
    DIALLING = "dialling"
    GREETING = "greeting"
    OPEN = "open"


class SimulatedClient:
    """One simulated user of the ensemble, on one session at a time."""

    def __init__(self, world: World, number: int, habits: ClientHabits) -> None:
        self.world = world
        self.number = number
        self.habits = habits
        self.who = f"c{number}"
        self.place: Place = _FIRST_PLACE + number
        self.phase = ClientPhase.IDLE
        self.session: SessionView | None = None
        # Requests that wait for their replies.
        self.outstanding: deque[Operation] = deque()
        # Only these servers are dialled; None: any.
        self.only = None if habits.only_server is None else (ServerId(habits.only_server),)
        # The server of the connection, or of the last one.
        self.server: ServerId | None = None
        # Whether the server of the connection has no leader, and says so.
        self.is_read_only = False
        self.is_stopped = False
        # Its requests come from a schedule only.
        self.is_held = False
        self._rng = random.Random(world.rng.getrandbits(64))
        self._stream: Stream | None = None
        self._frames = FrameParser(1 << 24)
        self._attempt = 0
        self._xid = 0
        self._heard_us = 0
        # Requests to send as soon as there is a connection again.
        self._first_requests: tuple[tuple[OpCode, str, Any], ...] = ()
        self._timeout_ms = world.options.workload.session_timeout_ms
        self._pinger: Appointment | None = None

    # -- connections -----------------------------------------------------------------------------

    def connect(self, server: ServerId | None = None) -> None:
        """Dial a server unless there is a connection; any server if none is named."""
        if self.phase is not ClientPhase.IDLE or self.is_stopped:
            return
        if server is None:
            server = self._rng.choice(self.only or self.world.client_servers())
        self.phase = ClientPhase.DIALLING
        self.server = server
        self._attempt += 1
        attempt = self._attempt
        self.world.network.dial(
            self.place,
            server,
            lambda stream: self.world.accept_client(server, stream),
            lambda stream: self._dialled(attempt, server, stream),
        )
        self.world.agenda.after(self._timeout_ms * MS // 2, lambda: self._give_up(attempt))

    def _give_up(self, attempt: int) -> None:
        if attempt == self._attempt and self.phase in (ClientPhase.DIALLING, ClientPhase.GREETING):
            self._attempt += 1
            self._drop()

    def _dialled(self, attempt: int, server: ServerId, stream: Stream | None) -> Endpoint | None:
        if attempt != self._attempt or self.phase is not ClientPhase.DIALLING:
            return None
        if stream is None:
            self._drop()
            return None
        self._stream = stream
        self._frames = FrameParser(1 << 24)
        self.phase = ClientPhase.GREETING
        session = self.session
        request = ConnectRequest(
            0,
            Zxid(0 if session is None else session.last_zxid),
            self._timeout_ms,
            SessionId(0 if session is None else session.session_id),
            bytes(16) if session is None else session.password,
            self.habits.is_read_only,
        )
        self.world.trace.add(self.who, "greets s%d", server)
        stream.send(0, encode_frame(encode(request)))
        return self

    def _drop(self) -> None:
        """Drop the connection; the outcome of its requests is unknown."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close(0)
        self._disconnected()

    def _disconnected(self) -> None:
        if self.phase is ClientPhase.OPEN:
            self.world.trace.add(self.who, "lost its connection")
        if self.session is not None:
            self.world.checkers.expiry.guarded.discard(self.session.session_id)
            self.session.is_rewatching, self.session.event_zxid = False, 0
        self.phase = ClientPhase.IDLE
        self.outstanding.clear()
        if self._pinger is not None:
            self._pinger.cancel()
            self._pinger = None
        if not self.is_stopped:
            self.world.agenda.after(self._rng.randint(_RETRY_MS, 4 * _RETRY_MS) * MS, self.connect)

    def on_lost(self) -> None:
        """See Endpoint."""
        self._stream = None
        self._attempt += 1
        self._disconnected()

    def move(self, server: ServerId, *requests: tuple[OpCode, str, Any]) -> None:
        """Drop the connection, whatever is under way, and continue at once with a given server.

        `requests` are sent as soon as that server takes the session.
        """
        self.world.trace.add(self.who, "moves to s%d", server)
        self._attempt += 1
        self._drop()
        self._first_requests = requests
        self.connect(server)

    def roam(self, server: ServerId) -> None:
        """Move to a server, which may know less than the last one, and read."""
        self.move(server, (OpCode.EXISTS, "/", ExistsRequest("/", False)))

    def forget_session(self) -> None:
        """Abandon the session and its connection silently; the next one is new."""
        self._session_over("forgets its session")
        self._attempt += 1
        self._drop()

    def leave(self) -> None:
        """Disappear silently: the session has to expire."""
        self.is_stopped = True
        self._attempt += 1
        self._drop()

    # -- packets ---------------------------------------------------------------------------------

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        stream = self._stream
        for payload in self._frames.feed(data):
            self._heard_us = self.world.agenda.now_us
            if self.phase is ClientPhase.GREETING:
                self._welcomed(codec_of(ConnectResponse).decode(payload))
            elif self.phase is ClientPhase.OPEN:
                self._packet(payload)
            if self._stream is not stream:
                return

    def _welcomed(self, response: ConnectResponse) -> None:
        if response.session_id == 0:
            if self.session is not None:
                self.world.checkers.expired(self.session)
            self._session_over("is told that its session has ended")
            self._drop()
            return
        self.phase = ClientPhase.OPEN
        self.is_read_only = bool(response.read_only)
        session = self.session
        if session is None or self.habits.restarts_xids:
            self._xid = 0
        if session is None:
            self.session = session = SessionView(
                self.number, response.session_id, response.timeout_ms, response.password or b""
            )
        if self.is_read_only:
            self._seek_writable()
        self.world.trace.add(self.who, "has session %s", format_zxid(response.session_id))
        self._ping_later()
        if session.watches:
            self._set_watches(session)
        requests, self._first_requests = self._first_requests, ()
        for type_, path, body in requests:
            self.ask(type_, path, body)

    def _seek_writable(self) -> None:
        """Look for a server that takes writes after a while, as clients of this kind do."""
        attempt = self._attempt

        def seek() -> None:
            if attempt == self._attempt and self.phase is ClientPhase.OPEN:
                self._attempt += 1
                self._drop()

        self.world.agenda.after(_SEEK_MS * MS, seek)

    def _session_over(self, why: str) -> None:
        if self.session is not None:
            self.world.trace.add(self.who, why)
            self.session.is_over = True
            self.session = None

    def _set_watches(self, session: SessionView) -> None:
        watches = session.watches.values()
        request = SetWatches(
            Zxid(session.last_zxid),
            tuple(w.path for w in watches if w.kind is WatchKind.DATA and not w.is_exist),
            tuple(w.path for w in watches if w.kind is WatchKind.DATA and w.is_exist),
            tuple(w.path for w in watches if w.kind is WatchKind.CHILD),
        )
        session.is_rewatching = True
        if LASTING.isdisjoint(w.kind for w in watches):
            self._send(Xid.SET_WATCHES, OpCode.SET_WATCHES, encode(request))
            return
        lasting = SetWatches2(
            *request,
            tuple(w.path for w in watches if w.kind is WatchKind.PERSISTENT),
            tuple(w.path for w in watches if w.kind is WatchKind.RECURSIVE),
        )
        self._send(Xid.SET_WATCHES, OpCode.SET_WATCHES2, encode(lasting))

    def _packet(self, payload: bytes) -> None:
        session = self.session
        header = _HEADER.decode(payload[:_HEADER_SIZE])
        checkers = self.world.checkers
        if session is None:
            return
        if header.xid == Xid.EVENT:
            self._event(session, header.zxid, payload)
        elif header.xid == Xid.PING:
            checkers.shown(session, header.zxid)
        elif header.xid == Xid.SET_WATCHES:
            session.is_rewatching = False
            checkers.rewatched(session, header.zxid, header.err)
            for watch in session.watches.values():
                watch.zxid = max(watch.zxid, header.zxid)
            checkers.shown(session, header.zxid)
        else:
            self._reply(session, header, payload)

    def _event(self, session: SessionView, zxid: int, payload: bytes) -> None:
        event = codec_of(WatcherEvent).decode(payload, _HEADER_SIZE)
        kind, path = EventType(event.type), event.path
        self.world.trace.add(self.who, "is told %s %s", kind.name, path)
        is_repeated = session.is_rewatching and kind is EventType.NODE_DELETED
        if not is_repeated or any((each, path) in session.watches for each in _ONE_TIME):
            # A client that was away gets two events for two watches on one deleted znode.
            self.world.checkers.told(session, kind, path, zxid)
        if kind in (EventType.NODE_CHILDREN_CHANGED, EventType.NODE_DELETED):
            session.watches.pop((WatchKind.CHILD, path), None)
        if kind is not EventType.NODE_CHILDREN_CHANGED:
            session.watches.pop((WatchKind.DATA, path), None)

    def _reply(self, session: SessionView, header: ReplyHeader, payload: bytes) -> None:
        if not self.outstanding or self.outstanding[0].xid != header.xid:
            raise Violation(
                "session order", f"{self.who} got the reply to {header.xid} out of order"
            )
        operation = self.outstanding.popleft()
        operation.completed_us = self.world.agenda.now_us
        operation.zxid, operation.error = header.zxid, header.err
        if not header.err and operation.type not in _NO_BODY:
            if operation.type in _MULTIS:
                operation.reply = decode_multi_reply(payload, _HEADER_SIZE)
            else:
                operation.reply = decode_reply(operation.type, payload, _HEADER_SIZE)
        self.world.trace.add(
            self.who, "is answered %s: %#x, error %d", operation, header.zxid, header.err
        )
        self.world.answered(session, operation)
        self._note_watch(session, operation)
        if operation.type is OpCode.CLOSE_SESSION:
            self._session_over("has closed its session")
            self._drop()

    def _note_watch(self, session: SessionView, operation: Operation) -> None:
        kind, path = operation.watch_kind, operation.path
        is_missing = operation.error == ErrorCode.NO_NODE and operation.type is OpCode.EXISTS
        if operation.error and not is_missing:
            return
        for each in operation.removed_kinds:
            session.watches.pop((each, path), None)
        if kind is not None and (kind not in LASTING or (kind, path) not in session.watches):
            session.watches[kind, path] = Watch(kind, path, operation.zxid, is_missing)

    # -- requests --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self.phase is ClientPhase.OPEN

    def ask(self, type_: OpCode, path: str, request: Any) -> Operation | None:
        """Send a request; None if there is no connection."""
        session = self.session
        if self.phase is not ClientPhase.OPEN or session is None:
            return None
        self._xid += 1
        world = self.world
        operation = Operation(
            self.number,
            session.session_id,
            self._xid,
            type_,
            path,
            request,
            world.agenda.now_us,
            world.floor_zxid,
            is_read_only=self.is_read_only,
        )
        world.trace.add(self.who, "asks %s", operation)
        self.outstanding.append(operation)
        if request is None:
            body = b""
        elif type_ in _MULTIS:
            body = encode_multi_request(request)
        else:
            body = encode(request)
        self._send(self._xid, type_, body)
        return operation

    def _send(self, xid: int, type_: int, body: bytes) -> None:
        if self._stream is not None:
            self._stream.send(0, encode_frame(encode_int(xid) + encode_int(type_) + body))

    def _ping_later(self) -> None:
        attempt = self._attempt
        self._pinger = self.world.agenda.after(
            self._timeout_ms * MS // 3, lambda: self._ping(attempt)
        )

    def _ping(self, attempt: int) -> None:
        if attempt != self._attempt or self.phase is not ClientPhase.OPEN or self._stream is None:
            return
        if self.world.agenda.now_us - self._heard_us > self._timeout_ms * MS * 2 // 3:
            self.world.trace.add(self.who, "hears nothing")
            self._attempt += 1
            self._drop()
            return
        self._stream.send(0, _PING_FRAME)
        self._ping_later()
