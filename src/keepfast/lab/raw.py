"""A session that a scenario keeps, and writes that it does not wait for.

An ordinary client opens a session, which is a txn, and waits for answers. Some failures need a
write without either: the session is opened once, in the beginning, and taken up again on whatever
server is to get the write.
"""

from __future__ import annotations

import socket
from typing import Final

from keepfast.client import Address
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
# Sessions outlive every pause of a scenario: one that expired would add a txn of its own.
SESSION_MS: Final = 600_000


class RawSession:
    """One session, connected to one server at a time; OSError where a server does not answer."""

    def __init__(self) -> None:
        self._session_id = SessionId(0)
        self._password = bytes(16)
        self._socket: socket.socket | None = None

    def connect(self, address: Address) -> None:
        """Open the session, or take it up again, on a server."""
        self.drop()
        self._socket = connection = socket.create_connection(address, _TIMEOUT_SECONDS)
        request = ConnectRequest(0, Zxid(0), SESSION_MS, self._session_id, self._password, False)
        connection.sendall(encode_frame(encode(request)))
        frames = FrameParser(1 << 20)
        while True:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError(f"{address} did not take the session")
            payloads = frames.feed(data)
            if payloads:
                break
        answer = codec_of(ConnectResponse).decode(payloads[0])
        if not answer.session_id:
            raise ConnectionResetError(f"{address} says that the session has ended")
        self._session_id, self._password = answer.session_id, answer.password or bytes(16)

    def set_data(self, path: str, value: bytes) -> None:
        """Ask for a write, and do not wait for the answer."""
        if self._socket is None:
            raise ConnectionResetError("not connected")
        body = encode(SetDataRequest(path, value, -1))
        self._socket.sendall(encode_frame(encode_int(1) + encode_int(OpCode.SET_DATA) + body))

    def drop(self) -> None:
        """Leave the server; the session lives on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
