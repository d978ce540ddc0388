"""What a learner sends, a piece in each turn: one that sends without end holds up nobody else."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.driver.guard import Guard
from keepfast.driver.server_world import ServerWorld
from keepfast.quorum import Link


class LearnerReader:
    """Passes on the bytes of one learner, in their order."""

    def __init__(
        self,
        link: Link,
        world: ServerWorld,
        guard: Guard,
        receive: Callable[[Link, bytes], None],
        turn_bytes: int,
    ) -> None:
        """`receive` is called with at most `turn_bytes` in each turn."""
        self._link = link
        self._world = world
        self._guard = guard
        self._receive = receive
        self._turn_bytes = turn_bytes
        self._unread = b""
        self._at = 0
        self._is_closed = False

    def is_small(self, data: bytes) -> bool:
        """Whether this can be received at once: nothing waits, and it is not more than a piece."""
        return not self._unread and len(data) <= self._turn_bytes

    def take(self, data: bytes) -> None:
        """Receive a piece now and the rest in the next turns; meanwhile the learner is not read."""
        is_first = not self._unread
        self._unread, self._at = self._unread[self._at :] + data, 0
        if is_first:
            self._world.pause_peer(self._link)
            self._next()

    def close(self) -> None:
        """Receive nothing more: the link is gone."""
        self._is_closed = True

    def _next(self) -> None:
        if self._is_closed:
            return
        piece = self._unread[self._at : self._at + self._turn_bytes]
        self._at += len(piece)
        if piece:
            self._receive(self._link, piece)
            self._guard.soon(self._next)
        else:
            self._unread = b""
            self._world.resume_peer(self._link)
