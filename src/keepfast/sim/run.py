"""Runs a seed: a world is created, suffers its faults, heals, and must recover."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

from keepfast.sim import disk_faults
from keepfast.sim.agenda import MS
from keepfast.sim.describe import describe
from keepfast.sim.faults import Nemesis
from keepfast.sim.ledger import Violation
from keepfast.sim.options import SimOptions
from keepfast.sim.restored import restore_majority
from keepfast.sim.simulated_world import World
from keepfast.sim.swarm import draw_options
from keepfast.sim.trace import Trace
from keepfast.sim.tree_differences import differences
from keepfast.sim.workload import Workload


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """The outcome of a seed."""

    seed: int
    # None: it passed; else the checker that found something.
    checker: str | None
    what: str
    options: str
    # Events run, txns committed, replies that clients received, faults that took effect.
    steps: int
    txns: int
    answers: int
    faults: int
    simulated_ms: int
    notes: dict[str, int] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether no checker complained."""
        return self.checker is None

    @property
    def replay(self) -> str:
        """The command that replays this seed, step by step."""
        return f"keepfast simulate --first {self.seed} --seeds 1 --trace"


class Simulation:
    """One run, step by step; `run` does it all."""

    def __init__(self, seed: int, options: SimOptions | None = None) -> None:
        self.options = options or draw_options(seed)
        self.world = World(seed, self.options)
        if self.options.is_restored:
            restore_majority(self.world)
        self.workload = Workload(self.world)
        self.nemesis = Nemesis(self.world)

    @property
    def trace(self) -> Trace:
        """What happened so far."""
        return self.world.trace

    def run(self) -> SeedOutcome:
        """Run it to its end; never raises for what a checker found."""
        checker: str | None = None
        what = ""
        try:
            self.live()
            self.heal()
        except Violation as violation:
            checker, what = violation.checker, violation.what
        except (Exception, disk_faults.PowerLoss) as error:  # noqa: BLE001 - a finding of the run
            checker, what = type(error).__name__, f"{error}{_place_of(error)}"
        if checker is not None:
            self.trace.add("ops", "VIOLATION %s: %s", checker, what)
        world = self.world
        return SeedOutcome(
            seed=world.seed,
            checker=checker,
            what=what,
            options=describe(self.options),
            steps=world.agenda.steps,
            txns=len(world.checkers.ledger.order),
            answers=world.answers,
            faults=sum(self.nemesis.counts.values()) + world.traps_sprung,
            simulated_ms=world.agenda.now_us // MS,
            notes=dict(world.notes),
        )

    def live(self) -> None:
        """The phase with faults: clients work, things fail."""
        world = self.world
        world.start_servers()
        world.watch_clocks()
        self.workload.start()
        self.nemesis.start()
        busy_us = self.options.busy_ticks * world.tick_us
        world.agenda.run_until(world.agenda.now_us + busy_us)

    def heal(self) -> None:
        """The phase without faults: within a bound all servers agree, and the service works."""
        world = self.world
        self.workload.stop()
        self.nemesis.heal()
        world.calm_down()
        world.checkers.expiry.calm_since_us = world.agenda.now_us
        bound_us = self.options.healing_ticks * world.tick_us
        end_us = world.agenda.now_us + bound_us
        if not world.agenda.run_until(end_us, self._paced(world.is_settled)):
            raise Violation("progress", f"not well again after {bound_us // MS} ms: {world.ails()}")
        world.prove_progress()
        if not world.agenda.run_until(end_us + bound_us, world.has_progressed):
            raise Violation("progress", f"no write gets through: {world.ails()}")
        if not world.agenda.run_until(end_us + bound_us, self._paced(world.is_settled)):
            raise Violation("progress", f"servers do not catch up: {world.ails()}")
        found = differences(world)
        if found:
            raise Violation("convergence", found)

    def _paced(self, is_done: Callable[[], bool]) -> Callable[[], bool]:
        """The same check, made a few times per tick: checking all servers takes time."""
        agenda, pace_us = self.world.agenda, self.world.tick_us // 4
        next_us = 0

        def is_done_now() -> bool:
            nonlocal next_us
            if agenda.now_us < next_us:
                return False
            next_us = agenda.now_us + pace_us
            return is_done()

        return is_done_now


def _place_of(error: BaseException) -> str:
    """Where an error came from, in a few words."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return ""
    return f" ({last.tb_frame.f_code.co_qualname}, line {last.tb_lineno})"


def run_seed(seed: int, options: SimOptions | None = None) -> SeedOutcome:
    """Run one seed."""
    was_enabled = gc.isenabled()
    # A run makes many objects, keeps them to its end, and then drops them all at once.
    gc.disable()
    try:
        return Simulation(seed, options).run()
    finally:
        if was_enabled:
            gc.enable()
            # A world is full of cycles. Left to its own pace, the collector lets hundreds of dead
            # ones pile up, to more than a gigabyte for each job.
            gc.collect()
