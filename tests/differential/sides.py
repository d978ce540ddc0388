"""One of the two servers, and the connections of the script's clients to it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from tests.differential.normal import Normaliser
from tests.differential.requests import Op, Request, connect

_TIMEOUT = 60.0
_EVENT_XID = -1
CLOSED = ("closed",)
NO_PASSWORD = bytes(16)

Frame = tuple[Any, ...]


class Line:
    """A connection: frames out, frames in. EOF and a reset are both the end."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def send(self, *payloads: bytes) -> None:
        data = b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return  # seen by `receive`

    def receive(self) -> bytes | None:
        """The next frame; None at the end."""
        held = self._held
        while len(held) < 4 or len(held) < 4 + struct.unpack_from(">i", held)[0]:
            try:
                more = self._socket.recv(1 << 18)
            except ConnectionError:
                return None
            if not more:
                return None
            held += more
        size = 4 + struct.unpack_from(">i", held)[0]
        self._held = held[size:]
        return held[4:size]

    def close(self) -> None:
        self._socket.close()


def _is_last(frame: Frame) -> bool:
    """Whether a server closes behind this reply: the request has no type, or proved nothing."""
    return frame[0] == "reply" and ((frame[2], frame[3]) == (-1, -6) or frame[3] == -115)


class Side:
    """The script's clients on one server."""

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self._lines: list[Line | None] = [None] * clients
        self._sessions: list[tuple[int, bytes]] = [(0, NO_PASSWORD)] * clients
        self._pending: list[Sequence[tuple[int, Request]]] = [()] * clients
        self.normaliser = Normaliser()

    def close(self) -> None:
        for line in self._lines:
            if line is not None:
                line.close()

    def connect(
        self, client: int, timeout_ms: int, zxid: int, how: str, flag: bool | None
    ) -> list[Frame]:
        """Open a connection: for a `new` session, for the old one `again`, or a `wrong` password.

        With that the connection ends there.
        """
        session_id, password = (0, NO_PASSWORD) if how == "new" else self._sessions[client]
        if how == "wrong":
            password = b"x" * 16
        line = Line(self._port)
        line.send(connect(zxid, timeout_ms, session_id, password, flag))
        answer = line.receive()
        if answer is None:
            line.close()
            return [CLOSED]
        version, timeout, session_id, size = struct.unpack_from(">iiqi", answer)
        password, rest = answer[20 : 20 + size], answer[20 + size :]
        shown = ("connected", version, timeout, self.normaliser.session(session_id), rest)
        if session_id == 0:
            ended = line.receive() is None
            line.close()
            return [shown, ("refused", password, ended)]
        old, self._lines[client] = self._lines[client], line
        if old is not None:
            old.close()
        self._sessions[client] = (session_id, password)
        return [shown]

    def drop(self, client: int) -> None:
        """Cut the connection; the session continues."""
        line, self._lines[client] = self._lines[client], None
        if line is not None:
            line.close()

    def send(self, client: int, requests: Sequence[tuple[int, Request]]) -> None:
        line = self._lines[client]
        assert line is not None
        self._pending[client] = requests
        line.send(*(request.payload(xid) for xid, request in requests))

    def answers(self, client: int) -> list[Frame]:
        """Everything up to the last reply to what was sent, or to the end of the connection."""
        line = self._lines[client]
        assert line is not None
        requests, self._pending[client] = self._pending[client], ()
        frames: list[Frame] = []
        place = 0
        while place < len(requests):
            frame = line.receive()
            if frame is None:
                frames.append(CLOSED)
                self.drop(client)
                return frames
            op: int | None = None
            if struct.unpack_from(">i", frame)[0] != _EVENT_XID:
                op = requests[place][1].op
                place += 1
            frames.append(self.normaliser.event_or_reply(op, frame))
        if requests and (requests[-1][1].op == Op.CLOSE_SESSION or _is_last(frames[-1])):
            return [*frames, *self.until_closed(client)]
        return frames

    def until_closed(self, client: int) -> list[Frame]:
        """Everything up to the end of the connection, which the server closes."""
        line = self._lines[client]
        frames: list[Frame] = []
        while line is not None and (frame := line.receive()) is not None:
            frames.append(self.normaliser.event_or_reply(None, frame))
        self.drop(client)
        return [*frames, CLOSED]
