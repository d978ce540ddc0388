"""How a learner catches up: the records it lacks, a cut and then records, or a whole tree (R9).

A DIFF starts at a record that both sides have, from a range of the log that is proven contiguous. A
TRUNC goes to the fork and nowhere else. Whatever cannot be shown to be one of these is a SNAP.

An Apache server sends its last zxid and nothing else, and neither TRUNC nor SNAP is certain to
remove what was never committed. After TRUNC it loads its newest snapshot, also one that is beyond
the cut: it takes one when it is elected, before anybody follows. After SNAP it keeps its old log,
and records beyond the tree come back at its next start. A tree that is itself beyond all that it
has logged is safe (`is_tree_safe`), so that is what it is sent, as soon as there is one; records
after an older tree are not enough, as it stores that tree before it logs those of a new epoch.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Protocol

from keepfast.quorum.chains import Chain, last_common
from keepfast.wire import Zxid, counter_of, epoch_of, format_zxid


class ProvenHistory(Protocol):
    """What the leader's own disk can prove, at the moment of the decision."""

    def chain(self) -> Chain:
        """The durable history."""

    def serves_after(self, zxid: Zxid) -> bool:
        """Whether the log holds every record after `zxid`."""

    def bytes_after(self, zxid: Zxid) -> int:
        """About how many bytes of log these are."""

    def tree_bytes(self) -> int:
        """About how many bytes a tree takes."""


class LearnerHistory(NamedTuple):
    """What a learner reports about its own history."""

    last: Zxid  # -1: it has none that counts
    chain: Chain | None = None  # None: the learner does not send one (Apache)


class CatchUp(Enum):
    """The three ways."""

    DIFF = "diff"
    TRUNC = "trunc"
    SNAP = "snap"


class Plan(NamedTuple):
    """What is sent: records after `point`, cut first or not; or a tree. `reason` says why."""

    kind: CatchUp
    point: Zxid
    reason: str


# Below this many bytes of log, a tree is never sent just because it is smaller.
ALWAYS_RECORDS_BYTES: Final = 1 << 20


def is_tree_safe(learner: LearnerHistory, committed: Zxid) -> bool:
    """Whether a tree up to `committed` makes a learner drop everything else that it has."""
    return learner.chain is not None or learner.last < committed


def plan_catch_up(
    own: ProvenHistory,
    own_last: Zxid,
    committed: Zxid,
    proposed: Zxid,
    learner: LearnerHistory,
    size_factor: float,
) -> Plan:
    """Decide; `own_last` is what this server calls its last zxid: a record or an epoch's start.

    `proposed` is the last zxid of this term.
    """
    if learner.last < 0:
        return Plan(CatchUp.SNAP, Zxid(-1), "it has no history that counts")
    if learner.chain is None and _is_of_this_term(learner.last, committed, proposed):
        at = format_zxid(learner.last)
        return Plan(CatchUp.DIFF, learner.last, f"it has what this term proposed up to {at}")
    chain = own.chain()
    point = _meeting_point(chain, own_last, learner)
    if point is None:
        last = format_zxid(learner.last)
        return Plan(CatchUp.SNAP, Zxid(-1), f"nothing shows where its history, to {last}, forked")
    if not own.serves_after(point):
        reason = f"our log does not reach back to {format_zxid(point)}"
        return Plan(CatchUp.SNAP, point, reason)
    size, tree_size = own.bytes_after(point), own.tree_bytes()
    if size > ALWAYS_RECORDS_BYTES and size_factor > 0 and size > size_factor * tree_size:
        return Plan(CatchUp.SNAP, point, f"{size} bytes of log, a tree of {tree_size}")
    at = format_zxid(point)
    if _is_at(learner, point, chain):
        return Plan(CatchUp.DIFF, point, f"both have {at}")
    if learner.chain is None and is_tree_safe(learner, committed):
        reason = f"the histories fork after {at}, and it may have snapshots beyond that"
        return Plan(CatchUp.SNAP, point, reason)
    return Plan(CatchUp.TRUNC, point, f"the histories fork after {at}")


def _is_of_this_term(last: Zxid, committed: Zxid, proposed: Zxid) -> bool:
    """Whether it is a record that waits for its quorum.

    Only this server can have sent it, after all that comes before it. Its own disk may not have it
    yet, and then cannot show that.
    """
    is_of_epoch = epoch_of(last) == epoch_of(proposed) and counter_of(last) > 0
    return is_of_epoch and committed < last <= proposed


def _is_at(learner: LearnerHistory, point: Zxid, chain: Chain) -> bool:
    """Whether the learner's history ends at the point."""
    if learner.chain is not None:
        return learner.chain.head == point
    last = learner.last
    return last == point or (counter_of(last) == 0 and not chain.holds(last))


def _meeting_point(chain: Chain, own_last: Zxid, learner: LearnerHistory) -> Zxid | None:
    """The last record that both have, if that can be shown."""
    if learner.chain is not None:
        return last_common(chain, learner.chain)
    last = learner.last
    if chain.holds(last):
        return last
    if counter_of(last) == 0:
        # The start of an epoch: it has all that the epoch began with, and none of its records.
        # Not the head: that may be of this term, proposed and not committed.
        return chain.greatest_up_to(last) if last == own_last else chain.before_epoch(last)
    greatest = chain.greatest_up_to(last)
    # In one epoch both have the records from the first on. Across epochs the learner may lack
    # our last one before the fork: a cut there would miss it (R5).
    if greatest is not None and epoch_of(greatest) == epoch_of(last) and counter_of(greatest):
        return greatest
    return None
