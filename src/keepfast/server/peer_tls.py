"""TLS between servers: `sslQuorum`, `portUnification` and the settings `ssl.quorum.*`."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Final

from keepfast.apache import EnsembleConfig, TlsConfig
from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.certificates import confirmed_name, names_host, read_certificate
from keepfast.server.listening import peer_address
from keepfast.server.logs import EventLog
from keepfast.server.tls_context import client_context, server_context

_PREFIX: Final = "ssl.quorum."


class PeerTls:
    """The contexts of both directions, and the check of hosts that Apache's servers make.

    `is_dialling`: connections that this server makes are TLS. `takes_plain`: plain connections get
    in, too (for the time in which an ensemble changes to TLS). `is_reloading`: the owner should
    run `watch`.
    """

    def __init__(
        self,
        config: TlsConfig,
        log: EventLog,
        *,
        is_dialling: bool,
        takes_plain: bool,
        is_reloading: bool = False,
    ) -> None:
        """Read the stores. Raises ConfigError."""
        self._config = config
        self.is_reloading = is_reloading
        self.is_dialling = is_dialling
        self.takes_plain = takes_plain
        self.detection_seconds = config.handshake_detection_timeout_ms / 1000
        self._accepting = CertificateKeeper(config, log, partial(server_context, prefix=_PREFIX))
        self._dialling = CertificateKeeper(config, log, partial(client_context, prefix=_PREFIX))

    @property
    def server_context(self) -> ssl.SSLContext:
        """For connections that others make."""
        return self._accepting.context

    @property
    def client_context(self) -> ssl.SSLContext:
        """For connections that this server makes."""
        return self._dialling.context

    async def watch(self) -> None:
        """Read the stores again whenever their files change, until cancelled."""
        await asyncio.gather(self._accepting.watch(), self._dialling.watch())

    async def check_host_dialled(self, transport: asyncio.Transport, host: str) -> None:
        """OSError if the certificate is not for the host that was dialled."""
        if self._config.hostname_verification:
            await self._check(transport, host)

    async def check_host_accepted(self, transport: asyncio.Transport) -> None:
        """The same for a dialler, by the address it comes from."""
        if self._config.hostname_verification and self._config.client_hostname_verification:
            await self._check(transport, None)

    async def _check(self, transport: asyncio.Transport, host: str | None) -> None:
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown is None:
            # It was not asked for one, or need not have one.
            return
        try:
            certificate = read_certificate(shown)
        except ValueError as error:
            raise ssl.SSLCertVerificationError(f"its certificate cannot be read: {error}") from None
        address, _ = peer_address(transport.get_extra_info("peername"))
        names = [address] if host is None else [host, address]
        if any(names_host(certificate, name) for name in names):
            return
        can_ask = self._config.allow_reverse_dns_lookup
        if can_ask and names_host(certificate, await confirmed_name(address)):
            return
        raise ssl.SSLCertVerificationError(f"its certificate does not name {host or address}")


def load_peer_tls(ensemble: EnsembleConfig, config: TlsConfig, log: EventLog) -> PeerTls | None:
    """What the settings say; None if servers talk in the clear. Raises ConfigError."""
    if not ensemble.ssl_quorum and not ensemble.quorum_port_unification:
        return None
    return PeerTls(
        config,
        log,
        is_dialling=ensemble.ssl_quorum,
        takes_plain=ensemble.quorum_port_unification,
        is_reloading=ensemble.ssl_quorum_reload_cert_files,
    )
