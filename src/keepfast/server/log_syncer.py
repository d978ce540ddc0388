"""Making records durable: when to call the disk, and on which thread.

A group is everything that was appended since the last sync. On a disk that answers in a fraction
of a millisecond the event loop calls it itself, at the end of the turn in which the records came:
handing the group to a thread and being woken again would cost more than the disk. On a slower
disk a thread does it, and the loop goes on serving reads while the next group gathers
(write_groups.py).

The store is not for two threads at once. So whatever runs on the thread, a sync or another action
on the store, runs alone: meanwhile nothing is synced on the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from keepfast.replica import Append
from keepfast.server.gathering import NO_GROUP, Group
from keepfast.server.statistics import ServerStatistics
from keepfast.storage import Store
from keepfast.wire import DiskFull, StorageError, Zxid

T = TypeVar("T")

# Above this, a sync holds up the loop for longer than the way to the thread and back takes.
_INLINE_LIMIT_SECONDS = 0.0006
_SMOOTHING = 0.1
_RETRY_SECONDS = 0.2


class LogSyncer:
    """Owns the store: all that changes the disk while the server runs goes through here."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        on_durable: Callable[[Zxid], None],
        on_failure: Callable[[StorageError], None],
        on_group: Callable[[Group, float], None],
        statistics: ServerStatistics | None = None,
    ) -> None:
        self.store = store
        self._statistics = statistics or ServerStatistics()
        self.has_space = True
        self.sync_seconds = 0.0  # smoothed
        # Records, since the start: appended, and of these made durable.
        self._taken_count = 0
        self._synced_count = 0
        # What waits, and what the sync makes durable.
        self._waiting: Group = NO_GROUP
        self._group: Group = NO_GROUP
        self._loop = loop
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._on_group = on_group
        self._thread = ThreadPoolExecutor(1, "keepfast-disk")
        self._actions: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._is_scheduled = False
        self._is_busy = False  # the thread is in the store
        self._is_closed = False

    def append(self, records: list[Append], group: Group = NO_GROUP) -> None:
        """Store records, which were gathered as a group or not; `on_durable` follows."""
        self.store.append_all(records)
        self._taken_count += len(records)
        self._waiting = (self._waiting[0] + group[0], self._waiting[1] | group[1])
        self._schedule()

    async def run(self, action: Callable[[], T]) -> T:
        """Run an action on the store between two syncs, off the loop."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._actions.append((action, future))
        self._schedule()
        return await future

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._is_closed or self._is_busy:
            return  # what is busy starts again when it is done
        if self._actions:
            action, future = self._actions.popleft()
            self._on_thread(lambda: self._act(action, future))
        elif self.store.durable != self.store.head:
            self._group, self._waiting = self._waiting, NO_GROUP
            if self.sync_seconds < _INLINE_LIMIT_SECONDS:
                self._synced(self._sync())
            else:
                self._on_thread(self._sync_for_loop)

    def _on_thread(self, work: Callable[[], Callable[[], None]]) -> None:
        """Run `work` on the thread, then what it gives on the loop."""
        self._is_busy = True
        self._thread.submit(work).add_done_callback(self._wake)

    def _wake(self, done: Future[Callable[[], None]]) -> None:
        self._loop.call_soon_threadsafe(self._thread_done, done)

    def _thread_done(self, done: Future[Callable[[], None]]) -> None:
        self._is_busy = False
        done.result()()
        self._schedule()

    def _act(self, action: Callable[[], T], future: asyncio.Future[T]) -> Callable[[], None]:
        try:
            result = action()
        except StorageError as error:
            failure = error
            return lambda: None if future.cancelled() else future.set_exception(failure)
        return lambda: None if future.cancelled() else future.set_result(result)

    def _sync_for_loop(self) -> Callable[[], None]:
        result = self._sync()
        return lambda: self._synced(result)

    def _sync(self) -> Zxid | StorageError:
        taken = self._taken_count
        start = time.perf_counter()
        try:
            zxid = self.store.sync()
        except StorageError as error:
            return error
        spent = time.perf_counter() - start
        self.sync_seconds += (spent - self.sync_seconds) * _SMOOTHING
        self._statistics.note_sync(spent * 1000, taken - self._synced_count)
        self._synced_count = taken
        return zxid

    def _synced(self, result: Zxid | StorageError) -> None:
        if isinstance(result, DiskFull):
            # The records wait in the store; reads go on, and new writes are refused.
            self.has_space = False
            self._loop.call_later(_RETRY_SECONDS, self._retry)
        elif isinstance(result, StorageError):
            self._on_failure(result)
        else:
            self._on_group(self._group, self.sync_seconds)
            self._on_durable(result)

    def _retry(self) -> None:
        if not self._is_closed:
            self.look_for_space()
            self._schedule()

    def look_for_space(self) -> None:
        """Ask the disk whether records are taken."""
        if not self._is_busy:
            self.has_space = self.store.has_space()

    def idle(self) -> None:
        """A quiet moment: let the disk know how far records were acknowledged."""
        if not self._is_busy and not self._is_closed:
            self.store.confirm()

    def abandon(self) -> None:
        """Release the directory as it is on disk at this moment, as the end of the process does."""
        self._is_closed = True
        self._thread.shutdown(wait=True)
        for _, future in self._actions:
            future.cancel()
        self.store.disown()
        self.store.close()

    def close(self) -> None:
        """Make everything durable and release the directory."""
        self._is_closed = True
        self._thread.shutdown(wait=True)
        for _, future in self._actions:
            future.cancel()
        self.store.close()
