"""A member's time under one leader: what joins the learner's protocol, the tree and the clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from keepfast.quorum import (
    Chain,
    Dial,
    DiskOrder,
    Learner,
    LearnerFacts,
    Link,
    MemberRole,
    Membership,
    Standing,
    decode_snap_digests,
    note,
)
from keepfast.replica.condition import catch_up_of
from keepfast.replica.digest_guard import DigestGuard
from keepfast.replica.members import proposed_membership
from keepfast.replica.quick_writes import commit_plain_entry
from keepfast.replica.tree_receiver import TreeReceiver
from keepfast.tree import ReplayConflict, Tree, apply_plain_set
from keepfast.wire import (
    LogEntry,
    PacketType,
    PeerProtocolError,
    PeerState,
    QuorumPacket,
    RevalidateReply,
    ServerId,
    TouchedSession,
    Zxid,
    codec_of,
    decode_entry,
    encode_touched_sessions,
    format_zxid,
)

if TYPE_CHECKING:
    from keepfast.replica.member import Member

# What comes nearly always, and is for the learner alone.
_BROADCAST: Final = frozenset((PacketType.PROPOSAL.value, PacketType.COMMIT.value))


class Following:
    """See the module. The member makes one for each leader, and throws it away with it."""

    def __init__(self, member: Member, has_voice: bool) -> None:
        self.link: Link | None = None
        # When to knock again at a leader that was not there; None: not now.
        self.redial_at_ms: int | None = None
        self._member = member
        self._has_voice = has_voice
        self._attempts = 0
        self._receiver: TreeReceiver | None = None
        self._promised_digests: tuple[int, int] | None = None
        self._guard: DigestGuard | None = None
        self._told: Membership | None = None
        self.learner = self._new_learner()

    def _new_learner(self) -> Learner:
        member = self._member
        is_whole = member.standing is Standing.WHOLE and member.tree is not None
        chain = member.history().chain() if is_whole else Chain(Zxid(-1))
        facts = LearnerFacts(
            member.server_id,
            member.accepted_epoch,
            member.current_epoch,
            chain,
            self._known_ensemble(is_whole),
            member.quorums.current.version,
            self._has_voice,
            is_whole,
        )
        return Learner(facts, member.options, self, self._send, member.now_ms)

    def _known_ensemble(self, is_whole: bool) -> str | None:
        """The identity of the ensemble, once it is sure that it was agreed on.

        A server that has no record may have it from a term that was never established, and so may
        one that was given a leader's tree and nothing else.
        """
        tree = self._member.tree
        if self._member.standing is Standing.CATCHING_UP:
            return None
        has_records = tree is not None and tree.last_zxid > 0
        return self._member.ensemble if has_records or not is_whole else None

    # -- inputs ----------------------------------------------------------------------------------

    def on_connected(self, link: Link) -> None:
        """The leader was reached."""
        self.link = link
        self.redial_at_ms = None
        self.learner.on_connected(self._member.now_ms)

    def on_dial_failed(self) -> None:
        """The leader was not there: it may still be on its way."""
        self._attempts += 1
        member = self._member
        if self._attempts >= member.options.dial_attempts:
            member.leave("the leader cannot be reached")
        else:
            self.redial_at_ms = member.now_ms + member.options.dial_interval_ms

    def on_lost(self) -> None:
        """The connection is gone; a leader that was not ready yet is tried again."""
        if self.learner.epoch < 0:
            self.link = None
            self.learner = self._new_learner()
            self.on_dial_failed()
        else:
            self._member.leave("the connection to the leader is gone")

    def tick(self, now_ms: int) -> None:
        """Knock again, or give up a leader that is silent."""
        if self.redial_at_ms is not None and now_ms >= self.redial_at_ms:
            self.redial_at_ms = None
            self._member.effects.append(Dial(self._member.leader_id or ServerId(0)))
        if self.link is not None:
            self.learner.tick(now_ms)

    def receive(self, data: bytes) -> None:
        """Bytes of the leader."""
        link = self.link
        if link is None:
            return
        packets = link.parser.feed(data)
        while True:
            for packet in packets:
                self._on_packet(packet)
                if not link.is_open or self._member.following is not self:
                    return
            if self._receiver is None:
                return
            rest = self._receiver.feed(link.parser.take_raw())
            if rest is None:
                self.learner.on_receiving(self._member.now_ms)
                return
            self._on_tree(self._receiver)
            packets = link.parser.resume(rest)

    def on_durable(self, zxid: Zxid) -> None:
        """Our log holds everything up to `zxid`."""
        self.learner.on_durable(zxid)

    def on_order_done(self, order: DiskOrder, tree: Tree | None) -> None:
        """The disk has done it."""
        self.learner.on_order_done(order, tree)

    def on_order_failed(self, order: DiskOrder, reason: str) -> None:
        """The disk could not do it."""
        self.learner.on_order_failed(order, reason)

    def close(self) -> list[bytes]:
        """It is over; gives the records that were stored and not applied."""
        self.learner.on_closed()
        return self.learner.left_over()

    # -- packets ---------------------------------------------------------------------------------

    def _on_packet(self, packet: QuorumPacket) -> None:
        member, learner = self._member, self.learner
        forwarder = member.replica.forwarder
        kind = packet.type
        if kind in _BROADCAST:
            learner.on_packet(packet, member.now_ms)
            return
        if kind == PacketType.PING:
            self._answer_ping(packet)
        elif kind == PacketType.REVALIDATE and forwarder is not None:
            answer = codec_of(RevalidateReply).decode(packet.data or b"")
            forwarder.on_revalidated(answer.session_id, answer.is_valid)
        elif kind == PacketType.SYNC and forwarder is not None:
            forwarder.on_synced(learner.sync_point())
        else:
            member.catch_up = catch_up_of(member, packet) or member.catch_up
            if kind == PacketType.SNAP:
                self._receiver = TreeReceiver(packet.zxid)
                self._promised_digests = decode_snap_digests(packet)
            learner.on_packet(packet, member.now_ms)
            return
        learner.on_receiving(member.now_ms)

    def _answer_ping(self, packet: QuorumPacket) -> None:
        forwarder = self._member.replica.forwarder
        touched = {} if forwarder is None else forwarder.sessions.take()
        table = encode_touched_sessions(
            TouchedSession(session_id, timeout_ms)  # type: ignore[arg-type]
            for session_id, timeout_ms in touched.items()
        )
        self._send_packet(QuorumPacket(PacketType.PING.value, packet.zxid, table))

    def _on_tree(self, receiver: TreeReceiver) -> None:
        self._receiver = None
        tree = receiver.finish()
        promised = self._promised_digests
        if promised is not None and promised != (tree.digest, tree.state_digest):
            raise PeerProtocolError("the tree that the leader sent is not the one it has")
        self.learner.on_tree(tree, promised is not None, self._member.now_ms)

    # -- as LearnerHost --------------------------------------------------------------------------

    def order(self, order: DiskOrder) -> None:
        """Have the disk do something."""
        self._member.order(order)

    def append(self, zxid: Zxid, entry: bytes) -> None:
        """Have a record stored."""
        self._member.append(zxid, entry)

    def replace_tree(self, tree: Any) -> None:
        """The tree was cut back or replaced."""
        self._member.hold(tree)

    def apply(self, zxid: Zxid, entry: bytes) -> None:
        """Apply a txn; a tree that is not the leader's shows here (R10, R12)."""
        member, guard = self._member, self._guard
        try:
            if guard is not None and self._apply_plain(entry):
                guard.note_agreement()
                return
            decoded = decode_entry(entry)
            self._apply(decoded)
        except ReplayConflict as error:
            member.fence(f"{format_zxid(zxid)} does not fit the tree: {error}")
            return
        changed = proposed_membership(decoded)
        if changed is not None:
            self._change_members(changed)
        tree = member.tree
        if guard is None:
            guard = self._guard = DigestGuard(self.learner.is_leader_keepfast)
        if tree is None or self.learner.is_tree_fuzzy or guard.agrees(tree, decoded):
            return
        if not guard.trusts_leader and member.fences:
            # A new tree did not cure it: then it is the leader's digests that are off.
            member.effects.append(note("digest-mismatch-stays", zxid=format_zxid(zxid)))
            return
        member.fence(f"the digest behind {format_zxid(zxid)} is not the leader's")

    def _apply_plain(self, entry: bytes) -> bool:
        """The quick way of most txns, with clients or without; False: nothing was done."""
        member = self._member
        if member.replica.forwarder is not None:
            return commit_plain_entry(member.replica, entry)
        if member.tree is None or self.learner.is_tree_fuzzy:
            return False
        return apply_plain_set(member.tree, entry) is not None

    def _apply(self, entry: LogEntry) -> None:
        member = self._member
        if member.replica.forwarder is not None:
            member.replica.commit_entry(entry)
        elif member.tree is not None:
            if self.learner.is_tree_fuzzy:
                member.tree.apply_fuzzy(entry.header, entry.body)
            else:
                member.tree.apply(entry.header, entry.body)

    def on_membership(self, membership: Membership) -> None:
        """The leader told a membership, which is agreed on once the leader is established."""
        if self._told is None or membership.version > self._told.version:
            self._told = membership

    def _change_members(self, membership: Membership) -> None:
        """A change of the membership was committed, or would be by a leader that is not yet one."""
        member = self._member
        if membership.version <= member.quorums.current.version:
            return  # of the past: it is among the records that we catch up with
        if not self.learner.is_established:
            member.members.consider(membership)
            self.on_membership(membership)
            return
        member.members.adopt(membership)
        is_voter = member.server_id in membership.voters
        # A server whose data are not whole has no voice for that reason, whatever it is.
        if is_voter != self._has_voice and member.standing is Standing.WHOLE:
            member.leave("its role has changed")

    def on_active(self, epoch: int) -> None:
        """We are up to date: serve, or take part again."""
        member = self._member
        member.ensemble = self.learner.ensemble
        self.learner.is_tree_fuzzy = False
        member.fences = 0 if self.learner.is_leader_keepfast else member.fences
        told = self._told
        if told is not None and told.version > member.quorums.current.version:
            member.members.adopt(told)
        spec = member.quorums.find(member.server_id)
        is_observer = spec is None or spec.role is MemberRole.OBSERVER
        if not self._has_voice and not is_observer:
            member.caught_up()
            return
        if member.standing is not Standing.WHOLE:
            member.standing = Standing.WHOLE
        if member.tree is None:
            return
        state = PeerState.FOLLOWING if self._has_voice else PeerState.OBSERVING
        member.election.settle(state, member.leader_id or ServerId(0), epoch)
        member.members.remember()
        member.members.show()
        if member.catch_up is not None:
            member.catch_up = member.catch_up._replace(is_over=True)
        member.replica.learn(member.tree, epoch, self._send)
        member.effects.append(note("serving", role=member.role.value, epoch=epoch))

    def on_following_failed(self, reason: str) -> None:
        """It is over with this leader."""
        self._member.leave(reason)

    def on_unfit(self, reason: str) -> None:
        """Our history cannot be mended."""
        self._member.fence(reason)

    # -- links -----------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if self.link is not None and self.link.is_open:
            self._member.send(self.link, data)

    def _send_packet(self, packet: QuorumPacket) -> None:
        self._send(codec_of(QuorumPacket).encode(packet))
