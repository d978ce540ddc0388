"""Makes records durable: decides when the disk is called, and on which thread.

A group is everything that was appended since the last fsync. On a disk that answers in a fraction
of a millisecond the loop calls it itself, at the end of the turn in which the records came:
handing the group to a thread and being woken again would cost more than the disk. On a slower
disk a thread does it, and the loop keeps serving reads while the next group gathers; and so on any
disk while large files are written to it or deleted, as no past fsync tells how long the next takes.

The store is not thread-safe. So whatever runs on the thread, an fsync or another job
on the store, runs alone: meanwhile nothing is fsynced on the loop.

Two kinds of jobs run between two fsyncs. An *order* waits until all records that were appended
before it are durable. A *chore* does not: a purge must run on a full disk, as it makes the space
that the records wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from keepfast.driver.guard import Guard, Job
from keepfast.driver.server_statistics import ServerStatistics
from keepfast.driver.server_world import ServerWorld
from keepfast.replica import NO_GROUP, Append, Group
from keepfast.storage import Store
from keepfast.wire import DiskFull, StorageError, Zxid

T = TypeVar("T")

# Above this, an fsync blocks the loop for longer than the round trip to the thread takes.
_INLINE_LIMIT_SECONDS: Final = 0.0006
_SMOOTHING: Final = 0.1
_RETRY_SECONDS: Final = 0.2


class _Work(NamedTuple):
    # Runs when this many records are durable, counted from the start.
    after: int
    work: Callable[[], Any]
    done: Callable[[Any], None]


class DiskWorker:
    """Owns the store: every change of the disk while the server runs goes through here."""

    def __init__(
        self,
        store: Store,
        world: ServerWorld,
        guard: Guard,
        on_durable: Callable[[Zxid, Group, float], None],
        statistics: ServerStatistics,
    ) -> None:
        """`on_durable` is called when records are on disk, with their group and its seconds."""
        self.store = store
        self.has_space = not store.is_full
        self.fsync_seconds = 0.0  # smoothed
        # Whether large files are being written or deleted.
        self.is_shared = False
        self._world = world
        self._guard = guard
        self._on_durable = on_durable
        self._statistics = statistics
        # Records, since the start: appended, and of these durable.
        self._appended = 0
        self._durable = 0
        # What waits, and what the fsync under way makes durable.
        self._waiting: Group = NO_GROUP
        self._group: Group = NO_GROUP
        self._orders: deque[_Work] = deque()
        self._chores: deque[_Work] = deque()
        self._is_scheduled = False
        self._is_busy = False  # the thread is in the store
        self._is_confirming = False
        # The disk was full: records wait until it is asked again.
        self._is_retrying = False

    def append(self, records: list[Append], group: Group = NO_GROUP) -> None:
        """Store records, which were gathered as a group or not; `on_durable` follows."""
        self.store.append_all(records)
        self._appended += len(records)
        self._waiting = (self._waiting[0] + group[0], self._waiting[1] | group[1])
        self._schedule()

    def order(self, work: Callable[[], T], done: Callable[[T | StorageError], None]) -> None:
        """Run a job on the store when all that was appended before is durable.

        `done` gets its result, or the StorageError that it raised with the store unchanged.
        """
        self._orders.append(_Work(self._appended, work, done))
        self._schedule()

    def chore(self, work: Callable[[], T], done: Callable[[T | StorageError], None]) -> None:
        """Run a job on the store between two fsyncs, whatever waits."""
        self._chores.append(_Work(0, work, done))
        self._schedule()

    def _schedule(self) -> None:
        # What is busy schedules the rest when it is done.
        if not self._is_scheduled and not self._is_busy:
            self._is_scheduled = True
            self._guard.soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._chores:
            self._run(self._chores.popleft())
        elif self._orders and self._orders[0].after <= self._durable:
            self._run(self._orders.popleft())
        elif self.store.durable != self.store.head and not self._is_retrying:
            self._fsync()

    def _run(self, item: _Work) -> None:
        self._is_busy = True
        self._guard.on_disk_thread(item.work, lambda job, _seconds: self._done(item, job))

    def _done(self, item: _Work, job: Job[Any]) -> None:
        self._is_busy = False
        self._schedule()
        item.done(job.outcome())

    def _fsync(self) -> None:
        self._group, self._waiting = self._waiting, NO_GROUP
        appended = self._appended
        if self.fsync_seconds < _INLINE_LIMIT_SECONDS and not self.is_shared:
            job = Job(self.store.sync)
            seconds = self._world.call_disk(job.run)
            self._statistics.turns.excuse(seconds)
            self._fsynced(job, seconds, appended)
        else:
            self._is_busy = True
            self._guard.on_disk_thread(
                self.store.sync, lambda job, seconds: self._fsynced(job, seconds, appended)
            )

    def _fsynced(self, job: Job[Zxid], seconds: float, appended: int) -> None:
        self._is_busy = False
        self._schedule_rest()
        result = job.outcome()
        if isinstance(result, DiskFull):
            # The records wait in the store; reads continue, and new writes are refused.
            self.has_space = False
            self._is_retrying = True
            self._guard.later(_RETRY_SECONDS, self._retry)
            return
        if isinstance(result, StorageError):
            raise result
        if self.store.durable == self.store.head:
            appended = self._appended  # the thread found records that came after it was called
        self.fsync_seconds += (seconds - self.fsync_seconds) * _SMOOTHING
        self._statistics.note_sync(seconds * 1000, appended - self._durable)
        self._durable = appended
        self._on_durable(result, self._group, self.fsync_seconds)

    def _schedule_rest(self) -> None:
        if self._orders or self._chores or self.store.durable != self.store.head:
            self._schedule()

    def _retry(self) -> None:
        self._is_retrying = False
        self.look_for_space()
        self._schedule()

    def look_for_space(self) -> None:
        """Ask the disk whether records are accepted again."""
        if not self._is_busy:
            self.has_space = self.store.has_space()

    def confirm(self) -> None:
        """Idle: make the watermark durable."""
        if self.store.is_unconfirmed and not self._is_confirming:
            self._is_confirming = True
            self.chore(self.store.confirm, self._confirmed)

    def _confirmed(self, result: StorageError | None) -> None:
        self._is_confirming = False
        if result is not None:
            raise result
