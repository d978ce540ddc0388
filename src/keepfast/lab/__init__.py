"""The lab: field failures played on real server processes, ours or Apache's, then audited.

What may live here: how servers of any kind are run, what is done to them, and the scenarios. What
may not: any part of the service itself; the lab knows servers as an operator does, by their
processes, files and ports.
"""

from keepfast.lab.lab import Lab, LabError, Teller
from keepfast.lab.outcome import Ending, Outcome, play
from keepfast.lab.releases import Release, ReleaseError, find_release
from keepfast.lab.scenario import Scenario
from keepfast.lab.scenarios import SCENARIOS

__all__ = [
    "SCENARIOS",
    "Ending",
    "Lab",
    "LabError",
    "Outcome",
    "Release",
    "ReleaseError",
    "Scenario",
    "Teller",
    "find_release",
    "play",
]
