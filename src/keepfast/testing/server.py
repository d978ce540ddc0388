"""A whole server on a thread of the test's process, with faults that a client can see."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from keepfast.replica import ReplicaOptions
from keepfast.server import Server as RealServer
from keepfast.server import ServerOptions
from keepfast.storage import StoreOptions
from keepfast.testing.disk import FullableDisk
from keepfast.tree import PrepareOptions

T = TypeVar("T")

_TIMEOUT_SECONDS = 60.0


class Server:
    """A standalone server. Use it in a `with` block, or call `start` and `stop`.

    data_dir: where the data lies; by default a directory that goes with the server.
    port: 0 picks a free one, which stays the same over `restart`.
    tick_ms: how coarse session timeouts are; sessions may be as short as two ticks.
    super_digest: `user:hash` of a superuser.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        *,
        port: int = 0,
        tick_ms: int = 200,
        super_digest: str | None = None,
    ) -> None:
        self._owned_dir = None if data_dir else tempfile.mkdtemp(prefix="keepfast-")
        self.data_dir = data_dir or self._owned_dir or ""
        self.port = port
        self._tick_ms = tick_ms
        self._super_digest = super_digest
        self._disk = FullableDisk()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: RealServer | None = None
        self._clients: list[Any] = []

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, and return when clients can connect."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="keepfast-server", daemon=True
        )
        self._thread.start()
        self._server = RealServer(self._options(), self._disk)
        try:
            self._await(self._server.start())
        except BaseException:
            self._end_loop()
            raise
        self.port = self._server.port
        return self

    def stop(self) -> None:
        """Stop cleanly: everything is on disk. Clients made by `client` are stopped first."""
        clients, self._clients = self._clients, []
        for client in clients:
            client.stop()
            client.close()
        self._stop_server()
        if self._owned_dir is not None:
            shutil.rmtree(self._owned_dir, ignore_errors=True)

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data; sessions survive."""
        self._stop_server()
        self.start()

    def _stop_server(self) -> None:
        if self._server is not None:
            self._await(self._server.stop())
            self._server = None
            self._end_loop()

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_TIMEOUT_SECONDS)
            loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _options(self) -> ServerOptions:
        tick = self._tick_ms
        return ServerOptions(
            data_dir=self.data_dir,
            port=self.port,
            max_connections_per_address=0,
            word_whitelist=frozenset("*"),
            replica=ReplicaOptions(
                tick_ms=tick,
                min_session_timeout_ms=2 * tick,
                max_session_timeout_ms=600_000,
                super_digest=self._super_digest,
                prepare=PrepareOptions(is_ttl_enabled=True, is_quota_enforced=True),
            ),
            # Small: a test's server writes little, and starts often.
            store=StoreOptions(grow_bytes=64 << 10, reserve_bytes=1 << 20),
        )

    # -- clients and faults ----------------------------------------------------------------------

    def client(self, **arguments: Any) -> Any:
        """A started kazoo client; `stop` stops it."""
        from kazoo.client import KazooClient

        client = KazooClient(hosts=self.hosts, **arguments)
        client.start(timeout=_TIMEOUT_SECONDS)
        self._clients.append(client)
        return client

    def expire(self, client: Any) -> None:
        """End the session of a client (a kazoo client, or a session id) as if it had timed out."""
        session_id = client if isinstance(client, int) else client.client_id[0]

        def act(server: RealServer) -> None:
            server.replica.expire(session_id)
            server.flush()

        self._on_loop(act)

    def drop_connections(self) -> None:
        """Cut every connection; clients may connect again, with their sessions."""
        self._on_loop(lambda server: server.drop_connections())

    def pause(self) -> None:
        """Stop to read from clients, as a server that hangs; sessions do not expire meanwhile."""
        self._on_loop(lambda server: server.pause())

    def resume(self) -> None:
        """Go on after `pause`; every session gets its full time again."""
        self._on_loop(lambda server: server.resume())

    def delay(self, seconds: float) -> None:
        """Handle everything that a client sends so much later from now on; 0 ends it."""
        self._on_loop(lambda server: server.delay(seconds))

    def fill_disk(self) -> None:
        """Let the disk be full: reads go on, writes are refused until `free_disk`."""
        self._disk.is_full = True
        self._on_loop(lambda server: server.look_for_space())

    def free_disk(self) -> None:
        """Let there be space again."""
        self._disk.is_full = False
        self._on_loop(lambda server: server.look_for_space())

    # -- the server's thread ---------------------------------------------------------------------

    def _on_loop(self, action: Callable[[RealServer], T]) -> T:
        server = self._server
        if server is None:
            raise RuntimeError("the server is not running")

        async def run() -> T:
            return action(server)

        return self._await(run())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            raise RuntimeError("the server is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_SECONDS)
