"""The lab: field failures reproduced on real server processes, ours or Apache's, then audited.

What may live here: how servers of any kind are run, what is done to them, and the scenarios. What
may not: any part of the service itself; the lab sees servers as an operator does: as processes,
files and ports.
"""

from keepfast.lab.lab import Lab, LabError, Reporter
from keepfast.lab.lab_setup import LabSetup
from keepfast.lab.play_outcome import ScenarioEnding, ScenarioOutcome, play
from keepfast.lab.scenario import Scenario
from keepfast.lab.scenarios import SCENARIOS

__all__ = [
    "SCENARIOS",
    "Lab",
    "LabError",
    "LabSetup",
    "Reporter",
    "Scenario",
    "ScenarioEnding",
    "ScenarioOutcome",
    "play",
]
