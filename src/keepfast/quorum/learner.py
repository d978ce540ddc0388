"""A learner under one leader: promise, catch-up, then what the leader proposes; without I/O.

    DIALLING     the connection is being made
    GREETED      it has introduced itself
    PROMISING    the leader's epoch is being made durable; promised once it is
    SYNCING      the leader sends what is missing: records, a cut and records, or a tree
    FINISHING    NEWLEADER came: all of it becomes durable, then the epoch, then it is acknowledged
    ACKED        waits for the leader to be established
    ACTIVE       serves; logs what is proposed, acknowledges what is durable

Nothing is vouched for before it is durable (R7, R8): the epoch before ACKEPOCH, the history and
then the epoch before the ACK of NEWLEADER, a record before its ACK.  A record is applied when it is
both committed and durable here.

While the disk carries out an order, packets wait: each of them relies on what came before it.

A server whose data is not whole learns without a vote: it introduces itself as an observer and
claims to have no history, so that no leader of any kind counts it, and is sent a tree (R8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from struct import Struct
from typing import Any, Final, NamedTuple

from keepfast.quorum.chains import Chain
from keepfast.quorum.effects import DiskOrder, InstallTree, StoreEpochs, TruncateLog
from keepfast.quorum.hello import (
    EpochAck,
    LeaderState,
    LearnerHello,
    StoredIdentity,
    decode_leader_hello,
    decode_leader_state,
    encode_epoch_ack,
    encode_learner_hello,
)
from keepfast.quorum.links import encode_ack, encode_packet
from keepfast.quorum.membership import Membership, parse_membership
from keepfast.quorum.quorum_options import QuorumOptions
from keepfast.wire import (
    PacketType,
    PeerProtocolError,
    QuorumPacket,
    ServerId,
    Zxid,
    counter_of,
    epoch_of,
    follows_in_epoch,
    format_zxid,
    invariant,
    make_zxid,
)

_LEADER_SIZE: Final = 8
# In a txn: after the session id and the cxid.
_ZXID_PLACE: Final = slice(12, 20)
_ZXID: Final = Struct(">q")


class LearnerFacts(NamedTuple):
    """What a server brings to its leader."""

    server_id: ServerId
    accepted_epoch: int
    current_epoch: int
    chain: Chain
    ensemble: str | None
    config_version: Zxid
    # It votes: its data is whole and it is a participant.
    has_voice: bool
    # Its data count; an observer's may, those of a damaged server do not.
    is_whole: bool
    # To which ensemble it may belong, where that is not known for sure.
    unproven: StoredIdentity | None = None


class EndOfFollowing(NamedTuple):
    """Why a leader was left."""

    reason: str
    # Our history cannot be repaired: only a tree helps.
    is_unfit: bool = False
    # Our data were not whole, and are now.
    is_whole_again: bool = False


class Stage(Enum):
    """How far a learner has come under its leader, in the order of the list above."""

    DIALLING = "dialling"
    GREETED = "greeted"
    PROMISING = "promising"
    PROMISED = "promised"
    SYNCING = "syncing"
    FINISHING = "finishing"
    ACKED = "acked"
    ACTIVE = "active"


# The stages in which records arrive in bulk.
_TAKING: Final = (Stage.ACTIVE, Stage.SYNCING)


class Learner:
    """One learner under one leader.

    Whoever owns it does these after each input, in this order, as long as `end` is not set:

        leader_state    set: what the leader's tree is after a txn; compare it with ours
        has_due         apply what `take_due` gives
        may_serve       set `is_serving`, and serve clients
        finish          makes all durable that NEWLEADER asks for, once the records are
    """

    def __init__(
        self,
        facts: LearnerFacts,
        options: QuorumOptions,
        append: Callable[[Zxid, bytes], None],
        order: Callable[[DiskOrder], None],
        now_ms: int,
    ) -> None:
        self.facts = facts
        self.stage = Stage.DIALLING
        self.epoch = -1
        self.ensemble = facts.ensemble
        # Whether the leader is one of ours: then its trees are exact.
        self.is_leader_keepfast = False
        # Whether the last tree may hold effects of txns that are still to come.
        self.is_tree_fuzzy = False
        # Why it is over with this leader. Nothing happens here from then on.
        self.end: EndOfFollowing | None = None
        # What the leader sent: the last membership that it has seen, and how its tree is.
        self.membership: Membership | None = None
        self.leader_state: LeaderState | None = None
        self._options = options
        self._send: Callable[[bytes], None]  # once there is a connection
        # `on_durable` follows the one; `on_order_done` or `on_order_failed` the other.
        self._append, self._carry_out = append, order
        self._heard_ms = now_ms
        self._held: deque[QuorumPacket] = deque()
        self._ordered: DiskOrder | None = None
        # Received and not applied, in order; and how far each of these has come.
        self._pending: deque[tuple[Zxid, bytes]] = deque()
        self._unacked: deque[Zxid] = deque()
        self.last_received = self.durable = self.applied = facts.chain.head
        self.committed = Zxid(-1)
        self._serve_from = Zxid(-1)
        self.is_serving = False

    # -- inputs ----------------------------------------------------------------------------------

    def on_connected(self, send: Callable[[bytes], None], now_ms: int) -> None:
        """Connected: introduce ourselves."""
        self._send, self._heard_ms = send, now_ms
        self.stage = Stage.GREETED
        facts = self.facts
        hello = LearnerHello(
            facts.server_id,
            facts.has_voice,
            facts.accepted_epoch,
            facts.config_version,
            facts.ensemble or "",
            facts.unproven,
        )
        self._send(encode_packet(encode_learner_hello(hello)))

    def on_packet(self, packet: QuorumPacket, now_ms: int) -> None:
        """A packet from the leader; raises PeerProtocolError or MalformedRecord: leave it."""
        self._heard_ms = now_ms
        if self._ordered is not None:
            self._held.append(packet)
        else:
            self._handle(packet)

    def on_tree(self, tree: Any, is_exact: bool, now_ms: int) -> None:
        """The tree after a SNAP was received in full."""
        self._heard_ms = now_ms
        invariant(self.stage is Stage.SYNCING, "a tree comes after SNAP alone")
        self.is_tree_fuzzy = not is_exact
        # All that is committed and that we ever acknowledged is in the leader's history. If its
        # tree reaches as far as ours did, the tree alone has that much, too.
        is_enough = self.facts.is_whole and is_exact and tree.last_zxid >= self.facts.chain.head
        self._order(InstallTree(tree, is_exact, self.epoch, lacks=not is_enough))

    def on_receiving(self, now_ms: int) -> None:
        """More of a tree has come."""
        self._heard_ms = now_ms

    def on_order_done(self, order: DiskOrder, tree: Any) -> None:
        """The disk has carried out the order that packets wait for."""
        invariant(order is self._ordered, "orders are done one at a time")
        self._ordered = None
        if isinstance(order, StoreEpochs):
            if self.stage is Stage.PROMISING:
                self._promise()
            else:
                self._acknowledge_epoch()
        else:
            self._restart_at(tree)

    def handle_held(self) -> bool:
        """Handle the next packet that waited for an order; False: none may be handled now."""
        if not self._held or self._ordered is not None or self.end is not None:
            return False
        self._handle(self._held.popleft())
        return True

    def on_order_failed(self, order: DiskOrder, reason: str) -> None:
        """The disk could not do it, and left everything unchanged."""
        self.end = EndOfFollowing(reason, is_unfit=isinstance(order, TruncateLog))

    def on_durable(self, zxid: Zxid) -> None:
        """Our log holds everything up to `zxid`."""
        self.durable = zxid
        if self.stage in (Stage.ACKED, Stage.ACTIVE):
            self._acknowledge()

    def left_over(self) -> list[bytes]:
        """The records that were stored and not applied, in order."""
        return [entry for _, entry in self._pending]

    def tick(self, now_ms: int) -> None:
        """Leave a leader that is silent."""
        options = self._options
        is_current = self.stage in (Stage.ACKED, Stage.ACTIVE)
        patience = options.sync_ms if is_current else options.init_ms
        if self._ordered is None and now_ms - self._heard_ms > patience:
            self.end = EndOfFollowing("the leader is silent")

    # -- packets ---------------------------------------------------------------------------------

    def _handle(self, packet: QuorumPacket) -> None:
        handler = _HANDLERS.get(packet.type)
        if handler is None:
            raise PeerProtocolError(f"a leader sent a packet of type {packet.type}")
        handler(self, packet)

    def _on_leader_info(self, packet: QuorumPacket) -> None:
        if self.stage is not Stage.GREETED:
            raise PeerProtocolError("LEADERINFO out of turn")
        hello = decode_leader_hello(packet)
        self.is_leader_keepfast = hello.ensemble is not None
        facts = self.facts
        if hello.ensemble and facts.ensemble and hello.ensemble != facts.ensemble:
            raise PeerProtocolError(
                f"the leader is of ensemble {hello.ensemble}, our data of {facts.ensemble}"
            )
        if hello.epoch < facts.current_epoch and facts.is_whole and not facts.has_voice:
            # An observer whose history is later than that of a quorum: it was restored or wiped.
            # Truncating would destroy the only copy of what is lost; a tree moves it aside.
            reason = (
                f"the leader's epoch {hello.epoch} is below {facts.current_epoch}, that of our "
                "history: a quorum has lost acknowledged records"
            )
            self.end = EndOfFollowing(reason, is_unfit=True)
            return
        self.epoch = hello.epoch
        self.ensemble = hello.ensemble or facts.ensemble
        self.stage = Stage.PROMISING
        if hello.epoch > facts.accepted_epoch and facts.is_whole:
            self._order(StoreEpochs(hello.epoch, facts.current_epoch, facts.ensemble))
        elif hello.epoch == facts.accepted_epoch or not facts.has_voice:
            # Without a history there is nothing yet that a promise could be stored with: the tree
            # and the promise become durable together.
            self._promise()
        else:
            raise PeerProtocolError(
                f"the leader's epoch {hello.epoch} is below {facts.accepted_epoch}, "
                "which we promised"
            )

    def _promise(self) -> None:
        """Send the leader the promise of its epoch, and what we have."""
        facts = self.facts
        self.stage = Stage.PROMISED
        is_new = self.epoch > facts.accepted_epoch
        ack = EpochAck(
            facts.current_epoch if is_new and facts.is_whole else -1,
            facts.chain.head if facts.is_whole else Zxid(-1),
            facts.chain if facts.is_whole else None,
        )
        self._send(encode_packet(encode_epoch_ack(ack)))

    def _on_diff(self, packet: QuorumPacket) -> None:
        self._begin_sync()
        self.committed = packet.zxid
        # What we have beyond that was proposed to us before and is not committed: not to be served.
        self._serve_from = self.facts.chain.head

    def _on_trunc(self, packet: QuorumPacket) -> None:
        self._begin_sync()
        if not self.facts.chain.holds(packet.zxid):
            # A cut anywhere else would keep what was never committed, or lose what was (R5).
            reason = f"{format_zxid(packet.zxid)} is not in our history"
            self.end = EndOfFollowing(reason, is_unfit=True)
            return
        self._order(TruncateLog(packet.zxid))

    def _on_snap(self, _packet: QuorumPacket) -> None:
        self._begin_sync()

    def _begin_sync(self) -> None:
        if self.stage is not Stage.PROMISED:
            raise PeerProtocolError("the leader began to send its history out of turn")
        self.stage = Stage.SYNCING

    def _restart_at(self, tree: Any) -> None:
        self.last_received = self.durable = self.applied = tree.last_zxid
        self._serve_from = self.committed = Zxid(-1)

    def _on_proposal(self, packet: QuorumPacket) -> None:
        self._take(packet.zxid, packet.data)

    def _on_inform(self, packet: QuorumPacket) -> None:
        self._take(packet.zxid, packet.data)
        self._commit(packet.zxid)

    def _on_inform_and_activate(self, packet: QuorumPacket) -> None:
        self._take(packet.zxid, (packet.data or b"")[_LEADER_SIZE:])
        self._commit(packet.zxid)

    def _take(self, zxid: Zxid, entry: bytes | None) -> None:
        """Store a record that directly follows the last one (R9), and can be read back (R13)."""
        if entry is not None and entry[_ZXID_PLACE] != _ZXID.pack(zxid):
            raise PeerProtocolError(f"{format_zxid(zxid)} comes with another txn")
        if zxid == self.last_received + 1 and counter_of(zxid) and entry and self.stage in _TAKING:
            # The next one of the same epoch, which is the normal case.
            self.last_received = zxid
            self._pending.append((zxid, entry))
            self._unacked.append(zxid)
            self._append(zxid, entry)
            return
        if self.stage.value in _EARLY:
            raise PeerProtocolError("a record came out of turn")
        last = self.last_received
        if zxid <= last and self.stage is Stage.SYNCING:
            return  # the leader's walk may begin a little earlier
        is_next = follows_in_epoch(zxid, last)
        if not is_next and not (epoch_of(zxid) > epoch_of(last) and counter_of(zxid) == 1):
            raise PeerProtocolError(f"{format_zxid(zxid)} does not follow {format_zxid(last)}")
        if entry is None:
            raise PeerProtocolError(f"{format_zxid(zxid)} without a txn")
        if self.stage is not Stage.SYNCING and epoch_of(zxid) > self.epoch:
            raise PeerProtocolError(f"{format_zxid(zxid)} is beyond epoch {self.epoch}")
        self.last_received = zxid
        self._pending.append((zxid, entry))
        self._unacked.append(zxid)
        self._append(zxid, entry)

    def _on_commit(self, packet: QuorumPacket) -> None:
        self._commit(packet.zxid)

    def _commit(self, zxid: Zxid) -> None:
        if zxid > self.last_received:
            raise PeerProtocolError(f"{format_zxid(zxid)} is committed and was never proposed")
        self.committed = max(self.committed, zxid)

    def _due_up_to(self) -> Zxid:
        """The last txn that is both committed and durable here."""
        return min(self.committed, self.durable)

    @property
    def has_due(self) -> bool:
        """Whether there is a txn to apply."""
        return bool(self._pending) and self._pending[0][0] <= self._due_up_to()

    def take_due(self, is_ready: Callable[[bytes], bool]) -> Iterator[bytes]:
        """The txns to apply, up to one that is not ready yet.

        One counts as applied when the next is asked for.
        """
        pending, point = self._pending, self._due_up_to()
        while pending and pending[0][0] <= point and self.end is None:
            if not is_ready(pending[0][1]):
                return
            zxid, entry = pending.popleft()
            yield entry
            self.applied = zxid

    @property
    def may_serve(self) -> bool:
        """Whether what is applied is committed, and all that was committed before UPTODATE."""
        if self.stage is not Stage.ACTIVE:
            return False
        return self.committed >= self._serve_from and self.applied >= self.sync_point()

    @property
    def is_established(self) -> bool:
        """Whether a quorum follows this leader, so that what it has is the history."""
        return self.stage is Stage.ACTIVE

    def sync_point(self) -> Zxid:
        """The last txn that is known to be committed and is, or will be, applied here."""
        last = self.applied
        for zxid, _ in self._pending:
            if zxid > self.committed:
                break
            last = zxid
        return last

    def _on_new_leader(self, packet: QuorumPacket) -> None:
        if self.stage is not Stage.SYNCING or packet.zxid != make_zxid(self.epoch, 0):
            raise PeerProtocolError(f"NEWLEADER {format_zxid(packet.zxid)} out of turn")
        if self.last_received < self.committed and counter_of(self.committed):
            # DIFF says how far its records go. What came instead may be of a log with a hole, and
            # never committed; the next DIFF of this leader would be no better.
            last, point = format_zxid(self.last_received), format_zxid(self.committed)
            reason = f"the leader announced records up to {point}, and sent those up to {last}"
            self.end = EndOfFollowing(reason, is_unfit=True)
            return
        if packet.data:
            self.membership = parse_membership(packet.data)
        self.stage = Stage.FINISHING
        # What was committed before needs no acknowledgement of its own.
        while self._unacked and self._unacked[0] <= self.committed:
            self._unacked.popleft()

    def finish(self) -> None:
        """History durable, then the epoch, then the acknowledgement (R8)."""
        if self.stage is not Stage.FINISHING or self._ordered is not None:
            return
        if self.durable >= self.last_received:
            accepted = max(self.epoch, self.facts.accepted_epoch)
            # A leader that knows no identity (an Apache one) proves none by its records, either:
            # one of a term that was never established would pass for proven by them.
            self._order(StoreEpochs(accepted, self.epoch, self.ensemble or ""))

    def _acknowledge_epoch(self) -> None:
        self.stage = Stage.ACKED
        self._send(encode_ack(make_zxid(self.epoch, 0)))
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge the records that are durable."""
        unacked, durable = self._unacked, self.durable
        if not self.facts.has_voice:
            unacked.clear()
            return
        acks = []
        while unacked and unacked[0] <= durable:
            acks.append(unacked.popleft())
        if self.is_leader_keepfast:
            # For our servers, the last one covers all before it as well; an Apache leader needs
            # each.
            acks = acks[-1:]
        if acks:
            self._send(b"".join(map(encode_ack, acks)))

    def _on_up_to_date(self, packet: QuorumPacket) -> None:
        if self.stage is not Stage.ACKED:
            raise PeerProtocolError("UPTODATE out of turn")
        self.stage = Stage.ACTIVE
        self._send(encode_ack(make_zxid(self.epoch, 0)))
        self.leader_state = decode_leader_state(packet)

    def _on_commit_and_activate(self, packet: QuorumPacket) -> None:
        self._commit(packet.zxid)

    def _ignore(self, _packet: QuorumPacket) -> None:
        """Handled by the host."""

    def _order(self, order: DiskOrder) -> None:
        self._ordered = order
        self._carry_out(order)


# No record may come in these.
_EARLY: Final = frozenset(
    stage.value for stage in (Stage.DIALLING, Stage.GREETED, Stage.PROMISING, Stage.PROMISED)
)
_HANDLERS: Final[dict[int, Callable[[Learner, QuorumPacket], None]]] = {
    PacketType.LEADERINFO.value: Learner._on_leader_info,
    PacketType.DIFF.value: Learner._on_diff,
    PacketType.TRUNC.value: Learner._on_trunc,
    PacketType.SNAP.value: Learner._on_snap,
    PacketType.PROPOSAL.value: Learner._on_proposal,
    PacketType.COMMIT.value: Learner._on_commit,
    PacketType.INFORM.value: Learner._on_inform,
    PacketType.NEWLEADER.value: Learner._on_new_leader,
    PacketType.UPTODATE.value: Learner._on_up_to_date,
    PacketType.COMMITANDACTIVATE.value: Learner._on_commit_and_activate,
    PacketType.INFORMANDACTIVATE.value: Learner._on_inform_and_activate,
    PacketType.PING.value: Learner._ignore,
    PacketType.SYNC.value: Learner._ignore,
    PacketType.REVALIDATE.value: Learner._ignore,
}
