"""A real server on a thread of the test's process, and ways to talk to it that are not clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from keepfast.client import Client, ClientOptions
from keepfast.replica import ReplicaOptions
from keepfast.server import AdminOptions, ListeningServer, ServerOptions
from keepfast.storage import Disk, StoreOptions
from keepfast.tree import PrepareOptions

T = TypeVar("T")

TIMEOUT = 60.0
# The same as tests/apache's servers have: `super:test`.
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="

ADMIN = AdminOptions(port=0)


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def server_options(data_dir: Path, **changes: Any) -> ServerOptions:
    """A small server with everything switched on but the admin server and the audit."""
    options = ServerOptions(
        data_dir=str(data_dir),
        port=0,
        word_whitelist=frozenset("*"),
        replica=ReplicaOptions(
            tick_ms=2000,
            min_session_timeout_ms=4000,
            max_session_timeout_ms=600_000,
            super_digest=SUPER_DIGEST,
            prepare=PrepareOptions(is_ttl_enabled=True),
        ),
        store=StoreOptions(grow_bytes=64 << 10, reserve_bytes=1 << 20),
    )
    return replace(options, **changes)


class Live:
    """A server and the thread of its event loop."""

    def __init__(self, options: ServerOptions, disk: Disk | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="server")
        self._thread.start()
        self.server = ListeningServer(options, disk)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(TIMEOUT)

    def call(self, action: Callable[[ListeningServer], T]) -> T:
        """Run an action on the server's loop."""

        async def run() -> T:
            return action(self.server)

        return self.wait(run())

    def end_loop(self) -> None:
        self.wait(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT)
        self.loop.close()

    @property
    def port(self) -> int:
        return self.server.running.port

    @property
    def admin_port(self) -> int:
        assert self.server.admin is not None
        return self.server.admin.port

    def client(self, timeout_ms: int = 600_000) -> Client:
        """A client, for a `with` block; its session outlives whatever the machine does."""
        return Client(f"127.0.0.1:{self.port}", ClientOptions(session_timeout_ms=timeout_ms))

    def say(self, data: bytes, *more: bytes) -> bytes:
        """Everything that the client port answers to some bytes until it closes."""
        return say(self.port, data, *more)

    def ask(self, word: str) -> str:
        """The answer to a four-letter word."""
        return self.say(word.encode()).decode()

    def http(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        port: int | None = None,
    ) -> Answer:
        """An answer of the admin server."""
        place = port or self.admin_port
        connection = http.client.HTTPConnection("127.0.0.1", place, timeout=TIMEOUT)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


def say(port: int, data: bytes, *more: bytes) -> bytes:
    """Send bytes, piece by piece, and read until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (data, *more):
            connection.sendall(piece)
        parts = []
        while chunk := connection.recv(1 << 16):
            parts.append(chunk)
    return b"".join(parts)


@contextmanager
def live(
    data_dir: Path, *, disk: Disk | None = None, is_audited: bool = False, **changes: Any
) -> Iterator[Live]:
    """A server that serves; stopped at the end of the block."""
    options = server_options(data_dir, **changes)
    options = replace(options, replica=replace(options.replica, is_audited=is_audited))
    found = Live(options, disk)
    try:
        found.wait(found.server.start())
        try:
            yield found
        finally:
            found.wait(found.server.stop())
    finally:
        found.end_loop()
