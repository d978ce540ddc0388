"""A whole server on a thread of the test's process, with faults that a client can see."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from keepfast.replica import ReplicaOptions
from keepfast.server import ListeningServer, ServerOptions
from keepfast.storage import StoreOptions
from keepfast.testing.fillable_disk import FullableDisk
from keepfast.testing.server_faults import Delay, Pause, touch_all_sessions
from keepfast.tree import PrepareOptions

T = TypeVar("T")

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.01


def poll(condition: Callable[[], bool], timeout: float, what: Callable[[], str]) -> None:
    """Wait until `condition` holds; TimeoutError, with `what`, when the time has passed."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {timeout:g} s: {what()}")
        time.sleep(_POLL_SECONDS)


class Started:
    """What a `with` block, or `start` and `stop`, runs, together with the clients that it made."""

    _clients: list[Any]

    def start(self) -> Self:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start_client(self, hosts: str, **arguments: Any) -> Any:
        from kazoo.client import KazooClient

        client = KazooClient(hosts=hosts, **arguments)
        client.start(timeout=_TIMEOUT_SECONDS)
        self._clients.append(client)
        return client

    def _stop_clients(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            client.stop()
            client.close()


class Server(Started):
    """A standalone server. Use it in a `with` block, or call `start` and `stop`.

    Args:
        data_dir: where the data is; by default a directory that is deleted with the server.
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
        self._server: ListeningServer | None = None
        self._clients: list[Any] = []
        self._pause: Pause | None = None
        self._delay: Delay | None = None

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
        self._server = ListeningServer(self._options(), self._disk)
        try:
            self._await(self._server.start())
        except BaseException:
            self._end_loop()
            raise
        self.port = self._server.running.port
        return self

    def stop(self) -> None:
        """Stop cleanly: everything is on disk. Clients made by `client` are stopped first."""
        self._stop_clients()
        self._stop_server()
        if self._owned_dir is not None:
            shutil.rmtree(self._owned_dir, ignore_errors=True)

    def restart(self) -> None:
        """Stop cleanly and start again on the same port and data; sessions survive."""
        self._stop_server()
        self.start()

    def _stop_server(self) -> None:
        if self._server is not None:
            self.resume()
            self._await(self._server.stop())
            self._server = self._delay = None
            self._end_loop()

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_TIMEOUT_SECONDS)
            loop.close()

    def _options(self) -> ServerOptions:
        tick = self._tick_ms
        return ServerOptions(
            data_dir=self.data_dir,
            port=self.port,
            word_whitelist=frozenset("*"),
            replica=ReplicaOptions(
                tick_ms=tick,
                max_connections_per_address=0,
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
        return self._start_client(self.hosts, **arguments)

    def expire(self, client: Any) -> None:
        """End the session of a client (a kazoo client, or a session id) as if it had timed out."""
        session_id = client if isinstance(client, int) else client.client_id[0]

        self._on_loop(
            lambda server: server.running.driver.run(
                lambda: server.running.replica.expire(session_id)
            )
        )

    def drop_connections(self) -> None:
        """Cut every connection; clients may connect again, with their sessions."""
        self._on_loop(lambda server: server.gate.abort_all())

    def pause(self) -> None:
        """Suspend it until `resume`; sessions do not expire meanwhile."""
        loop, server = self._loop, self._server
        if loop is not None and server is not None and self._pause is None:
            self._pause = Pause(loop, lambda: touch_all_sessions(server))

    def resume(self) -> None:
        """Continue after `pause`; every session gets its full time again."""
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.end()

    def delay(self, seconds: float) -> None:
        """Delay everything that clients send by this much from now on; 0 ends it."""

        def act(server: ListeningServer) -> None:
            if self._delay is None:
                self._delay = Delay(server)
            self._delay.seconds = seconds

        self._on_loop(act)

    def fill_disk(self) -> None:
        """Make the disk appear full: reads continue, writes are refused until `free_disk`."""
        self._set_full(is_full=True)

    def free_disk(self) -> None:
        """Let there be space again."""
        self._set_full(is_full=False)

    def _set_full(self, *, is_full: bool) -> None:
        self._disk.is_full = is_full

        def is_noticed(server: ListeningServer) -> bool:
            driver = server.running.driver
            driver.look_for_space()
            return driver.disk.has_space is not is_full

        # A disk that is busy at this moment is not asked.
        poll(
            lambda: self._on_loop(is_noticed), _TIMEOUT_SECONDS, lambda: "the server knows its disk"
        )

    # -- the server's thread ---------------------------------------------------------------------

    def _on_loop(self, action: Callable[[ListeningServer], T]) -> T:
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
