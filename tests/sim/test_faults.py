"""Every kind of fault strikes, and a world heals from each of them alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.sim import Simulation
from keepfast.sim.options import FaultOptions, WorkloadOptions
from keepfast.sim.scenario import quiet_options
from keepfast.sim.swarm import FAULT_FAMILIES
from keepfast.sim.traps import ACTIONS, Trap
from keepfast.tree import PrepareOptions

KINDS = sorted({kind for family in FAULT_FAMILIES.values() for kind, _ in family} | {"reconfig"})


def _simulation(*weights: tuple[str, int], ticks: int = 40) -> Simulation:
    options = quiet_options(servers=3, clients=2)
    workload = WorkloadOptions(clients=2, think_ms=60, session_timeout_ms=2000)
    faults = FaultOptions(every_ms=400, weights=weights)
    replica = replace(
        options.replica,
        max_session_timeout_ms=4000,
        prepare=PrepareOptions(is_acl_skipped=True),
    )
    options = replace(
        options,
        observers=1,
        busy_ticks=ticks,
        snapshot_every=10,
        retain=2,
        is_reconfig_enabled=True,
        crash_check_chance=0.0,
        workload=workload,
        faults=faults,
        replica=replica,
    )
    return Simulation(7, options)


@pytest.mark.parametrize("kind", KINDS)
def test_fault__strikes_and_heals(kind: str) -> None:
    # What needs a backup gets one, and what needs a stopped server too.
    simulation = _simulation((kind, 3), ("backup", 1))
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    assert simulation.nemesis.counts.get(kind, 0) > 0
    assert outcome.answers > 5


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("step", ["send NEWLEADER", "send ACK", "send PROPOSAL", "log"])
def test_trap__springs_at_its_step_and_the_world_heals(step: str, action: str) -> None:
    simulation = _simulation(ticks=15)
    simulation.world.traps.append(Trap(step, 2, action))
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    assert simulation.world.traps_sprung == 1
