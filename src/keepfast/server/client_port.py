"""The client port: bytes between sockets and the server's loop.

The first bytes of a connection decide what it is: a four-letter word, somebody who took this port
for another one, or a client.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from keepfast.apache import is_complete_word, is_word
from keepfast.driver import ServerLoop, ServerStatistics
from keepfast.replica import Connection
from keepfast.server.farewell import Farewell
from keepfast.server.listening import peer_address
from keepfast.server.logs import EventLog
from keepfast.server.server_options import ServerOptions

# Read as the length of a frame, each of these is far beyond any that a client may send.
_HTTP_METHODS: Final = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")
)
_TLS_HANDSHAKE: Final = b"\x16\x03"
# A TLS record: alert, fatal, protocol_version. The client's library names it in its error.
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"
_FIRST_BYTES: Final = 4

# What asyncio calls reading and writing, by the numbers that Apache shows.
_READING: Final = 1
_WRITING: Final = 4


class ClientPort:
    """Accepts clients, as the core decides, and answers other callers."""

    def __init__(
        self,
        driver: ServerLoop,
        clients: dict[Connection, ClientProtocol],
        leaving: dict[Connection, ClientProtocol],
        options: ServerOptions,
        log: EventLog,
        statistics: ServerStatistics,
        answer_word: Callable[[bytes], str],
        admin_url: Callable[[], str | None],
    ) -> None:
        self.driver = driver
        self.options = options
        self.log = log
        self.statistics = statistics
        self.secure_port: int | None = None
        self.clients = clients
        self.leaving = leaving
        self._answer_word = answer_word
        self._admin_url = admin_url

    def make_protocol(self) -> ClientProtocol:
        """What a socket talks to."""
        return ClientProtocol(self)

    def accept(self, protocol: ClientProtocol, transport: asyncio.Transport) -> Connection | None:
        """Accept a socket, if the core does."""
        address, port = peer_address(transport.get_extra_info("peername"))
        connection = self.driver.connect(address, port, protocol.subject)
        if connection is None:
            self.statistics.connections_refused += 1
            self.log.warning("refused", address=address, reason="too many connections")
            transport.abort()
            return None
        if self.options.is_keep_alive:
            line = transport.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = self.options.replica
        transport.set_write_buffer_limits(high=min(limits.max_burst_bytes, limits.max_unsent_bytes))
        connection.is_secure = protocol.is_secure
        self.clients[connection] = protocol
        return connection

    def has_place(self, address: str, arriving: int, arriving_in_all: int) -> bool:
        """Whether the core allows one more connection, besides those that are on their way."""
        limits = self.driver.core.replica.limits
        return limits.has_place(address, arriving, arriving_in_all)

    def lost(self, connection: Connection) -> ClientProtocol | None:
        """A socket is gone, or its other end; returns its protocol."""
        protocol = self.clients.pop(connection, None)
        if protocol is None:
            return None
        if connection.is_open:
            self.driver.core.replica.statistics.drops += 1
        self.driver.client_lost(connection)
        return protocol

    def leaves(self, connection: Connection) -> None:
        """A client has closed; its socket is closed when the driver gets to it."""
        protocol = self.lost(connection)
        if protocol is not None:
            self.leaving[connection] = protocol

    def answer_word(self, protocol: ClientProtocol, connection: Connection, data: bytes) -> None:
        """Answer a four-letter word, and close."""
        statistics = self.driver.core.replica.statistics
        statistics.received += 1
        statistics.bytes_received += len(data)
        connection.received += 1
        protocol.send(self._answer_word(data).encode("utf-8", "replace"))
        statistics.told += 1
        protocol.close()

    def refuse_http(self, protocol: ClientProtocol, address: str) -> None:
        """Send a browser to the port for it, and close."""
        url = self._admin_url()
        advice = f"the admin server is {url or 'off'}"
        self._refuse(protocol, address, "HTTP", advice, _http_answer(url))

    def refuse_tls(self, protocol: ClientProtocol, address: str) -> None:
        """Answer a TLS client that this port does not speak TLS, and close."""
        port = self.secure_port
        where = "there is none" if port is None else f"it is {port}"
        advice = f"use the secure client port; {where}"
        self._refuse(protocol, address, "TLS", advice, _TLS_ALERT)

    def _refuse(
        self, protocol: ClientProtocol, address: str, spoken: str, advice: str, answer: bytes
    ) -> None:
        """Answer who wanted another port, in its own protocol, and close."""
        self.log.warning("refused", address=address, reason=f"it speaks {spoken}", advice=advice)
        protocol.send(answer)
        protocol.close()

    def abort_all(self) -> None:
        """Cut every connection at once."""
        for protocol in (*self.clients.values(), *self.leaving.values()):
            protocol.abort()


class ClientProtocol(asyncio.Protocol):
    """One client's socket. All decisions are the core's."""

    def __init__(self, port: ClientPort) -> None:
        self._port = port
        self._driver = port.driver
        # Whether it is inside TLS, and the subject of the certificate that was shown there.
        self.is_secure = False
        self.subject: str | None = None
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        # What came before it was known what this is; None: it is a client.
        self._first: bytes | None = b""
        self._farewell = Farewell()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection = self._port.accept(self, self._transport)

    def data_received(self, data: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._first is not None:
            data = self._first + data
            if not self._is_client(connection, data):
                return
        reply = self._driver.client_bytes(connection, data)
        if reply is not None and self._transport is not None:
            self._transport.write(reply)

    def _is_client(self, connection: Connection, data: bytes) -> bool:
        """Look at the first bytes; False: they wait for more, or were answered."""
        if len(data) < _FIRST_BYTES:
            self._first = data
            return False
        if is_word(data):
            self._first = data
            if is_complete_word(data):
                # It says nothing more after this; Apache shows 0 for it, too.
                self.pause()
                self._port.answer_word(self, connection, data)
            return False
        self._first = None
        if data[:_FIRST_BYTES] in _HTTP_METHODS:
            self._port.refuse_http(self, connection.address)
        elif data.startswith(_TLS_HANDSHAKE):
            self._port.refuse_tls(self, connection.address)
        else:
            return True
        return False

    def eof_received(self) -> bool:
        """Keep the socket: to close those of thousands who leave together takes many turns."""
        connection = self._connection
        if connection is None or self.is_secure:  # inside TLS, it cannot be kept
            return False
        self._connection = None
        self._port.leaves(connection)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._farewell.is_over()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._port.lost(connection)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._driver.client_full(self._connection)

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._driver.client_drained(self._connection)

    @property
    def unsent_bytes(self) -> int:
        """What waits for the client in this process."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

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
        """Close after what was written."""
        if self._transport is not None:
            self._farewell.begin(self._transport)

    def abort(self) -> None:
        """Close at once; what was written may be lost."""
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Leave what the client sends in its socket until `resume`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
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
