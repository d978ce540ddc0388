"""The client port: bytes between sockets and the replica.

The first bytes of a connection decide what it is: a four-letter word, somebody who took this port
for another one, or a client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from keepfast.replica import Connection, Phase, answer_single
from keepfast.server.words import is_complete, is_word

if TYPE_CHECKING:
    from keepfast.server.server import Server

# Read as the length of a frame, each of these is far beyond any that a client may send.
_HTTP_METHODS: Final = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")
)
_TLS_HANDSHAKE: Final = b"\x16\x03"
# A TLS record: alert, fatal, protocol_version. The client's library names it in its error.
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"
_FIRST_BYTES: Final = 4

_NEW: Final = Phase.NEW

_UNSENT: Final = "unsent"
_ANSWERED: Final = "answered"

# What asyncio calls reading and writing, by the numbers that Apache shows.
_READING: Final = 1
_WRITING: Final = 4


class ClientProtocol(asyncio.Protocol):
    """One client's socket. All decisions are the replica's; see `Server.flush` for the way back."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._turn, self._replica = server.turn, server.replica
        self._time = asyncio.get_running_loop().time
        # Whether it is inside TLS, and the subject of the certificate that was shown there.
        self.is_secure = False
        self.subject: str | None = None
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._first = b""
        # Why nothing is read from it; reading goes on when the last reason is gone.
        self._holds: set[str] = set()
        # Whether the client has to take some of what it was sent before it gets more.
        self.is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.accept(self, self._transport)

    def admit(self, connection: Connection) -> None:
        """Take the connection that the server made for this socket."""
        self._connection = connection

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        # Most clients wait for each reply: one that asks in the same millisecond as the last turn
        # began is answered without a turn of its own. The loop's clock ticks in milliseconds.
        if self._turn.loop_time == self._time() and not connection.out:
            reply = answer_single(self._replica, connection, data)
            if reply is not None and self._transport is not None:
                self._transport.write(reply)
                size = len(reply)
                statistics = self._replica.statistics
                statistics.bytes_sent += size
                if size != statistics.last_group_bytes:
                    statistics.note_frames([reply], size)
                return
        if connection.phase is _NEW:
            data = self._first + data
            if len(data) < _FIRST_BYTES:
                self._first = data
                return
            if is_word(data):
                self._first = data
                if is_complete(data):
                    # Behind this it says nothing more; Apache shows 0 for it, too.
                    self.hold(_ANSWERED)
                    self._server.answer_word(self, connection, data)
                return
            self._first = b""
            if self._is_stranger(data):
                return
        self._server.receive(connection, data)

    def _is_stranger(self, data: bytes) -> bool:
        """Whether this is a browser or a TLS client; then it is told, and cut off."""
        if data[:_FIRST_BYTES] in _HTTP_METHODS:
            url = self._server.admin_url
            advice = f"the admin server is {url or 'off'}"
            self._server.refuse_stranger(self, "HTTP", advice, _http_answer(url))
        elif data.startswith(_TLS_HANDSHAKE):
            port = self._server.secure_port
            where = "there is none" if port is None else f"it is {port}"
            advice = f"use the secure client port; {where}"
            self._server.refuse_stranger(self, "TLS", advice, _TLS_ALERT)
        else:
            return False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._server.lost(connection)

    def pause_writing(self) -> None:
        """The client does not take what it is sent as fast as it asks: let it ask later."""
        self.is_full = True
        self.hold(_UNSENT)

    def resume_writing(self) -> None:
        self.is_full = False
        self.release(_UNSENT)
        if self._connection is not None and self._connection.is_stalled:
            self._server.go_on(self._connection)

    def waits(self, must_wait: Callable[[Connection], bool]) -> bool:
        """Whether its connection, if there is one, has to wait."""
        return self._connection is not None and must_wait(self._connection)

    def check_unsent(self, limit: int) -> None:
        """Cut the client off if more than `limit` bytes wait for it."""
        transport, connection = self._transport, self._connection
        if self.is_full and transport is not None and connection is not None:
            waiting = transport.get_write_buffer_size()
            if waiting > limit:
                self._server.slow_reader(connection, waiting)

    @property
    def address(self) -> str:
        """Where it comes from."""
        return "" if self._connection is None else self._connection.address

    @property
    def interest(self) -> int:
        """What it waits for, in Java's bits: 1 to read, 4 to write."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return 0
        reading = _READING if transport.is_reading() else 0
        return reading | (_WRITING if transport.get_write_buffer_size() else 0)

    def send(self, data: bytes) -> None:
        """Write to the socket."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close behind what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what was written may be lost."""
        if self._transport is not None:
            self._transport.abort()

    def hold(self, reason: str) -> None:
        """Leave what the client sends in its socket until `release`."""
        if not self._holds and self._transport is not None:
            self._transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Read again, unless there is another reason not to."""
        if reason in self._holds:
            self._holds.discard(reason)
            if not self._holds and self._transport is not None:
                self._transport.resume_reading()


def _http_answer(admin_url: str | None) -> bytes:
    text = "This port speaks the ZooKeeper client protocol, not HTTP.\n"
    if admin_url is not None:
        text += f"The admin server of this server is at {admin_url}\n"
    else:
        text += "The admin server of this server is off (admin.enableServer).\n"
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return (head + text).encode("latin-1", "replace")
