"""The simulator can catch what it is there for: each planted bug is found within a few seeds.

What a seed stands for changes with every change of the program, so no seed is named here: they are
tried one after the other, as a run of many seeds does. The table is printed.
"""

from __future__ import annotations

import statistics

import pytest

from keepfast.sim import run_seed
from tests.sim.bug_hunt import first_catch
from tests.sim.bugs import BUGS, Bug

# Seeds that are tried; most bugs show in the first twenty.
LIMIT = 150
# Bug -> the seed that caught it, as the tests below fill it.
caught: dict[str, int] = {}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug__is_caught(bug: Bug) -> None:
    outcome = first_catch(bug, range(LIMIT))
    assert outcome is not None, f"{bug.name}: not caught by {LIMIT} seeds"
    caught[bug.name] = outcome.seed
    print(f"{bug.name:<36} seed {outcome.seed}: {outcome.checker}: {outcome.what}")
    # It is the bug that shows there, and nothing else.
    assert run_seed(outcome.seed).is_well


def test_bugs__are_caught_within_100_seeds_in_the_median() -> None:
    assert len(BUGS) >= 20
    if len(caught) == len(BUGS):
        assert statistics.median(caught.values()) < 100
