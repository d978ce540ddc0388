"""How a run ended: what each server answers, and whether that is one history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from keepfast.harness import Release
from keepfast.lab.lab import Lab, Reporter
from keepfast.lab.lab_server import LabError, ServerRefused
from keepfast.lab.scenario import Scenario


class ScenarioEnding(Enum):
    """The worst outcome."""

    EQUAL = "equal"
    UNFINISHED = "not finished"  # not all steps could be carried out
    REFUSED = "does not serve"  # a server, or all of them, do not come up; nothing wrong is served
    LOST = "lost"  # what was acknowledged is gone
    DIVERGED = "diverged"  # servers answer differently

    @property
    def is_wrong(self) -> bool:
        """Whether a client can be given wrong data."""
        return self in (ScenarioEnding.LOST, ScenarioEnding.DIVERGED)


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """One scenario on one kind of server."""

    scenario: Scenario
    release: Release
    ending: ScenarioEnding
    # Znode -> server -> what it answers; None: there is no such znode.
    values: dict[str, dict[int, str | None]]
    # Servers that do not serve.
    silent: tuple[int, ...]
    # Data directories, for the audit.
    places: tuple[str, ...]
    # Why the run could not be finished; "": it was.
    problem: str = ""


def play(scenario: Scenario, release: Release, folder: Path, reporter: Reporter) -> ScenarioOutcome:
    """Run a scenario from the start to the last answers; all processes are gone afterwards."""
    lab = Lab(folder, release, scenario, reporter)
    problem, has_refused = "", False
    try:
        try:
            scenario.play(lab)
        except ServerRefused as error:
            has_refused = True
            lab.report(str(error))
        except LabError as error:
            problem = str(error)
            lab.report(f"stuck: {error}")
        values = lab.values(scenario.keys)
        answered = {id for answers in values.values() for id in answers}
        silent = tuple(id for id in lab.servers if id not in answered)
        places = tuple(str(server.data_dir) for server in lab.servers.values())
    finally:
        lab.close()
    if has_refused:
        ending = ScenarioEnding.REFUSED
    elif problem:
        # What was not written yet is not lost, and servers that never met the failure agree.
        ending = ScenarioEnding.UNFINISHED
    else:
        ending = _ending(scenario, values, silent)
    return ScenarioOutcome(scenario, release, ending, values, silent, places, problem)


def _ending(
    scenario: Scenario, values: dict[str, dict[int, str | None]], silent: tuple[int, ...]
) -> ScenarioEnding:
    if any(len(set(answers.values())) > 1 for answers in values.values()):
        return ScenarioEnding.DIVERGED
    for path, expected in scenario.expected.items():
        if any(answer != expected for answer in values.get(path, {}).values()):
            return ScenarioEnding.LOST
    return ScenarioEnding.REFUSED if silent else ScenarioEnding.EQUAL
