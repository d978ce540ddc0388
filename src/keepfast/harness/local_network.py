"""Links between servers on this machine, which can be cut.

Every connection from one server to another goes through a port of this process. Cuts are set per
direction:

    closed   connections are aborted, and new ones are closed at once
    silent   bytes wait, as in a network that drops them, and continue when it is healed
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Coroutine
from enum import Enum
from typing import Any, TypeVar

from keepfast.harness.local_ports import LOCAL_HOST
from keepfast.server import LAST_TURNS, close_listener
from keepfast.storage import ClosedOnExit

T = TypeVar("T")

_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 60.0
_REFUSAL_SECONDS = 0.1


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _WireState(Enum):
    OPEN = 0
    CLOSED = 1
    SILENT = 2


class _Wire:
    """What one server sends to another, on all connections between them."""

    def __init__(self) -> None:
        self.state = _WireState.OPEN
        self.flows = asyncio.Event()
        self.flows.set()

    def become(self, state: _WireState) -> None:
        self.state = state
        if state is _WireState.SILENT:
            self.flows.clear()
        else:
            self.flows.set()


class Network(ClosedOnExit):
    """Forwards what servers send each other, unless a link is cut.

    Runs its own thread; `close` it, or use it in a `with` block.
    """

    def __init__(self, dial_seconds: float = 0.0) -> None:
        """`dial_seconds`: how long it keeps trying to reach a server that does not listen yet.

        Who dials cannot be refused here, as the real port would do. Apache's servers give up a
        leader whose connection ends at once, and try again one that refuses them.
        """
        self._dial_seconds = dial_seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="keepfast-network", daemon=True
        )
        self._thread.start()
        self._wires: dict[tuple[int, int], _Wire] = {}
        self._listeners: list[asyncio.Server] = []
        # Connections by who dialled whom.
        self._connections: dict[asyncio.StreamWriter, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def route(self, source: int, target: int, port: int) -> int:
        """A port at which `source` reaches `port` of `target`."""
        return self._await(self._open(source, target, port))

    def cut(self, source: int, target: int) -> None:
        """Let packets from `source` to `target` vanish; those back still arrive."""
        self._await(self._become([(source, target)], _WireState.SILENT))

    def partition(self, *groups: Collection[int], silent: bool = False) -> None:
        """Cut every wire between servers of different groups."""
        state = _WireState.SILENT if silent else _WireState.CLOSED
        self._await(
            self._become(
                [
                    (source, target)
                    for group in groups
                    for other in groups
                    if other is not group
                    for source in group
                    for target in other
                ],
                state,
            )
        )

    def heal(self, *servers: int) -> None:
        """Let everything through again; only what these send to each other, if some are named."""
        pairs = [pair for pair in self._wires if not servers or {*pair} <= {*servers}]
        self._await(self._become(pairs, _WireState.OPEN))

    def close(self) -> None:
        """End all connections, and the thread."""
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_SECONDS)
        self._loop.close()

    # -- on the thread ---------------------------------------------------------------------------

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_SECONDS)

    def _wire(self, source: int, target: int) -> _Wire:
        return self._wires.setdefault((source, target), _Wire())

    async def _open(self, source: int, target: int, port: int) -> int:
        for pair in ((source, target), (target, source)):
            self._wire(*pair)
        listener = await asyncio.start_server(self._taker(source, target, port), LOCAL_HOST, 0)
        self._listeners.append(listener)
        found: int = listener.sockets[0].getsockname()[1]
        return found

    async def _become(self, pairs: list[tuple[int, int]], state: _WireState) -> None:
        for pair in pairs:
            self._wire(*pair).become(state)
        if state is _WireState.CLOSED:
            for writer, (source, target) in list(self._connections.items()):
                if (source, target) in pairs or (target, source) in pairs:
                    writer.transport.abort()

    async def _end(self) -> None:
        await asyncio.gather(*map(close_listener, self._listeners))
        for wire in self._wires.values():
            wire.become(_WireState.OPEN)
        # What is aborted closes its socket in a later turn of the loop, and some of it begins to be
        # aborted by the end of its task.
        for _ in range(LAST_TURNS):
            for writer in list(self._connections):
                writer.transport.abort()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _taker(
        self, source: int, target: int, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Known before its task runs, which may be cancelled before it ever does.
            self._connections[writer] = (source, target)
            task = self._loop.create_task(self._carry(source, target, port, (reader, writer)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return take

    async def _dial(self, port: int) -> _Streams:
        deadline = self._loop.time() + self._dial_seconds
        while True:
            try:
                return await asyncio.open_connection(LOCAL_HOST, port)
            except OSError:
                if self._loop.time() >= deadline:
                    raise
            await asyncio.sleep(_REFUSAL_SECONDS)

    async def _carry(self, source: int, target: int, port: int, near: _Streams) -> None:
        """Carry bytes between both ends of a connection until one of them ends."""
        there, back = self._wire(source, target), self._wire(target, source)
        reader, writer = near
        writers = [writer]
        try:
            if _WireState.CLOSED in (there.state, back.state):
                return
            far_reader, far_writer = await self._dial(port)
            writers.append(far_writer)
            self._connections[far_writer] = (source, target)
            for one in writers:
                plain = one.get_extra_info("socket")
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer, there))
                group.create_task(_pump(far_reader, writer, back))
        except OSError:
            # The far server is down. The near one believes itself connected for a moment; it would
            # dial again and again, much faster than where connections are refused.
            await asyncio.sleep(_REFUSAL_SECONDS)
        finally:
            for one in writers:
                self._connections.pop(one, None)
                one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: _Wire) -> None:
    """Carry bytes over, in order; the end of one side ends both."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            await wire.flows.wait()
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
