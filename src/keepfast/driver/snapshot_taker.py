"""Writes snapshots without blocking the loop, which encodes them in steps of about a millisecond.

A thread writes each piece, and reads the file back in the end: the kernel makes whoever writes wait
while it flushes hundreds of megabytes.  So does a log on the same disk, whose fsyncs leave the loop
for as long (`DiskWorker.is_shared`).

A snapshot becomes part of the history after all records that were appended before it was complete:
one that held more than the log does durably would let a restart skip what the log never had (R6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from keepfast.driver.disk_worker import DiskWorker
from keepfast.driver.guard import Guard
from keepfast.driver.server_statistics import ServerStatistics
from keepfast.driver.server_world import ServerWorld
from keepfast.quorum import note
from keepfast.storage import SnapshotEntry, SnapshotWriter
from keepfast.tree import Tree
from keepfast.wire import DiskFailed, StorageError

# Changes that are merged back in one turn, for each znode that is written in one.
_THAWED: Final = 2
_NS_OF_MS: Final = 1_000_000

Done = Callable[[SnapshotEntry | None], None]


class SnapshotTaker:
    """Takes one snapshot at a time."""

    def __init__(
        self,
        disk: DiskWorker,
        world: ServerWorld,
        guard: Guard,
        statistics: ServerStatistics,
        purge: Callable[[], object] | None,
    ) -> None:
        """`purge` deletes what no kept recovery path needs; None: nothing is ever purged."""
        self._disk = disk
        self._world = world
        self._guard = guard
        self._statistics = statistics
        self._purge = purge
        self._thaw_budget = _THAWED * disk.store.options.chunk_nodes
        self._tree: Tree | None = None
        self._writer: SnapshotWriter | None = None
        self._started_ns = 0
        self._waiting: list[Done] = []

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is under way."""
        return self._tree is not None

    def begin(self, tree: Tree, done: Done | None = None) -> None:
        """Write the tree as it is at this moment, or wait for the snapshot that is under way.

        `done` gets the snapshot; None: it failed, and without it the log grows and nothing is lost.
        """
        if done is not None:
            self._waiting.append(done)
        if self._tree is not None:
            return
        self._tree = tree
        self._disk.is_shared = True
        self._started_ns = self._world.now_ns()
        try:
            self._writer = self._disk.store.begin_snapshot(tree.freeze())
        except DiskFailed:
            raise
        except StorageError as error:
            self._failed(error)
        else:
            self._guard.after_others(self._step)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call something when no snapshot is under way, now or later."""
        if self._tree is None:
            action()
        else:
            self._waiting.append(lambda _entry: action())

    def abandon(self) -> None:
        """Give up the snapshot that is under way, at the end of the server."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def _step(self) -> None:
        writer = self._writer
        if writer is None:
            return
        piece = writer.encode()
        is_more = piece is not None
        self._guard.aside(lambda: writer.write(piece), lambda error: self._wrote(error, is_more))

    def _wrote(self, error: StorageError | None, is_more: bool) -> None:
        writer = self._writer
        if writer is None:
            return
        if error is not None:
            self.abandon()
            self._failed(error)
        elif is_more:
            self._step()
        else:
            self._writer = None
            self._guard.aside(writer.complete, self._completed)

    def _completed(self, result: SnapshotEntry | StorageError) -> None:
        if isinstance(result, StorageError):
            self._failed(result)
            return
        entry = result
        self._disk.order(lambda: self._publish(entry), lambda done: self._published(entry, done))

    def _publish(self, entry: SnapshotEntry) -> None:
        self._disk.store.publish_snapshot(entry)
        self._disk.store.roll()

    def _published(self, entry: SnapshotEntry, result: StorageError | None) -> None:
        if result is not None:
            self._failed(result)
            return
        spent_ms = (self._world.now_ns() - self._started_ns) / _NS_OF_MS
        self._statistics.snapshot.add(spent_ms)
        self._world.note(note("snapshot", file=entry.name, bytes=entry.size, ms=round(spent_ms)))
        if self._purge is None:
            self._thaw(entry)
        else:
            self._disk.chore(self._purge, lambda result: self._purged(entry, result))

    def _purged(self, entry: SnapshotEntry, result: object) -> None:
        if isinstance(result, StorageError):
            self._world.note(note("purge-failed", reason=result))
        self._thaw(entry)

    def _failed(self, error: StorageError) -> None:
        self._statistics.snapshots_failed += 1
        self._world.note(note("snapshot-failed", reason=error))
        self._thaw(None)

    def _thaw(self, entry: SnapshotEntry | None) -> None:
        if self._tree is not None and not self._tree.thaw_step(self._thaw_budget):
            self._guard.after_others(lambda: self._thaw(entry))
            return
        self._tree = None
        self._disk.is_shared = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(entry)
