"""The ports that clients connect to: plain, TLS, or both kinds on one."""

from __future__ import annotations

import asyncio
from typing import Final

from keepfast.server.certificate_keeper import CertificateKeeper
from keepfast.server.client_port import ClientPort
from keepfast.server.last_turns import LAST_TURNS, close_listener
from keepfast.server.listening import open_listeners
from keepfast.server.server_options import TlsOptions
from keepfast.server.tasks import spawn
from keepfast.server.tls_port import TlsPort

# The default backlog. A thousand clients that reconnect at once are not refused.
_USUAL_BACKLOG: Final = 1024
# uvloop accepts one connection per listening socket and turn, so it is given more of the same one.
# Low: each of many clients that come at once is a turn of its own. High: each connection that comes
# alone costs as many vain calls.
_COPIES: Final = 7


class Listeners:
    """All client ports of a server."""

    def __init__(self, gate: ClientPort, keeper: CertificateKeeper | None) -> None:
        self._gate = gate
        self._tls: tuple[TlsOptions, CertificateKeeper] | None = None
        if gate.options.tls is not None and keeper is not None:
            self._tls = (gate.options.tls, keeper)
        self._plain: list[asyncio.Server] = []
        self._ports: list[TlsPort] = []
        self._watching: asyncio.Task[None] | None = None
        backlog = gate.options.backlog
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
        gate, options = self._gate, self._gate.options
        if options.port is None:
            return
        if self._tls is not None and self._tls[0].is_on_client_port:
            port = TlsPort(gate, *self._tls, takes_plain=True)
            self._ports.append(port)
            self.port = await port.open(options.host, options.port, self._backlog)
            return
        loop = asyncio.get_running_loop()
        for listener in await open_listeners(options.host, options.port, self._backlog):
            copies = 0 if isinstance(loop, asyncio.SelectorEventLoop) else _COPIES
            for copy in (listener, *[listener.dup() for _ in range(copies)]):
                server = await loop.create_server(
                    gate.make_protocol, sock=copy, backlog=self._backlog
                )
                self._plain.append(server)
        self.port = self._plain[0].sockets[0].getsockname()[1]

    async def _open_tls(self) -> None:
        if self._tls is None:
            return
        options, keeper = self._tls
        if options.port is not None:
            port = TlsPort(self._gate, options, keeper, takes_plain=False)
            self._ports.append(port)
            self.secure_port = await port.open(options.host, options.port, self._backlog)
            self._gate.secure_port = self.secure_port
            self._gate.log.info("serving-tls", address=options.host, port=self.secure_port)
        if options.is_reloading:
            self._watching = spawn(keeper.watch())

    async def close(self) -> None:
        """Accept no more clients."""
        if self._watching is not None:
            self._watching.cancel()
        for port in self._ports:
            port.close()
        for server in self._plain:
            await close_listener(server)

    async def wait_closed(self) -> None:
        """Cut off remaining clients, including those accepted just before the ports closed."""
        for _ in range(LAST_TURNS):
            # What is aborted closes its socket in the next turn.
            await asyncio.sleep(0)
            self._gate.abort_all()
