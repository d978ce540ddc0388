"""The simulator can catch what it is there for: each planted bug is found by the seed named here.

What a seed stands for changes with the program. If one no longer finds its bug, look for another:
`python -m tests.sim.bug_hunt NAME`.
"""

from __future__ import annotations

import statistics

import pytest

from keepfast.sim import run_seed
from tests.sim.bugs import BUGS, Bug, planted

# Bug -> the first seed that catches it.
CATCHES: dict[str, int] = {}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug__is_caught_by_its_seed(bug: Bug) -> None:
    seed = CATCHES[bug.name]
    with planted(bug):
        outcome = run_seed(seed)
    assert not outcome.is_well, f"seed {seed} no longer catches {bug.name!r}"
    print(f"{bug.name:<36} seed {seed}: {outcome.checker}: {outcome.what}")
    assert run_seed(seed).is_well


def test_bugs__are_caught_within_100_seeds_in_the_median() -> None:
    assert len(BUGS) >= 20
    assert statistics.median(CATCHES.values()) < 100
