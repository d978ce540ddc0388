"""One turn of the loop in which clients are heard.

One look at the clocks holds for all of it, and what the replica asks for is done at its end: a
client that waits for several replies is woken once, and the writes of all clients share a sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from keepfast.replica import Replica

_NS_OF_MS = 1_000_000
_NEVER = -1.0


class ClientTurn:
    """See the module."""

    __slots__ = ("_flush", "_loop", "_reads", "_replica", "_started_ns", "is_running", "loop_time")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, replica: Replica, flush: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._replica = replica
        self._flush = flush
        self.is_running = False
        # When the last turn began, by the loop's clock.
        self.loop_time = _NEVER
        self._started_ns = 0
        self._reads = 0

    def begin(self) -> None:
        """The first client of a turn has sent something."""
        self.is_running = True
        self.loop_time = self._loop.time()
        self._started_ns = started = time.monotonic_ns()
        replica = self._replica
        self._reads = replica.statistics.reads
        replica.tell_time(started // _NS_OF_MS, time.time_ns() // _NS_OF_MS)
        # Runs when all that the sockets had was read.
        self._loop.call_soon(self._end)

    def forget_time(self) -> None:
        """Whoever is heard next is not heard in this turn, however soon it is."""
        self.loop_time = _NEVER

    def _end(self) -> None:
        self.is_running = False
        spent = time.monotonic_ns() - self._started_ns
        statistics = self._replica.statistics
        reads = statistics.reads - self._reads
        if spent > _NS_OF_MS and reads > 0:
            statistics.note_slow_turn(reads, spent // _NS_OF_MS)
        self._flush()
