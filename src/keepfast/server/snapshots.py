"""When snapshots are taken, and how without stalling the event loop."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

from keepfast.server.ensemble_report import tree_of
from keepfast.storage import SnapshotEntry, SnapshotWriter
from keepfast.tree import FrozenTree, Tree
from keepfast.wire import StorageError

if TYPE_CHECKING:
    from keepfast.server.server import Server

_THAW_BUDGET = 2000


class SnapshotTaker:
    """Takes one snapshot at a time, in steps of about a millisecond between other work."""

    def __init__(self, server: Server, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self._records = 0
        self._due = self._draw()
        self._task: asyncio.Task[SnapshotEntry | None] | None = None

    def _draw(self) -> int:
        """Between half and all of the interval, so that servers do not snapshot in step."""
        half = max(self._server.options.snapshot_every // 2, 1)
        return half + self._rng.randrange(half + 1)

    def count(self, records: int) -> None:
        """Note records that were stored; starts a snapshot when it is due."""
        self._records += records
        # Before it serves, a member's tree is being made: it may not be the state of any zxid.
        is_ready = self._task is None and self._server.is_serving
        if self._records >= self._due and is_ready:
            self._records = 0
            self._due = self._draw()
            self.begin()

    def begin(self) -> asyncio.Task[SnapshotEntry | None]:
        """Take a snapshot of the state as it is now, or wait for the one that is under way."""
        if self._task is None:
            # Not the replica's: before it serves, that is the tree of an earlier role, or none.
            tree = tree_of(self._server)
            # Here and not in the task: whoever asks relies on the state being that of this moment.
            frozen = None if tree is None else tree.freeze()
            self._task = asyncio.get_running_loop().create_task(self._take(tree, frozen))
        return self._task

    async def wait_until_idle(self) -> None:
        """Wait for the snapshot that is under way, if there is one, whatever becomes of it."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def take_now(self) -> SnapshotEntry | None:
        """Take a snapshot that holds at least everything that is applied now; None: it failed."""
        # One that began earlier holds an older state.
        await self.wait_until_idle()
        return await self.begin()

    async def _take(self, tree: Tree | None, frozen: FrozenTree | None) -> SnapshotEntry | None:
        server = self._server
        started = time.monotonic()
        syncer = server.syncer
        if tree is None or frozen is None:
            self._task = None
            return None
        store, retain = syncer.store, server.options.retain_snapshots
        try:
            writer = store.begin_snapshot(frozen)
            await self._write(writer)
            entry = await asyncio.get_running_loop().run_in_executor(None, writer.complete)
            await syncer.run(lambda: store.commit_snapshot(entry))
            store.roll()
            spent_ms = (time.monotonic() - started) * 1000
            server.statistics.snapshot.add(spent_ms)
            name = entry.name
            server.log.info("snapshot", file=name, bytes=entry.size, ms=round(spent_ms))
            if retain:
                await syncer.run(lambda: store.purge(retain))
        except StorageError as error:
            # Without a snapshot the log grows, and nothing is lost.
            server.statistics.snapshots_failed += 1
            server.log.error("snapshot-failed", reason=error)
            return None
        else:
            return entry
        finally:
            while not tree.thaw_step(_THAW_BUDGET):  # noqa: ASYNC110 - others run in between
                await asyncio.sleep(0)
            self._task = None

    async def _write(self, writer: SnapshotWriter) -> None:
        try:
            while writer.step():  # noqa: ASYNC110 - others run in between
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            writer.abandon()
            raise

    async def stop(self) -> None:
        """Give up a snapshot that is under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
