"""A server without peers as a simulated machine: the same face as an ensemble's member."""

from __future__ import annotations

from keepfast.replica import Replica
from keepfast.wire import Zxid


class Alone:
    """A standalone replica whose records are effects, as a member's are."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.deadline_ms: int | None = None
        self._effects: list[object] = []

    @property
    def effects(self) -> list[object]:
        """What the driver is to do, in order; it empties the list."""
        self._effects.extend(self.replica.take_appends())
        return self._effects

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """See Replica."""
        self.replica.tell_time(now_ms, wall_ms)

    def start(self) -> None:
        """There is nobody to look for."""

    def log_durable(self, zxid: Zxid) -> None:
        """See Replica."""
        self.replica.log_durable(zxid)

    def tick(self) -> None:
        """See Replica."""
        self.replica.tick()
