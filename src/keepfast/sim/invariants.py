"""What must hold inside each machine of a server whenever an event has been handled.

The other checkers see what servers send; this one inspects their state, so that an inconsistency is
found where it arises, not where it shows. Only the machines of the process that had the event are
looked at: no other one can have changed.
"""

from __future__ import annotations

from itertools import pairwise

from keepfast.quorum import CatchUp, Leader, Learner, QuorumOptions, Standing, Step
from keepfast.replica import Member, Replica, Role
from keepfast.sim.ledger import Violation
from keepfast.storage import Manifest, Store
from keepfast.wire import Zxid, counter_of, epoch_of, follows_in_epoch


class Invariants:
    """Looks into all machines of one process."""

    def __init__(self, who: str, store: Store, replica: Replica, member: Member | None) -> None:
        self._who = who
        self._store = store
        self._replica = replica
        self._member = member
        # The last one that was looked at: a new one is a new object.
        self._manifest: Manifest | None = None

    def check(self) -> None:
        """Raises Violation."""
        who, store, member = self._who, self._store, self._member
        _hold(store.durable <= store.head, who, "more is durable than was taken")
        if store.manifest is not self._manifest and store.standing is Standing.WHOLE:
            self._manifest = store.manifest
            check_manifest(who, store.manifest)
        check_replica(who, self._replica)
        if member is not None:
            check_member(who, member)
            if member.leader is not None:
                check_leader(who, member.leader)
                check_catch_ups(who, member.leader, member.state.options)
            if member.following is not None:
                check_learner(who, member.following.learner)


def _hold(is_so: bool, who: str, what: str) -> None:
    if not is_so:
        raise Violation("invariants", f"{who}: {what}")


def check_manifest(who: str, manifest: Manifest) -> None:
    """What the disk is known to have."""
    is_ordered = (manifest.accepted_epoch or 0) >= (manifest.current_epoch or 0)
    _hold(is_ordered, who, "agreed to an epoch that was not promised")
    for before, after in pairwise(manifest.segments):
        _hold(before.seal is not None, who, f"{before.name} is open before a later segment")
        is_next = before.seal is not None and after.follows == before.seal.last
        _hold(is_next, who, f"{after.name} does not follow {before.name}")


def check_replica(who: str, replica: Replica) -> None:
    """One role at a time; txns on their way are one run after the tree."""
    proposer, forwarder, service = replica.proposer, replica.forwarder, replica.service
    roles = (proposer is not None) + (forwarder is not None) + service.is_read_only
    _hold(roles <= 1, who, "serves in two roles at once")
    if proposer is not None:
        last = replica.tree.last_zxid
        for proposal in service.proposals:
            _hold(_follows(proposal.zxid, last), who, "what is proposed does not follow")
            last = proposal.zxid
    for session_id, connection in service.connections.items():
        _hold(connection.session_id == session_id, who, "a connection under another session")


def check_member(who: str, member: Member) -> None:
    """The role and the parts that belong to it."""
    state = member.state
    role, replica = state.role, state.replica
    _hold((member.leader is not None) == (role is Role.LEADING), who, "leads in another role")
    learns = role in (Role.FOLLOWING, Role.OBSERVING)
    _hold((member.following is not None) == learns, who, "learns in another role")
    if state.standing is Standing.WHOLE:
        _hold(state.accepted_epoch >= state.current_epoch, who, "agreed before it promised")
        _hold(state.tree is not None, who, "whole without a tree")
    if replica.is_serving and not replica.is_read_only:
        _hold(replica.tree is state.tree, who, "serves another tree than its own")
        _hold(state.standing is Standing.WHOLE, who, "serves data that is not whole")


def check_leader(who: str, leader: Leader) -> None:
    """What is proposed, committed and acknowledged, in this order."""
    _hold(leader.last_committed <= leader.last_proposed, who, "committed before it was proposed")
    last = leader.last_committed
    for zxid, _ in leader.outstanding:
        _hold(_follows(zxid, last), who, "a hole in what is proposed")
        last = zxid
    if leader.outstanding:
        _hold(last == leader.last_proposed, who, "the last proposal is not the last")
    current = []
    for learner in leader.learners.values():
        if learner.step is Step.CURRENT and learner.is_follower:
            _hold(learner.acked <= leader.last_proposed, who, "acknowledged and never proposed")
            current.append(learner.server_id)
    _hold(len(current) == len(set(current)), who, "one server follows twice")


def check_catch_ups(who: str, leader: Leader, options: QuorumOptions) -> None:
    """No more observers than may catch up at the same time."""
    plans = [
        learner.plan
        for learner in leader.learners.values()
        if learner.step is Step.CATCHING_UP and not learner.is_follower
    ]
    trees = sum(plan is not None and plan.kind is CatchUp.SNAP for plan in plans)
    _hold(trees <= options.max_snapshot_catch_ups, who, "sends its tree to too many observers")
    others = len(plans) - trees
    _hold(others <= options.max_diff_catch_ups, who, "sends txns to too many observers")


def check_learner(who: str, learner: Learner) -> None:
    """What was received, is durable, is committed and applied."""
    _hold(learner.durable <= learner.last_received, who, "durable and never received")
    _hold(learner.applied <= learner.durable, who, "applied and not durable")
    if learner.is_serving:
        _hold(learner.is_established, who, "serves before its leader is established")


def _follows(zxid: Zxid, last: Zxid) -> bool:
    """Whether a txn directly follows another one, or is the first of a later epoch."""
    is_first = counter_of(zxid) == 1 and epoch_of(zxid) > epoch_of(last)
    return is_first or follows_in_epoch(zxid, last)
