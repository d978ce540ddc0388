"""A server as `keepfast serve` runs it, from the text of a zoo.cfg, on a thread of the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState

from keepfast.apache import load_config
from keepfast.server import ListeningServer, ServerOptions, options_of
from tests.apache.words import wait_until

T = TypeVar("T")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
_TIMEOUT_SECONDS = 60.0
_PLAIN = """\
clientPort=0
clientPortAddress=127.0.0.1
"""
_ALWAYS = """\
admin.enableServer=false
tickTime=2000
"""


class Running:
    """A server, its loop, and clients of it."""

    def __init__(self, server: ListeningServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self._loop = loop

    @property
    def port(self) -> int:
        return self.server.running.port

    @property
    def secure_port(self) -> int:
        assert self.server.running.secure_port is not None
        return self.server.running.secure_port

    @contextmanager
    def client(self, port: int | None = None, **arguments: Any) -> Iterator[Any]:
        """A started kazoo client."""
        # Long sessions: a machine that stands still for a while must not end one.
        arguments = {"timeout": _TIMEOUT_SECONDS, **arguments}
        client = KazooClient(hosts=f"127.0.0.1:{port or self.port}", **arguments)
        try:
            client.start(_TIMEOUT_SECONDS)
            yield client
        finally:
            client.stop()
            client.close()

    def refuses_login(self, **arguments: Any) -> None:
        """Wait until a kazoo client is told that its login failed.

        kazoo says first that it is connected, then that the login failed, then that it is
        closed: a request raises another error in each of these moments, so none is sent.
        """
        seen: list[str] = []
        client = KazooClient(hosts=f"127.0.0.1:{self.port}", timeout=_TIMEOUT_SECONDS, **arguments)
        client.add_listener(lambda _: seen.append(client.client_state))
        try:
            client.start_async()
            wait_until(lambda: KeeperState.AUTH_FAILED in seen, "the login to be refused")
        finally:
            client.stop()
            client.close()

    def ids(self) -> list[tuple[str, str]]:
        """Who the connections belong to, besides their addresses."""

        async def look() -> list[tuple[str, str]]:
            return [
                (held.scheme, held.id)
                for connection in self.server.running.connections()
                for held in connection.ids
                if held.scheme != "ip"
            ]

        return self.run(look())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_SECONDS)


@contextmanager
def running(
    folder: Path,
    text: str,
    *,
    loop_kind: str = "uvloop",
    has_plain_port: bool = True,
    properties: Mapping[str, str] | None = None,
    adjust: Callable[[ServerOptions], ServerOptions] = lambda options: options,
) -> Iterator[Running]:
    """A running server. `properties` are Java system properties by their full names."""
    file = folder / "zoo.cfg"
    plain = _PLAIN if has_plain_port else ""
    file.write_text(f"dataDir={folder / 'data'}\n{plain}{_ALWAYS}{text}\n")
    server = ListeningServer(adjust(options_of(load_config(file, overrides=properties))))
    loop = LOOPS[loop_kind]()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    at_work = Running(server, loop)
    try:
        at_work.run(server.start())
        try:
            yield at_work
        finally:
            at_work.run(server.stop())
    finally:
        at_work.run(loop.shutdown_default_executor())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_TIMEOUT_SECONDS)
        loop.close()
