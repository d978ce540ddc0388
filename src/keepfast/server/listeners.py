"""The ports that clients connect to: plain, TLS, or both kinds on one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.client_port import ClientProtocol
from keepfast.server.last_turns import LAST_TURNS, close_listener
from keepfast.server.tls_port import TlsOptions, TlsPort

if TYPE_CHECKING:
    from keepfast.server.server import Server

# Unless the configuration says how many. A thousand clients that come back at once are not refused.
_USUAL_BACKLOG: Final = 1024


class Listeners:
    """All client ports of a server."""

    def __init__(self, server: Server) -> None:
        """Read the key stores, if there are any. Raises ConfigError."""
        self._server = server
        self._tls: tuple[TlsOptions, CertificateKeeper] | None = None
        if server.options.tls is not None:
            keeper = CertificateKeeper(server.options.tls.config, server.log)
            self._tls = (server.options.tls, keeper)
        self._plain: asyncio.Server | None = None
        self._ports: list[TlsPort] = []
        self._watching: asyncio.Task[None] | None = None
        backlog = server.options.backlog
        self._backlog = backlog if backlog > 0 else _USUAL_BACKLOG
        # Where they listen, once they do; None: there is no such port.
        self.port: int | None = None
        self.secure_port: int | None = None

    async def open(self) -> None:
        """Listen. Raises OSError; then nothing listens."""
        try:
            await self._open_plain()
            await self._open_tls()
        except OSError:
            await self.close()
            raise

    async def _open_plain(self) -> None:
        server, options = self._server, self._server.options
        if options.port is None:
            return
        if self._tls is not None and self._tls[0].is_on_client_port:
            port = TlsPort(server, *self._tls, takes_plain=True)
            self._ports.append(port)
            self.port = await port.open(options.host, options.port, self._backlog)
            return
        self._plain = await asyncio.get_running_loop().create_server(
            lambda: ClientProtocol(server), options.host, options.port, backlog=self._backlog
        )
        self.port = self._plain.sockets[0].getsockname()[1]

    async def _open_tls(self) -> None:
        if self._tls is None:
            return
        options, keeper = self._tls
        if options.port is not None:
            port = TlsPort(self._server, options, keeper, takes_plain=False)
            self._ports.append(port)
            self.secure_port = await port.open(options.host, options.port, self._backlog)
            self._server.log.info("serving-tls", address=options.host, port=self.secure_port)
        if options.is_reloading:
            self._watching = asyncio.get_running_loop().create_task(keeper.watch())

    async def close(self) -> None:
        """Take no more clients."""
        if self._watching is not None:
            self._watching.cancel()
        for port in self._ports:
            port.close()
        if self._plain is not None:
            await close_listener(self._plain)

    async def wait_closed(self) -> None:
        """Cut off who is still there, and who was let in just before the ports closed."""
        for _ in range(LAST_TURNS):
            # What is aborted closes its socket in the next turn.
            await asyncio.sleep(0)
            self._server.drop_connections()
