"""Exhaustive small worlds: every way in which three servers diverge and meet again.

A *divergence*: the leader alone logs a write that no other server sees, then all stop; any two or
all three are started again, and the next leader diverges. What was logged alone becomes history if
its server is among those that meet next, and must vanish everywhere otherwise. At the end all three
are started and must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from keepfast.sim.ledger import Violation
from keepfast.sim.script import Script
from keepfast.wire import ServerId

GROUPS: Final = ((1, 2), (1, 3), (2, 3), (1, 2, 3))
_PATH: Final = "/value"


class DivergentStop(NamedTuple):
    """One divergence: how the servers stop, and who is started again."""

    is_power_cut: bool
    group: tuple[int, ...]

    def __str__(self) -> str:
        return f"{'power' if self.is_power_cut else 'kill'}, then {self.group}"


Schedule = tuple[DivergentStop, ...]


def schedules(divergences: int, *, with_power_cuts: bool) -> Iterator[Schedule]:
    """Every schedule of one up to this many divergences."""
    stops = (False, True) if with_power_cuts else (False,)
    choices = [DivergentStop(stop, group) for stop in stops for group in GROUPS]
    for length in range(1, divergences + 1):
        yield from product(choices, repeat=length)


def play(schedule: Schedule) -> Script:
    """Play one schedule; raises Violation if the servers do not end equal."""
    script = Script()
    script.start(1, 2, 3)
    script.connect(script.leader)
    script.create(_PATH, b"0")
    for number, divergence in enumerate(schedule, 1):
        _diverge(script, b"%d" % number, is_power_cut=divergence.is_power_cut)
        script.start(*divergence.group)
    script.start(1, 2, 3)
    script.wait(lambda: script.are_current((1, 2, 3)), "all three to be current")
    script.check_equal()
    return script


def _diverge(script: Script, value: bytes, *, is_power_cut: bool) -> None:
    leader = script.leader
    if not leader:
        raise Violation("progress", "nobody leads")
    script.connect(leader)
    script.pause(*(server for server in script.world.hosts if server != leader))
    shadow = script.world.checkers.ledger.shadow_of(ServerId(leader))
    before = len(shadow.records)
    script.set_async(_PATH, value)
    script.wait_logged(leader, before + 1)
    if is_power_cut:
        script.cut_power(*script.world.hosts)
    else:
        script.kill(*script.world.hosts)
