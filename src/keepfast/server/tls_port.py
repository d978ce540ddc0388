"""A port for TLS clients, and one where TLS and plain clients both get in.

The socket is accepted by hand: which context a connection gets, and whether it gets one at all, is
known only when it is there. The first byte decides, which is looked at and left in the socket: a
TLS handshake begins with 0x16; a plain client begins with the length of its first frame, which
would be hundreds of megabytes, or with a letter.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from keepfast.apache import TlsConfig
from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.certificates import (
    confirmed_name,
    distinguished_name,
    names_host,
    read_certificate,
)
from keepfast.server.client_port import ClientPort, ClientProtocol
from keepfast.server.listening import open_listeners, peer_address
from keepfast.server.server_options import TlsOptions
from keepfast.server.tasks import spawn

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_HANDSHAKE_RECORD: Final = b"\x16"
_HANDSHAKE_SECONDS: Final = 10.0
# How long a client may take to agree that the connection ends; it has got everything by then.
_FAREWELL_SECONDS: Final = 2.0
_PIECE_BYTES: Final = 256 << 10
_PAUSE_SECONDS: Final = 1.0

# X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT: OpenSSL goes by names and key identifiers here, not by
# the signature, and Python gives no way to judge for oneself. The trust store is no cure: whoever
# holds a certificate of version 1 that is in there can issue others, for any name.
_LOOKS_SELF_SIGNED: Final = 18
_SELF_SIGNED_CURE: Final = (
    "it is self-signed, or has the subject of its authority and lacks key identifiers; issue it"
    " with a subject of its own, or with subjectKeyIdentifier and authorityKeyIdentifier"
)
_REASONS: Final = {"PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate"}


class TlsPort:
    """Listening sockets of one port."""

    def __init__(
        self, gate: ClientPort, options: TlsOptions, keeper: CertificateKeeper, *, takes_plain: bool
    ) -> None:
        self._gate = gate
        self._keeper = keeper
        self._options = options
        self._takes_plain = takes_plain
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        # Sockets that are not connections yet: they count toward the limits all the same.
        self._arriving: set[asyncio.Task[None]] = set()
        self._arriving_from: Counter[str] = Counter()

    async def open(self, host: str, port: int, backlog: int) -> int:
        """Listen; returns the port. Raises OSError."""
        self._sockets = await open_listeners(host, port, backlog)
        self._accepting = [spawn(self._accept(listener)) for listener in self._sockets]
        chosen: int = self._sockets[0].getsockname()[1]
        return chosen

    def close(self) -> None:
        """Listen no longer; handshakes under way end."""
        for task in (*self._accepting, *self._arriving):
            task.cancel()
        for listener in self._sockets:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(listener)
            except OSError as error:
                # Most likely there are no descriptors left; without a pause this would spin.
                self._gate.log.warning("accept-failed", reason=error)
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            address, _ = peer_address(peer)
            limit = self._options.max_handshakes
            if not self._gate.has_place(address, self._arriving_from[address], len(self._arriving)):
                self._refuse(client, address, "too many connections")
            elif limit and len(self._arriving) >= limit:
                self._refuse(client, address, "too many handshakes")
            else:
                task = spawn(self._welcome(client, address))
                # At once: many sockets may be accepted before the first of these tasks runs.
                self._arriving.add(task)
                self._arriving_from[address] += 1
                task.add_done_callback(partial(self._arrived, client, address))

    def _arrived(self, client: socket.socket, address: str, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        self._arriving_from[address] -= 1
        if not self._arriving_from[address]:
            del self._arriving_from[address]
        if task.cancelled():
            client.close()

    async def _welcome(self, client: socket.socket, address: str) -> None:
        """Make a connection of a socket."""
        loop = asyncio.get_running_loop()
        try:
            first = await self._first_byte(client)
            if not first:
                # A probe that looks whether somebody listens: not worth a line.
                client.close()
            elif first == _HANDSHAKE_RECORD:
                await loop.connect_accepted_socket(
                    lambda: TlsProtocol(self._gate, self._options.config, address),
                    client,
                    ssl=self._keeper.context,
                    ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=_FAREWELL_SECONDS,
                )
            elif self._takes_plain:
                await loop.connect_accepted_socket(self._gate.make_protocol, client)
            else:
                # The TLS library would wait for more bytes than a four-letter word has.
                self._refuse(client, address, "it does not speak TLS")
        except OSError as error:
            self._refuse(client, address, _reason(error))

    def _refuse(self, client: socket.socket, address: str, reason: str) -> None:
        self._gate.statistics.connections_refused += 1
        self._gate.log.warning("refused", address=address, reason=reason)
        client.close()

    async def _first_byte(self, client: socket.socket) -> bytes:
        """What a client begins with, which stays in the socket; nothing if it went away."""
        loop = asyncio.get_running_loop()
        client.setblocking(False)
        readable = asyncio.Event()
        loop.add_reader(client, readable.set)
        try:
            async with asyncio.timeout(self._options.config.handshake_detection_timeout_ms / 1000):
                await readable.wait()
        finally:
            loop.remove_reader(client)
        return client.recv(1, socket.MSG_PEEK)


class TlsProtocol(ClientProtocol):
    """A client inside TLS. It gets in if its certificate names its host, where that is wanted."""

    def __init__(self, gate: ClientPort, config: TlsConfig, address: str) -> None:
        super().__init__(gate)
        self._log = gate.log
        self.is_secure = True
        self._from = address
        self._checks_host = config.hostname_verification and config.client_hostname_verification
        self._asks_names = config.allow_reverse_dns_lookup
        self._looking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown is None:
            # It was not asked for one, or need not have one.
            super().connection_made(transport)
            return
        try:
            certificate = read_certificate(shown)
            self.subject = distinguished_name(certificate)
            is_from_its_host = not self._checks_host or names_host(certificate, self._from)
        except ValueError as error:
            self._refuse(transport, f"its certificate cannot be read: {error}")
            return
        if is_from_its_host:
            super().connection_made(transport)
        elif self._asks_names:
            # Nothing may be read before it is known who it is.
            transport.pause_reading()
            self._looking = spawn(self._look_up(certificate, transport))
        else:
            self._refuse(transport, "its certificate does not name its address")

    def send(self, data: bytes) -> None:
        """Write to the socket, in pieces.

        A layer of TLS knows how much waits in it, but not how much it has passed on: of one large
        piece nothing would count, and a client that does not read would not be noticed.
        """
        transport = self._transport
        if transport is None:
            return
        if len(data) <= _PIECE_BYTES:
            transport.write(data)
            return
        pieces = memoryview(data)
        for start in range(0, len(data), _PIECE_BYTES):
            # A piece too many, and the connection is cut off.
            if transport.is_closing():
                return
            transport.write(pieces[start : start + _PIECE_BYTES])

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().connection_lost(exc)

    async def _look_up(self, certificate: Certificate, transport: asyncio.Transport) -> None:
        try:
            name = await confirmed_name(self._from)
        except OSError as error:
            self._refuse(transport, f"its host has no name: {error.strerror or error}")
            return
        finally:
            self._looking = None
        if not names_host(certificate, name):
            self._refuse(transport, f"its certificate names neither its address nor {name}")
        elif not transport.is_closing():
            super().connection_made(transport)
            transport.resume_reading()

    def _refuse(self, transport: asyncio.Transport, reason: str) -> None:
        self._log.warning("refused", address=self._from, reason=reason)
        transport.abort()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == _LOOKS_SELF_SIGNED:
            return f"its certificate is not trusted: {_SELF_SIGNED_CURE}"
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason, error.reason.lower().replace("_", " "))
    if isinstance(error, TimeoutError):
        return "it did not say anything in time"
    return str(error) or type(error).__name__
