"""Faults of several steps, in which only what is named goes wrong.

In most of them something must *not* happen: a session must not end because its leader slept, a
repaired server must not vote. So nothing else fails meanwhile: the nemesis keeps quiet for a while.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from keepfast.sim import disk_faults
from keepfast.sim.agenda import MS
from keepfast.sim.damage import NOTICEABLE
from keepfast.sim.ledger import Violation
from keepfast.storage import recover, repair
from keepfast.wire import (
    GetDataRequest,
    OpCode,
    SetDataRequest,
    StorageError,
    SyncRequest,
    format_zxid,
)

if TYPE_CHECKING:
    from keepfast.sim.faults import Nemesis
    from keepfast.sim.host import Host
    from keepfast.sim.simulated_client import SimulatedClient
    from keepfast.sim.simulated_world import World


class Schedules:
    """The faults of this kind, by name; each gives whether it took place."""

    def __init__(self, world: World, nemesis: Nemesis, rng: random.Random) -> None:
        self._world = world
        self._nemesis = nemesis
        self._rng = rng
        self.all: dict[str, Callable[[Host], bool]] = {
            "depose": self._depose,
            "doze": self._doze,
            "hang": self._hang,
            "full-start": self._full_start,
            "full-election": self._full_election,
            "verify": self._verify,
            "repair": self._repair,
        }

    def _say(self, text: str, *values: object) -> None:
        self._world.trace.add("ops", text, *values)

    def _after_ticks(self, ticks: float, action: Callable[[], object]) -> None:
        """Do something later, unless all was healed before."""

        def when_due() -> None:
            if not self._nemesis.is_stopped:
                action()

        self._world.agenda.after(int(ticks * self._world.tick_us), when_due)

    def _movable(self) -> list[SimulatedClient]:
        return [c for c in self._world.clients if c.is_open and c.only is None]

    # -- leaders that sleep ----------------------------------------------------------------------

    def _depose(self, host: Host) -> bool:
        """The leader sleeps until another one leads, and wakes up to a client's sync."""
        world = self._world
        leader = world.leading_host()
        process = None if leader is None else leader.process
        clients = self._movable()
        others = [each.server_id for each in world.hosts.values() if each is not leader]
        if leader is None or process is None or process.is_paused or len(clients) < 2:
            return False
        faithful = self._rng.choice(clients)
        faithful.move(leader.server_id)
        if self._rng.random() < 0.6:
            self._cut_off(leader, faithful, [each for each in clients if each is not faithful])
            return True
        path = "/k0"
        ticks = world.options.sync_limit + self._rng.uniform(2.0, 6.0)
        self._nemesis.keep_quiet(ticks + 2)

        def sleep() -> None:
            self._say("%s sleeps until it is deposed", leader.who)
            process.pause()
            for client in clients:
                if client is not faithful:
                    client.move(self._rng.choice(others))

        def ask() -> None:
            # Before it looks at its clock: it still takes itself for the leader.
            if faithful.is_open and faithful.server == leader.server_id:
                faithful.ask(OpCode.SYNC, path, SyncRequest(path))
                faithful.ask(OpCode.GET_DATA, path, GetDataRequest(path, False))
            there_us = 2 * world.options.network.max_delay_us + 10 * MS
            world.agenda.after(there_us, process.resume)

        self._after_ticks(0.5, sleep)
        self._after_ticks(0.5 + ticks, ask)
        return True

    def _cut_off(
        self, leader: Host, faithful: SimulatedClient, others: list[SimulatedClient]
    ) -> None:
        """What its followers say reaches the leader late; then they hear it no more.

        So it takes them for its followers when they have elected another one. Nobody writes at it:
        a proposal that is not acknowledged in time would tell it.
        """
        world, tick_us = self._world, self._world.tick_us
        ticks = world.options.sync_limit + 3
        peers = [host.place for host in world.hosts.values() if host is not leader]
        servers = [host.server_id for host in world.hosts.values() if host is not leader]
        self._nemesis.calm()
        self._nemesis.keep_quiet(4 * ticks)
        for client in world.clients:
            client.is_held = True
        for client in others:
            client.move(self._rng.choice(servers))
        muted_us = world.agenda.now_us + (ticks + 1) * tick_us

        def slow_down(lag_us: int) -> None:
            world.network.way_lag_us.update({(place, leader.place): lag_us for place in peers})

        def mute() -> None:
            self._say("nobody hears %s, and it does not know", leader.who)
            for place in peers:
                world.network.block(leader.place, place)

        asked = 0
        newcomer = others[-1] if len(others) > 1 or self._rng.random() < 0.5 else None
        seasoned = [each for each in others if each is not newcomer]

        def ask() -> None:
            nonlocal asked
            self._probe(seasoned if asked else others)
            asked += world.last_write_us > muted_us
            if newcomer is None:
                pass
            elif asked == 1:
                newcomer.forget_session()
                newcomer.connect(self._rng.choice(servers))
            elif asked and newcomer.is_open and newcomer.server in servers:
                # With a session that this leader does not know, and before any zxid would tell it.
                newcomer.move(leader.server_id)
            if asked and not faithful.outstanding:
                faithful.ask(OpCode.SYNC, "/k0", SyncRequest("/k0"))
                faithful.ask(OpCode.GET_DATA, "/k0", GetDataRequest("/k0", False))
            if asked == 3 and seasoned:
                # One that has seen more than this leader ever will.
                self._rng.choice(seasoned).roam(leader.server_id)

        for tick in range(1, ticks + 1):
            self._after_ticks(tick, partial(slow_down, tick * tick_us))
        self._after_ticks(ticks + 1, mute)
        for step in range(8 * ticks):
            self._after_ticks(ticks + 1 + world.options.sync_limit + step / 4, ask)
        self._after_ticks(3 * ticks + 3, self._join_again)

    def _join_again(self) -> None:
        self._world.network.way_lag_us.clear()
        self._world.network.heal()
        for client in self._world.clients:
            client.is_held = False

    def _doze(self, host: Host) -> bool:
        """The leader sleeps for longer than sessions live, and not long enough to be deposed."""
        world = self._world
        leader = world.leading_host()
        process = None if leader is None else leader.process
        timeout_ms = world.options.workload.session_timeout_ms
        slack_ms = world.quorum_options.sync_ms - timeout_ms
        if leader is None or process is None or process.is_paused or not world.is_settled():
            return False
        if slack_ms < 2 * world.options.replica.tick_ms:
            return False
        self._nemesis.calm()
        guarded = [
            client.session.session_id
            for client in world.clients
            if client.is_open and client.session is not None and client.server != leader.server_id
        ]
        self._say("%s dozes", leader.who)
        expiry = world.checkers.expiry
        expiry.guarded.update(guarded)
        process.pause()
        tick_ms = world.options.replica.tick_ms
        span_ms = timeout_ms + self._rng.randint(tick_ms, slack_ms - tick_ms)
        self._nemesis.keep_quiet(span_ms / tick_ms + 4)

        def wake() -> None:
            process.resume()
            world.agenda.after(2 * world.tick_us, lambda: expiry.guarded.clear())

        world.agenda.after(span_ms * MS, wake)
        return True

    # -- a disk that hangs -----------------------------------------------------------------------

    def _hang(self, host: Host) -> bool:
        """One disk hangs, most often the leader's: the others continue without it."""
        world, options = self._world, self._world.options
        leader = world.leading_host()
        if leader is not None and self._rng.random() < 0.7:
            host = leader
        if not self._movable() or not world.is_settled(with_sessions=False):
            return False
        if not world.is_quorum({id for id in world.hosts if id != host.server_id}):
            return False
        self._nemesis.calm()
        bound_ticks = options.sync_limit + options.init_limit + 40
        self._nemesis.keep_quiet(bound_ticks + 5)
        since_us = world.agenda.now_us
        host.disk_hangs_until_us = since_us + (bound_ticks + 4) * world.tick_us
        self._say("the disk of %s hangs", host.who)
        for tick in range(bound_ticks):
            self._after_ticks(tick, lambda: self._probe(world.clients))

        def check() -> None:
            if world.last_write_us <= since_us:
                raise Violation(
                    "stalled disk",
                    f"the disk of {host.who} hangs, and nobody writes for {bound_ticks} ticks: "
                    f"{world.ails()}",
                )

        self._after_ticks(bound_ticks, check)
        return True

    def _probe(self, clients: list[SimulatedClient]) -> None:
        """Have everybody of these write who waits for nothing."""
        path = "/k0"
        for client in clients:
            if not client.outstanding:
                client.ask(OpCode.SET_DATA, path, SetDataRequest(path, b"probe", -1))

    # -- full disks ------------------------------------------------------------------------------

    def _full_start(self, host: Host) -> bool:
        """A server starts on a disk without a free byte: it serves reads."""
        if not host.is_up:
            return False
        host.kill()
        self._fill(host)
        self._after_ticks(self._rng.uniform(0.1, 2.0), host.start)
        return True

    def _full_election(self, host: Host) -> bool:
        """The leader dies while the disk of another server is full."""
        leader = self._world.leading_host()
        if leader is None or leader is host:
            return False
        self._fill(host)
        leader.kill()
        self._after_ticks(self._rng.uniform(1.0, 8.0), leader.start)
        return True

    def _fill(self, host: Host) -> None:
        host.disk.capacity = host.disk.used_bytes()
        self._say("the disk of %s is full", host.who)

        def free() -> None:
            host.disk.capacity = None

        self._after_ticks(self._rng.uniform(3.0, 12.0), free)

    # -- tools -----------------------------------------------------------------------------------

    def _verify(self, host: Host) -> bool:
        """An operator looks at the files of a server that is down."""
        host.kill()
        before = host.disk.fingerprint()
        try:
            standing = recover(host.disk, host.directory, full=True).standing
            self._say("%s is verified: %s", host.who, standing.value)
        except (StorageError, disk_faults.MishapError) as error:
            self._say("%s cannot be verified: %s", host.who, error)
        except disk_faults.PowerLoss:
            host.power_lost("while it is verified")
            before = host.disk.fingerprint()
        if host.disk.fingerprint() != before:
            raise Violation("tools", f"a look at the files of {host.who} has changed them")
        self._after_ticks(1.0, host.start)
        return True

    def _repair(self, host: Host) -> bool:
        """A server's files are damaged, and an operator repairs them as `verify` advises."""
        if not self._nemesis.may_damage(host):
            return False
        host.kill()
        name = self._rng.choice(sorted(NOTICEABLE))
        what = NOTICEABLE[name](host.disk, host.backup, self._rng)
        if not what:
            host.start()
            return False
        self._nemesis.damaged(host, what)
        try:
            plan = repair.plan_repair(host.disk, host.directory)
            if isinstance(plan, repair.RepairPlan):
                after = repair.apply_repair(host.disk, host.directory, plan)
                self._say(
                    "%s is repaired: %s, head %s",
                    host.who,
                    after.standing.value,
                    format_zxid(after.head),
                )
                self._world.checkers.repaired(host.server_id, after)
        except repair.RepairRefused as error:
            self._say("%s cannot be repaired: %s", host.who, error)
        except disk_faults.PowerLoss:
            host.power_lost("while it is repaired")
        except (StorageError, disk_faults.MishapError) as error:
            self._say("the repair of %s fails: %s", host.who, error)
        return True
