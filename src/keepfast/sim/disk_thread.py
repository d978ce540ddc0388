"""A server's disk thread in virtual time: records in groups, and other jobs between them.

A job is done at the moment it begins, and reported some time later: a crash in between finds on
the disk what nobody has heard of yet. A crash *inside* a job is a `PowerLoss` that the disk raises
at one of its calls.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from keepfast.sim.agenda import MS, Agenda
from keepfast.sim.options import DiskOptions
from keepfast.storage import Store
from keepfast.wire import DiskFull, StorageError, Zxid

_RETRY_US: Final = 200 * MS


class _Record(NamedTuple):
    zxid: Zxid
    entry: bytes
    digest: int | None


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: Callable[[Any], None]


class DiskThread:
    """Does what a process asks of its store, one thing after another."""

    def __init__(
        self,
        store: Store,
        agenda: Agenda,
        rng: random.Random,
        options: DiskOptions,
        run: Callable[[Callable[[], None]], None],
        on_durable: Callable[[Zxid], None],
    ) -> None:
        """`run` runs an action as an event of the process, if it still lives."""
        self.store = store
        self._agenda = agenda
        self._rng = rng
        self._options = options
        self._run = run
        self._on_durable = on_durable
        self._queue: deque[_Record | _Job] = deque()
        self._is_busy = False
        self.has_space = True
        # Whether a call may take unusually long.
        self.may_stall = True

    def append(self, zxid: Zxid, entry: bytes, digest: int | None) -> None:
        """Store a record; `on_durable` follows."""
        self._queue.append(_Record(zxid, entry, digest))
        self._wake()

    def order(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do something else behind all that was asked for before.

        `done` gets what `work` gave, or the StorageError that it raised.
        """
        self._queue.append(_Job(work, done))
        self._wake()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._queue and not self._is_busy

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._agenda.after(0, lambda: self._run(self._work))

    def _latency_us(self) -> int:
        options = self._options
        latency = self._rng.randint(options.least_latency_us, options.most_latency_us)
        if self.may_stall and options.stall_chance and self._rng.random() < options.stall_chance:
            latency += options.stall_us
        return latency

    def _work(self) -> None:
        if not self._queue:
            self._is_busy = False
            return
        head = self._queue[0]
        if isinstance(head, _Job):
            self._queue.popleft()
            try:
                result = head.work()
            except StorageError as error:
                result = error
            done = head.done
            self._report(lambda: done(result))
            return
        try:
            while self._queue and isinstance(head := self._queue[0], _Record):
                self.store.append(head.zxid, head.entry, head.digest)
                self._queue.popleft()
        except DiskFull:
            # What was taken already is still written, if it can be.
            self.has_space = False
        self._sync()

    def _sync(self) -> None:
        try:
            durable = self.store.sync()
        except DiskFull:
            self.has_space = False
        else:
            if self.has_space:
                self._report(lambda: self._on_durable(durable))
                return
            self._agenda.after(
                self._latency_us(), lambda: self._run(lambda: self._on_durable(durable))
            )
        self._agenda.after(_RETRY_US, lambda: self._run(self._retry))

    def _retry(self) -> None:
        self.has_space = self.store.has_space()
        if self.store.head != self.store.durable:
            self._sync()
        else:
            self._work()

    def look_for_space(self) -> None:
        """Ask the disk whether records are taken."""
        if not self._is_busy:
            self.has_space = self.store.has_space()

    def _report(self, action: Callable[[], None]) -> None:
        def tell() -> None:
            action()
            self._work()

        self._agenda.after(self._latency_us(), lambda: self._run(tell))
