"""A leader's term: discovery, catch-up, broadcast (Zab phases 1 to 3), without I/O.

    DISCOVERY   learners report the epochs they promised; when a quorum has, the next one is fixed,
                made durable here, and promised by each learner, which reports what history it has
    CATCH_UP    a quorum has promised, and none of it knows more than this server: each learner gets
                what it lacks and NEWLEADER, and acknowledges it once all of it is durable there
    BROADCAST   a quorum has: what this server had is the history. Proposals go out, and what
                a quorum has on disk is committed, in order

The leader's own disk is one of the acknowledgements, and always a needed one: this server applies
only what is durable here (R7), so not waiting for it would gain nothing. A learner that does not
vote, or that came as one that does not (its data is not whole), is served and never counted (R8).
A learner that joins late goes through the same steps at its own pace. Prior art: Junqueira, Reed,
Serafini, "Zab" (2011); Leader and LearnerHandler of Apache ZooKeeper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from enum import Enum

from keepfast.quorum.acknowledged import agreed_point, designated_leader
from keepfast.quorum.admission import check_kinship, check_member, doubles_of, latest_identity
from keepfast.quorum.confirmations import Confirmations
from keepfast.quorum.effects import Hangup, PrepareTree, StoreEpochs
from keepfast.quorum.hello import (
    LeaderHello,
    LeaderState,
    LearnerHello,
    decode_epoch_ack,
    decode_learner_hello,
    encode_leader_hello,
    encode_up_to_date,
)
from keepfast.quorum.leader_means import LeaderMeans, OwnHistory
from keepfast.quorum.learner_link import LearnerLink, Step
from keepfast.quorum.links import (
    MAX_PACKET_BYTES,
    Activation,
    Link,
    RecordStream,
    TreeStream,
    encode_commit,
    encode_commits,
    encode_informs,
    encode_packet,
    encode_proposal,
)
from keepfast.quorum.notes import note
from keepfast.quorum.planner import (
    CatchUp,
    LearnerHistory,
    Plan,
    is_tree_safe,
    plan_catch_up,
)
from keepfast.quorum.plausibility import (
    EPOCHS_USED_UP,
    MAX_CHAIN_BYTES,
    MAX_HELLO_BYTES,
    MAX_NEW_LEARNERS,
    check_promise,
)
from keepfast.quorum.quorum_options import QuorumOptions
from keepfast.quorum.quorums import Quorums
from keepfast.quorum.stall_watch import StallWatch
from keepfast.wire import (
    MAX_EPOCH,
    PacketType,
    PeerProtocolError,
    QuorumPacket,
    ServerId,
    Zxid,
    epoch_of,
    format_zxid,
    make_zxid,
)


class LeaderPhase(Enum):
    """Of the term."""

    DISCOVERY = "discovery"
    CATCH_UP = "catch-up"
    BROADCAST = "broadcast"


class Leader:
    """One term of a leader, from the epochs that learners promised to what a quorum has logged.

    Whoever owns it looks at these after each input, in this order:

        end             the term is over
        is_to_open      a quorum follows: lead clients, then call `open`
        wants_txn       this epoch needs a txn, whatever it does; one that is on its way is enough
        confirmations   a round may be complete
        agreed_up_to    what is beyond `last_committed` is to be committed, by `commit`
    """

    def __init__(
        self,
        own: OwnHistory,
        quorums: Quorums,
        options: QuorumOptions,
        means: LeaderMeans,
        now_ms: int,
    ) -> None:
        self.own = own
        self.quorums = quorums
        self.phase = LeaderPhase.DISCOVERY
        # Why the term ended. Nothing happens here from then on.
        self.end: str | None = None
        self.is_to_open = self.wants_txn = False
        self.epoch: int | None = None
        self.learners: dict[Link, LearnerLink] = {}
        # Proposed and not committed.
        self.outstanding: deque[tuple[Zxid, bytes]] = deque()
        self.last_proposed = self.last_committed = own.head
        self._options = options
        self._means = means
        self._effects, self._send = means.effects, means.send
        self._now_ms = now_ms
        self.started_ms = now_ms
        self._next_ping_ms = now_ms + options.tick_ms // 2
        self._ensemble = own.ensemble
        self._is_promised = self._is_agreed = False  # of the epoch: what is durable of us
        self._durable = own.head
        self.said_to_ours: bytes | None = None  # with pings: replica/secret_exchange.py
        self._stall_watch = StallWatch(options)
        self.confirmations = Confirmations(
            self._followers, lambda ids: self.quorums.is_quorum({own.server_id, *ids}), means.send
        )

    # -- inputs ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start; a single voter is a quorum by itself."""
        self._fix_epoch()

    def on_link(self, link: Link, now_ms: int) -> None:
        """A learner has connected."""
        self._now_ms = now_ms
        link.parser.max_field = MAX_HELLO_BYTES
        unknown = [one for one in self.learners.values() if one.step is Step.NEW]
        if len(unknown) >= MAX_NEW_LEARNERS:
            self._hang_up(unknown[0], "learner-refused", "too many have not said who they are")
        self.learners[link] = LearnerLink(link, now_ms)

    def is_current(self, link: Link) -> bool:
        """Whether the learner on a link has caught up."""
        learner = self.learners.get(link)
        return learner is not None and learner.step is Step.CURRENT

    def on_lost(self, link: Link) -> None:
        """A learner is gone."""
        self.learners.pop(link, None)

    def on_packet(self, link: Link, packet: QuorumPacket, now_ms: int) -> None:
        """A packet from a learner; raises PeerProtocolError or MalformedRecord: hang up."""
        learner = self.learners.get(link)
        if learner is None:
            return
        self._now_ms = learner.heard_ms = now_ms
        kind = packet.type
        if kind == PacketType.ACK:
            self._on_ack(learner, packet.zxid)
        elif kind == PacketType.PING and learner.step is not Step.NEW:
            if learner.pings and packet.zxid >= 0:
                learner.heard_up_to_ms = learner.pings.popleft()
            if packet.zxid < 0:
                self.confirmations.on_reply(learner, packet.zxid)
        elif kind in (PacketType.FOLLOWERINFO, PacketType.OBSERVERINFO):
            self._on_hello(learner, packet)
        elif kind == PacketType.ACKEPOCH:
            self._on_epoch_ack(learner, packet)
        else:
            raise PeerProtocolError(f"a learner sent a packet of type {kind}")

    def on_epochs_stored(self, order: StoreEpochs) -> None:
        """What we promised or agreed to is durable."""
        if self._is_agreed:
            return  # it was the identity of the ensemble alone
        if order.current == self.epoch:
            self._is_agreed = True
            self.phase = LeaderPhase.CATCH_UP
            self.serve_waiting()
            self._establish()
        elif order.accepted == self.epoch:
            self._is_promised = True
            for learner in list(self.learners.values()):
                if learner.step is Step.WAITING:
                    self._ask(learner)
            self._agree()

    def propose_all(self, txns: list[tuple[Zxid, bytes]]) -> None:
        """Send txns, in order, to all followers; they are being stored here at the same time."""
        self.last_proposed = last = txns[-1][0]
        self.outstanding.extend(txns)
        packets = b"".join([encode_proposal(zxid, entry) for zxid, entry in txns])
        for learner in self.learners.values():
            if learner.gets_proposals and learner.is_follower:
                self._send(learner.link, packets)
                learner.unacked.append((last, self._now_ms))

    def on_durable(self, zxid: Zxid) -> None:
        """Our own log holds everything up to `zxid`."""
        self._durable = zxid

    def agreed_up_to(self) -> Zxid:
        """The last txn that a quorum has, or what is committed already."""
        me, committed = self.own.server_id, self.last_committed
        if self.phase is not LeaderPhase.BROADCAST or not self.outstanding:
            return committed
        return agreed_point(self._followers(), me, self._durable, committed, self.quorums)

    def commit(self, point: Zxid) -> ServerId | None:
        """Notify the learners that everything up to `point` is committed; apply it here then.

        Gives who is to lead by a change of the membership that is among it; None: there is none.
        """
        changed = self.quorums.next
        activation = None
        if changed is not None:
            learners, me = self.learners.values(), self.own.server_id
            leader = designated_leader(learners, me, self.quorums.current, changed)
            activation = Activation(changed.version, leader)
        committed: list[tuple[Zxid, bytes]] = []
        while self.outstanding and self.outstanding[0][0] <= point:
            committed.append(self.outstanding.popleft())
        self.last_committed = point
        last = encode_commit(committed[-1][0], None) if committed and changed is None else None
        each = informed = None
        for learner in self.learners.values():
            if not learner.gets_proposals:
                continue
            if not learner.is_follower:
                informed = informed or encode_informs(committed, activation)
                self._send(learner.link, informed)
            elif last is not None and learner.is_keepfast:
                # For our servers it covers all before it as well; an Apache server needs each.
                self._send(learner.link, last)
            else:
                each = each or encode_commits(committed, activation)
                self._send(learner.link, each)
        return None if activation is None or point < activation.zxid else activation.leader

    def successor(self) -> tuple[ServerId, bool] | None:
        """The voter to hand over to, and whether it has all that we have; None: nobody could.

        With less than we have it would win against others, but not against us.
        """
        current = self._followers()
        if self.phase is not LeaderPhase.BROADCAST or not current:
            return None
        best = max(current, key=lambda learner: learner.server_id)
        return best.server_id, best.acked >= self.last_proposed or not self.outstanding

    def current_servers(self) -> Collection[ServerId]:
        """This server and all that follow it and are up to date, voters or not."""
        return self._with_us(lambda one: one.step is Step.CURRENT and one.is_follower)

    def heard_up_to(self, server_id: ServerId | None) -> int:
        """Up to when we know all sessions that a server has heard of; None: that every one has.

        One that does not follow us, or is not up to date, has no clients.
        """
        return min(
            (
                one.heard_up_to_ms
                for one in self.learners.values()
                if one.step is Step.CURRENT and server_id in (None, one.server_id)
            ),
            default=self._now_ms,
        )

    def tick(self, now_ms: int) -> None:
        """Drop silent learners, and end the term if too few are left; ping the others."""
        self._now_ms = now_ms
        options = self._options
        for learner in list(self.learners.values()):
            patience = options.sync_ms if learner.step is Step.CURRENT else options.init_ms
            if now_ms - learner.heard_ms > patience:
                self._hang_up(learner, "learner-silent", "it is silent")
            elif learner.step is Step.CURRENT and learner.lag_ms(now_ms) > options.sync_ms:
                self._hang_up(learner, "learner-slow", "it does not acknowledge proposals")
        if self.phase is LeaderPhase.BROADCAST:
            if not self.quorums.is_quorum(self._heard(now_ms)):
                self.end = "no quorum was heard for too long"
                return
            oldest = self.outstanding[0][0] if self.outstanding else None
            is_stalled = self._stall_watch.is_stalled(oldest, self._durable, now_ms)
            if is_stalled and self.quorums.is_quorum([one.server_id for one in self._followers()]):
                self.end = "its own disk stores nothing, and others can lead"
                return
        elif now_ms - self.started_ms > options.init_ms:
            self.end = f"no quorum came through {self.phase.value} in time"
            return
        if self._is_agreed:
            self.serve_waiting()
        if now_ms >= self._next_ping_ms:
            self._next_ping_ms = now_ms + options.tick_ms // 2
            ping = QuorumPacket(PacketType.PING.value, self.last_proposed)
            plain, ours = map(encode_packet, (ping, ping._replace(data=self.said_to_ours)))
            for learner in self.learners.values():
                if learner.gets_proposals:
                    self._send(learner.link, ours if learner.wants_saying else plain)
                    learner.pings.append(now_ms)
            self.confirmations.ask_again()

    # -- discovery -------------------------------------------------------------------------------

    def _on_hello(self, learner: LearnerLink, packet: QuorumPacket) -> None:
        if learner.step is not Step.NEW:
            raise PeerProtocolError("a learner introduced itself twice")
        hello = decode_learner_hello(packet)
        check_kinship(hello, self.quorums.current.version, self._ensemble)
        options, others = self._options, list(self.learners.values())
        check_member(hello, learner, others, self.quorums, options)
        check_promise(hello.server_id, hello.accepted_epoch, self.epoch or self.own.accepted_epoch)
        for other in doubles_of(hello, self.own.server_id, others, self._now_ms, options):
            self._hang_up(other, "learner-refused", "it has connected again")
        learner.hello = hello
        if self._is_voting(learner) and hello.accepted_epoch > (self.epoch or MAX_EPOCH):
            self._refuse_ahead(hello)
            return
        learner.step = Step.WAITING
        learner.link.parser.max_field = MAX_CHAIN_BYTES
        if hello.ensemble and self._is_voting(learner) and self._ensemble is None:
            # Ours may be data of Apache's, which carry no identity.
            self._ensemble = hello.ensemble
        if self._is_promised:
            self._ask(learner)
        else:
            self._fix_epoch()

    def _refuse_ahead(self, hello: LearnerHello) -> None:
        """A voter cannot withdraw its promise; the term ends for it only if this persists."""
        reason = f"server {hello.server_id} has promised epoch {hello.accepted_epoch}"
        if not self._means.ahead.is_due(hello.server_id, hello.accepted_epoch, self._now_ms):
            raise PeerProtocolError(f"{reason}, and this is {self.epoch}: it can follow later")
        self.end = reason

    def _fix_epoch(self) -> None:
        """Fix the epoch when a quorum has reported which ones it promised."""
        if self.epoch is not None:
            return
        if not self.quorums.current.is_quorum(self._with_us(self._is_voting)):
            return
        promised = [self.own.accepted_epoch, self._means.ahead.promised]
        promised += [
            learner.hello.accepted_epoch
            for learner in self.learners.values()
            if learner.hello is not None and self._is_voting(learner)
        ]
        if max(promised) >= MAX_EPOCH:
            self.end = EPOCHS_USED_UP
            return
        self.epoch = max(promised) + 1
        self._effects.append(note("epoch", epoch=self.epoch))
        self._name_ensemble()
        self._means.order(StoreEpochs(self.epoch, self.own.current_epoch, self.own.ensemble))

    def _name_ensemble(self) -> None:
        """Give the ensemble an identity if it has none, before any learner is sent one.

        Each server stores it with the epoch that it agrees to. So once a term is established a
        quorum has it, and the leader of every later term, whose epoch is the highest of its quorum.
        One from a term that never was is forgotten: see `Following`. A leader that lost its own
        takes the latest that its quorum has stored: a new one would lock out whoever has records.
        """
        learners = self.learners.values()
        is_ours = all(one.hello is None or one.hello.ensemble is not None for one in learners)
        if self._ensemble is None and is_ours:
            voters = filter(self._is_voting, learners)
            self._ensemble = latest_identity(voters) or self._means.new_ensemble()

    def _ask(self, learner: LearnerLink) -> None:
        hello = LeaderHello(self._own_epoch(), self._ensemble or "")
        learner.step = Step.ASKED
        self._send(learner.link, encode_packet(encode_leader_hello(hello)))

    def _on_epoch_ack(self, learner: LearnerLink, packet: QuorumPacket) -> None:
        if learner.step is not Step.ASKED:
            raise PeerProtocolError("an epoch was promised that was not asked for")
        ack = decode_epoch_ack(packet)
        if max(ack.current_epoch, epoch_of(ack.last)) > self._own_epoch():
            raise PeerProtocolError(f"a history of epoch {ack.current_epoch}, never promised")
        learner.step = Step.PROMISED
        learner.history = LearnerHistory(ack.last, ack.chain)
        learner.has_promised = ack.current_epoch != -1 and ack.last >= 0
        if learner.has_promised and self._counts(learner) and not self._is_agreed:
            known = (ack.current_epoch, ack.last)
            if known > (self.own.current_epoch, self.own.last):
                # It may have something committed that we lack.
                self._means.ahead.let_others_lead(self._now_ms)
                self.end = (
                    f"server {learner.server_id} has more: epoch {ack.current_epoch}, "
                    f"zxid {format_zxid(ack.last)}"
                )
                return
        if self._is_agreed:
            self._catch_up(learner)
        else:
            self._agree()

    def _agree(self) -> None:
        """Agree to the epoch ourselves when a quorum has promised it."""
        if not self._is_promised or self.phase is not LeaderPhase.DISCOVERY:
            return
        promised = self._with_us(lambda one: one.has_promised and self._counts(one))
        if self.quorums.is_quorum(promised):
            self.phase = LeaderPhase.CATCH_UP
            epoch = self._own_epoch()
            self._means.order(StoreEpochs(epoch, epoch, self._ensemble))

    # -- catch-up --------------------------------------------------------------------------------

    def _catch_up(self, learner: LearnerLink) -> None:
        """Send what a learner lacks, and from then on everything that is proposed."""
        committed, proposed = self.last_committed, self.last_proposed
        own_last = max(committed, self.own.last)
        history, factor = self._means.history(), self._options.snapshot_size_factor
        plan = plan_catch_up(history, own_last, committed, proposed, learner.history, factor)
        if self._waits_for_txn(learner, plan):
            return
        if not learner.is_follower and self._is_catch_up_full(plan.kind is CatchUp.SNAP):
            # It will retry. A follower is never turned away: a quorum may be waiting for it.
            self._hang_up(learner, "catch-up-refused", "too many observers catch up already")
            return
        fields = {"server": learner.server_id, "kind": plan.kind.value}
        self._effects.append(note("catch-up", **fields, reason=plan.reason))
        link = learner.link
        if plan.kind is CatchUp.TRUNC and plan.point > committed:
            # It serves what a cut leaves. What is proposed and not decided comes after it again.
            plan = plan._replace(point=committed)
        learner.plan = plan
        reached = plan.point
        if plan.kind is CatchUp.SNAP:
            is_safe = is_tree_safe(learner.history, committed)
            beyond = learner.history.last if is_safe and not learner.is_keepfast else Zxid(-1)
            self._effects.append(PrepareTree(committed, beyond))
            self._send(link, TreeStream(committed, not learner.is_keepfast, beyond))
            reached = committed
        else:
            kind = PacketType.DIFF if plan.kind is CatchUp.DIFF else PacketType.TRUNC
            zxid = committed if plan.kind is CatchUp.DIFF else plan.point
            self._send(link, encode_packet(QuorumPacket(kind.value, zxid)))
            if reached < committed:
                self._send(link, RecordStream(reached, committed, not learner.is_keepfast))
        learner.step = Step.CATCHING_UP
        if learner.is_follower:
            for zxid, entry in self.outstanding:
                if zxid > reached:
                    self._send(link, encode_proposal(zxid, entry))
                    learner.unacked.append((zxid, self._now_ms))
        start = make_zxid(self._own_epoch(), 0)
        config = self.quorums.current
        if self.quorums.next is not None and self.phase is not LeaderPhase.BROADCAST:
            # In the history that this term begins with: committed as soon as that is.
            config = self.quorums.next
        if not config.version and self._options.is_reconfig_enabled:
            # It was never committed; that this epoch begins with it is. (Where changes are off,
            # Apache's servers store no version, and would take this one for news forever.)
            config = config.with_version(start)
        self._send(
            link, encode_packet(QuorumPacket(PacketType.NEWLEADER.value, start, config.text()))
        )

    def _waits_for_txn(self, learner: LearnerLink, plan: Plan) -> bool:
        """Whether it is better to serve a learner once this epoch has its first txn (planner.py).

        Without the learner there may never be one: then it is served right away.
        """
        last = learner.history.last
        if plan.kind is CatchUp.DIFF or is_tree_safe(learner.history, self.last_committed):
            return False
        if epoch_of(last) >= self._own_epoch():
            return False
        if self.phase is LeaderPhase.BROADCAST:
            self.wants_txn = not self.outstanding
            return True
        return self._now_ms - self.started_ms < self._options.init_ms // 2

    def serve_waiting(self) -> None:
        """Have those catch up that waited; call it when an epoch's first txn was applied."""
        for learner in list(self.learners.values()):
            if learner.step is Step.PROMISED:
                self._catch_up(learner)

    def _on_ack(self, learner: LearnerLink, zxid: Zxid) -> None:
        if learner.step is Step.CATCHING_UP:
            if zxid != make_zxid(self._own_epoch(), 0):
                raise PeerProtocolError(f"{format_zxid(zxid)} was acknowledged before the epoch")
            learner.step = Step.CURRENT
            learner.link.parser.max_field = MAX_PACKET_BYTES
            # What it had before it connected, of what is proposed now, it has on disk too.
            if learner.plan is not None and learner.plan.kind is not CatchUp.SNAP:
                learner.acked = learner.plan.point
            if self.phase is LeaderPhase.BROADCAST:
                self._send_up_to_date(learner)
            else:
                self._establish()
        elif learner.step is Step.CURRENT:
            if epoch_of(zxid) != self.epoch:
                raise PeerProtocolError(f"{format_zxid(zxid)} is not of this epoch")
            if zxid > self.last_proposed:
                raise PeerProtocolError(f"{format_zxid(zxid)} was never proposed")
            learner.acked = max(learner.acked, zxid)
            unacked = learner.unacked
            while unacked and unacked[0][0] <= zxid:
                unacked.popleft()
        else:
            raise PeerProtocolError("an acknowledgement before anything was sent")

    def _establish(self) -> None:
        """Open the epoch when a quorum has all that this server had when it began."""
        if not self._is_agreed or self.phase is LeaderPhase.BROADCAST:
            return
        current = self._with_us(lambda one: one.step is Step.CURRENT and self._counts(one))
        if not self.quorums.is_quorum(current):
            return
        self.phase = LeaderPhase.BROADCAST
        epoch = self._own_epoch()
        self.last_proposed = make_zxid(epoch, 0)
        self._effects.append(note("established", epoch=epoch))
        self.is_to_open = True

    def open(self) -> None:
        """What this server has is the history, and it serves clients: let learners do so."""
        self.is_to_open = False
        for learner in list(self.learners.values()):
            if learner.step is Step.CURRENT:
                self._send_up_to_date(learner)
        self.serve_waiting()

    def _send_up_to_date(self, learner: LearnerLink) -> None:
        # An Apache server does not answer those that it was sent before; nor does it serve anybody.
        learner.pings.clear()
        learner.heard_up_to_ms = self._now_ms
        packet = QuorumPacket(PacketType.UPTODATE.value, Zxid(-1))
        if learner.is_keepfast:
            state = LeaderState(self.last_committed, *self._means.digests())
            packet = encode_up_to_date(state, self.said_to_ours)
        self._send(learner.link, encode_packet(packet))

    # -- who counts ------------------------------------------------------------------------------

    def _own_epoch(self) -> int:
        if self.epoch is None:
            raise PeerProtocolError("the epoch is not known yet")
        return self.epoch

    def _with_us(self, has: Callable[[LearnerLink], bool]) -> Collection[ServerId]:
        """This server, and the learners that satisfy a condition."""
        return {self.own.server_id} | {one.server_id for one in self.learners.values() if has(one)}

    def _followers(self) -> Collection[LearnerLink]:
        """The voters that follow and are up to date."""
        learners = self.learners.values()
        return [one for one in learners if one.step is Step.CURRENT and self._is_voting(one)]

    def _is_voting(self, learner: LearnerLink) -> bool:
        return learner.is_follower and learner.server_id in self.quorums.voters

    def _counts(self, learner: LearnerLink) -> bool:
        """Whether its promise counts, and that it has all that this term began with.

        One that is to vote by a change that is not committed yet comes as what it was before: it
        may not know. It is needed all the same, if its data is whole (else it cannot promise).
        """
        if self._is_voting(learner):
            return True
        is_to_vote = learner.server_id in self.quorums.voters - self.quorums.current.voters
        return is_to_vote and learner.has_promised

    def _heard(self, now_ms: int) -> Collection[ServerId]:
        """This server and the voters that were heard lately."""
        since_ms = now_ms - self._options.sync_ms
        heard = [one.server_id for one in self._followers() if one.heard_ms >= since_ms]
        return {self.own.server_id, *heard}

    def _is_catch_up_full(self, is_snapshot: bool) -> bool:
        """Whether as many learners as may at once are being sent a snapshot, or missed txns."""
        under_way = [
            learner
            for learner in self.learners.values()
            if learner.step is Step.CATCHING_UP
            and learner.plan is not None
            and (learner.plan.kind is CatchUp.SNAP) is is_snapshot
        ]
        options = self._options
        limit = options.max_snapshot_catch_ups if is_snapshot else options.max_diff_catch_ups
        return len(under_way) >= limit

    def _hang_up(self, learner: LearnerLink, name: str, reason: str) -> None:
        self.learners.pop(learner.link, None)
        self._effects.append(note(name, server=learner.server_id, reason=reason))
        self._effects.append(Hangup(learner.link, reason))
