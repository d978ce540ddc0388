"""Every kind of fault strikes, and a world heals from each of them alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.sim import Simulation, draw_options
from keepfast.sim.disk_faults import PowerLoss
from keepfast.sim.options import FaultOptions, WorkloadOptions
from keepfast.sim.script import quiet_options
from keepfast.sim.swarm import FAULT_FAMILIES
from keepfast.sim.traps import ACTIONS, Trap
from keepfast.tree import PrepareOptions
from keepfast.wire import ServerId

KINDS = sorted(
    {kind for family in FAULT_FAMILIES.values() for kind, _ in family}
    | {"reconfig", "verify", "repair", "full-start", "full-election"}
    | {"error-at", "mishap", "rescue", "deafen"}
)


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


@pytest.mark.parametrize(
    ("seed", "features", "kind"),
    [
        (1, ("apache",), "apache-tail"),
        (29, ("read-only", "stranded"), "strand"),
        (214, ("lost-files",), "lose-alone"),
    ],
    ids=["apache", "stranded", "lost-files"],
)
def test_fault_of_a_feature__strikes_and_heals(
    seed: int, features: tuple[str, ...], kind: str
) -> None:
    simulation = Simulation(seed, draw_options(seed, features))
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    assert simulation.nemesis.counts.get(kind, 0) > 0


@pytest.mark.parametrize(
    ("feature", "steps"),
    [
        ("small-pieces", {"streams", "SET_ACL", "kind=snap"}),
        ("small-txns", {"error -5", "error -125"}),
    ],
)
def test_feature_of_sizes__reaches_what_it_is_there_for(feature: str, steps: set[str]) -> None:
    found: set[str] = set()
    for seed in (2, 3, 5, 8, 13):
        simulation = Simulation(seed, draw_options(seed, (feature,)))
        outcome = simulation.run()
        assert outcome.is_well, f"{seed}: {outcome.checker}: {outcome.what}"
        found.update(step for line in simulation.trace.lines() for step in steps if step in line)
    assert found == steps


def test_slow_readers__are_held_up_or_cut_off_and_come_back() -> None:
    steps: set[str] = set()
    # Few are cut off: a write waits for the reads in front of it, so fewer replies pile up.
    for seed in (*range(6), 17):
        simulation = Simulation(seed, draw_options(seed, ("slow-readers",)))
        outcome = simulation.run()
        assert outcome.is_well, f"{seed}: {outcome.checker}: {outcome.what}"
        for line in simulation.trace.lines():
            steps.update(
                step for step in ("turns client", "does not read what it is") if step in line
            )
    assert steps == {"turns client", "does not read what it is"}


@pytest.mark.parametrize("seed", [85, 329])
def test_restored_majority__goes_on_from_the_backup(seed: int) -> None:
    simulation = Simulation(seed, draw_options(seed, ("restored",)))
    ledger = simulation.world.checkers.ledger
    base = ledger.last
    assert base > 0
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    assert ledger.order[0] == base
    assert ledger.last > base


def test_first_leader_that_dies_before_anybody_follows__joins_later() -> None:
    simulation = Simulation(21, draw_options(21, ("first-term",)))
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    traps = [line for line in simulation.trace.lines() if "trap at" in line]
    assert "first-term" in traps[0]
    assert any("disk StoreEpochs" in line and "kill" in line for line in traps)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("step", ["send NEWLEADER", "send ACK", "send PROPOSAL", "log"])
def test_trap__springs_at_its_step_and_the_world_heals(step: str, action: str) -> None:
    simulation = _simulation(ticks=15)
    simulation.world.traps.append(Trap(step, 2, action))
    outcome = simulation.run()
    assert outcome.is_well, f"{outcome.checker}: {outcome.what}"
    assert simulation.world.traps_sprung == 1


def test_power_loss_while_files_are_verified__the_server_comes_back() -> None:
    simulation = _simulation()
    simulation.live()
    host = simulation.world.hosts[ServerId(1)]
    host.kill()
    host.disk.fail_at(host.disk.calls + 3, PowerLoss())
    simulation.nemesis.strike("verify", host)
    simulation.heal()
    assert any("loses power while it is verified" in line for line in simulation.trace.lines())


def test_power_loss_that_nobody_expects__is_told_with_its_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def live(_simulation: Simulation) -> None:
        raise PowerLoss

    monkeypatch.setattr(Simulation, "live", live)
    outcome = _simulation().run()
    assert (outcome.seed, outcome.checker) == (7, "PowerLoss")
