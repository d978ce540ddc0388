"""A session that a scenario keeps, and writes that it does not wait for.

An ordinary client opens a session, which is a txn, and waits for answers. Some failures need a
write without either: the session is opened once, in the beginning, and taken up again on whatever
server is to get the write.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from keepfast.client import ServerAddress
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    FrameParser,
    OpCode,
    SessionId,
    SetDataRequest,
    Zxid,
    codec_of,
    encode,
    encode_frame,
    encode_int,
)

_TIMEOUT_SECONDS: Final = 30.0
_UNDER_WAY: Final = 100
# Sessions outlive every pause of a scenario: one that expired would add a txn of its own.
SESSION_MS: Final = 600_000


class RawSession:
    """One session, connected to one server at a time; OSError where a server does not answer."""

    def __init__(self) -> None:
        self._session_id = SessionId(0)
        self._password = bytes(16)
        self._socket: socket.socket | None = None
        self._frames = FrameParser(1 << 20)

    def connect(self, address: ServerAddress) -> None:
        """Open the session, or take it up again, on a server."""
        self.drop()
        self._socket = connection = socket.create_connection(address, _TIMEOUT_SECONDS)
        request = ConnectRequest(0, Zxid(0), SESSION_MS, self._session_id, self._password, False)
        connection.sendall(encode_frame(encode(request)))
        self._frames = FrameParser(1 << 20)
        answer = codec_of(ConnectResponse).decode(self._receive(connection, 1)[0])
        if not answer.session_id:
            raise ConnectionResetError(f"{address} says that the session has ended")
        self._session_id, self._password = answer.session_id, answer.password or bytes(16)

    def set_data(self, path: str, value: bytes) -> None:
        """Ask for a write, and do not wait for the answer."""
        self._connected().sendall(_set_data(path, value))

    def set_all(self, path: str, values: Sequence[bytes]) -> None:
        """Write values one after the other, many under way at once; wait for all answers."""
        connection = self._connected()
        for first in range(0, len(values), _UNDER_WAY):
            some = values[first : first + _UNDER_WAY]
            connection.sendall(b"".join(_set_data(path, value) for value in some))
            self._receive(connection, len(some))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError("not connected")
        return self._socket

    def _receive(self, connection: socket.socket, count: int) -> list[bytes]:
        """So many answers."""
        payloads: list[bytes] = []
        while len(payloads) < count:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            payloads.extend(self._frames.feed(data))
        return payloads

    def drop(self) -> None:
        """Leave the server; the session survives."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _set_data(path: str, value: bytes) -> bytes:
    body = encode(SetDataRequest(path, value, -1))
    return encode_frame(encode_int(1) + encode_int(OpCode.SET_DATA) + body)
