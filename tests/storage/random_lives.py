"""Long lives with many deaths: operations in any order, and power lost anywhere in them.

The scenarios are short and exhaustive; this is the opposite.  What one crash leaves is what the
next operation works on, so that leftovers of several crashes meet.
"""

from __future__ import annotations

import random
from dataclasses import replace

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_faults import PowerLoss
from keepfast.wire import Zxid
from tests.storage.crash import Campaign
from tests.storage.scenarios import Scenario, nothing
from tests.storage.workload import NOTHING, Point, Server, other_tree

_SIZES = (0, 0, 10, 40, 200, 500, 600, 1100)
_MAX_CALLS = 250


class RandomLife:
    """One disk, and the servers that live and die on it."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._disk = MemoryDisk()
        self._past: dict[int, Point] = {}
        self._server = Server(self._disk)
        self._highest_epoch = 1
        self.campaign = Campaign(Scenario(f"life {seed}", nothing))
        self.deaths = 0

    def live(self, deaths: int) -> None:
        """Die this many times; raises InconsistentError if something was lost on the way."""
        while self.deaths < deaths:
            rng = self._rng
            call = self._disk.calls + rng.randrange(1, _MAX_CALLS)
            self._disk.fail_at(call, PowerLoss(), after=rng.random() < 0.5)
            try:
                self._be_busy()
            except PowerLoss:
                self.deaths += 1
            else:
                continue
            expected = self._server.ledger.expectation
            # Now and then it is the process that dies, and the machine runs on.
            is_killed = rng.random() < 0.25
            self._disk = self._disk.clone() if is_killed else self._disk.crash(rng)
            self.campaign.judge(self._disk.clone(), expected, f"death {self.deaths}")
            self._past.update(self._server.ledger.past)
            self._server = Server(self._disk)
            # Where Apache is lost, in a torn group for instance, it is until a start is done.
            self._server.ledger.expectation = replace(expected, for_apache=False)

    def _be_busy(self) -> None:
        server, rng = self._server, self._rng
        if not hasattr(server, "store"):
            server.open()
            server.ledger.past = {**self._past, **server.ledger.past}
            if server.ledger.acknowledged == NOTHING:
                server.start_new()
        for _ in range(40):
            action = rng.choices(_ACTIONS, _WEIGHTS)[0]
            action(self)

    def _append(self) -> None:
        self._server.append(*self._rng.choices(_SIZES, k=self._rng.randrange(1, 5)))

    def _sync(self) -> None:
        self._server.sync()

    def _write(self) -> None:
        self._append()
        self._sync()

    def _roll(self) -> None:
        self._server.store.roll()

    def _confirm(self) -> None:
        self._server.store.confirm()

    def _snapshot(self) -> None:
        server = self._server
        if server.ledger.submitted:
            server.sync()
        writer = server.begin_snapshot()
        while writer.step():
            if self._rng.random() < 0.3:
                self._write()
        server.store.publish_snapshot(writer.complete())

    def _epoch(self) -> None:
        server = self._server
        self._highest_epoch += 1
        server.set_epochs(self._highest_epoch, server.store.epochs.current or 0)
        server.epoch = self._highest_epoch
        if self._rng.random() < 0.5:
            # As a learner does it: the records first.
            self._write()
        server.set_epochs(self._highest_epoch, self._highest_epoch)

    def _install(self) -> None:
        server = self._server
        self._highest_epoch += 1
        server.set_epochs(self._highest_epoch, server.store.epochs.current or 0)
        sizes = [0, *self._rng.choices(_SIZES, k=self._rng.randrange(1, 5))]
        server.install(other_tree(self._highest_epoch, sizes))
        server.set_epochs(self._highest_epoch, self._highest_epoch)

    def _truncate(self) -> None:
        server = self._server
        oldest = min(snapshot.zxid for snapshot in server.store.manifest.snapshots)
        records = server.store.history.records_after(oldest)
        if records is None:
            return
        zxids = [oldest, *(record.zxid for record in records)]
        server.truncate(Zxid(self._rng.choice(zxids[-8:])))
        self._epoch()

    def _purge(self) -> None:
        self._server.store.purge(self._rng.randrange(1, 4))

    def _restart(self) -> None:
        past = self._server.ledger.past
        self._server.close()
        self._server.open()
        self._server.ledger.past = {**past, **self._server.ledger.past}


_ACTIONS = [
    RandomLife._append,
    RandomLife._sync,
    RandomLife._write,
    RandomLife._roll,
    RandomLife._confirm,
    RandomLife._snapshot,
    RandomLife._epoch,
    RandomLife._install,
    RandomLife._truncate,
    RandomLife._purge,
    RandomLife._restart,
]
_WEIGHTS = [6, 6, 12, 2, 1, 3, 1, 1, 2, 1, 1]
