"""Faults of several steps that make a service stop, or an operator act; see also schedules.py."""

from __future__ import annotations

import copy
import errno
import posixpath
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from keepfast.sim import disk_damage, disk_faults
from keepfast.sim.agenda import MS
from keepfast.sim.damage import NOTICEABLE
from keepfast.sim.ledger import Violation
from keepfast.storage import SECTOR_SIZE, apply_rescue, is_watermark_intact, plan_rescue, recover
from keepfast.wire import (
    DeleteRequest,
    ExistsRequest,
    OpCode,
    SetDataRequest,
    StorageError,
    format_zxid,
)

if TYPE_CHECKING:
    from keepfast.sim.faults import Nemesis
    from keepfast.sim.host import Host
    from keepfast.sim.simulated_client import SimulatedClient
    from keepfast.sim.simulated_world import World

# How long a server looks for a leader before it serves read-only, and some more.
_READ_ONLY_MS: Final = 3000
# The longest time that an Apache server is away, while the others elect a leader.
_AWAY_TICKS: Final = 60
# Where a call can fail: every one that changes a disk, on every kind of file. The first is the
# fsync of a quiet moment: of the watermark alone, when nobody writes.
_PLACES: Final = (
    ("datasync", "*witness*"),
    ("write_at", "*witness*"),
    ("fsync", "*manifest*"),
    ("rename", "*manifest*"),
    ("write_at", "*log.*"),
    ("datasync", "*log.*"),
    ("allocate", "*log.*"),
    ("fsync", "*log.*"),
    ("write_at", "*snapshot.*"),
    ("fsync", "*snapshot.*"),
    ("rename", "*snapshot.*"),
    ("create", "*"),
    ("truncate", "*"),
    ("remove", "*"),
    ("fsync_directory", "*"),
    ("make_directory", "*"),
    ("free_bytes", "*"),
    ("read_at", "*"),
    ("open_read", "*"),
    ("list", "*"),
)


class Disasters:
    """The faults of this kind, by name; each returns whether it took place."""

    def __init__(self, world: World, nemesis: Nemesis, rng: random.Random) -> None:
        self._world = world
        self._nemesis = nemesis
        self._rng = rng
        self.all: dict[str, Callable[[Host], bool]] = {
            "strand": self._strand,
            "error-at": self._error_at,
            "mishap": self._mishap,
            "slow-commits": self._slow_commits,
            "lose-alone": self._lose_alone,
            "rescue": self._rescue,
            "apache-tail": self._apache_tail,
            "fence": self._fence,
        }

    def _say(self, text: str, *values: object) -> None:
        self._world.trace.add("ops", text, *values)

    # -- a server that finds no leader -----------------------------------------------------------

    def _strand(self, host: Host) -> bool:
        """A server is partitioned with read-only clients, for longer than its timeout.

        What it was asked for in between is in its log alone.
        """
        world, nemesis, tick_us = self._world, self._nemesis, self._world.tick_us
        leader = world.leading_host()
        if leader is not None and self._rng.random() < 0.8:
            host = leader
        process = host.process
        clients = [
            client
            for client in world.clients
            if client.habits.is_read_only and client.only in (None, (host.server_id,))
        ]
        if process is None or process.is_paused or not process.is_serving or not clients:
            return False
        nemesis.calm()
        self._say("%s will be cut off, with %d clients", host.who, len(clients))
        near = {host.place, *(client.place for client in clients)}
        places = [host.place for host in world.hosts.values()]
        places += [client.place for client in world.clients]
        for client in clients:
            client.move(host.server_id)
        ticks = 2 * world.options.sync_limit + _READ_ONLY_MS // world.options.replica.tick_ms + 4
        nemesis.keep_quiet(ticks + 3)

        def part() -> None:
            world.network.part(near, set(places) - near)
            for client in clients:
                client.ask(OpCode.SET_DATA, "/k0", SetDataRequest("/k0", b"stranded", -1))

        for when, action in ((2, part), (2 + ticks, world.network.heal)):
            world.agenda.after(when * tick_us, self._unless_healed(action))
        return True

    def _unless_healed(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._nemesis.is_stopped else action()

    # -- a server of Apache's --------------------------------------------------------------------

    def _apache_tail(self, host: Host) -> bool:
        """An Apache server logs what nobody else has, is elected once more, and dies then.

        Before anybody follows it has stored a snapshot of that; the others continue without.
        """
        world, tick_us = self._world, self._world.tick_us
        leader = world.leading_host()
        if leader is None or not leader.is_apache or leader.process is None:
            return False
        self._nemesis.calm()
        self._nemesis.keep_quiet(_AWAY_TICKS + 4)
        self._say("nobody hears %s, which is of Apache's", leader.who)
        hosts = list(world.hosts.values())
        for each in hosts:
            if each is not leader:
                world.network.block(leader.place, each.place)
        for client in world.clients:
            client.move(leader.server_id, (OpCode.SET_DATA, "/", SetDataRequest("/", b"x", -1)))

        def restart() -> None:
            for each in hosts:
                each.kill()
            world.network.heal()
            leader.apache.dies_when_elected = True
            for each in hosts:
                each.start()

        def come_back(tick: int) -> None:
            if world.leading_host() is not None or tick == _AWAY_TICKS:
                leader.start()
            elif not leader.is_up or leader.apache.dies_when_elected:
                world.agenda.after(tick_us, self._unless_healed(lambda: come_back(tick + 1)))

        world.agenda.after(tick_us, self._unless_healed(restart))
        world.agenda.after(4 * tick_us, self._unless_healed(lambda: come_back(4)))
        return True

    # -- a server that differs -------------------------------------------------------------------

    def _fence(self, host: Host) -> bool:
        """A learner finds that its tree is not the leader's, and is to purge just then (R10, R11).

        Other faults continue while it waits for a tree.
        """
        process, nemesis = host.process, self._nemesis
        if process is None or process.member is None or process.is_paused or host.is_apache:
            return False
        member, following = process.member, process.member.following
        if following is None or not process.is_serving or not nemesis.may_damage(host):
            return False
        self._say("the tree of %s differs", host.who)
        host.is_impaired = True

        def differ() -> None:
            following.fence("a digest is not the leader's")
            member.tick()

        process.run(lambda: process.loop.run(differ))
        nemesis.strike("purge", host)
        return True

    # -- disks -----------------------------------------------------------------------------------

    def _error_at(self, host: Host) -> bool:
        """One kind of call on one kind of file fails, once."""
        operation, pattern = self._rng.choice(_PLACES)
        if self._rng.random() < 0.4:
            operation, pattern = _PLACES[0]
        kept = self._rng.choice((0, 1, 600))
        if operation == "write_at" and kept == 1:
            kept = SECTOR_SIZE  # as in `Nemesis`
        host.disk.inject(operation, pattern, code=errno.EIO, kept=kept)
        self._say("the next %s of %s on %s will fail", operation, pattern, host.who)
        return True

    def _slow_commits(self, host: Host) -> bool:
        """Nothing becomes durable anywhere for a moment, while clients come and go."""
        world = self._world
        ms = self._rng.randint(20, 150)
        for each in world.hosts.values():
            each.disk_hangs_until_us = world.agenda.now_us + ms * MS
        self._say("all disks are busy for %d ms", ms)
        for client in world.clients:
            if client.is_open and client.server is not None and self._rng.random() < 0.7:
                client.ask(OpCode.SET_DATA, "/k0", SetDataRequest("/k0", b"slow", -1))
                back = (OpCode.EXISTS, "/", ExistsRequest("/", False))
                other = (OpCode.DELETE, "/none", DeleteRequest("/none", -1))
                request = self._rng.choice((back, other))
                delay_us = 4 * world.options.network.max_delay_us
                world.agenda.after(delay_us, partial(self._come_back, client, request))
        return True

    def _come_back(self, client: SimulatedClient, request: tuple[OpCode, str, Any]) -> None:
        if client.is_open and client.server is not None and not self._nemesis.is_stopped:
            client.move(client.server, request)

    def _mishap(self, host: Host) -> bool:
        """One of the next calls raises what nobody expects: the server ends, and says so (R14)."""
        call = host.disk.calls + self._rng.randrange(1, 40)
        host.disk.fail_at(call, disk_faults.MishapError("a bug"), after=self._rng.random() < 0.5)
        self._say("a disk call of %s will raise anything", host.who)
        return True

    # -- a standalone server ---------------------------------------------------------------------

    def _lose_alone(self, host: Host) -> bool:
        """A server without peers loses files: it serves all that it acknowledged, or nothing.

        Then somebody finds the files again.
        """
        world = self._world
        vouched = world.checkers.ledger.shadow_of(host.server_id).vouched
        # After a power loss the watermark may not cover the last records: nobody can tell then.
        if world.options.servers > 1 or not host.is_up or vouched < 1:
            return False
        host.kill()
        whole, shadows = host.disk.clone(), world.checkers.ledger.shadows
        shadow = copy.deepcopy(shadows[host.server_id])
        what = self._lose_manifest_and_end(host) or self._damage(host)
        self._say("%s: %s", host.who, what)
        world.checkers.damaged(host.server_id)
        host.start()
        if not host.is_whole:
            host.kill()
            host.disk = whole
            shadows[host.server_id] = shadow
            self._say("the files of %s are found again", host.who)
            host.start()
        return True

    def _damage(self, host: Host) -> str:
        return NOTICEABLE[self._rng.choice(sorted(NOTICEABLE))](host.disk, None, self._rng)

    def _lose_manifest_and_end(self, host: Host) -> str:
        """Both the list of files and the last records, in half of the cases.

        What was acknowledged is then in the watermark alone. That must be whole: a server on a full
        disk may not have written it again since it was damaged.
        """
        disk, names = host.disk, host.disk.files()
        if not is_watermark_intact(disk.clone(), host.directory):
            return ""
        logs = [path for path in names if posixpath.basename(path).startswith("log.")]
        if self._rng.random() < 0.5 or host.directory.manifest not in names or not logs:
            return ""
        last = max(logs, key=lambda path: (len(path), path))
        size = self._rng.randrange(len(disk.contents(last)))
        disk_damage.remove_file(disk, host.directory.manifest)
        disk_damage.truncate_file(disk, last, size)
        return f"the manifest is lost, {last} cut to {size}"

    # -- tools -----------------------------------------------------------------------------------

    def _rescue(self, host: Host) -> bool:
        """A server's files are damaged, and an operator plans a rescue.

        It is not carried out: a quorum is there, and to fill a server again is what helps. On a
        copy it has to do what it says.
        """
        if not self._nemesis.may_damage(host):
            return False
        host.kill()
        what = self._damage(host)
        if not what:
            host.start()
            return False
        self._nemesis.damaged(host, what)
        copy = host.disk.clone()
        before = copy.fingerprint()
        try:
            plan = plan_rescue(copy, host.directory)
            if copy.fingerprint() != before:
                raise Violation("tools", f"to plan a rescue of {host.who} has changed its files")
            after = apply_rescue(copy, host.directory, plan, "2026-01-01T00:00:00Z")
            again = recover(copy, host.directory)
        except StorageError as error:
            self._say("%s cannot be rescued: %s", host.who, error)
            return True
        except disk_faults.PowerLoss:
            return True  # of the copy
        self._say("%s could be rescued: %s", host.who, format_zxid(after.head))
        self._world.checkers.rescued(host.server_id, plan, again)
        return True
