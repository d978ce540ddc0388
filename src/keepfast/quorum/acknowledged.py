"""What acks show: how far a quorum has come, and who should lead next."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.quorum.learner_link import LearnerLink
from keepfast.quorum.membership import Membership
from keepfast.quorum.quorums import Quorums
from keepfast.wire import ServerId, Zxid


def agreed_point(
    followers: Iterable[LearnerLink], me: ServerId, own: Zxid, committed: Zxid, quorums: Quorums
) -> Zxid:
    """The last zxid that a quorum has on disk, including this server, which has all up to `own`.

    At least `committed`, which a quorum had before.
    """
    acks = {learner.server_id: learner.acked for learner in followers}
    acks[me] = own
    for zxid in sorted({min(acked, own) for acked in acks.values()}, reverse=True):
        if zxid <= committed:
            break
        if quorums.is_quorum([id for id, acked in acks.items() if acked >= zxid]):
            return zxid
    return committed


def designated_leader(
    learners: Iterable[LearnerLink], me: ServerId, current: Membership, changed: Membership
) -> ServerId:
    """Who leads a new membership: this server, or the new voter that has most of the log."""
    places = [one.find(me) for one in (current, changed)]
    if me in changed.voters and len({spec.quorum for spec in places if spec}) == 1:
        return me
    voters = [
        (learner.acked, learner.server_id)
        for learner in learners
        if learner.is_follower and learner.server_id in changed.voters
    ]
    return max(voters)[1] if voters else me
