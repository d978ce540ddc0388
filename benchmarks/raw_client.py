"""A client that is nothing but a socket: what it is given goes out, replies come in order."""

import socket
from collections.abc import Iterable
from struct import Struct
from typing import Self

from keepfast.wire import ConnectRequest, OpCode, SessionId, Zxid, encode

_INT = Struct(">i")
_REPLY = Struct(">iqi")
_CONNECTED = Struct(">iiq")
_PASSWORD_BYTES = 16
_EVENT = -1


class RawClient:
    """One connection and its session; blocking."""

    def __init__(
        self, port: int, timeout_ms: int = 30_000, back_to: tuple[SessionId, bytes] | None = None
    ) -> None:
        """`back_to`: the session and the password of an earlier connection."""
        session_id, password = back_to or (SessionId(0), bytes(_PASSWORD_BYTES))
        self._socket = socket.create_connection(("127.0.0.1", port), 120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._xid = 0
        hello = encode(ConnectRequest(0, Zxid(0), timeout_ms, session_id, password, False))
        self._socket.sendall(_INT.pack(len(hello)) + hello)
        welcome = self.frame()
        _, timeout, self.session_id = _CONNECTED.unpack_from(welcome)
        if not timeout:
            raise SystemExit("a server does not know a session that it gave out")
        start = _CONNECTED.size + _INT.size
        self.password = welcome[start : start + _PASSWORD_BYTES]

    def send(self, op: OpCode, *bodies: bytes) -> None:
        """Send requests of one kind, and wait for nothing."""
        frames = []
        for body in bodies:
            self._xid += 1
            payload = _INT.pack(self._xid) + _INT.pack(op.value) + body
            frames.append(_INT.pack(len(payload)) + payload)
        self._socket.sendall(b"".join(frames))

    def replies(self, count: int = 1) -> int:
        """Take this many replies; gives their bytes. One that says no ends the measurement."""
        size = 0
        while count:
            frame = self.frame()
            xid, _, error = _REPLY.unpack_from(frame)
            if error:
                raise SystemExit(f"a request failed: {error}")
            if xid != _EVENT:
                count -= 1
            size += len(frame)
        return size

    def do(self, op: OpCode, *bodies: bytes) -> int:
        """Send requests and take their replies."""
        self.send(op, *bodies)
        return self.replies(len(bodies))

    def frame(self) -> bytes:
        """The next frame."""
        return self._exactly(_INT.unpack(self._exactly(_INT.size))[0])

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            piece = self._socket.recv(min(size - len(parts), 1 << 20))
            if not piece:
                raise SystemExit("a server closed a connection")
            parts += piece
        return bytes(parts)

    def drop(self) -> None:
        """End the connection; the session survives."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


def in_pieces(client: RawClient, op: OpCode, bodies: Iterable[bytes], depth: int = 500) -> None:
    """Many requests of one kind, some in flight at a time."""
    waiting: list[bytes] = []
    for body in bodies:
        waiting.append(body)
        if len(waiting) == depth:
            client.do(op, *waiting)
            waiting.clear()
    if waiting:
        client.do(op, *waiting)
