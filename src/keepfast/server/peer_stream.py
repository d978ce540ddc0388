"""Connections between servers, until it is known what they carry.

A stream is read by one coroutine at a time. What it was not asked for stays in it, so that the
first bytes can be looked at and the rest be handed over, with the transport, to a protocol of
asyncio that is faster than coroutines (`hand_over`).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, cast

from keepfast.quorum import Address
from keepfast.server.listening import UnresolvedHostError, open_listeners, peer_address
from keepfast.server.logs import EventLog
from keepfast.server.peer_tls import PeerTls
from keepfast.server.tasks import spawn
from keepfast.wire import PeerProtocolError, invariant

# How much a stream holds, beyond what is waited for, before the other side has to wait.
_MAX_UNREAD_BYTES: Final = 64 << 10
_BACKLOG: Final = 128
_PAUSE_SECONDS: Final = 1.0
_HANDSHAKE_SECONDS: Final = 10.0
_FAREWELL_SECONDS: Final = 2.0
_HANDSHAKE_RECORD: Final = b"\x16"
# Connections that have not said who they are; the oldest goes for one more. Low: restarts of many
# servers get in each other's way. High: strangers cost memory.
_MAX_ARRIVING: Final = 64

Welcome = Callable[["PeerStream"], Awaitable[None]]


class PeerStream(asyncio.Protocol):
    """Bytes to and from another server."""

    def __init__(self, is_keep_alive: bool = False) -> None:
        self._is_keep_alive = is_keep_alive
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._is_lost = False
        self._is_paused = False
        self._next: asyncio.Protocol | None = None
        # What the configuration calls the host that was dialled.
        self.dialled_host = ""
        # Called when what was written has left, after `is_congested` was true.
        self.on_drained: Callable[[], None] | None = None

    # -- what asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(self._is_keep_alive))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > _MAX_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._wake()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self.on_drained is not None:
            self.on_drained()

    # -- what its owner calls --------------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport:
        """The transport below; there is one from the moment on that a stream is given out."""
        transport = self._transport
        if transport is None:
            raise PeerProtocolError("not connected")
        return transport

    @property
    def is_connected(self) -> bool:
        """Whether there ever was a connection; it may be lost again."""
        return self._transport is not None

    @property
    def address(self) -> str:
        """The other side's address and port, for messages."""
        name = self.transport.get_extra_info("peername")
        return str(Address(*peer_address(name))) if name else "?"

    @property
    def host(self) -> str:
        """The other side's address; empty if it is not known."""
        name = self.transport.get_extra_info("peername")
        return peer_address(name)[0] if name else ""

    @property
    def is_congested(self) -> bool:
        """Whether the other side does not read what was written."""
        return self._is_paused

    @property
    def unread(self) -> bytes:
        """What has come and was not taken."""
        return bytes(self._unread)

    async def fill(self, size: int) -> bytes:
        """The next bytes, which stay: `size` of them, or fewer if the other side has ended."""
        while len(self._unread) < size and not self._is_lost:
            invariant(self._waiter is None, "a stream is read by two")
            self.transport.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return bytes(self._unread[:size])

    def skip(self, size: int) -> None:
        """Take bytes that were looked at."""
        del self._unread[:size]

    async def read_exactly(self, size: int) -> bytes:
        """The next bytes; ConnectionResetError if the other side ends before."""
        data = await self.fill(size)
        if len(data) < size:
            raise ConnectionResetError("the other side closed the connection")
        self.skip(size)
        return data

    def write(self, data: bytes) -> None:
        """Send, sooner or later; nothing happens if the connection is lost."""
        if not self._is_lost:
            self.transport.write(data)

    def close(self) -> None:
        """End the connection when all is sent."""
        # Once: closed again, the TLS layer of Python 3.11 lets go of what it needs, and an abort
        # fails, or a look at what waits in it.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Let another protocol have the connection, with what is unread."""
        transport = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        unread, self._unread = bytes(self._unread), bytearray()
        if unread:
            protocol.data_received(unread)
        if self._is_lost:
            protocol.connection_lost(None)
        elif not transport.is_closing():
            transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def connect(
    addresses: Sequence[Address],
    *,
    timeout_seconds: float,
    tls: PeerTls | None = None,
    is_keep_alive: bool = False,
) -> PeerStream:
    """A stream to the first address that answers. Raises OSError, of the last one.

    With TLS the certificate of the other side is checked, too.
    """
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("no address is known")
    for host, port in addresses:
        context = tls.client_context if tls is not None and tls.is_dialling else None
        try:
            async with asyncio.timeout(timeout_seconds):
                _, stream = await loop.create_connection(
                    partial(PeerStream, is_keep_alive),
                    host,
                    port,
                    ssl=context,
                    server_hostname=host if context is not None else None,
                    ssl_shutdown_timeout=_FAREWELL_SECONDS if context is not None else None,
                )
        except TimeoutError:
            failure = TimeoutError(f"{Address(host, port)} does not answer")
            continue
        except socket.gaierror as error:
            failure = UnresolvedHostError(host, error)
            continue
        except OSError as error:
            failure = _named(error, Address(host, port))
            continue
        stream.dialled_host = host
        if tls is None or context is None:
            return stream
        try:
            await tls.check_host_dialled(stream.transport, host)
        except OSError as error:
            stream.abort()
            failure = error
            continue
        return stream
    raise failure


def _named(error: OSError, address: Address) -> OSError:
    """A failure in words for people; asyncio's name the address as a Python tuple."""
    if error.errno is None or isinstance(error, ssl.SSLError):
        return error
    return ConnectionError(f"{address}: {os.strerror(error.errno).lower()}")


class PeerListener:
    """Listens for other servers and gives each connection to `welcome`, in a task of its own.

    Whatever of OSError and PeerProtocolError `welcome` raises ends the connection and is logged.
    With TLS, plain connections are refused unless the ports are unified.
    """

    def __init__(
        self,
        welcome: Welcome,
        log: EventLog,
        *,
        tls: PeerTls | None = None,
        is_keep_alive: bool = False,
    ) -> None:
        self._welcome = welcome
        self._log = log
        self._tls = tls
        self._is_keep_alive = is_keep_alive
        self._sockets: list[socket.socket] = []
        # In the order of their arrival.
        self._arriving: dict[asyncio.Task[None], None] = {}

    async def open(self, addresses: Sequence[Address]) -> list[int]:
        """Listen on all addresses; returns the ports. Raises OSError; then nothing listens."""
        loop = asyncio.get_running_loop()
        ports = []
        try:
            for host, port in addresses:
                listeners = await open_listeners(host, port, _BACKLOG)
                self._sockets += listeners
                ports.append(listeners[0].getsockname()[1])
        except OSError:
            self.close()
            raise
        for listener in self._sockets:
            loop.add_reader(listener, self._accept, listener)
        return ports

    def close(self) -> None:
        """Listen no longer. Connections that are still welcomed end; all others continue."""
        loop = asyncio.get_running_loop()
        for task in self._arriving:
            task.cancel()
        for listener in self._sockets:
            loop.remove_reader(listener)
            listener.close()
        self._sockets.clear()

    async def wait_closed(self) -> None:
        """Wait until nothing of it runs any more."""
        await asyncio.gather(*self._arriving, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        # By hand: a coroutine that accepts and is cancelled at the wrong moment loses a socket.
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # Most likely there are no descriptors left; without a pause this would spin.
            self._log.warning("accept-failed", reason=error)
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_SECONDS, self._resume, listener)
            return
        if len(self._arriving) >= _MAX_ARRIVING:
            self._log.warning("peer-refused", reason="too many have not said who they are")
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.cancel()
        stream = PeerStream(self._is_keep_alive)
        task = spawn(self._arrive(accepted, stream))
        self._arriving[task] = None
        task.add_done_callback(partial(self._arrived, accepted, stream))

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _arrived(
        self, accepted: socket.socket, stream: PeerStream, task: asyncio.Task[None]
    ) -> None:
        self._arriving.pop(task, None)
        if not stream.is_connected:
            accepted.close()

    async def _arrive(self, accepted: socket.socket, stream: PeerStream) -> None:
        try:
            await self._open_stream(accepted, stream)
            await self._welcome(stream)
        except (OSError, PeerProtocolError) as error:
            self._log.warning("peer-refused", reason=str(error) or type(error).__name__)
            stream.abort()
        except asyncio.CancelledError:
            stream.abort()
            raise

    async def _open_stream(self, accepted: socket.socket, stream: PeerStream) -> None:
        loop = asyncio.get_running_loop()
        accepted.setblocking(False)
        context = await self._context_for(accepted)
        await loop.connect_accepted_socket(
            lambda: stream,
            accepted,
            ssl=context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS if context is not None else None,
            ssl_shutdown_timeout=_FAREWELL_SECONDS if context is not None else None,
        )
        if self._tls is not None and context is not None:
            await self._tls.check_host_accepted(stream.transport)

    async def _context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """What the first byte asks for, which stays in the socket."""
        if self._tls is None:
            return None
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(accepted, readable.set)
        try:
            async with asyncio.timeout(self._tls.detection_seconds):
                await readable.wait()
        except TimeoutError:
            raise TimeoutError("it did not say anything in time") from None
        finally:
            loop.remove_reader(accepted)
        if accepted.recv(1, socket.MSG_PEEK) == _HANDSHAKE_RECORD:
            return self._tls.server_context
        if not self._tls.takes_plain:
            raise PeerProtocolError("it does not speak TLS")
        return None
