"""What goes wrong in a world, when, and how it is healed.

Faults are drawn by chance (`Nemesis`) or played by a scenario. Any number of servers may be killed,
paused or cut off at once. Data is damaged on a minority only, and never on the next server before
the last one is whole again: with more, the service may rightly stop for good.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from keepfast.quorum import MemberRole
from keepfast.sim import disk_faults
from keepfast.sim.agenda import MS
from keepfast.sim.damage import BACKWARD, NOTICEABLE
from keepfast.sim.disasters import Disasters
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.schedules import Schedules
from keepfast.sim.simulated_members import spec_of
from keepfast.storage import SECTOR_SIZE
from keepfast.tree import CONFIG
from keepfast.wire import OpCode, ReconfigRequest

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.simulated_world import World

_DISK_CALLS: Final = 60
# With fewer, a change under way and one damaged server together may be a majority lost.
_FEWEST_VOTERS: Final = 3
_FAILING: Final = ("write_at", "fsync", "datasync", "fsync_directory", "rename", "create")


class Nemesis:
    """Injects faults until it is stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._options = world.options.faults
        self._rng = random.Random(world.rng.getrandbits(64))
        self._kinds = [kind for kind, _ in self._options.weights]
        self._weights = [weight for _, weight in self._options.weights]
        self.is_stopped = False
        # The server whose data was undone in time: until it follows again, nothing else fails.
        self._ward: Host | None = None
        # Until then no new fault begins.
        self._quiet_until_us = 0
        self.counts: dict[str, int] = {}
        self._faults: dict[str, Callable[[Host], bool]] = {
            "kill": self._kill,
            "stop": self._stop,
            "power": self._power,
            "power-in-call": self._power_in_call,
            "all-power": self._all_power,
            "pause": self._pause,
            "slow": self._slow,
            "reset": self._reset,
            "isolate": self._isolate,
            "halves": self._halves,
            "one-way": self._one_way,
            "bridge": self._bridge,
            "deafen": self._deafen,
            "lag": self._lag,
            "full": self._full,
            "error": self._error,
            "clock": self._clock,
            "snapshot": self._snapshot,
            "purge": self._purge,
            "wipe": self._wipe,
            "backup": self._backup,
            "restore": self._restore,
            "rolling": self._rolling,
            "diverge": self._diverge,
            "reconfig": self._reconfig,
            **{name: self._damager(name) for name in (*NOTICEABLE, *BACKWARD)},
            **Schedules(world, self, random.Random(self._rng.getrandbits(64))).all,
            **Disasters(world, self, random.Random(f"{world.seed} disasters")).all,
        }

    def start(self) -> None:
        """Begin; nothing happens if there is nothing to draw from."""
        if self._kinds and self._options.every_ms:
            self._later()

    def _later(self) -> None:
        delay_us = int(self._rng.expovariate(1 / (self._options.every_ms * MS)))
        self._world.agenda.after(delay_us, self._act)

    def _act(self) -> None:
        if self.is_stopped:
            return
        self._later()
        if self.is_quiet:
            return
        ward = self._ward
        if ward is not None:
            if not self._world.is_serving(ward):
                return
            self._ward = None
        kind = self._rng.choices(self._kinds, self._weights)[0]
        host = self._rng.choice(list(self._world.hosts.values()))
        self.strike(kind, host)

    def strike(self, kind: str, host: Host) -> None:
        """Let one kind of fault happen to a server now."""
        if self._faults[kind](host):
            self.counts[kind] = self.counts.get(kind, 0) + 1

    @property
    def is_quiet(self) -> bool:
        """Whether something is under way beside which nothing else must fail."""
        return self._world.agenda.now_us < self._quiet_until_us

    def keep_quiet(self, ticks: float) -> None:
        """Let nothing else fail for a while."""
        self._quiet_until_us = self._world.agenda.now_us + int(ticks * self._world.tick_us)

    def heal(self) -> None:
        """End all that goes wrong and start whoever is down; from now on nothing fails."""
        self.is_stopped = True
        self._world.trace.add("ops", "all is healed")
        self.calm()
        for host in self._world.hosts.values():
            host.start()

    def calm(self) -> None:
        """End all that goes wrong; who is down stays so."""
        world = self._world
        world.traps.clear()
        world.network.lag_us.clear()
        world.network.way_lag_us.clear()
        for client in world.clients:
            client.is_held = False
        for host in world.hosts.values():
            host.lag_us = 0
            host.disk_hangs_until_us = 0
            host.apache.dies_when_elected = False
            host.disk.heal()
            host.disk.capacity = None
            if host.process is not None:
                host.process.resume()
        world.network.heal()

    # -- helpers ---------------------------------------------------------------------------------

    def _say(self, text: str, *values: object) -> None:
        self._world.trace.add("ops", text, *values)

    def _span_us(self) -> int:
        """How long a fault lasts: from a moment to several election timeouts."""
        ticks = self._rng.choice((0.1, 0.5, 1.0, 3.0, 8.0, 15.0))
        return int(self._rng.random() * ticks * self._world.tick_us)

    def _then(self, action: Callable[[], object]) -> None:
        """Do something when the fault is over, unless all was healed before."""

        def when_over() -> None:
            if not self.is_stopped:
                action()

        self._world.agenda.after(self._span_us(), when_over)

    # -- processes -------------------------------------------------------------------------------

    def _kill(self, host: Host) -> bool:
        if not host.is_up:
            return False
        host.kill()
        self._then(host.start)
        return True

    def _stop(self, host: Host) -> bool:
        if not host.is_up:
            return False
        host.stop()
        self._then(host.start)
        return True

    def _power(self, host: Host) -> bool:
        if not host.is_up:
            return False
        host.cut_power()
        self._then(host.start)
        return True

    def _power_in_call(self, host: Host) -> bool:
        """Lose power inside one of the next disk calls; the server is started again after that."""
        call = host.disk.calls + self._rng.randrange(1, _DISK_CALLS)
        host.disk.fail_at(call, disk_faults.PowerLoss(), after=self._rng.random() < 0.5)
        self._say("%s will lose power in a disk call", host.who)
        return True

    def _all_power(self, host: Host) -> bool:
        for each in self._world.hosts.values():
            each.cut_power()
            self._then(each.start)
        return True

    def _pause(self, host: Host) -> bool:
        process = host.process
        if process is None or process.is_paused:
            return False
        self._say("%s is paused", host.who)
        process.pause()

        def wake() -> None:
            # A client arrives that has seen more elsewhere, before the server looks at its clock.
            clients = [client for client in self._world.clients if client.is_open]
            if clients:
                self._rng.choice(clients).roam(host.server_id)
            self._world.agenda.after(self._rng.randint(1, 10) * MS, process.resume)

        self._then(wake)
        return True

    def _slow(self, host: Host) -> bool:
        host.lag_us = self._rng.choice((2, 20, 100)) * MS
        self._say("%s is slow", host.who)

        def recover() -> None:
            host.lag_us = 0

        self._then(recover)
        return True

    def _rolling(self, host: Host) -> bool:
        self._say("rolling restart")
        delay_us = 0
        for each in self._world.hosts.values():
            self._world.agenda.after(delay_us, partial(self._restart, each))
            delay_us += int((2 + 4 * self._rng.random()) * self._world.tick_us)
        return True

    def _restart(self, host: Host) -> None:
        if not (self.is_stopped or self.is_quiet or self._ward is not None):
            host.stop()
            host.start()

    def _diverge(self, host: Host) -> bool:
        """The leader logs what nobody else sees, then dies; the others continue without it.

        Requests still reach the leader: only what it sends is held up.
        """
        world = self._world
        leader = world.leading_host()
        if leader is None:
            return False
        self._say("nobody hears %s, which will die", leader.who)
        for place in self._places():
            if place != leader.place:
                world.network.block(leader.place, place)
        is_power_cut = self._rng.random() < 0.5
        delay_us = int(self._rng.uniform(0.2, 2.0) * world.tick_us)
        away_us = int(self._rng.uniform(1.0, 12.0) * world.tick_us)
        world.agenda.after(delay_us, lambda: self._end_of(leader, is_power_cut, away_us))
        return True

    def _end_of(self, host: Host, is_power_cut: bool, away_us: int) -> None:
        if self.is_stopped or self.is_quiet or self._ward is not None:
            return
        for stream in self._world.network.streams_of(host.place):
            stream.reset()  # or what is held up would arrive after all
        if is_power_cut:
            host.cut_power()
        else:
            host.kill()
        self._world.network.heal()
        self._world.agenda.after(away_us, lambda: None if self.is_stopped else host.start())

    def _reconfig(self, host: Host) -> bool:
        """Ask for a membership change: one comes back, leaves, or changes its part."""
        world = self._world
        clients = [client for client in world.clients if client.is_open]
        if not clients:
            return False
        members = world.checkers.ledger.membership
        spec = members.find(host.server_id)
        joining, leaving = None, None
        if spec is None or (spec.role is MemberRole.OBSERVER and self._rng.random() < 0.5):
            role = self._rng.choice((MemberRole.PARTICIPANT, MemberRole.OBSERVER))
            joining = f"server.{host.server_id}={spec_of(host.server_id, role).text()}"
        elif spec.role is MemberRole.OBSERVER or len(members.voters) > _FEWEST_VOTERS:
            leaving = str(host.server_id)
        else:
            return False
        self._say("reconfig: joining %s, leaving %s", joining, leaving)
        request = ReconfigRequest(joining, leaving, None, -1)
        return self._rng.choice(clients).ask(OpCode.RECONFIG, CONFIG, request) is not None

    # -- network ---------------------------------------------------------------------------------

    def _reset(self, host: Host) -> bool:
        streams = self._world.network.streams_of(host.place)
        if not streams:
            return False
        stream = self._rng.choice(streams)
        self._say("a stream between %d and %d is reset", *stream.places)
        stream.reset()
        return True

    def _places(self) -> list[int]:
        return [host.place for host in self._world.hosts.values()]

    def _isolate(self, host: Host) -> bool:
        self._say("%s is cut off from its peers", host.who)
        others = set(self._places()) - {host.place}
        self._world.network.part({host.place}, others)
        self._then(self._world.network.heal)
        return True

    def _halves(self, host: Host) -> bool:
        places = self._places()
        self._rng.shuffle(places)
        at = self._rng.randrange(1, max(len(places), 2))
        left, right = set(places[:at]), set(places[at:])
        # Clients are on one side or see both.
        for client in self._world.clients:
            self._rng.choice((left, right, set())).add(client.place)
        self._say("parted: %s from %s", sorted(left), sorted(right))
        self._world.network.part(left, right)
        self._then(self._world.network.heal)
        return True

    def _one_way(self, host: Host) -> bool:
        others = [place for place in self._places() if place != host.place]
        if not others:
            return False
        other = self._rng.choice(others)
        self._say("nothing gets from %d to %d", host.place, other)
        self._world.network.block(host.place, other)
        self._then(self._world.network.heal)
        return True

    def _deafen(self, host: Host) -> bool:
        """A client does not take what a server sends to it."""
        client = self._rng.choice(self._world.clients)
        self._say("%s does not read what %s sends", client.who, host.who)
        self._world.network.block(host.place, client.place)
        self._then(self._world.network.heal)
        return True

    def _bridge(self, host: Host) -> bool:
        """Two halves that see only one server in common."""
        others = [place for place in self._places() if place != host.place]
        if len(others) < 2:
            return False
        self._rng.shuffle(others)
        half = len(others) // 2
        self._say("only %s sees all others", host.who)
        self._world.network.part(set(others[:half]), set(others[half:]))
        self._then(self._world.network.heal)
        return True

    def _lag(self, host: Host) -> bool:
        lag = self._world.network.lag_us
        lag[host.place] = self._rng.choice((5, 50, 200)) * MS
        self._say("the network of %s is slow", host.who)
        self._then(lambda: lag.pop(host.place, None))
        return True

    # -- disks -----------------------------------------------------------------------------------

    def _full(self, host: Host) -> bool:
        host.disk.capacity = host.disk.used_bytes() + self._rng.choice((0, 500, 3000))
        host.disk.partial_writes = self._rng.random() < 0.5
        self._say("the disk of %s gets full", host.who)

        def free() -> None:
            host.disk.capacity = None

        self._then(free)
        return True

    def _error(self, host: Host) -> bool:
        operation = self._rng.choice(_FAILING)
        kept = self._rng.choice((0, 1, 600))
        if operation == "write_at" and kept == 1:
            kept = SECTOR_SIZE  # a disk writes a sector, or it does not
        host.disk.inject(operation, code=errno.EIO, kept=kept)
        self._say("the next %s of %s will fail", operation, host.who)
        return True

    def _clock(self, host: Host) -> bool:
        host.skew_ms += self._rng.choice((-3_600_000, -2000, 2000, 3_600_000))
        self._say("the clock of %s jumps", host.who)
        return True

    def _snapshot(self, host: Host) -> bool:
        process = host.process
        if process is None or not self._world.is_serving(host):
            return False
        loop, tree = process.loop, process.replica.tree
        process.run(lambda: loop.guard.run(lambda: loop.snapshots.begin(tree)))
        return True

    def _purge(self, host: Host) -> bool:
        process = host.process
        if process is None:
            return False
        retain = self._rng.randrange(1, 4)
        self._say("%s purges to %d", host.who, retain)
        process.run(lambda: process.loop.ask_for_purge(retain))
        return True

    # -- data ------------------------------------------------------------------------------------

    def may_damage(self, host: Host) -> bool:
        """Whether a quorum of sound servers is left with this server's data gone.

        Sound is who has agreed to an epoch and was not damaged since: a server that never had
        anything cannot stand in for one that lost it.
        """
        world = self._world
        sound = set()
        for each in world.hosts.values():
            each.is_impaired = each.is_impaired and not world.is_serving(each)
            shadow = world.checkers.ledger.shadow_of(each.server_id)
            if not each.is_impaired and shadow.vouched_epoch > 0:
                sound.add(each.server_id)
        left = sound - {host.server_id}
        # A membership change that is stored somewhere may decide who has to be left.
        undecided = world.checkers.ledger.undecided_memberships()
        return world.is_quorum(left) and all(members.is_quorum(left) for members in undecided)

    def damaged(self, host: Host, what: str, *, is_backward: bool = False) -> None:
        """Note what was done to a server's files; it is started again later."""
        self._say("%s: %s", host.who, what)
        host.is_impaired = True
        self._world.checkers.damaged(host.server_id, is_backward=is_backward)
        if is_backward:
            self._ward = host
        self._then(host.start)

    def _wipe(self, host: Host) -> bool:
        if not self.may_damage(host):
            return False
        host.kill()
        host.disk = MemoryDisk(self._world.options.disk.capacity)
        host.secret = None
        self.damaged(host, "all its data is gone")
        return True

    def _damager(self, name: str) -> Callable[[Host], bool]:
        return lambda host: self._damage(name, host)

    def _damage(self, name: str, host: Host) -> bool:
        is_backward = name in BACKWARD
        if not self.may_damage(host) or (is_backward and not self._may_go_back(host)):
            return False
        host.kill()
        damage = (BACKWARD if is_backward else NOTICEABLE)[name]
        what = damage(host.disk, host.backup, self._rng)
        if not what:
            host.start()
            return False
        self.damaged(host, what, is_backward=is_backward)
        if name == "rot-snapshot":
            # What a purge does then is the point: it must not keep this one and delete the rest.
            host.start()
            self._world.agenda.after(self._world.tick_us, lambda: self._purge_again(host))
        return True

    def _purge_again(self, host: Host) -> None:
        process = host.process
        if process is not None and not self.is_stopped:
            process.run(lambda: process.loop.ask_for_purge(1))

    def _backup(self, host: Host) -> bool:
        host.backup = host.disk.clone()
        host.backup.settle()
        return True

    def _may_go_back(self, host: Host) -> bool:
        """Whether the others hold all that this server vouched for, and will stay up.

        With one of them away, a quorum could be without what only that one and this server had.
        """
        world = self._world
        if host.backup is None or not world.is_settled(with_sessions=False):
            return False
        self.calm()
        return all(not each.process.is_paused for each in world.hosts.values() if each.process)

    def _restore(self, host: Host) -> bool:
        """Take a server back to an earlier moment, as an operator with a backup does."""
        if not self.may_damage(host) or not self._may_go_back(host) or host.backup is None:
            return False
        host.kill()
        host.disk = host.backup.clone()
        self.damaged(host, "its data is restored from a backup", is_backward=True)
        return True
