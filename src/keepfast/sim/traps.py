"""Faults that wait for a named step of the protocol, where they hurt most.

A step is a packet that is about to be sent (`send NEWLEADER`), a record that is about to be logged
(`log`), or an order that is about to be carried out by the disk (`disk TruncateLog`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from keepfast.sim.agenda import MS
from keepfast.wire import ServerId

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.peers import PeerEnd
    from keepfast.sim.process import Process
    from keepfast.sim.simulated_world import World

STEPS: Final = (
    "send FOLLOWERINFO",
    "send OBSERVERINFO",
    "send LEADERINFO",
    "send ACKEPOCH",
    "send DIFF",
    "send TRUNC",
    "send NEWLEADER",
    "send ACK",
    "send UPTODATE",
    "send PROPOSAL",
    "send COMMIT",
    "send INFORM",
    "send REQUEST",
    "send REVALIDATE",
    "send SYNC",
    "log",
    "disk StoreEpochs",
    "disk TruncateLog",
    "disk InstallTree",
    "disk InitialiseStore",
)
ACTIONS: Final = ("kill", "power", "kill-peer", "power-peer", "reset", "isolate", "pause", "block")


@dataclass(slots=True)
class Trap:
    """Springs when its step was reached `skip` times before."""

    step: str
    skip: int
    action: str
    # Waits for this server alone; None: for any.
    server: ServerId | None = None


def first_term() -> Trap:
    """The first leader dies before anybody follows, but has named the ensemble already.

    It comes back when the others have begun without it, and dies once more when it has their
    records and not their name.
    """
    return Trap("send NEWLEADER", 0, "first-term")


def draw_traps(rng: random.Random, count: int) -> list[Trap]:
    """Some traps by chance."""
    return [
        Trap(rng.choice(STEPS), int(rng.expovariate(0.25)), rng.choice(ACTIONS))
        for _ in range(count)
    ]


def spring(world: World, trap: Trap, process: Process, end: PeerEnd | None) -> None:
    """Do what a trap does; who went down comes back after a while."""
    host = process.host
    peer = None if end is None else world.hosts[end.peer]
    world.trace.add("ops", "trap at %s of %s: %s", trap.step, host.who, trap.action)
    delay_us = int(world.trap_rng.random() * 6 * world.tick_us)
    if trap.action == "first-term":
        host.kill()
        world.agenda.after(world.tick_us, lambda: _come_back(world, host))
        return
    if trap.action in ("kill-peer", "power-peer"):
        host = peer or host
    if trap.action in ("kill", "kill-peer"):
        host.kill()
        world.agenda.after(delay_us, lambda: None if world.is_calm else host.start())
    elif trap.action in ("power", "power-peer"):
        host.cut_power()
        world.agenda.after(delay_us, lambda: None if world.is_calm else host.start())
    elif trap.action == "reset":
        if end is not None:
            # After this step: the process is in the middle of it.
            world.agenda.after(0, end.stream.reset)
    elif trap.action == "pause":
        process.pause()
        world.agenda.after(delay_us, process.resume)
    else:
        others = {each.place for each in world.hosts.values()} - {host.place}
        if trap.action == "isolate":
            world.network.part({host.place}, others)
        else:
            for other in others:
                world.network.block(host.place, other)
        world.agenda.after(delay_us + MS, world.network.heal)


def _come_back(world: World, host: Host) -> None:
    if world.is_calm or host.is_up:
        return
    if not world.checkers.ledger.order or world.leading_host() is None:
        world.agenda.after(world.tick_us, lambda: _come_back(world, host))
        return
    # Its promise is stored first, then what it agrees to, with the name of the ensemble.
    world.traps.append(Trap("disk StoreEpochs", 1, "kill", host.server_id))
    host.start()
