"""What is said of a play: only one that was played to its end can end equal."""

from __future__ import annotations

from pathlib import Path

from keepfast.harness import find_release
from keepfast.lab import Lab, LabError, Scenario, ScenarioEnding, play
from keepfast.lab.lab_server import ServerRefused
from tests.lab.test_scenarios import Silent


def test_play_that_gets_stuck__is_neither_equal_nor_lost(tmp_path: Path) -> None:
    def steps(lab: Lab) -> None:
        raise LabError("there is no disk to fill")

    scenario = Scenario(
        name="stuck", title="", size=1, play=steps, keys=("/a",), expected={"/a": "1"}
    )
    outcome = play(scenario, find_release("keepfast"), tmp_path, Silent())
    assert outcome.ending is ScenarioEnding.UNFINISHED
    assert outcome.problem == "there is no disk to fill"


def test_server_that_ends_instead_of_serving__has_refused(tmp_path: Path) -> None:
    def steps(lab: Lab) -> None:
        raise ServerRefused("server 1 ended instead of serving")

    scenario = Scenario(name="refused", title="", size=1, play=steps, keys=("/a",))
    outcome = play(scenario, find_release("keepfast"), tmp_path, Silent())
    assert outcome.ending is ScenarioEnding.REFUSED
    assert not outcome.problem
