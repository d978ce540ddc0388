"""The simulator can catch what it is there for: each planted bug is found within a few seeds.

What a seed stands for changes with the program. The seed named here is tried first, then the others
in order; `python -m tests.sim.bug_hunt` prints the table anew.
"""

from __future__ import annotations

import statistics

import pytest

from keepfast.sim import Outcome, run_seed
from tests.sim.bugs import BUGS, Bug, planted

# Nothing but work for the processor: on a slow one it takes as long as it takes.
pytestmark = pytest.mark.timeout(900)

# Bug -> the first seed that caught it when this was written.
CATCHES: dict[str, int] = {
    "ack before fsync": 0,
    "no directory fsync": 0,
    "snapshot renamed before fsync": 0,
    "TRUNC keeps later snapshots": 5,
    "TRUNC cuts behind the next record": 5,
    "SNAP keeps the old log": 1,
    "DIFF over a hole": 7,
    "first DIFF record unchecked": 7,
    "purge by count": 8,
    "epoch written before history": 0,
    "memory kept over a role change": 3,
    "wiped server votes": 9,
    "damaged server votes": 8,
    "digest mismatch ignored": 0,
    "session end without its paths": 2,
    "missing epoch guessed": 20,
    "partial multi": 2,
    "read served by a deposed leader": 5,
    "commit counted from a non-voter": 1,
    "commit by the leader alone": 0,
    "reconfig without joint quorum": 39,
    "applied before it is committed": 0,
}
_MOST_SEEDS = 300


def caught(bug: Bug) -> Outcome | None:
    """A run in which the bug shows."""
    first = CATCHES.get(bug.name, 0)
    seeds = [first, *(seed for seed in range(_MOST_SEEDS) if seed != first)]
    with planted(bug):
        for seed in seeds:
            outcome = run_seed(seed)
            if not outcome.is_well:
                return outcome
    return None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bug__is_caught(bug: Bug) -> None:
    outcome = caught(bug)
    assert outcome is not None, f"{bug.name!r} shows in none of {_MOST_SEEDS} seeds"
    print(f"{bug.name:<36} seed {outcome.seed}: {outcome.checker}: {outcome.what}")
    # It is the bug that was found, not something that is wrong without it.
    assert run_seed(outcome.seed).is_well


def test_bugs__are_caught_within_100_seeds_in_the_median() -> None:
    assert len(BUGS) >= 20
    assert set(CATCHES) == {bug.name for bug in BUGS}
    assert statistics.median(CATCHES.values()) < 100
