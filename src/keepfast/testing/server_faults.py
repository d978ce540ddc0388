"""Faults of a server in the test's process; the server itself knows nothing of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from keepfast.replica import Connection
from keepfast.server import ListeningServer


class Delay:
    """Delays what clients send to a server."""

    def __init__(self, server: ListeningServer) -> None:
        self.seconds = 0.0
        self._hear = server.running.driver.client_bytes
        self._world = server.running.world
        server.running.driver.client_bytes = self._hear_later  # type: ignore[method-assign]

    def _hear_later(self, connection: Connection, data: bytes) -> bytes | None:
        if not self.seconds:
            return self._hear(connection, data)

        def hear() -> None:
            reply = self._hear(connection, data)
            if reply is not None:
                self._world.send_client(connection, reply)

        self._world.call_later(self.seconds, hear)
        return None


class Pause:
    """Blocks the thread of a server: it hangs for clients and peers alike."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at_end: Callable[[], None]) -> None:
        """`at_end` is called before anything that came meanwhile is heard."""
        self._is_over = threading.Event()
        loop.call_soon_threadsafe(self._wait, at_end)

    def _wait(self, at_end: Callable[[], None]) -> None:
        self._is_over.wait()
        at_end()

    def end(self) -> None:
        """Let it continue."""
        self._is_over.set()


async def crash(server: ListeningServer) -> None:
    """End a server as a killed process ends: nothing more is written, everybody is cut off."""
    server.running.driver.stop()
    server.running.world.join_disk()
    server.running.store.disown()
    server.gate.abort_all()
    await server.stop()


def touch_all_sessions(server: ListeningServer) -> None:
    """Give every session its full time again: it was the server that was silent."""
    replica = server.running.replica

    def touch_all() -> None:
        for session_id in list(replica.tree.sessions):
            replica.service.sessions.touch(session_id, replica.now_ms)

    server.running.driver.run(touch_all)
