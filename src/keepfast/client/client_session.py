"""One session: a thread that connects, reconnects, pings, sends requests and hands out replies.

    CONNECTING --handshake--> CONNECTED or CONNECTED_READ_ONLY --connection lost--> CONNECTING
    any of them --closed by us, or the server says expired--> CLOSED
    any of them --authentication refused--> AUTH_FAILED

The thread alone touches the connection. Callers put requests into a queue and wait; a socket pair
wakes the thread. A request that was sent and not answered when the connection breaks fails with
CONNECTION_LOSS and is never sent again: whether the server did it is not known. One that was not
sent yet waits for the next connection, and fails when no server could be reached.

Events are handed to the callback by this thread, in the order of the wire and before the reply to
any later request. The callback must therefore be fast and must not call the client.

Limits: every caller waits for its one request, so that the number of callers bounds the queue.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from keepfast.client.client_connection import ServerConnection
from keepfast.client.client_errors import OperationFailed, error_code
from keepfast.client.client_events import ClientEvent, ClientState
from keepfast.client.client_options import ClientOptions
from keepfast.client.client_watches import ClientWatchTable
from keepfast.client.hosts import ServerAddress
from keepfast.wire import (
    AuthPacket,
    ConnectRequest,
    ErrorCode,
    EventType,
    KeeperState,
    MalformedRecord,
    OpCode,
    ReplyHeader,
    RequestHeader,
    SessionId,
    WatcherEvent,
    Xid,
    Zxid,
    codec_of,
    encode,
    invariant,
)

_HEADER: Final = codec_of(ReplyHeader)
_HEADER_SIZE: Final = 16
_EVENT: Final = codec_of(WatcherEvent)
_NO_PASSWORD: Final = bytes(16)
# Between two rounds over all servers; doubled up to the second figure.
_FIRST_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 2.0
_MAX_PING_INTERVAL_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 2.0
_LAST_XID: Final = 0x7FFFFFFF


class Pending:
    """A request on its way. `on_reply` is called by the session's thread with the error code."""

    __slots__ = ("body", "done", "error", "on_reply", "reply", "type", "xid")

    def __init__(
        self, type: int, body: bytes, on_reply: Callable[[int], None] | None = None, xid: int = 0
    ) -> None:
        self.type = type
        self.body = body
        self.on_reply = on_reply
        # 0 until it is sent, unless the operation has an xid of its own.
        self.xid = xid
        self.done = threading.Event()
        self.reply = b""
        self.error = ErrorCode.OK

    def finish(self, error: ErrorCode, reply: bytes = b"") -> None:
        self.error = error
        self.reply = reply
        self.done.set()


class Session:
    """A session with whichever of `addresses` answers; tried in the order given, then round."""

    def __init__(
        self,
        addresses: Sequence[ServerAddress],
        options: ClientOptions,
        on_event: Callable[[ClientEvent], None],
        to_client_path: Callable[[str], str],
    ) -> None:
        self.options = options
        self.watches = ClientWatchTable()
        self.state = ClientState.CONNECTING
        self.session_id = SessionId(0)
        self.timeout_ms = options.session_timeout_ms
        self.last_zxid = Zxid(0)
        self.server: ServerAddress | None = None
        #: Why each server could not be used in the last round, as text.
        self.failures: dict[ServerAddress, str] = {}
        self._addresses = addresses
        self._on_event = on_event
        self._to_client_path = to_client_path
        self._next_address = 0
        self._password = _NO_PASSWORD
        self._has_met_a_quorum = False
        # Whether the event of the present state was handed out.
        self._is_state_notified = False
        self._auths = [AuthPacket(0, scheme, secret) for scheme, secret in options.credentials]
        self._changed = threading.Condition()
        self._rounds_failed = 0
        self._is_stopping = False
        self._waiting: deque[Pending] = deque()
        self._in_flight: dict[int, Pending] = {}
        self._auths_in_flight: deque[Pending] = deque()
        # Frames that set the watches again, until the credentials of this connection are answered.
        self._restoring: list[bytes] = []
        self._next_xid = 1
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="keepfast-session", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_connected(self, timeout_s: float, *, is_patient: bool) -> bool:
        """Wait for a connection; unless patient, no longer than one round over all servers.

        Its event was handed out then: what the caller prints next is not mixed with it.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            round_ = self._rounds_failed
            while self.state is ClientState.CONNECTING or (
                self.state.is_connected and not self._is_state_notified
            ):
                left = deadline - time.monotonic()
                if left <= 0 or (not is_patient and self._rounds_failed > round_):
                    break
                self._changed.wait(left)
            return self.state.is_connected

    def call(
        self, pending: Pending, path: str | None = None, timeout_s: float | None = None
    ) -> bytes:
        """Send a request and wait for its reply; its body, or OperationFailed about `path`."""
        invariant(
            threading.current_thread() is not self._thread,
            "an operation inside an event's callback would wait for itself",
        )
        self._submit(pending)
        try:
            is_done = pending.done.wait(timeout_s or self.options.operation_timeout_s)
        except BaseException:
            # Ctrl-C, most likely.
            self._withdraw(pending)
            raise
        if not is_done:
            self._withdraw(pending)
            raise OperationFailed(ErrorCode.REQUEST_TIMEOUT, path)
        if pending.error is not ErrorCode.OK:
            is_lost = pending.error is ErrorCode.CONNECTION_LOSS
            raise OperationFailed(pending.error, path, self.explain() if is_lost else "")
        return pending.reply

    def authenticate(self, packet: AuthPacket) -> None:
        """Present a credential, now and at every reconnection."""
        body = encode(packet)

        def remember(err: int) -> None:
            if err == 0:
                self._auths.append(packet)

        self.call(Pending(OpCode.AUTH, body, remember, Xid.AUTH))

    def close(self) -> None:
        """End the session, so that its ephemerals go now and not after the timeout."""
        if not self._thread.ident:
            self._wake_reader.close()
            self._wake_writer.close()
            return

        def stop(_: int) -> None:
            # In the session's thread, with the reply: the server hangs up right after it, and
            # that must not be taken for a lost connection.
            self._is_stopping = True

        if self.state.is_connected:
            try:
                request = Pending(OpCode.CLOSE_SESSION, b"", stop)
                self.call(request, timeout_s=_CLOSE_TIMEOUT_S)
            except OperationFailed:
                # The connection broke: the session ends by its timeout. Nothing more can be done.
                pass
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._wake()
        # The thread may sit in a connection attempt; it is a daemon, and ends when that does.
        self._thread.join(_CLOSE_TIMEOUT_S)

    # What follows runs in the callers' threads and only touches the queue.

    def _submit(self, pending: Pending) -> None:
        with self._changed:
            if self._is_stopping or not self.state.is_alive:
                pending.finish(self._final_error())
                return
            self._waiting.append(pending)
            self._changed.notify_all()
        self._wake()

    def _withdraw(self, pending: Pending) -> None:
        """Give up a request: what was not sent yet must not be sent behind the caller's back."""
        with self._changed:
            if pending in self._waiting:
                self._waiting.remove(pending)

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"x")
        except (BlockingIOError, OSError):
            # Full: it will wake anyway. Closed: there is nobody to wake.
            pass

    def _final_error(self) -> ErrorCode:
        if self.state is ClientState.AUTH_FAILED:
            return ErrorCode.AUTH_FAILED
        return ErrorCode.SESSION_EXPIRED

    def explain(self) -> str:
        """Why there is no connection; "" if nothing is known."""
        if len(self._addresses) == 1:
            return "; ".join(self.failures.values())
        return "; ".join(f"{address}: {reason}" for address, reason in self.failures.items())

    # What follows runs in the session's thread.

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while not self._is_stopping and self.state.is_alive:
                connection = self._connect_round()
                if connection is None:
                    self._pause(pause_s)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)
                    continue
                started = time.monotonic()
                self._converse(connection)
                # A server that drops every connection at once must not be called in a tight loop.
                if time.monotonic() - started > _MAX_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                elif not self._is_stopping:
                    self._pause(pause_s)
        finally:
            was_alive = self.state.is_alive
            if was_alive:
                self._become(ClientState.CLOSED)
            self._fail(self._final_error(), also_unsent=True)
            self._wake_reader.close()
            self._wake_writer.close()
            if was_alive:
                self._notify_state(KeeperState.CLOSED)

    def _connect_round(self) -> ServerConnection | None:
        """Try every server once, beginning after the last one that was tried."""
        failures: dict[ServerAddress, str] = {}
        for _ in self._addresses:
            if self._is_stopping:
                return None
            address = self._addresses[self._next_address % len(self._addresses)]
            self._next_address += 1
            try:
                connection = ServerConnection(address, self._connect_request(), self.options)
            except (OSError, MalformedRecord) as error:
                failures[address] = _reason(error)
                continue
            if self._accept(connection):
                return connection
            return None
        with self._changed:
            self.failures = failures
            self._rounds_failed += 1
            self._changed.notify_all()
        self._fail(ErrorCode.CONNECTION_LOSS, also_unsent=True)
        return None

    def _connect_request(self) -> ConnectRequest:
        # A session that a read-only server opened is known to that server alone: asking another for
        # it would only bring the answer that it has expired.
        is_known = self._has_met_a_quorum
        return ConnectRequest(
            0,
            self.last_zxid,
            self.options.session_timeout_ms,
            self.session_id if is_known else SessionId(0),
            self._password if is_known else _NO_PASSWORD,
            self.options.read_only,
        )

    def _accept(self, connection: ServerConnection) -> bool:
        """Take the server's answer to the handshake; False if the session is gone."""
        response = connection.response
        if response.timeout_ms <= 0:
            connection.close()
            self._become(ClientState.CLOSED)
            self._fail(ErrorCode.SESSION_EXPIRED, also_unsent=True)
            self._notify_state(KeeperState.EXPIRED)
            return False
        self.session_id = response.session_id
        self._password = response.password or _NO_PASSWORD
        self.timeout_ms = response.timeout_ms
        self.server = connection.address
        self.failures = {}
        # Before anything that was asked for: the server must know who asks, and watches that are
        # set again must not miss a change that one of the requests makes.
        for packet in self._auths:
            self._auths_in_flight.append(Pending(OpCode.AUTH, b"", None, Xid.AUTH))
            connection.send(_frame(Xid.AUTH, OpCode.AUTH, encode(packet)))
        self._restoring = [
            _frame(Xid.SET_WATCHES, type, encode(request))
            for type, request in self.watches.restoring_requests(self.last_zxid)
        ]
        if response.read_only:
            self._become(ClientState.CONNECTED_READ_ONLY)
            self._notify_state(KeeperState.CONNECTED_READ_ONLY)
        else:
            self._has_met_a_quorum = True
            self._become(ClientState.CONNECTED)
            self._notify_state(KeeperState.SYNC_CONNECTED)
        return True

    def _converse(self, connection: ServerConnection) -> None:
        """Send and receive until the connection ends, for whatever reason."""
        reason = "closed"
        try:
            self._exchange(connection)
        except (OSError, MalformedRecord) as error:
            reason = _reason(error)
        finally:
            connection.close()
        self.failures = {connection.address: reason}
        if self.state.is_alive:
            if not self._is_stopping:
                self._become(ClientState.CONNECTING)
            self._fail(ErrorCode.CONNECTION_LOSS, also_unsent=False)
            if not self._is_stopping:
                self._notify_state(KeeperState.DISCONNECTED)
        else:
            self._fail(self._final_error(), also_unsent=True)

    def _exchange(self, connection: ServerConnection) -> None:
        read_timeout_s = self.timeout_ms / 1000 * 2 / 3
        ping_interval_s = min(read_timeout_s / 2, _MAX_PING_INTERVAL_S)
        last_heard = last_sent = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_reader, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            while self.state.is_alive and not self._is_stopping:
                now = time.monotonic()
                if now - last_heard > read_timeout_s:
                    raise TimeoutError(f"nothing heard for {read_timeout_s:.1f} s")
                if self._send_waiting(connection):
                    last_sent = now
                elif now - last_sent >= ping_interval_s:
                    connection.send(_frame(Xid.PING, OpCode.PING, b""))
                    last_sent = now
                connection.flush()
                wanted = selectors.EVENT_READ
                if connection.has_unsent:
                    wanted |= selectors.EVENT_WRITE
                selector.modify(connection, wanted)
                due = min(last_heard + read_timeout_s, last_sent + ping_interval_s)
                ready = {key.fileobj for key, _ in selector.select(max(due - now, 0.001))}
                if self._wake_reader in ready:
                    self._wake_reader.recv(1 << 12)
                if connection in ready:
                    for payload in connection.receive():
                        last_heard = time.monotonic()
                        self._take(payload)

    def _send_waiting(self, connection: ServerConnection) -> bool:
        if self._auths_in_flight:
            # A server that refuses a credential answers and hangs up. What it was sent meanwhile
            # would reset the connection, and the refusal would be taken for a lost connection.
            return False
        has_sent = bool(self._restoring)
        for frame in self._restoring:
            connection.send(frame)
        self._restoring = []
        while not self._auths_in_flight:
            with self._changed:
                if not self._waiting:
                    return has_sent
                pending = self._waiting.popleft()
            if pending.xid == Xid.AUTH:
                self._auths_in_flight.append(pending)
            else:
                pending.xid = self._next_xid
                self._next_xid = self._next_xid % _LAST_XID + 1
                self._in_flight[pending.xid] = pending
            connection.send(_frame(pending.xid, pending.type, pending.body))
            has_sent = True
        return has_sent

    def _take(self, payload: bytes) -> None:
        header = _HEADER.decode(payload)
        if header.xid in (Xid.PING, Xid.SET_WATCHES):
            return
        if header.xid == Xid.EVENT:
            self._take_event(payload, header.zxid)
            return
        if header.xid == Xid.AUTH:
            # Answered out of turn: a server does not queue authentication behind requests.
            pending = self._auths_in_flight.popleft() if self._auths_in_flight else None
        else:
            pending = self._in_flight.pop(header.xid, None)
        if pending is None:
            raise MalformedRecord(f"a reply to request {header.xid}, which was not sent", 0)
        if header.zxid > 0:
            self.last_zxid = header.zxid
        if pending.on_reply is not None:
            pending.on_reply(header.err)
        if header.xid == Xid.AUTH and header.err != 0:
            self._become(ClientState.AUTH_FAILED)
            pending.finish(ErrorCode.AUTH_FAILED)
            self._notify_state(KeeperState.AUTH_FAILED)
        else:
            pending.finish(error_code(header.err), payload[_HEADER_SIZE:])

    def _take_event(self, payload: bytes, zxid: int) -> None:
        event = _EVENT.decode(payload, _HEADER_SIZE)
        try:
            type, state = EventType(event.type), KeeperState(event.state)
        except ValueError as error:
            raise MalformedRecord(f"unknown event: {error}", _HEADER_SIZE) from error
        if self.watches.trigger(type, event.path):
            self.notify(ClientEvent(type, state, self._to_client_path(event.path), zxid))

    def _fail(self, error: ErrorCode, *, also_unsent: bool) -> None:
        lost = [*self._in_flight.values(), *self._auths_in_flight]
        self._in_flight.clear()
        self._auths_in_flight.clear()
        if also_unsent:
            with self._changed:
                lost += self._waiting
                self._waiting.clear()
        for pending in lost:
            if pending.on_reply is not None:
                pending.on_reply(error)
            pending.finish(error)

    def _become(self, state: ClientState) -> None:
        with self._changed:
            self.state = state
            self._is_state_notified = False
            self._changed.notify_all()

    def notify(self, event: ClientEvent) -> None:
        """Hand out an event; only in this thread, as `on_reply` does."""
        self._on_event(event)

    def _notify_state(self, state: KeeperState) -> None:
        self.notify(ClientEvent(EventType.NONE, state))
        with self._changed:
            self._is_state_notified = True
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            # A new request triggers the next attempt: its caller wants to know now.
            while not self._is_stopping and not self._waiting and self.state.is_alive:
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)


def _frame(xid: int, type: int, body: bytes) -> bytes:
    return encode(RequestHeader(xid, type)) + body


def _reason(error: OSError | MalformedRecord) -> str:
    if isinstance(error, TimeoutError) and not error.args:
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
