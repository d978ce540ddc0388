"""One member of an ensemble without I/O: election, leading or learning, and its clients.

Theory of operation.  A member is in one of these roles:

    SETTLING    a term is over; the disk finishes its pending work
    LOOKING     takes part in an election, or asks who leads
    LEADING     see quorum/leader.py
    FOLLOWING   see quorum/learner.py; an observer, or a server whose data is not whole, does the
    OBSERVING   same without a vote

Every role is left through SETTLING: what was proposed may or may not survive, so everything in the
log is applied to the tree before the next election, and the log alone is what this server vouches
for.  No state that the disk does not back survives a change of role (R7).

A server whose data is not whole (empty, damaged, unproven, or fenced by a digest that differs)
does not vote.  It asks who leads, learns without a vote until it has received a tree and is up to
date, and only then takes part again (R8, R10).
"""

from __future__ import annotations

from collections.abc import Callable

from keepfast.quorum import (
    AheadVoters,
    Candidacy,
    Dial,
    DiskOrder,
    Effect,
    Hangup,
    InitialiseStore,
    InstallTree,
    Leader,
    Link,
    Membership,
    Notify,
    QuorumOptions,
    Standing,
    StoreEpochs,
    StoreMembership,
    StoreSecret,
    note,
)
from keepfast.replica.back_off import BackOff
from keepfast.replica.following import Following
from keepfast.replica.leading import Leading
from keepfast.replica.left_over import LeftOver
from keepfast.replica.member_state import MemberState
from keepfast.replica.proposals import Append
from keepfast.replica.read_only import show_while_looking
from keepfast.replica.replica import Replica
from keepfast.replica.roles import Role, StoreFacts
from keepfast.tree import ReplayConflict, Tree
from keepfast.wire import (
    InvariantViolation,
    MalformedRecord,
    Notification,
    PeerProtocolError,
    PeerState,
    ServerId,
    StorageError,
    Zxid,
    epoch_of,
    invariant,
    make_zxid,
)


class Member:
    """One member of an ensemble: changes roles and passes on what concerns the one that it has."""

    def __init__(
        self,
        replica: Replica,
        membership: Membership,
        options: QuorumOptions,
        facts: StoreFacts,
        new_ensemble: Callable[[], str],
    ) -> None:
        self.state = MemberState(
            replica,
            membership,
            options,
            facts,
            lambda: bytes.fromhex(new_ensemble() + new_ensemble()),
        )
        self.leading: Leading | None = None
        self.following: Following | None = None
        self._new_ensemble = new_ensemble
        # What was proposed and not applied when the last term ended.
        self._left_over = LeftOver()
        self._looking_since_ms = 0
        # Whom to vote for next, instead of for itself; until when it hands over if it can.
        self._successor: ServerId | None = None
        self._hands_over_until_ms = -1
        # When to look for a leader at the earliest.
        self._look_at_ms = 0
        self._back_off = BackOff(options.tick_ms, options.sync_ms)
        # Records in `Service.appends` that were sent to the learners.
        self._broadcast = 0
        # Outlives the terms of this server.
        self._ahead = AheadVoters(options.init_ms, 2 * options.tick_ms, options.dial_ms)

    # -- what the driver calls -------------------------------------------------------------------

    @property
    def leader(self) -> Leader | None:
        """This server's term as a leader; None: it does not lead."""
        return None if self.leading is None else self.leading.leader

    def start(self) -> None:
        """Start looking for a leader."""
        self._settle()

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is wanted at the latest, besides the regular ticks."""
        if self.state.role is Role.LOOKING:
            return self.state.election.deadline_ms
        if self.following is not None:
            return self.following.redial_at_ms
        return None

    def tick(self) -> None:
        """Do what is due; call it at least twice per tick."""
        now_ms = self.state.now_ms
        if self.state.role is Role.LOOKING:
            self.state.election.tick(now_ms)
            self._after_election()
            if self.state.role is Role.LOOKING:
                show_while_looking(self.state, self._looking_since_ms)
        elif self.leading is not None:
            self.leading.tick(now_ms)
            self._end_leading()
            if self.leading is not None:
                leader = self.leading.leader
                self.state.secrets.lead(leader)
                self.state.replica.tick(leader.heard_up_to)
                self._leave_if_unfit(self.leading)
        elif self.state.role is Role.SETTLING:
            self._settle()
        elif self.following is not None:
            self._follow(lambda following: following.tick(now_ms))
            if self.state.replica.forwarder is not None:
                self.state.replica.tick()

    def hand_over(self) -> ServerId | None:
        """Hand over to another server; returns which, None: nobody could.

        Under load, at the first moment when it has all that we have, within `sync_ms`. Writes in
        flight then end as with any leader change: their outcome is unknown to their clients.
        """
        found = None if self.leader is None else self.leader.successor()
        if found is None:
            return None
        self._hands_over_until_ms = self.state.now_ms + self.state.options.sync_ms
        self.hand_over_if_due()
        return found[0]

    @property
    def is_handing_over(self) -> bool:
        """Whether it leaves as soon as a successor has all that was made here."""
        return self.state.now_ms <= self._hands_over_until_ms

    def hand_over_if_due(self) -> None:
        """Leave if that was asked for and the successor has everything; for each of its acks."""
        leader = self.leader if self.is_handing_over else None
        found = None if leader is None else leader.successor()
        # What was made and not sent yet is in our log alone.
        if (
            found is not None
            and found[1]
            and self._broadcast == len(self.state.replica.service.appends)
        ):
            self._successor = found[0]
            self._leave(f"it hands over to server {found[0]}")

    def _leave_if_unfit(self, leading: Leading) -> None:
        """Let another server lead if this one cannot write."""
        proposer, replica = self.state.replica.proposer, self.state.replica
        if leading.is_replaced:
            self._leave("another server leads the new membership")
        elif proposer is not None and proposer.is_exhausted:
            self._leave("the counter of this epoch is used up")
        elif proposer is not None and not replica.service.is_writable:
            others = set(leading.leader.current_servers()) - {self.state.server_id}
            if leading.leader.quorums.is_quorum(others):
                # The others elect one of them before this server asks who leads.
                self._look_at_ms = self.state.now_ms + self.state.options.sync_ms
                self._leave("its disk is full, and others can lead")

    def on_notification(self, sender: ServerId, notification: Notification) -> None:
        """A vote of a peer."""
        self.state.election.receive(sender, notification, self.state.now_ms)
        self._after_election()

    def on_peer_linked(self, peer: ServerId) -> None:
        """A new election connection with a peer is there."""
        self.state.election.peer_linked(peer)
        self._after_election()

    def link_accepted(self, link: Link) -> None:
        """A learner has connected to our quorum port."""
        if self.leader is None:
            self.state.effects.append(Hangup(link, "this server does not lead"))
            link.is_open = False
        else:
            self.leader.on_link(link, self.state.now_ms)

    def link_dialled(self, link: Link) -> None:
        """The leader's quorum port was reached."""
        if self.following is None or self.following.link is not None:
            self.state.hang_up(link, "the leader is no longer this one")
        else:
            self._follow(lambda following: following.on_connected(link))

    def dial_failed(self) -> None:
        """The leader's quorum port was not reached."""
        self._follow(lambda following: following.on_dial_failed())

    def receive_packets(self, link: Link, data: bytes) -> None:
        """Bytes of the learner protocol."""
        if not link.is_open:
            return
        try:
            if self.following is not None and link is self.following.link:
                self.following.receive(data)
                self._end_following()
            elif self.leading is not None:
                self.leading.receive(link, data)
                self._end_leading()
                self.hand_over_if_due()
        except (PeerProtocolError, MalformedRecord) as error:
            self._drop(link, str(error))

    def link_lost(self, link: Link) -> None:
        """A connection is gone."""
        if not link.is_open:
            return
        link.is_open = False
        if self.leader is not None:
            self.leader.on_lost(link)
        elif self.following is not None and link is self.following.link:
            self._follow(lambda following: following.on_lost())

    def log_durable(self, zxid: Zxid) -> None:
        """Records up to `zxid` are on disk."""
        # One from before another that was heard already says nothing new.
        self.state.durable = zxid = max(zxid, self.state.durable)
        if self.leading is not None:
            self.leading.on_durable(zxid)
        elif self.following is not None:
            self.following.on_durable(zxid)
            self._end_following()
        elif self.state.role is Role.SETTLING:
            self._settle()

    def disk_done(self, order: DiskOrder, tree: Tree | None) -> None:
        """An order was carried out; `tree` is the one that holds now, where it is another one."""
        self.state.orders -= 1
        if isinstance(order, StoreEpochs):
            self.state.accepted_epoch, self.state.current_epoch = order.accepted, order.current
            name = self.state.ensemble if order.ensemble is None else order.ensemble or None
            if name != self.state.ensemble:
                self.state.ensemble, self.state.ensemble_since = name, order.current
            self.state.has_epochs = True
            if self.state.standing is Standing.CATCHING_UP:
                self.state.standing = Standing.WHOLE
        elif isinstance(order, StoreSecret):
            self.state.secrets.stored(order.secret)
        elif not isinstance(order, StoreMembership):
            invariant(tree is not None, "every other order gives a tree")
            self.state.hold(tree)
        if isinstance(order, InstallTree):
            self.state.standing = Standing.CATCHING_UP if order.lacks else Standing.WHOLE
            self.state.accepted_epoch = max(self.state.accepted_epoch, order.promised)
            # As in storage/epochs.py: the epoch of a history goes with the history.
            agreed = (
                self.state.current_epoch
                if self.state.has_epochs
                else epoch_of(order.tree.last_zxid)
            )
            self.state.current_epoch = min(max(agreed, 0), order.promised)
            self.state.has_epochs = True
        if self.leading is not None and isinstance(order, StoreEpochs):
            self.leading.on_epochs_stored(order)
        elif self.following is not None:
            if not isinstance(order, StoreMembership | StoreSecret):
                self._follow(lambda following: following.on_order_done(order, tree))
        elif self.state.role is Role.SETTLING:
            self._settle()

    def disk_refused(self, order: DiskOrder, reason: StorageError) -> None:
        """An order could not be carried out, and nothing changed."""
        self.state.orders -= 1
        self.state.effects.append(note("disk-refused", order=type(order).__name__, reason=reason))
        if isinstance(order, StoreMembership):
            self.state.members.not_stored()
        elif isinstance(order, StoreSecret):
            self.state.secrets.not_stored()
        elif self.leader is not None:
            self._leave(str(reason))
        elif self.following is not None:
            self._follow(lambda following: following.on_order_failed(order, str(reason)))
        if self.state.role is Role.SETTLING:
            self._settle()

    def take_effects(self) -> list[Effect]:
        """What is to be done besides records and packets, in order."""
        effects, self.state.effects[:] = self.state.effects.copy(), ()
        return effects

    def take_dirty_links(self) -> dict[Link, None]:
        """The links that have something to be sent."""
        dirty, self.state.dirty_links = self.state.dirty_links, {}
        return dirty

    def take_appends(self) -> list[Append]:
        """The records to store, in order."""
        self._broadcast = 0
        return self.state.replica.service.take_appends()

    # -- looking ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Look for a leader once the disk has finished its pending work."""
        if (
            self.state.orders
            or self.state.durable < self.state.appended
            or self.state.replica.service.appends
        ):
            return
        if self.state.now_ms < max(self._look_at_ms, self._ahead.quiet_until_ms):
            return
        self._consider_log()
        self.state.role = Role.LOOKING
        self._looking_since_ms = self.state.now_ms
        successor, self._successor = self._successor, None
        self.state.election.look(*self._candidacy(), self.state.now_ms, successor)
        self._after_election()

    def _consider_log(self) -> None:
        """Find the records in the log that are not known to be committed: we vote with them."""
        try:
            for membership in self._left_over.read(
                self.state.tree if self.state.standing.may_vote else None
            ):
                self.state.members.consider(membership)
        except MalformedRecord as error:
            self._fence(f"a record of the log cannot be read: {error}")

    def _catch_up_with_log(self) -> bool:
        """Apply what the log holds, now that somebody leads; False: it does not fit, look again."""
        try:
            self.state.replica.is_agreed_on &= not self._left_over.apply(self.state.tree)
            return True
        except ReplayConflict as error:
            self._fence(f"a record of the log does not fit the tree: {error}")
        self.state.role = Role.SETTLING
        self._settle()
        return False

    def _candidacy(self) -> tuple[Candidacy, Zxid, int]:
        head = Zxid(-1) if self.state.tree is None else self._left_over.head(self.state.tree)
        if self.state.standing is Standing.WHOLE and self.state.tree is not None:
            last = max(head, make_zxid(self.state.current_epoch, 0))
            return Candidacy.ELIGIBLE, last, self.state.current_epoch
        if self.state.standing is Standing.EMPTY and not self.state.has_epochs:
            return Candidacy.EMPTY, Zxid(-1), 0
        return Candidacy.BARRED, Zxid(-1), 0

    def _after_election(self) -> None:
        election = self.state.election
        for server_id, notification in election.outbox:
            self.state.effects.append(Notify(server_id, notification))
        election.outbox.clear()
        self.state.effects.extend(election.notes)
        election.notes.clear()
        if self.state.role is not Role.LOOKING:
            return
        if election.learned_config is not None:
            self.state.adopt_members(election.learned_config)
        result = election.result
        if result is None:
            is_trusted = (
                self.state.options.is_empty_trusted and election.candidacy is Candidacy.EMPTY
            )
            if election.may_initialise or is_trusted:
                self.state.role = Role.SETTLING
                self.state.order(InitialiseStore())
            return
        self.state.replica.stand_down("a leader was elected")
        if not self._catch_up_with_log():
            return
        self.state.leader_id = result.leader
        if result.state is PeerState.LEADING:
            self._become_leading()
        else:
            self._become_learning(result.state)

    # -- roles -----------------------------------------------------------------------------------

    def _become_leading(self) -> None:
        tree = self.state.tree
        if tree is None:
            raise InvariantViolation("a leader has a tree")
        self.state.role = Role.LEADING
        self._broadcast = 0
        self.leading = Leading(self.state, tree, self._ahead, self._new_ensemble)
        self.leading.start()
        self._end_leading()

    def _become_learning(self, state: PeerState) -> None:
        self.state.role = Role.FOLLOWING if state is PeerState.FOLLOWING else Role.OBSERVING
        invariant(self.state.leader_id is not None, "a learner has a leader")
        self.following = Following(self.state, self.state.role is Role.FOLLOWING)
        self.state.effects.append(Dial(self.state.leader_id or ServerId(0)))

    def _leave(self, reason: str) -> None:
        """End the role: nobody is served, and the log decides what comes next."""
        pause_ms = self._back_off.pause_ms(self.state.replica.is_serving)
        self._look_at_ms = max(self._look_at_ms, self.state.now_ms + pause_ms)
        self.state.effects.append(note("role-ended", role=self.state.role.mode, reason=reason))
        links: list[Link] = []
        if self.leader is not None:
            links = list(self.leader.learners)
            proposer = self.state.replica.proposer
            if proposer is not None:
                self._left_over = LeftOver(
                    one.entry for one in self.state.replica.service.proposals
                )
        elif self.following is not None:
            links = [] if self.following.link is None else [self.following.link]
            self._left_over = LeftOver(self.following.close())
        self.state.replica.stand_down(reason)
        self.leading = self.following = self.state.leader_id = None
        self._hands_over_until_ms = -1
        self.state.election.leave()
        self.state.role = Role.SETTLING
        for link in links:
            self.state.hang_up(link, reason)
        self._settle()

    def _fence(self, reason: str) -> None:
        """Stop trusting our own data: only a tree from a leader helps (R10)."""
        self.state.effects.append(note("fenced", reason=reason))
        self.state.fence_reason = reason
        self.state.standing = Standing.DAMAGED
        if self.state.role not in (Role.SETTLING, Role.LOOKING):
            self._leave(reason)

    def _drop(self, link: Link, reason: str) -> None:
        """A peer broke the protocol."""
        self.state.effects.append(note("peer-broke-protocol", link=link.number, reason=reason))
        if self.following is not None and link is self.following.link:
            self._leave(reason)
        else:
            self.state.hang_up(link, reason)
            if self.leader is not None:
                self.leader.on_lost(link)

    def _follow(self, event: Callable[[Following], None]) -> None:
        """Pass something on to the part that follows, if there is one, and see whether it ends."""
        following = self.following
        if following is None:
            return
        try:
            event(following)
        except (PeerProtocolError, MalformedRecord) as error:
            if self.following is following:
                self._leave(str(error))
        self._end_following()

    def _end_following(self) -> None:
        """Leave the leader if the part that follows it says so."""
        following = self.following
        end = None if following is None else following.end
        if following is None or end is None:
            return
        if end.is_unfit:
            self.state.fenced_epoch = following.learner.epoch
            self._fence(end.reason)
            return
        if end.is_whole_again:
            self.state.standing = Standing.WHOLE
            self.state.effects.append(note("whole-again"))
        self._leave(end.reason)

    # -- leading ---------------------------------------------------------------------------------

    def _end_leading(self) -> None:
        """End the term if the leader says so."""
        if self.leader is not None and self.leader.end is not None:
            self._leave(self.leader.end)

    def continue_work(self) -> None:
        """Others had their turn: do more of what takes many."""
        if self.leading is not None:
            self.leading.continue_work()
        self._follow(Following.continue_work)

    def propose_new(self) -> None:
        """Send the records that were made since the last call to all who follow.

        Call it before `take_appends`.
        """
        appends = self.state.replica.service.appends
        if not appends:
            return
        self.state.appended = appends[-1].zxid
        leader = self.leader
        if leader is not None:
            fresh = [(record.zxid, record.entry) for record in appends[self._broadcast :]]
            if fresh:
                leader.propose_all(fresh)
                statistics = self.state.replica.statistics
                statistics.proposals.add_all([len(entry) for _, entry in fresh])
                statistics.proposed += len(fresh)
        self._broadcast = len(appends)
