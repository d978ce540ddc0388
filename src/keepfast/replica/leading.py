"""A member's term as a leader: what joins the leader's protocol, the clients and the members."""

from __future__ import annotations

from collections.abc import Callable

from keepfast.quorum import (
    AheadVoters,
    Leader,
    LeaderMeans,
    Link,
    OwnHistory,
    Quorums,
    StoreEpochs,
)
from keepfast.replica.learner_desk import LearnerDesk
from keepfast.replica.member_state import MemberState
from keepfast.replica.reconfiguration import Reconfiguration
from keepfast.replica.statistics import SizeRange
from keepfast.tree import Tree
from keepfast.wire import PeerState, Zxid, epoch_of, make_zxid


class Leading:
    """A member's term as a leader.

    The member makes one for each term. After each input it looks at `leader.end`: once that is set,
    nothing happens here any more.
    """

    def __init__(
        self, state: MemberState, tree: Tree, ahead: AheadVoters, new_ensemble: Callable[[], str]
    ) -> None:
        own = OwnHistory(
            state.server_id,
            state.accepted_epoch,
            state.current_epoch,
            tree.last_zxid,
            state.ensemble,
        )
        means = LeaderMeans(
            state.effects,
            state.send,
            state.order,
            state.history,
            state.digests,
            new_ensemble,
            ahead,
        )
        self.leader = Leader(own, state.quorums, state.options, means, state.now_ms)
        # Another server is to lead the membership, once the others know of the change.
        self.is_replaced = False
        self._state = state
        self._tree = tree
        self._desk = LearnerDesk(self.leader, state)
        # The last round of confirmations that was made use of.
        self._confirmed = 0

    # -- inputs ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the term."""
        self._state.secrets.begin_term(self.leader)
        self.leader.start()
        self._proceed()

    def receive(self, link: Link, data: bytes) -> None:
        """Bytes of a learner; raises PeerProtocolError or MalformedRecord: hang up."""
        leader = self.leader
        if link not in leader.learners:
            return
        for packet in link.parser.feed(data):
            if leader.end is not None or not link.is_open:
                return
            if not self._desk.handle(link, packet):
                leader.on_packet(link, packet, self._state.now_ms)
                self._proceed()
        self._advance()

    def on_durable(self, zxid: Zxid) -> None:
        """Our own log holds everything up to `zxid`."""
        self.leader.on_durable(zxid)
        self._advance()

    def continue_work(self) -> None:
        """Others had their turn: commit more."""
        self._advance()

    def on_epochs_stored(self, order: StoreEpochs) -> None:
        """What we promised or agreed to is durable."""
        self.leader.on_epochs_stored(order)
        self._proceed()

    def tick(self, now_ms: int) -> None:
        """Do what is due by time."""
        self.leader.tick(now_ms)
        self._proceed()

    # -- what follows ----------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Do what the last input made possible, besides commits."""
        leader = self.leader
        if leader.end is not None:
            return
        if leader.is_to_open:
            self._open(make_zxid(leader.epoch or 0, 0))
        if leader.wants_txn:
            leader.wants_txn = False
            if self._state.replica.proposer is not None:
                self._state.replica.proposer.propose_nothing()
        if leader.confirmations.last > self._confirmed:
            self._confirmed = leader.confirmations.last
            self._apply(leader.last_committed)
            self._advance()

    def _open(self, start: Zxid) -> None:
        """A quorum follows: what this server has is the history, and clients may be served."""
        state, leader, epoch = self._state, self.leader, epoch_of(start)
        state.election.settle(PeerState.LEADING, state.server_id, epoch)
        current = state.quorums.next or state.quorums.current
        if state.quorums.next is not None:
            state.adopt_members(current)
            leader.quorums = state.quorums
            self.is_replaced = state.server_id not in current.voters
        if state.options.is_reconfig_enabled and not current.version:
            state.adopt_members(current.with_version(start))
            leader.quorums = state.quorums
        state.remember_members()
        state.members.show(self._tree)
        reconfiguration = Reconfiguration(state.options, leader)
        state.replica.statistics.proposals = SizeRange()
        state.replica.lead(self._tree, epoch, leader.confirmations, reconfiguration)
        state.note_serving(self._tree, epoch)
        leader.open()

    def _advance(self) -> None:
        """Commit what a quorum has."""
        leader = self.leader
        point = leader.last_committed if leader.end is not None else leader.agreed_up_to()
        while leader.last_committed < point and leader.outstanding:
            # In two steps where a learner waits for the first: its SYNC goes between them.
            stop = self._desk.next_stop(point)
            if stop <= leader.last_committed:
                return  # a sync waits for a quorum, or others for their turn; work continues later
            self._commit(stop)

    def _commit(self, point: Zxid) -> None:
        leader, state = self.leader, self._state
        changed = leader.quorums.next
        is_first = epoch_of(leader.last_committed) < epoch_of(point)
        next_leader = leader.commit(point)
        self._apply(point)
        if is_first:
            leader.serve_waiting()
        if changed is not None and next_leader is not None:
            leader.quorums = Quorums(changed)
            state.adopt_members(changed)
            # Not at once: what tells the others of the change is still on its way to them.
            self.is_replaced = next_leader != state.server_id

    def _apply(self, point: Zxid) -> None:
        """Everything up to `point` is committed: apply it, and answer what waited for it."""
        self._state.replica.commit(point)
        self._desk.release(point)
