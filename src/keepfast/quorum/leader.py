"""A leader's term: discovery, catch-up, broadcast (Zab phases 1 to 3), without I/O.

    DISCOVERY   learners tell the epochs they promised; when a quorum has, the next one is fixed,
                made durable here, and promised by each learner, which tells what history it has
    CATCH_UP    a quorum has promised, and none of it knows more than this server: each learner gets
                what it lacks and NEWLEADER, and acknowledges it once all of it is durable there
    BROADCAST   a quorum has: what this server had is the history. Proposals go out, and what
                a quorum has on disk is committed, in order

The leader's own disk is one of the acknowledgements, and always a needed one: this server applies
only what it has durably itself (R7), so a commit that did not wait for it would win nothing.

A learner that does not vote, or that came as one that does not (its data are not whole), is served
and never counted (R8).  A learner that joins late goes through the same steps at its own pace.

Prior art: Junqueira, Reed, Serafini, "Zab" (2011); Leader and LearnerHandler of Apache ZooKeeper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from keepfast.quorum.effects import Effect, Hangup, PrepareTree, StoreEpochs
from keepfast.quorum.hello import (
    LeaderHello,
    decode_epoch_ack,
    decode_learner_hello,
    encode_leader_hello,
)
from keepfast.quorum.learner_link import LearnerLink, Step
from keepfast.quorum.links import (
    Link,
    RecordStream,
    TreeStream,
    encode_commit,
    encode_inform,
    encode_packet,
    encode_proposal,
)
from keepfast.quorum.membership import Membership
from keepfast.quorum.notes import note
from keepfast.quorum.options import QuorumOptions
from keepfast.quorum.planner import CatchUp, LearnerHistory, ProvenHistory, plan_catch_up
from keepfast.quorum.quorums import Quorums
from keepfast.wire import (
    PacketType,
    PeerProtocolError,
    QuorumPacket,
    ServerId,
    Zxid,
    epoch_of,
    format_zxid,
    make_zxid,
)


class OwnHistory(NamedTuple):
    """What this server brings into its term."""

    server_id: ServerId
    accepted_epoch: int
    current_epoch: int
    head: Zxid
    ensemble: str | None

    @property
    def last(self) -> Zxid:
        """Its last zxid: a record, or the start of an epoch that it agreed to since."""
        return max(self.head, make_zxid(self.current_epoch, 0))


class LeaderHost(Protocol):
    """Whoever a leader belongs to."""

    def order(self, order: StoreEpochs) -> None:
        """Have the disk carry out an order; `on_epochs_stored` follows."""

    def on_established(self, epoch: int) -> None:
        """A quorum follows: what this server has is the history, and clients may be served."""

    def on_committed(self, zxid: Zxid) -> None:
        """Everything up to `zxid` is agreed on."""

    def next_stop(self, zxid: Zxid) -> Zxid:
        """How far to commit in one step, at most to `zxid`; `on_committed` follows each step."""

    def on_leading_failed(self, reason: str) -> None:
        """The term is over; the leader must not be used any more."""

    def on_reconfigured(self, membership: Membership, leader: ServerId) -> None:
        """The membership was changed, and this server is to lead it."""

    def new_ensemble(self) -> str:
        """An identity for an ensemble that has none, as 32 hexadecimal digits."""

    def history(self) -> ProvenHistory:
        """What the disk can prove now."""


class Phase(Enum):
    """Of the term."""

    DISCOVERY = "discovery"
    CATCH_UP = "catch-up"
    BROADCAST = "broadcast"


class Leader:
    """See the module."""

    def __init__(
        self,
        own: OwnHistory,
        quorums: Quorums,
        options: QuorumOptions,
        host: LeaderHost,
        effects: list[Effect],
        send: Callable[[Link, bytes | RecordStream | TreeStream], None],
        now_ms: int,
    ) -> None:
        self.own = own
        self.quorums = quorums
        self.phase = Phase.DISCOVERY
        self.epoch: int | None = None
        self.learners: dict[Link, LearnerLink] = {}
        # Proposed and not committed.
        self.outstanding: deque[tuple[Zxid, bytes]] = deque()
        self.last_proposed = self.last_committed = own.head
        self._options = options
        self._host = host
        self._effects = effects
        self._send = send
        self._now_ms = now_ms
        self.started_ms = now_ms
        self._next_ping_ms = now_ms + options.tick_ms // 2
        self._ensemble = own.ensemble
        self._is_promised = False  # our own promise of the epoch is durable
        self._is_agreed = False  # so is our agreement to it
        self._durable = own.head

    # -- inputs ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; alone, it is a quorum."""
        self._fix_epoch()

    def on_link(self, link: Link, now_ms: int) -> None:
        """A learner has connected."""
        self._now_ms = now_ms
        self.learners[link] = LearnerLink(link, now_ms)

    def on_lost(self, link: Link) -> None:
        """A learner is gone."""
        self.learners.pop(link, None)

    def on_packet(self, link: Link, packet: QuorumPacket, now_ms: int) -> None:
        """A packet of a learner; raises PeerProtocolError or MalformedRecord: hang up."""
        learner = self.learners.get(link)
        if learner is None:
            return
        self._now_ms = learner.heard_ms = now_ms
        kind = packet.type
        if kind == PacketType.ACK:
            self._on_ack(learner, packet.zxid)
        elif kind == PacketType.PING:
            pass
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
            self.phase = Phase.CATCH_UP
            for learner in list(self.learners.values()):
                if learner.step is Step.PROMISED:
                    self._catch_up(learner)
            self._establish()
        elif order.accepted == self.epoch:
            self._is_promised = True
            for learner in list(self.learners.values()):
                if learner.step is Step.WAITING:
                    self._ask(learner)
            self._agree()

    def propose(self, zxid: Zxid, entry: bytes) -> None:
        """Send a txn to all who follow; it is being stored here at the same time."""
        self.propose_all([(zxid, entry)])

    def propose_all(self, txns: list[tuple[Zxid, bytes]]) -> None:
        """The same for several, in order: what one turn of clients wrote goes out at once."""
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
        self.advance()

    def advance(self) -> None:
        """Commit what a quorum has; call it when acks were taken in."""
        if self.phase is not Phase.BROADCAST or not self.outstanding:
            return
        point = self._agreed_point()
        while self.last_committed < point and self.outstanding:
            # In two steps where a learner waits for the first: its SYNC goes between them.
            self._commit(self._host.next_stop(point))

    def _commit(self, point: Zxid) -> None:
        changed = self.quorums.next
        designated = self._designated(changed) if changed is not None else None
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
                informed = informed or self._informs(committed, designated)
                self._send(learner.link, informed)
            elif last is not None and learner.is_keepfast:
                # To ours it says so of all before it as well; an Apache server wants each.
                self._send(learner.link, last)
            else:
                each = each or self._commits(committed, designated)
                self._send(learner.link, each)
        self._host.on_committed(point)
        if changed is not None and designated is not None and point >= changed.version:
            self.quorums = Quorums(changed)
            self._host.on_reconfigured(changed, designated)

    def _commits(self, committed: list[tuple[Zxid, bytes]], designated: ServerId | None) -> bytes:
        told = self._with_leaders(committed, designated)
        return b"".join(encode_commit(zxid, leader) for zxid, _, leader in told)

    def _informs(self, committed: list[tuple[Zxid, bytes]], designated: ServerId | None) -> bytes:
        """What observers are told of txns; there may be none, and then this is not needed."""
        told = self._with_leaders(committed, designated)
        return b"".join(encode_inform(zxid, entry, leader) for zxid, entry, leader in told)

    def _with_leaders(
        self, committed: list[tuple[Zxid, bytes]], designated: ServerId | None
    ) -> Iterator[tuple[Zxid, bytes, ServerId | None]]:
        """Txns, the one that changes the members with who leads them."""
        changed = self.quorums.next
        version = None if changed is None else changed.version
        for zxid, entry in committed:
            yield zxid, entry, designated if zxid == version else None

    def _designated(self, changed: Membership) -> ServerId:
        """Who leads the new membership: this server, or the new voter that has most of the log."""
        me = self.own.server_id
        places = [one.find(me) for one in (self.quorums.current, changed)]
        if me in changed.voters and len({spec.quorum for spec in places if spec}) == 1:
            return me
        voters = [
            (learner.acked, learner.server_id)
            for learner in self.learners.values()
            if learner.is_follower and learner.server_id in changed.voters
        ]
        return max(voters)[1] if voters else me

    def successor(self) -> tuple[ServerId, bool] | None:
        """The voter to hand over to, and whether it has all that we have; None: nobody could.

        With less than we have it would win against others, and not against us.
        """
        current = [
            learner
            for learner in self.learners.values()
            if learner.step is Step.CURRENT and self._is_voting(learner)
        ]
        if self.phase is not Phase.BROADCAST or not current:
            return None
        best = max(current, key=lambda learner: learner.server_id)
        return best.server_id, best.acked >= self.last_proposed or not self.outstanding

    def current_servers(self) -> Collection[ServerId]:
        """This server and all that follow it and are up to date, voters or not."""
        return self._with_us(lambda one: one.step is Step.CURRENT and one.is_follower)

    def tick(self, now_ms: int) -> None:
        """Give up who is silent, and the term itself if too few are left; ping the others."""
        self._now_ms = now_ms
        options = self._options
        for learner in list(self.learners.values()):
            patience = options.sync_ms if learner.step is Step.CURRENT else options.init_ms
            if now_ms - learner.heard_ms > patience:
                self._hang_up(learner, "learner-silent", "it is silent")
            elif learner.step is Step.CURRENT and learner.lag_ms(now_ms) > options.sync_ms:
                self._hang_up(learner, "learner-slow", "it does not acknowledge proposals")
        if self.phase is Phase.BROADCAST:
            if not self.quorums.is_quorum(self._heard(now_ms)):
                self._host.on_leading_failed("no quorum was heard for too long")
                return
        elif now_ms - self.started_ms > options.init_ms:
            self._host.on_leading_failed(f"no quorum came through {self.phase.value} in time")
            return
        if now_ms >= self._next_ping_ms:
            self._next_ping_ms = now_ms + options.tick_ms // 2
            ping = encode_packet(QuorumPacket(PacketType.PING.value, self.last_proposed))
            for learner in self.learners.values():
                if learner.gets_proposals:
                    self._send(learner.link, ping)

    # -- discovery -------------------------------------------------------------------------------

    def _on_hello(self, learner: LearnerLink, packet: QuorumPacket) -> None:
        if learner.step is not Step.NEW:
            raise PeerProtocolError("a learner introduced itself twice")
        hello = decode_learner_hello(packet)
        version = self.quorums.current.version
        # One of ours may have logged a change that was never agreed on; the plan takes it back.
        if hello.config_version > version and hello.ensemble is None:
            raise PeerProtocolError(
                f"its configuration {hello.config_version:#x} is newer than ours, {version:#x}"
            )
        if hello.ensemble and self._ensemble and hello.ensemble != self._ensemble:
            raise PeerProtocolError(
                f"its data belong to ensemble {hello.ensemble}, ours to {self._ensemble}"
            )
        for other in list(self.learners.values()):
            if other.server_id == hello.server_id:
                self._hang_up(other, "learner-refused", "it has connected again")
        learner.hello = hello
        learner.step = Step.WAITING
        if (
            self.epoch is not None
            and self._is_voting(learner)
            and hello.accepted_epoch > self.epoch
        ):
            # It cannot take its promise back, and no other leader will ask for less.
            self._host.on_leading_failed(
                f"server {hello.server_id} has promised epoch {hello.accepted_epoch}"
            )
            return
        if hello.ensemble and hello.is_follower and self._ensemble is None:
            # Ours may be data of Apache's, which carry no identity.
            self._ensemble = hello.ensemble
        if self._is_promised:
            self._ask(learner)
        else:
            self._fix_epoch()

    def _fix_epoch(self) -> None:
        """Fix the epoch when a quorum has told which ones it promised."""
        if self.epoch is not None:
            return
        if not self.quorums.current.is_quorum(self._with_us(self._is_voting)):
            return
        promised = [self.own.accepted_epoch]
        promised += [
            learner.hello.accepted_epoch
            for learner in self.learners.values()
            if learner.hello is not None
        ]
        self.epoch = max(promised) + 1
        self._effects.append(note("epoch", epoch=self.epoch))
        self._name_ensemble()
        self._host.order(StoreEpochs(self.epoch, self.own.current_epoch, self.own.ensemble))

    def _name_ensemble(self) -> None:
        """Give the ensemble an identity where it has none, before any learner is told one.

        Each server stores it together with the epoch that it agrees to. So once a term is
        established a quorum has its identity, and the leader of every later term, whose epoch is
        the highest of its quorum, has it too. One from a term that was never established is
        forgotten: who has no record yet takes over what the leader says (`Following`).
        """
        if self._ensemble is None and all(
            learner.hello is None or learner.hello.ensemble is not None
            for learner in self.learners.values()
        ):
            self._ensemble = self._host.new_ensemble()

    def _ask(self, learner: LearnerLink) -> None:
        hello = LeaderHello(self._own_epoch(), self._ensemble or "")
        learner.step = Step.ASKED
        self._send(learner.link, encode_packet(encode_leader_hello(hello)))

    def _on_epoch_ack(self, learner: LearnerLink, packet: QuorumPacket) -> None:
        if learner.step is not Step.ASKED:
            raise PeerProtocolError("an epoch was promised that was not asked for")
        ack = decode_epoch_ack(packet)
        learner.step = Step.PROMISED
        learner.history = LearnerHistory(ack.last, ack.chain)
        learner.has_promised = ack.current_epoch != -1 and ack.last >= 0
        if learner.has_promised and self._counts(learner) and not self._is_agreed:
            known = (ack.current_epoch, ack.last)
            if known > (self.own.current_epoch, self.own.last):
                # It may know of something that was committed and that we lack.
                self._host.on_leading_failed(
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
        if not self._is_promised or self.phase is not Phase.DISCOVERY:
            return
        promised = self._with_us(lambda one: one.has_promised and self._counts(one))
        if self.quorums.is_quorum(promised):
            self.phase = Phase.CATCH_UP
            epoch = self._own_epoch()
            self._host.order(StoreEpochs(epoch, epoch, self._ensemble))

    # -- catch-up --------------------------------------------------------------------------------

    def _catch_up(self, learner: LearnerLink) -> None:
        """Send what a learner lacks, and from then on everything that is proposed."""
        own_last = max(self.last_committed, self.own.last)
        history, options = self._host.history(), self._options
        plan = plan_catch_up(history, own_last, learner.history, options.snapshot_size_factor)
        fields = {"server": learner.server_id, "kind": plan.kind.value}
        self._effects.append(note("catch-up", **fields, reason=plan.reason))
        link, committed = learner.link, self.last_committed
        if plan.kind is CatchUp.TRUNC and plan.point > committed:
            # It serves what a cut leaves. What is proposed and not decided comes behind it again.
            plan = plan._replace(point=committed)
        learner.plan = plan
        reached = plan.point
        if plan.kind is CatchUp.SNAP:
            self._effects.append(PrepareTree(committed))
            self._send(link, TreeStream(committed, not learner.is_keepfast))
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
        if self.quorums.next is not None and self.phase is not Phase.BROADCAST:
            # In the history that this term begins with: agreed on as soon as that is.
            config = self.quorums.next
        if not config.version and self._options.is_reconfig_enabled:
            # It was never agreed on; that this epoch begins with it is. (Where changes are off,
            # Apache's servers store no version, and would take this one for news for ever.)
            config = config.with_version(start)
        self._send(
            link, encode_packet(QuorumPacket(PacketType.NEWLEADER.value, start, config.text()))
        )

    def _on_ack(self, learner: LearnerLink, zxid: Zxid) -> None:
        if learner.step is Step.CATCHING_UP:
            if zxid != make_zxid(self._own_epoch(), 0):
                raise PeerProtocolError(f"{format_zxid(zxid)} was acknowledged before the epoch")
            learner.step = Step.CURRENT
            # What it had before it connected, of what is proposed now, it has on disk too.
            if learner.plan is not None and learner.plan.kind is not CatchUp.SNAP:
                learner.acked = learner.plan.point
            if self.phase is Phase.BROADCAST:
                self._send_up_to_date(learner)
                self.advance()
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
        if not self._is_agreed or self.phase is Phase.BROADCAST:
            return
        current = self._with_us(lambda one: one.step is Step.CURRENT and self._counts(one))
        if not self.quorums.is_quorum(current):
            return
        self.phase = Phase.BROADCAST
        epoch = self._own_epoch()
        self.last_proposed = make_zxid(epoch, 0)
        self._effects.append(note("established", epoch=epoch))
        self._host.on_established(epoch)
        for learner in list(self.learners.values()):
            if learner.step is Step.CURRENT:
                self._send_up_to_date(learner)

    def _send_up_to_date(self, learner: LearnerLink) -> None:
        self._send(learner.link, encode_packet(QuorumPacket(PacketType.UPTODATE.value, Zxid(-1))))

    # -- who counts ------------------------------------------------------------------------------

    def _own_epoch(self) -> int:
        if self.epoch is None:
            raise PeerProtocolError("the epoch is not known yet")
        return self.epoch

    def _with_us(self, has: Callable[[LearnerLink], bool]) -> Collection[ServerId]:
        """This server, and the learners of which something holds."""
        return {self.own.server_id} | {one.server_id for one in self.learners.values() if has(one)}

    def _is_voting(self, learner: LearnerLink) -> bool:
        return learner.is_follower and learner.server_id in self.quorums.voters

    def _counts(self, learner: LearnerLink) -> bool:
        """Whether its promise counts, and that it has all that this term began with.

        One that is to vote by a change that is not agreed on yet comes as what it was before: it
        may not know. It is needed all the same, if its data are whole (else it cannot promise).
        """
        if self._is_voting(learner):
            return True
        is_to_vote = learner.server_id in self.quorums.voters - self.quorums.current.voters
        return is_to_vote and learner.has_promised

    def _heard(self, now_ms: int) -> Collection[ServerId]:
        """This server and the voters that were heard lately."""
        return self._with_us(
            lambda one: (
                one.step is Step.CURRENT
                and self._is_voting(one)
                and now_ms - one.heard_ms <= self._options.sync_ms
            )
        )

    def _agreed_point(self) -> Zxid:
        """The last zxid that a quorum has on disk, this server among it."""
        acks = {
            learner.server_id: learner.acked
            for learner in self.learners.values()
            if learner.step is Step.CURRENT and self._is_voting(learner)
        }
        acks[self.own.server_id] = own = self._durable
        for zxid in sorted({min(acked, own) for acked in acks.values()}, reverse=True):
            if zxid <= self.last_committed:
                break
            if self.quorums.is_quorum([id for id, acked in acks.items() if acked >= zxid]):
                return zxid
        return self.last_committed

    def _hang_up(self, learner: LearnerLink, name: str, reason: str) -> None:
        self.learners.pop(learner.link, None)
        self._effects.append(note(name, server=learner.server_id, reason=reason))
        self._effects.append(Hangup(learner.link, reason))
