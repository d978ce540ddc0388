"""One member of an ensemble without I/O: election, leading or learning, and its clients.

Theory of operation.  A member is in one of these roles:

    SETTLING    a term is over; the disk finishes what it was asked for
    LOOKING     takes part in an election, or asks who leads
    LEADING     see quorum/leader.py
    FOLLOWING   see quorum/learner.py; an observer, or a server whose data are not whole, does the
    OBSERVING   same without a voice

Every way out of a role leads through SETTLING: what was proposed may or may not survive, so all
that is in the log is applied to the tree before the next election, and the log alone is what this
server speaks for.  No state that the disk does not back survives a change of role (R7).

A server whose data are not whole (empty, damaged, unproven, or fenced by a digest that differs)
does not vote.  It asks who leads, learns without a voice until it is sent a tree and is up to date,
and only then takes part again (R8, R10).

The driver calls `tell_time`, then one input, then takes `effects`, `dirty_links` and what the
replica asks for; what clients wrote it sends out by `propose_new`, at once or gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from keepfast.quorum import (
    Candidacy,
    Dial,
    DiskOrder,
    Effect,
    Election,
    Hangup,
    InitialiseStore,
    InstallTree,
    Leader,
    Link,
    Membership,
    Notify,
    OwnHistory,
    ProvenHistory,
    QuorumOptions,
    Quorums,
    RecordStream,
    Standing,
    StoreEpochs,
    StoreMembership,
    TreeStream,
    note,
)
from keepfast.replica.condition import CatchUpReport
from keepfast.replica.following import Following
from keepfast.replica.learner_desk import LearnerDesk
from keepfast.replica.members import Members, proposed_membership
from keepfast.replica.proposals import Append
from keepfast.replica.read_only import show_while_looking
from keepfast.replica.reconfiguration import Reconfiguration
from keepfast.replica.replica import Replica
from keepfast.tree import ReplayConflict, Tree
from keepfast.wire import (
    LogEntry,
    MalformedRecord,
    Notification,
    PeerProtocolError,
    PeerState,
    QuorumPacket,
    ServerId,
    StorageError,
    Zxid,
    codec_of,
    decode_entry,
    epoch_of,
    invariant,
    make_zxid,
)


class Role(Enum):
    """See the module."""

    SETTLING = "settling"
    LOOKING = "looking"
    LEADING = "leading"
    FOLLOWING = "following"
    OBSERVING = "observing"


class StoreFacts(msgspec.Struct, frozen=True):
    """What a server's disk says when it starts, and whom to ask about its history later."""

    standing: Standing
    tree: Tree | None
    head: Zxid
    accepted_epoch: int | None
    current_epoch: int | None
    ensemble: str | None
    # The last membership that it knew to be agreed on, as its text.
    membership: bytes | None
    history: Callable[[], ProvenHistory]


class Member:
    """See the module."""

    def __init__(
        self,
        replica: Replica,
        membership: Membership,
        options: QuorumOptions,
        facts: StoreFacts,
        new_ensemble: Callable[[], str],
    ) -> None:
        self.replica = replica
        self.server_id = ServerId(replica.options.server_id)
        self.options = options
        self.role = Role.SETTLING
        self.leader_id: ServerId | None = None
        self.standing = facts.standing
        self.tree = facts.tree
        # The epochs as they are on disk. A server that was alone never stored any; its history is
        # what it agreed to.
        started = max(epoch_of(facts.head), 0)
        self.accepted_epoch = started if facts.accepted_epoch is None else facts.accepted_epoch
        self.current_epoch = started if facts.current_epoch is None else facts.current_epoch
        self.ensemble = facts.ensemble
        self.effects: list[Effect] = []
        self.dirty_links: set[Link] = set()
        self.members = Members(self, membership, facts.membership)
        replica.reconfiguration = Reconfiguration(self)
        self.election = Election(self.server_id, self.quorums.current, options.election)
        self.members.hold(facts.tree)
        self.leader: Leader | None = None
        self.following: Following | None = None
        self.history = facts.history
        self.new_ensemble = new_ensemble
        self._has_epochs = facts.current_epoch is not None
        # The last record that the disk was given, and the last that it has; its open orders.
        self._appended, self._durable, self._orders = facts.head, facts.head, 0
        # What was proposed and not applied when the last term ended.
        self._left_over: Sequence[LogEntry | bytes] = ()
        self.looking_since_ms = 0
        # Whom to vote for next, instead of for itself; until when it hands over if it can.
        self._successor: ServerId | None = None
        self._hands_over_until_ms = -1
        # See `_leave_if_unfit`: when to look at the earliest, and whether another one is to lead.
        self._look_at_ms, self._is_replaced = 0, False
        # Records in `replica.appends` that were sent to the learners.
        self._broadcast = 0
        self._desk = LearnerDesk(self)
        self.fences = 0  # how often digests of an Apache leader made this server start over
        # How it last caught up with a leader, and why its data are no longer trusted; for reports.
        self.catch_up: CatchUpReport | None = None
        self.fence_reason = ""

    # -- what the driver calls -------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for a leader."""
        self._settle()

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """Monotonic time for deadlines, wall clock time for txns; call it before anything else."""
        self.replica.tell_time(now_ms, wall_ms)

    @property
    def now_ms(self) -> int:
        return self.replica.now_ms

    @property
    def quorums(self) -> Quorums:
        """Who decides, as far as this server knows."""
        return self.members.quorums

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` is wanted at the latest, besides the regular ticks."""
        if self.role is Role.LOOKING:
            return self.election.deadline_ms
        if self.following is not None:
            return self.following.redial_at_ms
        return None

    def tick(self) -> None:
        """Do what is due; call it at least twice a tick."""
        now_ms = self.now_ms
        if self.role is Role.LOOKING:
            self.election.tick(now_ms)
            self._after_election()
            show_while_looking(self)
        elif self.leader is not None:
            self.leader.tick(now_ms)
            if self.leader is not None:
                self.replica.tick()
                self._leave_if_unfit(self.leader)
        elif self.role is Role.SETTLING:
            self._settle()
        elif self.following is not None:
            self.following.tick(now_ms)

    def hand_over(self) -> ServerId | None:
        """Have another server lead; gives which, None: nobody could.

        Under load, at the first moment when it has all that we have, within `sync_ms`. Writes that
        are under way then end as with any change of the leader: their clients do not know.
        """
        found = None if self.leader is None else self.leader.successor()
        if found is None:
            return None
        self._hands_over_until_ms = self.now_ms + self.options.sync_ms
        self.hand_over_if_due()
        return found[0]

    @property
    def is_handing_over(self) -> bool:
        """Whether it leaves as soon as a successor has all that was made here."""
        return self.now_ms <= self._hands_over_until_ms

    def hand_over_if_due(self) -> None:
        """Leave if that was asked for and the successor has everything; for each of its acks."""
        leader = self.leader if self.is_handing_over else None
        found = None if leader is None else leader.successor()
        # What was made and not sent yet is in our log alone.
        if found is not None and found[1] and self._broadcast == len(self.replica.appends):
            self._successor = found[0]
            self._leave(f"it hands over to server {found[0]}")

    def _leave_if_unfit(self, leader: Leader) -> None:
        """Let another server lead where this one cannot write."""
        proposer, replica = self.replica.proposer, self.replica
        if self._is_replaced:
            self._leave("another server leads the new membership")
        elif proposer is not None and proposer.is_exhausted:
            self._leave("the counter of this epoch is used up")
        elif proposer is not None and not replica.is_writable:
            others = set(leader.current_servers()) - {self.server_id}
            if leader.quorums.is_quorum(others):
                # They elect one of them before this server asks who leads.
                self._look_at_ms = self.now_ms + self.options.sync_ms
                self._leave("its disk is full, and others can lead")

    def on_notification(self, sender: ServerId, notification: Notification) -> None:
        """A vote of a peer."""
        self.election.receive(sender, notification, self.now_ms)
        self._after_election()

    def on_peer_linked(self, peer: ServerId) -> None:
        """A new election connection with a peer is there."""
        self.election.peer_linked(peer)
        self._after_election()

    def link_accepted(self, link: Link) -> None:
        """A learner has connected to our quorum port."""
        if self.leader is None:
            self.effects.append(Hangup(link, "this server does not lead"))
            link.is_open = False
        else:
            self.leader.on_link(link, self.now_ms)

    def link_dialled(self, link: Link) -> None:
        """The leader's quorum port was reached."""
        if self.following is None or self.following.link is not None:
            self.hang_up(link, "the leader is no longer this one")
        else:
            self.following.on_connected(link)

    def dial_failed(self) -> None:
        """The leader's quorum port was not reached."""
        if self.following is not None:
            self.following.on_dial_failed()

    def receive_packets(self, link: Link, data: bytes) -> None:
        """Bytes of the learner protocol."""
        if not link.is_open:
            return
        try:
            if self.following is not None and link is self.following.link:
                self.following.receive(data)
            elif self.leader is not None and link in self.leader.learners:
                self._desk.receive(self.leader, link, data)
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
            self.following.on_lost()

    def log_durable(self, zxid: Zxid) -> None:
        """Records up to `zxid` are on disk."""
        self._durable = zxid
        if self.leader is not None:
            self.leader.on_durable(zxid)
        elif self.following is not None:
            self.following.on_durable(zxid)
        elif self.role is Role.SETTLING:
            self._settle()

    def disk_done(self, order: DiskOrder, tree: Tree | None) -> None:
        """An order was carried out; `tree` is the one that holds now, where it is another one."""
        self._orders -= 1
        if isinstance(order, StoreEpochs):
            self.accepted_epoch, self.current_epoch = order.accepted, order.current
            self.ensemble = order.ensemble or self.ensemble
            self._has_epochs = True
            if self.standing is Standing.CATCHING_UP:
                self.standing = Standing.WHOLE
        elif not isinstance(order, StoreMembership):
            invariant(tree is not None, "every other order gives a tree")
            self.hold(tree)
        if isinstance(order, InstallTree):
            self.standing = Standing.CATCHING_UP if order.lacks else Standing.WHOLE
            self.accepted_epoch = max(self.accepted_epoch, order.promised)
            if not self._has_epochs:  # as the disk has it: it agreed to the epoch of the tree
                agreed = max(epoch_of(order.tree.last_zxid), 0)
                self.current_epoch = min(agreed, self.accepted_epoch)
                self._has_epochs = True
        if self.leader is not None and isinstance(order, StoreEpochs):
            self.leader.on_epochs_stored(order)
        elif self.following is not None:
            if not isinstance(order, StoreMembership):
                self._guarded(lambda following: following.on_order_done(order, tree))
        elif self.role is Role.SETTLING:
            self._settle()

    def disk_refused(self, order: DiskOrder, reason: StorageError) -> None:
        """An order could not be carried out, and everything is as it was before."""
        self._orders -= 1
        self.effects.append(note("disk-refused", order=type(order).__name__, reason=reason))
        if isinstance(order, StoreMembership):
            self.members.not_stored()
        elif self.leader is not None:
            self._leave(str(reason))
        elif self.following is not None:
            self.following.on_order_failed(order, str(reason))
        if self.role is Role.SETTLING:
            self._settle()

    def take_appends(self) -> list[Append]:
        """The records to store, in order."""
        self._broadcast = 0
        return self.replica.take_appends()

    # -- looking ---------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Look for a leader once the disk has done all that it was asked for."""
        if self._orders or self._durable < self._appended or self.replica.appends:
            return
        if self.now_ms < self._look_at_ms:
            return
        if self.standing is Standing.WHOLE:
            self._catch_up_with_log()
        self._left_over = ()
        self.role = Role.LOOKING
        self.looking_since_ms = self.now_ms
        successor, self._successor = self._successor, None
        self.election.look(*self._candidacy(), self.now_ms, successor)
        self._after_election()

    def _catch_up_with_log(self) -> None:
        """Apply what is in the log and was never said to be committed: it is what we vote with."""
        tree = self.tree
        if tree is None:
            return
        try:
            for item in self._left_over:
                entry = decode_entry(item) if isinstance(item, bytes) else item
                if entry.header.zxid > tree.last_zxid:
                    tree.apply(entry.header, entry.body)
                    changed = proposed_membership(entry)
                    if changed is not None:
                        self.members.consider(changed)
        except (ReplayConflict, MalformedRecord) as error:
            self._fence(f"a record of the log does not fit the tree: {error}")

    def _candidacy(self) -> tuple[Candidacy, Zxid, int]:
        head = Zxid(-1) if self.tree is None else self.tree.last_zxid
        if self.standing is Standing.WHOLE and self.tree is not None:
            last = max(head, make_zxid(self.current_epoch, 0))
            return Candidacy.ELIGIBLE, last, self.current_epoch
        if self.standing is Standing.EMPTY and not self._has_epochs:
            return Candidacy.EMPTY, Zxid(-1), 0
        return Candidacy.BARRED, Zxid(-1), 0

    def _after_election(self) -> None:
        election = self.election
        for server_id, notification in election.outbox:
            self.effects.append(Notify(server_id, notification))
        election.outbox.clear()
        self.effects.extend(election.notes)
        election.notes.clear()
        if self.role is not Role.LOOKING:
            return
        if election.learned_config is not None:
            self.members.adopt(election.learned_config)
        result = election.result
        if result is None:
            if election.may_initialise:
                self.role = Role.SETTLING
                self.order(InitialiseStore())
            return
        self.leader_id = result.leader
        self.replica.stand_down("a leader was elected")
        if result.state is PeerState.LEADING:
            self._become_leading()
        else:
            self._become_learning(result.state)

    # -- roles -----------------------------------------------------------------------------------

    def _become_leading(self) -> None:
        invariant(self.tree is not None, "a leader has a tree")
        self.role = Role.LEADING
        self._broadcast = 0
        self._desk = LearnerDesk(self)
        self._is_replaced = False
        own = OwnHistory(
            self.server_id,
            self.accepted_epoch,
            self.current_epoch,
            self.tree.last_zxid if self.tree is not None else Zxid(-1),
            self.ensemble,
        )
        self.leader = Leader(
            own, self.quorums, self.options, self, self.effects, self.send, self.now_ms
        )
        self.leader.start()

    def _become_learning(self, state: PeerState) -> None:
        self.role = Role.FOLLOWING if state is PeerState.FOLLOWING else Role.OBSERVING
        invariant(self.leader_id is not None, "a learner has a leader")
        self.following = Following(self, self.role is Role.FOLLOWING)
        self.effects.append(Dial(self.leader_id or ServerId(0)))

    def _leave(self, reason: str) -> None:
        """End the role: nobody is served, and what is in the log decides what comes next."""
        self.effects.append(note("role-ended", role=self.role.value, reason=reason))
        links: list[Link] = []
        if self.leader is not None:
            links = list(self.leader.learners)
            proposer = self.replica.proposer
            if proposer is not None:
                self._left_over = [proposal.entry for proposal in proposer.proposals]
        elif self.following is not None:
            links = [] if self.following.link is None else [self.following.link]
            self._left_over = self.following.close()
        self.replica.stand_down(reason)
        self.leader = self.following = self.leader_id = None
        self._hands_over_until_ms = -1
        self.election.leave()
        self.role = Role.SETTLING
        for link in links:
            self.hang_up(link, reason)
        self._settle()

    def _fence(self, reason: str) -> None:
        """Stop to trust our own data: only a tree from a leader helps (R10)."""
        self.effects.append(note("fenced", reason=reason))
        self.fence_reason = reason
        self.standing = Standing.DAMAGED
        if self.role not in (Role.SETTLING, Role.LOOKING):
            self._leave(reason)

    def _drop(self, link: Link, reason: str) -> None:
        """A peer broke the protocol."""
        self.effects.append(note("peer-broke-protocol", link=link.number, reason=reason))
        if self.following is not None and link is self.following.link:
            self._leave(reason)
        else:
            self.hang_up(link, reason)
            if self.leader is not None:
                self.leader.on_lost(link)

    def _guarded(self, action: Callable[[Following], None]) -> None:
        following = self.following
        if following is None:
            return
        try:
            action(following)
        except (PeerProtocolError, MalformedRecord) as error:
            if self.following is following:
                self._leave(str(error))

    # -- leading ---------------------------------------------------------------------------------

    def propose_new(self) -> None:
        """Send the records that were made since the last call to all who follow.

        Call it before `take_appends`.
        """
        appends = self.replica.appends
        if not appends:
            return
        self._appended = appends[-1].zxid
        leader = self.leader
        if leader is not None:
            fresh = [(record.zxid, record.entry) for record in appends[self._broadcast :]]
            if fresh:
                leader.propose_all(fresh)
        self._broadcast = len(appends)

    # As LeaderHost.

    def on_established(self, epoch: int) -> None:
        """A quorum follows."""
        tree = self.tree
        if tree is not None:
            self.election.settle(PeerState.LEADING, self.server_id, epoch)
            current = self.quorums.next or self.quorums.current
            if self.quorums.next is not None and self.leader is not None:
                self.members.adopt(current)
                self.leader.quorums = self.quorums
                self._is_replaced = self.server_id not in current.voters
            is_first = self.options.is_reconfig_enabled and not current.version
            if is_first and self.leader is not None:
                self.members.adopt(current.with_version(make_zxid(epoch, 0)))
                self.leader.quorums = self.quorums
            self.members.remember()
            self.members.show()
            self.replica.lead(tree, epoch)
            self.effects.append(note("serving", role=self.role.value, epoch=epoch))

    def on_committed(self, zxid: Zxid) -> None:
        """A quorum has everything up to `zxid` on disk."""
        self.replica.commit(zxid)
        self._desk.release(zxid)

    def next_stop(self, zxid: Zxid) -> Zxid:
        """Where to pause on the way to `zxid`, for what has to be said in between."""
        return self._desk.next_stop(zxid)

    def on_reconfigured(self, membership: Membership, leader: ServerId) -> None:
        """The membership was changed."""
        self.members.adopt(membership)
        # Not at once: what tells the others of the change is still on its way to them.
        self._is_replaced = leader != self.server_id

    # -- learning; called by Following ------------------------------------------------------------

    def append(self, zxid: Zxid, entry: bytes) -> None:
        """Have a record stored."""
        self._appended = zxid
        self.replica.appends.append(Append(zxid, entry, None))

    def order(self, order: DiskOrder) -> None:
        """Have the disk carry out an order."""
        self._orders += 1
        self.effects.append(order)

    def caught_up(self) -> None:
        """A server without a voice, because its data were not whole, is up to date."""
        self.standing = Standing.WHOLE
        self.effects.append(note("whole-again"))
        self._leave("its data are whole again")

    def leave(self, reason: str) -> None:
        """It is over with the leader, or with leading."""
        self._leave(reason)

    on_leading_failed = leave

    def fence(self, reason: str) -> None:
        """Our history cannot be mended."""
        self.fences += 1
        self._fence(reason)

    def hold(self, tree: Tree | None) -> None:
        """The tree was cut back or replaced."""
        self.tree = tree
        if tree is not None:
            self._appended = self._durable = tree.last_zxid
            self.members.hold(tree)
            if self.role is Role.SETTLING:
                self.standing = Standing.WHOLE

    # -- links -----------------------------------------------------------------------------------

    def send(self, link: Link, item: bytes | RecordStream | TreeStream) -> None:
        """Have something sent on a link, behind all that was sent before."""
        link.out.append(item)
        self.dirty_links.add(link)

    def send_packet(self, link: Link, packet: QuorumPacket) -> None:
        """Have a packet sent."""
        self.send(link, codec_of(QuorumPacket).encode(packet))

    def hang_up(self, link: Link, reason: str) -> None:
        """Close a link."""
        if link.is_open:
            link.is_open = False
            self.dirty_links.discard(link)
            self.effects.append(Hangup(link, reason))
