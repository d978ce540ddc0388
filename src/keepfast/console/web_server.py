"""Runs the console's web server until it is asked to stop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from keepfast.client import ServerAddress
from keepfast.console.console_app import application
from keepfast.console.console_options import ConsoleOptions, ConsoleRefused
from keepfast.console.running_console import Console

# A path of 10,000 characters, each of several bytes in an address.
_MAX_HEAD_BYTES: Final = 256 << 10
# Event streams end on their own; other requests in progress get this long.
_STOP_SECONDS: Final = 3
_BACKLOG: Final = 128
# Pages that are open, and their requests. At the limit, a client with an unfinished request is
# dropped.
_MAX_CONNECTIONS: Final = 500
# From the connection, or the last answer, to the last byte of a request. Low: slow networks are cut
# off; high: half a request holds a connection.
_REQUEST_SECONDS: Final = 30.0


class PatientProtocol(H11Protocol):
    """HTTP for a bounded number of clients, each of which has a bounded time to send its request.

    uvicorn by itself waits forever for a request that was begun, or never is.
    """

    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()
        if len(self.connections) > _MAX_CONNECTIONS:
            owing = [one for one in self.connections if isinstance(one, PatientProtocol)]
            owing = [one for one in owing if one.owes_request]
            min(owing, key=lambda one: one._since, default=self).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._begin()

    @property
    def owes_request(self) -> bool:
        """Whether it is the client's turn: a request, or the rest of one."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Not the loop's clock, which stands still for a millisecond and more: clients would tie.
        self._since = time.monotonic()
        self._timer = self.loop.call_later(_REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        if self.owes_request:
            self.transport.abort()


def run_console(options: ConsoleOptions, on_listening: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `on_listening` gets the address of the page.

    Raises ConsoleRefused if it may not, or cannot, be served there.
    """
    options.check()
    listener = _listen(options.listen)
    with listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            application(Console(options), port),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="on",
            ws="none",
            http=PatientProtocol,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=options.certificate,
            ssl_keyfile=options.key,
        )
        try:
            config.load()
        except OSError as error:
            raise ConsoleRefused(f"the certificate cannot be used: {error}") from error
        host = f"[{options.listen.host}]" if ":" in options.listen.host else options.listen.host
        name = options.host_names[0] if options.host_names else host
        shown = name if ":" in name.rpartition("]")[2] else f"{name}:{port}"
        on_listening(f"{'https' if options.has_tls else 'http'}://{shown}/")
        server = uvicorn.Server(config)
        failures: list[str] = []

        def stop(failed: threading.ExceptHookArgs) -> None:
            # A page that receives no updates would look as if everything were fine.
            failures.append(f"{failed.exc_type.__name__}: {failed.exc_value}")
            server.should_exit = True

        threading.excepthook = stop
        try:
            server.run(sockets=[listener])
        finally:
            threading.excepthook = threading.__excepthook__
        if failures:
            raise ConsoleRefused(f"a bug ended it: {failures[0]}; please report it")


def _listen(address: ServerAddress) -> socket.socket:
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConsoleRefused(f"{address.host} is no address of this machine: {error}") from error
    family = found[0][0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[0][4])
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConsoleRefused(
            f"{address} cannot be listened on: {error.strerror}; --listen names another"
        ) from error
    return listener
