"""What a server counts beside its replica: the disk, snapshots, refused connections."""

from __future__ import annotations

from keepfast.driver.turn_times import TurnTimes
from keepfast.replica import Distribution, Summary


class ServerStatistics:
    """Counters of one server; times in ms. Whoever does the work adds, `reset` clears."""

    def __init__(self, slow_sync_ms: int = 1000) -> None:
        self._slow_sync_ms = slow_sync_ms
        self._slowest_sync_ms: float | None = None
        # How long each turn held the loop.
        self.turns = TurnTimes()
        self.reset()
        # What happened at the start; a reset does not undo it.
        self.recovery = Summary()
        self.records_replayed = Summary()

    def reset(self) -> None:
        """Begin to count again."""
        self.fsync = Summary()
        self.fsyncs_over_limit = 0
        self.records_stored = 0
        # Records made durable by one disk call, and how long that call took.
        self.group_size = Summary()
        self.group_time = Distribution()
        self.snapshot = Summary()
        self.snapshots_failed = 0
        self.snapshots_refused = 0
        self.connections_refused = 0
        self.disk_failures = 0
        self.turns.reset()

    def note_sync(self, spent_ms: float, records: int) -> None:
        """The disk made some records durable."""
        self.fsync.add(spent_ms)
        self.group_time.add(spent_ms)
        self.group_size.add(records)
        self.records_stored += records
        if spent_ms > self._slow_sync_ms:
            self.fsyncs_over_limit += 1
            self._slowest_sync_ms = max(self._slowest_sync_ms or 0, spent_ms)

    def take_slowest_sync(self) -> float | None:
        """The slowest sync over the limit since the last call; None: there was none."""
        slowest, self._slowest_sync_ms = self._slowest_sync_ms, None
        return slowest
