"""A small HTTP/1.1 server on the event loop; h11 parses and frames.

For a handful of operators and probes: every connection has its own task, the number of connections
and the sizes of what they send are bounded, and an idle one is closed. A request has to be complete
soon after its first byte. While all connections are in use, a few more are accepted for probes
alone; the newest of these pushes out the oldest, so that nobody can keep probes from a server by
holding connections open.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from keepfast.server.last_turns import close_listener, let_turns_pass
from keepfast.server.listening import open_listeners, peer_address
from keepfast.server.tasks import spawn

if TYPE_CHECKING:
    import h11

_MAX_CONNECTIONS: Final = 256
_BACKLOG: Final = 100
# Connections beyond that, for the reserved paths. Low: probes push each other out.
_RESERVED_CONNECTIONS: Final = 16
# From the first byte of a request to its last. Low: slow networks are cut off; high: half a request
# holds a connection.
_REQUEST_SECONDS: Final = 10.0
_MAX_HEADER_BYTES: Final = 32 << 10
_MAX_BODY_BYTES: Final = 64 << 10
_READ_BYTES: Final = 64 << 10
# How long a refused client may keep sending. Low: it may not see why; high: it holds a connection.
_HEARING_SECONDS: Final = 2.0

TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    """A client's request; of a repeated query parameter or header the first one counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    address: str


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; a stream must yield exactly `stream_bytes` bytes."""

    body: bytes = b""
    content_type: str = TEXT
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None
    stream_bytes: int = 0


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class _TooLargeError(Exception):
    """The body of a request is longer than the limit."""


class _MalformedTargetError(Exception):
    """What a request asks for is not an address."""


class HttpServer:
    """Listens on one address and gives each request to a handler, which must not raise.

    Requests for the reserved paths are answered also while all connections are in use.
    """

    def __init__(
        self,
        handler: Handler,
        idle_seconds: float,
        tls: ssl.SSLContext | None = None,
        reserved_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._handler = handler
        self._idle_seconds = idle_seconds
        self._tls = tls
        self._reserved_paths = reserved_paths
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # In the order of their arrival.
        self._reserved: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_stopped = False
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0: the system chooses. Raises OSError."""
        limit = None if self._tls is None else _REQUEST_SECONDS
        for listener in await open_listeners(host, port, _BACKLOG):
            server = await asyncio.start_server(
                self._accept, sock=listener, ssl=self._tls, ssl_handshake_timeout=limit
            )
            self._servers.append(server)
        self.host = host
        self.port = self._servers[0].sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        scheme = "http" if self._tls is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._is_stopped = True
        for server in self._servers:
            await close_listener(server)
        tasks = [*self._tasks, *self._reserved]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await let_turns_pass()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_reserved = len(self._tasks) >= _MAX_CONNECTIONS
        if self._is_stopped or (is_reserved and not self._reserved_paths):
            writer.transport.abort()
            return
        work = self._answer_probe if is_reserved else self._converse
        task = spawn(work(reader, writer))
        if is_reserved:
            if len(self._reserved) >= _RESERVED_CONNECTIONS:
                oldest = next(iter(self._reserved))
                self._reserved.pop(oldest).transport.abort()
                oldest.cancel()
            self._reserved[task] = writer
        else:
            self._tasks.add(task)
        task.add_done_callback(partial(self._ended, writer))

    def _ended(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._reserved.pop(task, None)
        if task.cancelled():
            # Perhaps before it ever ran; and it does not wait until its client has read everything.
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._exchange(reader, writer, self._handler, self._idle_seconds)

    async def _answer_probe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve a connection that may only probe; it may not wait between requests."""
        idle_seconds = min(self._idle_seconds, _REQUEST_SECONDS)
        await self._exchange(reader, writer, self._handle_probe, idle_seconds)

    async def _handle_probe(self, request: HttpRequest) -> HttpResponse:
        if request.path in self._reserved_paths:
            response = await self._handler(request)
        else:
            text = b"too many connections: ask again later\n"
            response = HttpResponse(text, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return replace(response, headers={**response.headers, "Connection": "close"})

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        idle_seconds: float,
    ) -> None:
        """Requests and responses until one side closes."""
        # Loaded by the first request, which speeds up the start.
        import h11

        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEADER_BYTES)
        try:
            while True:
                request = await self._next_request(connection, reader, writer, idle_seconds)
                if request is None:
                    break
                await self._send(connection, writer, request, await handler(request))
                if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                    break
                connection.start_next_cycle()
        except (h11.RemoteProtocolError, _TooLargeError, _MalformedTargetError) as error:
            self._refuse(connection, writer, error)
            await _hear_out(reader, writer)
        except (OSError, TimeoutError):
            # The client is gone, or sends nothing more: there is nobody to answer.
            pass
        finally:
            writer.close()
        await _leave(writer)

    async def _next_request(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle_seconds: float,
    ) -> HttpRequest | None:
        """The next request with its body; None at the end of the connection."""
        import h11

        head: h11.Request | None = None
        body = bytearray()
        time = asyncio.get_running_loop().time
        # One deadline for all of it: a byte now and then must not hold the connection.
        request_seconds = min(idle_seconds, _REQUEST_SECONDS)
        has_begun = bool(connection.trailing_data[0])
        deadline = time() + (request_seconds if has_begun else idle_seconds)
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    continue_work = h11.InformationalResponse(status_code=100, headers=[])
                    writer.write(connection.send(continue_work) or b"")
                async with asyncio.timeout_at(deadline):
                    connection.receive_data(await reader.read(_READ_BYTES))
                if not has_begun:
                    has_begun, deadline = True, time() + request_seconds
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MAX_BODY_BYTES:
                    raise _TooLargeError(f"a body of more than {_MAX_BODY_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                address, _ = peer_address(writer.get_extra_info("peername"))
                return _request(head, bytes(body), address)
            else:
                return None

    async def _send(
        self,
        connection: h11.Connection,
        writer: asyncio.StreamWriter,
        request: HttpRequest,
        response: HttpResponse,
    ) -> None:
        import h11

        size = len(response.body) if response.stream is None else response.stream_bytes
        headers = [
            ("Content-Type", response.content_type),
            ("Content-Length", str(size)),
            ("Date", formatdate(usegmt=True)),
            ("Cache-Control", "no-store"),
            *response.headers.items(),
        ]
        reason = HTTPStatus(response.status).phrase
        head = h11.Response(status_code=response.status, headers=headers, reason=reason)
        writer.write(connection.send(head) or b"")
        if request.method != "HEAD":
            if response.stream is None:
                writer.write(connection.send(h11.Data(data=response.body)) or b"")
            else:
                # Closed here, whatever ends it: it holds an open file.
                async with aclosing(response.stream) as chunks:
                    async for chunk in chunks:
                        writer.write(connection.send(h11.Data(data=chunk)) or b"")
                        async with asyncio.timeout(self._idle_seconds):
                            await writer.drain()
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        async with asyncio.timeout(self._idle_seconds):
            await writer.drain()

    def _refuse(
        self, connection: h11.Connection, writer: asyncio.StreamWriter, error: Exception
    ) -> None:
        """Report what was wrong with a request, if no response has been sent yet."""
        import h11

        if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        status = HTTPStatus.BAD_REQUEST
        if isinstance(error, h11.RemoteProtocolError):
            status = HTTPStatus(error.error_status_hint)
        elif isinstance(error, _TooLargeError):
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        text = f"{error}\n".encode()
        headers = [
            ("Content-Type", TEXT),
            ("Content-Length", str(len(text))),
            ("Connection", "close"),
        ]
        response = h11.Response(status_code=status, headers=headers, reason=status.phrase)
        for event in (response, h11.Data(data=text), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")


async def _hear_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Drain for a while what a client that was refused midway still sends.

    Closing with unread bytes resets the connection, and the client loses the response.
    """
    try:
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(_HEARING_SECONDS):
            while await reader.read(_READ_BYTES):
                pass
    except (OSError, TimeoutError):
        # It is gone, or would send forever.
        pass


async def _leave(writer: asyncio.StreamWriter) -> None:
    """Wait until what was written has left; whoever does not read it is cut off.

    Its connection would stay, and what waits in it, while its place is given to others.
    """
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            await writer.wait_closed()
    except OSError:
        writer.transport.abort()


def _request(head: h11.Request, body: bytes, address: str) -> HttpRequest:
    try:
        parts = urlsplit(head.target.decode("latin-1"))
    except ValueError as error:
        raise _MalformedTargetError(
            f"the address that is asked for is malformed: {error}"
        ) from None
    query = parse_qsl(parts.query, keep_blank_values=True)
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers]
    return HttpRequest(
        method=head.method.decode("latin-1"),
        path=unquote(parts.path) or "/",
        query=dict(reversed(query)),
        headers=dict(reversed(headers)),
        body=body,
        address=address,
    )
