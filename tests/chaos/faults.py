"""Faults of real processes, disks and networks; each is undone by `heal`.

Where data are lost, a minority is hit: nothing acknowledged may be lost, and nobody has to help.
"""

from __future__ import annotations

import random
import signal
from abc import ABC, abstractmethod
from pathlib import Path

from tests.chaos.clocks import Clock
from tests.chaos.processes import RealEnsemble

_HEADER_BYTES = 16


class Fault(ABC):
    """Something that goes wrong."""

    name: str

    def __init__(self, ensemble: RealEnsemble, rng: random.Random) -> None:
        self.ensemble = ensemble
        self.rng = rng

    def missing(self) -> str:
        """Why it cannot be done on this machine; "" if it can."""
        return ""

    @abstractmethod
    def inject(self) -> str:
        """Let it happen; gives what it hit."""

    def heal(self) -> None:
        """Undo it: every server runs and reaches every other."""
        self.ensemble.network.heal()
        for server in self.ensemble.servers.values():
            if server.is_paused:
                server.resume()
            if not server.is_running:
                server.start()

    def victim(self) -> int:
        """A server: the leader half of the time."""
        leader = self.ensemble.leader()
        if leader is not None and self.rng.random() < 0.5:
            return leader
        return self.rng.choice(list(self.ensemble.servers))


class KillOne(Fault):
    name = "kill-one"

    def inject(self) -> str:
        victim = self.victim()
        self.ensemble.servers[victim].kill()
        return f"server {victim}"


class KillAll(Fault):
    name = "kill-all"

    def inject(self) -> str:
        for server in self.ensemble.servers.values():
            server.kill()
        return "all servers"


class Pause(Fault):
    name = "pause"

    def inject(self) -> str:
        victim = self.victim()
        self.ensemble.servers[victim].pause()
        return f"server {victim}"


class Halves(Fault):
    """A minority, with the leader half of the time, and the others: each hears only its own."""

    name = "halves"

    def inject(self) -> str:
        ids = list(self.ensemble.servers)
        minority = {self.victim()}
        while len(minority) < (len(ids) - 1) // 2:
            minority.add(self.rng.choice(ids))
        rest = [id for id in ids if id not in minority]
        self.ensemble.network.partition(minority, rest, silent=self.rng.random() < 0.5)
        return f"{sorted(minority)} | {rest}"


class Bridge(Fault):
    """Two groups that reach each other only through one server."""

    name = "bridge"

    def inject(self) -> str:
        ids = list(self.ensemble.servers)
        self.rng.shuffle(ids)
        bridge, rest = ids[0], ids[1:]
        middle = len(rest) // 2
        self.ensemble.network.partition(rest[:middle], rest[middle:])
        return f"{rest[:middle]} - {bridge} - {rest[middle:]}"


class Blind(Fault):
    """One server is heard by all and hears nobody."""

    name = "blind"

    def inject(self) -> str:
        victim = self.victim()
        for other in self.ensemble.servers:
            if other != victim:
                self.ensemble.network.cut(other, victim)
        return f"server {victim}"


class _Damage(Fault):
    """A server is killed, its files are damaged, and it is started again."""

    def inject(self) -> str:
        victim = self.victim()
        self.ensemble.servers[victim].kill()
        text = self.damage(victim)
        self.ensemble.servers[victim].start()
        return f"server {victim}: {text}"

    @abstractmethod
    def damage(self, victim: int) -> str:
        """Do it; gives what was done."""

    def flip_last(self, victim: int, prefix: str) -> str:
        files = self.ensemble.files(victim, prefix)
        if not files:
            return f"no {prefix} yet"
        path = files[-1]
        data = bytearray(path.read_bytes())
        end = len(data.rstrip(b"\0"))
        if end <= _HEADER_BYTES:
            return f"{path.name} is empty"
        offset = self.rng.randrange(_HEADER_BYTES, end)
        data[offset] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)
        return f"{path.name} at {offset}"


class CorruptLog(_Damage):
    name = "corrupt-log"

    def damage(self, victim: int) -> str:
        return self.flip_last(victim, "log")


class CorruptSnapshot(_Damage):
    name = "corrupt-snapshot"

    def damage(self, victim: int) -> str:
        return self.flip_last(victim, "snapshot")


class CorruptBoth(_Damage):
    name = "corrupt-both"

    def damage(self, victim: int) -> str:
        return f"{self.flip_last(victim, 'log')}, {self.flip_last(victim, 'snapshot')}"


class CorruptManifest(_Damage):
    name = "corrupt-manifest"

    def damage(self, victim: int) -> str:
        path = self.ensemble.data(victim) / "keepfast.manifest"
        data = bytearray(path.read_bytes())
        offset = self.rng.randrange(len(data))
        data[offset] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)
        return f"manifest at {offset}"


class Wipe(_Damage):
    name = "wipe"

    def damage(self, victim: int) -> str:
        self.ensemble.wipe(victim)
        return "wiped"


class DiskFull(Fault):
    """The disk of one server, a small file system of its own, is full."""

    name = "disk-full"

    def __init__(self, ensemble: RealEnsemble, rng: random.Random) -> None:
        super().__init__(ensemble, rng)
        self._filler: Path | None = None

    def missing(self) -> str:
        if self.ensemble.small_disk is None:
            return "no small file system could be mounted (it takes root)"
        return ""

    def inject(self) -> str:
        victim = self.ensemble.small_disk or 0
        self._filler = self.ensemble.layout.directory(victim) / "filler"
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError:
                pass  # it is full
        return f"server {victim}"

    def heal(self) -> None:
        if self._filler is not None:
            self._filler.unlink()
        super().heal()


class ClockJump(Fault):
    """The wall clock of one server jumps, forward or back."""

    name = "clock-jump"

    def __init__(self, ensemble: RealEnsemble, rng: random.Random) -> None:
        super().__init__(ensemble, rng)
        self._clock: Clock | None = None

    def missing(self) -> str:
        return "" if self.ensemble.clocks else "no C compiler to make a clock that can be set"

    def inject(self) -> str:
        victim = self.victim()
        seconds = self.rng.choice((-3600.0, -5.0, 5.0, 86_400.0))
        self._clock = self.ensemble.clocks[victim]
        self._clock.set_back(-seconds)
        return f"server {victim} by {seconds:g} s"

    def heal(self) -> None:
        if self._clock is not None:
            self._clock.set_back(0)
        super().heal()


class PowerCut(Fault):
    """The disks are slow, and the power of all servers fails: what was not synced is lost."""

    name = "power-cut"
    _SYNC_MS = 60

    def missing(self) -> str:
        return "" if self.ensemble.power else "no C compiler to make a disk that forgets"

    def inject(self) -> str:
        for power in self.ensemble.power.values():
            power.slow_down(self._SYNC_MS)
        return "all servers"

    def heal(self) -> None:
        servers = self.ensemble.servers
        # All at one moment: whoever lives on for a while syncs what others lose.
        for server in servers.values():
            server.signal(signal.SIGKILL)
        lucky = self.rng.choice(list(servers))
        for id, server in servers.items():
            server.kill()
            power = self.ensemble.power[id]
            power.slow_down(0)
            # A disk may have written more than it had to.
            power.cut(self.ensemble.data(id), self.rng.random() if id == lucky else 0.0)
        super().heal()


FAULTS: tuple[type[Fault], ...] = (
    KillOne,
    KillAll,
    Pause,
    Halves,
    Bridge,
    Blind,
    CorruptLog,
    CorruptSnapshot,
    CorruptBoth,
    CorruptManifest,
    Wipe,
    DiskFull,
    ClockJump,
    PowerCut,
)
