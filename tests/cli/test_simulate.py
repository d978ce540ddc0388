"""`keepfast simulate`: tables, traces, JSON, exit codes, and the replay command of a failure."""

from __future__ import annotations

import shlex

import pytest

from keepfast.sim import Simulation, run_seed
from tests.cli.runs import call, run
from tests.sim.bugs import BUGS, planted

_NOT_DURABLE = next(bug for bug in BUGS if bug.name == "ack before fsync")


def test_few_seeds__are_shown_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "simulate", "--seeds", "3", "--first", "7", "--jobs", "1")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].split()[:2] == ["seed", "outcome"]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["7", "passed"],
        ["8", "passed"],
        ["9", "passed"],
    ]
    assert lines[-1].startswith("3 seeds, all passed: ")
    assert lines[-1].endswith(" seeds per minute")
    assert " times real time, " in lines[-1]


def test_json__one_document_with_every_run(capsys: pytest.CaptureFixture[str]) -> None:
    document = call(capsys, "simulate", "--seeds", "2", "--jobs", "1", "--json").document
    assert document["schema"] == "keepfast.simulate/1"
    assert (document["seeds"], document["failed"]) == (2, 0)
    runs = document["runs"]
    assert [entry["seed"] for entry in runs] == [0, 1]
    outcome = run_seed(0)
    assert runs[0]["steps"] == outcome.steps
    assert runs[0]["simulated_ms"] == outcome.simulated_ms


def test_trace__is_the_run_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "simulate", "--seeds", "1", "--first", "3", "--trace")
    simulation = Simulation(3)
    simulation.run()
    printed = result.out.splitlines()
    lines = list(simulation.trace.lines())
    assert printed[1 : len(lines) + 1] == lines


def test_failure__exit_code_1_and_a_command_that_plays_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with planted(_NOT_DURABLE):
        result = call(capsys, "simulate", "--seeds", "4", "--jobs", "1")
        assert result.code == 1
        assert "durability: " in result.out
        replay = next(line for line in result.out.splitlines() if "simulate --first" in line)
        again = call(capsys, *shlex.split(replay)[1:])
    assert again.code == 1
    assert "VIOLATION durability" in again.out


def test_jobs__give_the_same_runs() -> None:
    alone = run("simulate", "--seeds", "4", "--jobs", "1", "--json").document
    spread = run("simulate", "--seeds", "4", "--jobs", "2", "--json").document
    assert alone["runs"] == spread["runs"]


def test_trace_for_machines__is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "simulate", "--seeds", "1", "--trace", "--json")
    assert result.code == 2
    result.check_sentence("--trace")


@pytest.mark.spark
def test_master__spreads_the_seeds_over_spark(capsys: pytest.CaptureFixture[str]) -> None:
    spread = run("simulate", "--seeds", "4", "--master", "local[2]", "--json").document
    assert [entry["seed"] for entry in spread["runs"]] == [0, 1, 2, 3]
    assert spread["failed"] == 0
    alone = call(capsys, "simulate", "--seeds", "4", "--jobs", "1", "--json").document
    assert alone["runs"] == spread["runs"]
