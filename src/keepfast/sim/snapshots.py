"""When a simulated server takes snapshots, and how: in pieces, with other work between them."""

from __future__ import annotations

import random
from collections.abc import Callable

from keepfast.sim.agenda import Agenda
from keepfast.sim.disk_thread import DiskThread
from keepfast.storage import SnapshotEntry, SnapshotWriter
from keepfast.tree import FrozenTree, Tree
from keepfast.wire import DiskFailed, StorageError


class SnapshotTaker:
    """Takes one snapshot at a time of the tree of one process."""

    def __init__(
        self,
        disk: DiskThread,
        agenda: Agenda,
        rng: random.Random,
        every: int,
        retain: int,
        run: Callable[[Callable[[], None]], None],
        say: Callable[..., None],
    ) -> None:
        self._disk = disk
        self._agenda = agenda
        self._rng = rng
        self._every = every
        self._retain = retain
        self._run = run
        self._say = say
        self._records = 0
        self._due = self._draw()
        self._frozen: FrozenTree | None = None

    def _draw(self) -> int:
        half = max(self._every // 2, 1)
        return half + self._rng.randrange(half + 1)

    def count(self, tree: Tree) -> None:
        """A txn was applied; starts a snapshot when one is due."""
        self._records += 1
        if self._every and self._records >= self._due:
            self.begin(tree)

    def begin(self, tree: Tree) -> None:
        """Take a snapshot of the tree as it is now, unless one is under way."""
        if self._frozen is not None or tree.is_frozen:
            return
        self._records = 0
        self._due = self._draw()
        self._frozen = tree.freeze()
        self._say("begins a snapshot at %#x", self._frozen.zxid)
        try:
            writer = self._disk.store.begin_snapshot(self._frozen)
        except DiskFailed:
            raise
        except StorageError as error:
            self._end(f"no snapshot: {error}")
            return
        self._later(lambda: self._write(writer))

    def _later(self, action: Callable[[], None]) -> None:
        self._agenda.after(self._rng.randint(100, 3000), lambda: self._run(action))

    def _write(self, writer: SnapshotWriter) -> None:
        try:
            if writer.step():
                self._later(lambda: self._write(writer))
                return
            entry = writer.complete()
        except DiskFailed:
            raise
        except StorageError as error:
            self._end(f"no snapshot: {error}")
            return
        if self._frozen is not None:
            self._frozen.close()
        # The log may be behind the tree: a leader applies what a quorum holds.
        self._disk.order(lambda: self._commit(entry), self._committed)

    def _commit(self, entry: SnapshotEntry) -> str:
        store = self._disk.store
        if entry.zxid > store.durable:
            return "no snapshot: the log is behind it"
        store.commit_snapshot(entry)
        store.roll()
        if self._retain:
            store.purge(self._retain)
        return f"has {entry.name}"

    def _committed(self, result: str | StorageError) -> None:
        if isinstance(result, DiskFailed):
            raise result
        self._end(str(result))

    def _end(self, what: str) -> None:
        if self._frozen is not None:
            self._frozen.close()
            self._frozen = None
        self._say("%s", what)
