"""The simulator can catch what it is there for: each planted bug is found within a few seeds.

What a seed stands for changes with the program. The seed named here is tried first, then the others
in order; `python -m tests.sim.bug_hunt` prints the table anew.
"""

from __future__ import annotations

import statistics

import pytest

from keepfast.sim import SeedOutcome, run_seed
from tests.compiled import is_compiled
from tests.sim.bugs import BUGS, Bug, planted
from tests.sim.product_bugs import PRODUCT_BUGS
from tests.sim.request_bugs import REQUEST_BUGS

ALL_BUGS = (*BUGS, *PRODUCT_BUGS, *REQUEST_BUGS)

# Nothing but work for the processor: on a slow one it takes as long as it takes.
pytestmark = pytest.mark.timeout(900)

# Bug -> the first seed that caught it when this was written.
CATCHES: dict[str, int] = {
    "ack before fsync": 0,
    "no directory fsync": 0,
    "snapshot renamed before fsync": 0,
    "TRUNC keeps later snapshots": 20,
    "TRUNC cuts behind the next record": 50,
    "SNAP keeps the old log": 1,
    "DIFF over a hole": 8,
    "first DIFF record unchecked": 14,
    "purge by count": 26,
    "epoch written before history": 4,
    "memory kept over a role change": 0,
    "wiped server votes": 9,
    "damaged server votes": 3,
    "digest mismatch ignored": 0,
    "session end without its paths": 17,
    "replies before the events of a long txn": 27,
    "missing epoch guessed": 4,
    "partial multi": 5,
    "read served by a deposed leader": 127,
    "commit counted from a non-voter": 1,
    "commit by the leader alone": 0,
    "reconfig without joint quorum": 39,
    "applied before it is committed": 0,
    "answers matched by session and xid": 172,
    "unknown session told that it expired": 183,
    "no pause after a failed term": 65,
    "sessions ended without asking for touches": 328,
    "repaired server votes": 0,
    "leader with a hung disk stays": 116,
    "local session forgotten while it is upgraded": 133,
    "sync without a quorum": 284,
    "expired without a quorum": 284,
    "epoch kept when the history is replaced": 85,
    "state not compared before it is served": 106,
    "identity of a term that never was": 21,
    "lost manifest, and nobody asks the witness": 225,
    "read-only mode shows the whole log": 29,
    "no start on a full disk": 3,
    "failure of the idle fsync ignored": 88,
    "TRUNC to a server of Apache's": 1,
    "read that waits shows the write after it": 257,
    "fenced server purges": 31,
    "proposals overtake a stream that waits": 7000290,
    "snapshot shows what was written while it was taken": 8,
    "txn larger than servers can read": 21,
    "refused txn is not taken back": 42,
    "stream ends where the peer stops reading": 125,
    "leader commits what it has not stored itself": 3,
    "session stays at the server that its client has left": 6,
    "session secret used before all have it": 98,
    "other servers' writes are audited": 100,
    "last piece of what a learner sent is forgotten": 0,
    "persistent watch is used up": 8,
    "recursive watch is told about its own znode alone": 8,
    "recursive watch is told about children": 2,
    "watches that last are not set again": 2,
    "watch that was removed stays": 8,
    "removal of one kind of watch is answered for all": 2,
    "multiRead ends at the first znode that is missing": 8,
    "getEphemerals gives those of other paths": 305,
    "only direct children are counted": 4,
    "watches without a limit": 17,
    "watch that was used up still counts": 17,
    "multiRead without a limit": 17,
    "ephemerals under way are not counted": 17,
    "leader serves clients that it leaves to others": 18,
    "all observers catch up at once": 4,
}
_MAX_SEEDS = 1000


def caught(bug: Bug) -> SeedOutcome | None:
    """A run in which the bug shows."""
    first = CATCHES.get(bug.name, 0)
    seeds = [first, *(seed for seed in range(_MAX_SEEDS) if seed != first)]
    with planted(bug):
        for seed in seeds:
            outcome = run_seed(seed)
            if not outcome.is_well:
                return outcome
    return None


@pytest.mark.parametrize("bug", ALL_BUGS, ids=lambda bug: bug.name)
def test_planted_bug__is_caught(bug: Bug) -> None:
    compiled = sorted({one.module for one in bug.changes if is_compiled(one.module)})
    if compiled:
        pytest.skip(f"a bug is planted in a source, and {', '.join(compiled)} is compiled")
    outcome = caught(bug)
    assert outcome is not None, f"{bug.name!r} shows in none of {_MAX_SEEDS} seeds"
    print(f"{bug.name:<36} seed {outcome.seed}: {outcome.checker}: {outcome.what}")
    # It is the bug that was found, not something that is wrong without it.
    assert run_seed(outcome.seed).is_well


def test_bugs__are_caught_within_100_seeds_in_the_median() -> None:
    assert len(ALL_BUGS) >= 40
    assert set(CATCHES) == {bug.name for bug in ALL_BUGS}
    assert statistics.median(CATCHES.values()) < 100
