"""One simulated computer: a disk that outlives the programs that run on it, power, and a clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from keepfast.quorum import SharedSecret
from keepfast.sim import disk_faults
from keepfast.sim.agenda import MS
from keepfast.sim.apache_files import ApacheFiles
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.network import Place
from keepfast.sim.options import WALL_START_MS
from keepfast.sim.process import Process
from keepfast.storage import DataDirectory, Standing, Store, data_directory, unlock_directory
from keepfast.wire import ServerId, StorageError

if TYPE_CHECKING:
    from keepfast.sim.simulated_world import World

DATA_DIR: Final = "/data"
_RESTART_US: Final = 300 * MS


class Host:
    """A computer on which one server is to run."""

    def __init__(self, world: World, server_id: ServerId) -> None:
        self.world = world
        self.server_id = server_id
        self.place: Place = server_id
        self.who = f"s{server_id}"
        self.disk = MemoryDisk(world.options.disk.capacity)
        # Where its server's data lies; on a new disk, as on a used one.
        self.directory: DataDirectory = data_directory(MemoryDisk(), DATA_DIR)
        self.process: Process | None = None
        # Whether a server that ended by itself is started again.
        self.is_wanted = False
        # Until then no disk call comes back.
        self.disk_hangs_until_us = 0
        # Each event takes up to this much longer.
        self.lag_us = 0
        self.skew_ms = 0
        self.backup: MemoryDisk | None = None
        # What its server stores for session passwords: a small file, whole or as it was.
        self.secret: SharedSecret | None = None
        # Whether the server that runs here is one of Apache's, and what it has beside our files.
        self.is_apache = server_id == world.options.apache
        self.apache = ApacheFiles()
        # Its data was damaged, and it does not serve since.
        self.is_impaired = False
        self.starts = 0
        self._rng = random.Random(world.rng.getrandbits(64))

    @property
    def wall_ms(self) -> int:
        """Its wall clock."""
        return WALL_START_MS + self.world.agenda.now_ms + self.skew_ms

    @property
    def is_up(self) -> bool:
        """Whether a server runs."""
        return self.process is not None

    # -- the server's life -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the server, if it does not run; a disk that fails ends it at once."""
        self.is_wanted = True
        if self.process is not None:
            return
        self.starts += 1
        try:
            store, recovery = Store.open(self.disk, self.directory, self.world.options.store)
            self.world.trace.add(
                self.who, "starts: %s, head %#x", recovery.standing.value, recovery.head
            )
            self.world.checkers.opened(self.server_id, recovery)
            process = self.world.make_process(self, store, recovery)
        except disk_faults.PowerLoss:
            self.power_lost("while it starts")
            return
        except disk_faults.MishapError as error:
            self.world.trace.add(self.who, "cannot start: %r", error)
            self._retry()
            return
        except StorageError as error:
            self.world.trace.add(self.who, "cannot start: %s", error)
            self.world.start_failed(self, error)
            self._retry()
            return
        self.process = process
        process.start()

    def _retry(self) -> None:
        self._unlock()
        self.world.agenda.after(_RESTART_US, lambda: self.start() if self.is_wanted else None)

    def ended(self, process: Process, reason: str) -> None:
        """The server has ended by itself; a supervisor starts it again."""
        if process is not self.process:
            return
        self.world.trace.add(self.who, "ends: %s", reason)
        self._bury(says_farewell=True)
        self._retry()

    def kill(self) -> None:
        """kill -9: what was written stays written, durable or not."""
        self.is_wanted = False
        if self.process is not None:
            self.world.trace.add(self.who, "is killed")
            self._bury(says_farewell=True)
            # Open files end with the process.
            self.disk = self.disk.clone()

    def stop(self) -> None:
        """A clean shutdown: everything becomes durable."""
        self.is_wanted = False
        process = self.process
        if process is None:
            return
        self.world.trace.add(self.who, "is stopped")
        self._bury(says_farewell=True)
        try:
            process.store.close()
        except disk_faults.PowerLoss:
            self.power_lost("while it stops")
        except (StorageError, disk_faults.MishapError) as error:
            self.world.trace.add(self.who, "stops badly: %s", error)
        self._unlock()

    def cut_power(self) -> None:
        """Lose power: any subset of what was not made durable may be lost."""
        self.is_wanted = False
        self.power_lost("by the plug", starts_again=False)

    def power_lost(self, when: str, *, starts_again: bool = True) -> None:
        """The power is gone; the disk holds what a crash leaves."""
        self.world.trace.add(self.who, "loses power %s", when)
        self._bury(says_farewell=False)
        self.disk = self.disk.crash(self._rng)
        if starts_again and self.is_wanted:
            self._retry()

    def _bury(self, *, says_farewell: bool) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.end()
        self.world.process_ended(process)
        for stream in self.world.network.streams_of(self.place):
            side = stream.places.index(self.place)
            if says_farewell:
                stream.close(side)
            else:
                stream.abandon(side)

    def _unlock(self) -> None:
        unlock_directory(self.disk, self.directory)

    # -- what else happens to computers ----------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether its server runs and its data is whole."""
        return self.process is not None and self.process.store.standing is Standing.WHOLE
