"""A server of a few lines, which does what a test tells it: answer, be silent, hang up.

It speaks the protocol through the wire package, as the client does; what the real protocol is, the
tests against a real server say.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    FrameParser,
    OpCode,
    RequestHeader,
    SessionId,
    Xid,
    decode,
    encode,
    encode_frame,
    encode_reply,
)

_HEADER_SIZE = 8
SESSION = SessionId(0x1234)
PASSWORD = bytes(range(16))

# Gets (type, body of the request); gives (error, body of the reply), or None for silence.
Answer = Callable[[int, bytes], tuple[int, bytes] | None]


class FakeServer:
    """Listens on a free port of the loopback address; one thread a connection."""

    def __init__(self, answer: Answer | None = None, timeout_ms: int = 60_000) -> None:
        self.answer: Answer = answer or (lambda type, body: (0, b""))
        #: None: hang up at the handshake. A session id of 0 is put in by the client's request.
        self.response: ConnectResponse | None = ConnectResponse(
            0, timeout_ms, SESSION, PASSWORD, False
        )
        self.handshakes: list[ConnectRequest] = []
        # All but the pings.
        self.requests: list[tuple[int, int, bytes]] = []
        self.zxid = 100
        self.answers_pings = True
        # Of each connection so far.
        self.pings: list[int] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._is_closed = False

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def types(self) -> list[int]:
        """The types of all requests so far, pings left out."""
        return [type for _, type, _ in list(self.requests)]

    def send(self, frame: bytes) -> None:
        """Send a whole frame on every open connection."""
        for connection in list(self._connections):
            connection.sendall(frame)

    def drop(self) -> None:
        """Hang up on everyone."""
        while self._connections:
            connection = self._connections.pop()
            # Only that: the thread that reads from it closes it. The client may be gone already.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closed = True
        # Closing alone does not wake a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        self._thread.join()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.pings.append(0)
            place = len(self.pings) - 1
            threading.Thread(target=self._serve, args=(connection, place), daemon=True).start()

    def _serve(self, connection: socket.socket, place: int) -> None:
        parser = FrameParser()
        is_new = True
        with connection:
            try:
                while data := connection.recv(1 << 16):
                    for payload in parser.feed(data):
                        if not is_new:
                            self._take(connection, payload, place)
                        elif not self._greet(connection, payload):
                            return
                        is_new = False
            except OSError:
                # The test, or the client, hung up.
                return
            finally:
                # `drop` may take it at the same moment.
                with suppress(ValueError):
                    self._connections.remove(connection)

    def _greet(self, connection: socket.socket, payload: bytes) -> bool:
        self.handshakes.append(decode(ConnectRequest, payload))
        if self.response is None:
            return False
        self._connections.append(connection)
        connection.sendall(encode_frame(encode(self.response)))
        return self.response.timeout_ms > 0

    def _take(self, connection: socket.socket, payload: bytes, place: int) -> None:
        xid, type = decode(RequestHeader, payload)
        body = payload[_HEADER_SIZE:]
        if type == OpCode.PING:
            self.pings[place] += 1
            if self.answers_pings:
                connection.sendall(encode_reply(Xid.PING, self.zxid, 0))
            return
        self.requests.append((xid, type, body))
        answer = self.answer(type, body)
        if answer is not None:
            err, reply = answer
            connection.sendall(encode_reply(xid, self.zxid, err, reply))
        if type == OpCode.CLOSE_SESSION:
            connection.shutdown(socket.SHUT_RDWR)


def eventually(condition: Callable[[], bool], timeout: float = 60) -> bool:
    """Whether `condition` comes true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
