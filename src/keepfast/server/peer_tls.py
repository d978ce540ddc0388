"""TLS between servers: `sslQuorum`, `portUnification` and the settings `ssl.quorum.*`."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from keepfast.server.certificates import names_host, read_certificate
from keepfast.server.config_security import TlsConfig
from keepfast.server.logs import EventLog
from keepfast.server.tls_context import client_context, server_context
from keepfast.server.tls_port import confirmed_name

QUORUM_PREFIX: Final = "ssl.quorum."


class PeerTls:
    """The contexts of both directions, and the check of hosts that Apache's servers make.

    `is_dialling`: connections that this server makes are TLS. `takes_plain`: plain connections get
    in, too (for the time in which an ensemble changes to TLS).
    """

    def __init__(
        self, config: TlsConfig, log: EventLog, *, is_dialling: bool, takes_plain: bool
    ) -> None:
        """Read the stores. Raises ConfigError."""
        self._config = config
        self._log = log
        self.is_dialling = is_dialling
        self.takes_plain = takes_plain
        self.detection_seconds = config.handshake_detection_timeout_ms / 1000
        self.load()

    def load(self) -> None:
        """Read the stores again; connections that exist keep what they have. Raises ConfigError."""
        server = server_context(self._config, QUORUM_PREFIX)
        client = client_context(self._config, QUORUM_PREFIX)
        for warning in dict.fromkeys((*server.warnings, *client.warnings)):
            self._log.warning("certificates", problem=warning)
        self.server_context: ssl.SSLContext = server.context
        self.client_context: ssl.SSLContext = client.context

    async def check_host_dialled(self, transport: asyncio.Transport, host: str) -> None:
        """SSLCertVerificationError if who answered is not the host that was asked for."""
        if self._config.hostname_verification:
            await self._check(transport, host)

    async def check_host_accepted(self, transport: asyncio.Transport) -> None:
        """The same for who dialled, by the address it comes from."""
        if self._config.hostname_verification and self._config.client_hostname_verification:
            await self._check(transport, None)

    async def _check(self, transport: asyncio.Transport, host: str | None) -> None:
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown is None:
            return
        try:
            certificate = read_certificate(shown)
        except ValueError as error:
            raise ssl.SSLCertVerificationError(f"its certificate cannot be read: {error}") from None
        address = str(transport.get_extra_info("peername")[0])
        names = [address] if host is None else [host, address]
        if any(names_host(certificate, name) for name in names):
            return
        can_ask = self._config.allow_reverse_dns_lookup
        if can_ask and names_host(certificate, await confirmed_name(address)):
            return
        raise ssl.SSLCertVerificationError(f"its certificate does not name {host or address}")
