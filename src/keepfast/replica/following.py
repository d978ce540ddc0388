"""A member under one leader: joins the learner protocol, the tree and the clients."""

from __future__ import annotations

from functools import partial
from typing import Final

from keepfast.quorum import (
    Chain,
    Dial,
    DiskOrder,
    EndOfFollowing,
    LeaderState,
    Learner,
    LearnerFacts,
    Link,
    MemberRole,
    Membership,
    Standing,
    StoredIdentity,
    decode_said,
    decode_snap_digests,
    note,
)
from keepfast.replica.catch_up_report import catch_up_of
from keepfast.replica.commit_turns import may_apply
from keepfast.replica.digest_guard import DigestGuard
from keepfast.replica.member_state import MemberState
from keepfast.replica.members import proposed_membership
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

# The most frequent packets, handled by the learner alone.
_COMMIT: Final = PacketType.COMMIT.value
_BROADCAST: Final = frozenset((PacketType.PROPOSAL.value, _COMMIT))
# With these, one of our leaders may send more than Apache's.
_SAYING: Final = frozenset((PacketType.PING.value, PacketType.UPTODATE.value))


class Following:
    """A member under one leader.

    The member creates one per leader, and discards it afterwards.

    After each input the member checks `end`: once it is set, nothing happens here any more.
    """

    def __init__(self, state: MemberState, has_voice: bool) -> None:
        self.link: Link | None = None
        # When to retry a leader that was not ready; None: not now.
        self.redial_at_ms: int | None = None
        self._state = state
        self._has_voice = has_voice
        self._attempts = 0
        self._receiver: TreeReceiver | None = None
        self._promised_digests: tuple[int, int] | None = None
        self._guard: DigestGuard | None = None
        # The leader's tree state after a txn that is not applied here yet.
        self._expected: LeaderState | None = None
        # Changes of the membership that are committed once the leader is established.
        self._changes: list[Membership] = []
        self.learner = self._new_learner()

    @property
    def end(self) -> EndOfFollowing | None:
        """Why this leader was left; None: it was not."""
        return self.learner.end

    def _end(self, end: EndOfFollowing) -> None:
        if self.learner.end is None:
            self.learner.end = end

    def _new_learner(self) -> Learner:
        state = self._state
        is_whole = state.standing is Standing.WHOLE and state.tree is not None
        chain = state.history().chain() if is_whole else Chain(Zxid(-1))
        proven, stored = self._known_ensemble(), state.ensemble
        is_unproven = proven is None
        facts = LearnerFacts(
            state.server_id,
            state.accepted_epoch,
            state.current_epoch,
            chain,
            proven,
            state.quorums.current.version,
            self._has_voice,
            is_whole,
            StoredIdentity(stored, state.ensemble_since) if stored and is_unproven else None,
        )
        return Learner(facts, state.options, state.append, state.order, state.now_ms)

    def _known_ensemble(self) -> str | None:
        """The identity of the ensemble, once it is sure that it was committed.

        It is stored with the epoch of the leader that named it, and that term may never have been
        established: then another leader named another one. A record of an epoch between that one
        and the current one is the proof, as only an established leader makes records. Records of
        later epochs prove nothing: they may have come from another leader just before a crash.
        One that was given a leader's tree and nothing else knows nothing either.
        """
        state = self._state
        if state.standing is Standing.CATCHING_UP:
            return None
        epochs = range(state.ensemble_since, state.current_epoch + 1)
        # Even if the data is damaged: as far as the manifest says what it was.
        is_agreed = any(epoch in epochs for epoch in state.history().chain().epochs())
        return state.ensemble if is_agreed else None

    # -- inputs ----------------------------------------------------------------------------------

    def on_connected(self, link: Link) -> None:
        """The leader was reached."""
        self.link = link
        self.redial_at_ms = None
        self.learner.on_connected(partial(self._state.send, link), self._state.now_ms)

    def on_dial_failed(self) -> None:
        """The leader was not ready: it may still be starting."""
        self._attempts += 1
        state = self._state
        if self._attempts >= state.options.dial_attempts:
            self._leave("the leader cannot be reached")
        else:
            self.redial_at_ms = state.now_ms + state.options.dial_interval_ms

    def on_lost(self) -> None:
        """The connection is gone; a leader that was not ready yet is tried again."""
        if self.learner.epoch < 0:
            self.link = None
            self.learner = self._new_learner()
            self.on_dial_failed()
        else:
            self._leave("the connection to the leader is gone")

    def tick(self, now_ms: int) -> None:
        """Retry, or leave a leader that is silent."""
        if self.redial_at_ms is not None and now_ms >= self.redial_at_ms:
            self.redial_at_ms = None
            self._state.effects.append(Dial(self._state.leader_id or ServerId(0)))
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
                if not link.is_open or self.end is not None:
                    return
            if self._receiver is None:
                return
            rest = self._receiver.feed(link.parser.take_raw())
            if rest is None:
                self.learner.on_receiving(self._state.now_ms)
                return
            self._on_tree(self._receiver)
            packets = link.parser.resume(rest)

    def on_durable(self, zxid: Zxid) -> None:
        """Our log holds everything up to `zxid`."""
        self.learner.on_durable(zxid)
        self._proceed()

    def continue_work(self) -> None:
        """Others had their turn: apply more, or compute more of a long txn."""
        self._state.replica.long_reader.give_turn()
        self._proceed()

    def on_order_done(self, order: DiskOrder, tree: Tree | None) -> None:
        """The disk has done it."""
        self.learner.on_order_done(order, tree)
        self._proceed()
        while self.learner.handle_held():
            self._proceed()

    def on_order_failed(self, order: DiskOrder, reason: str) -> None:
        """The disk could not do it."""
        self.learner.on_order_failed(order, reason)

    def _leave(self, reason: str) -> None:
        self._end(EndOfFollowing(reason))

    def fence(self, reason: str) -> None:
        """Our history is not the leader's and cannot be mended: only a tree helps (R10)."""
        self._end(EndOfFollowing(reason, is_unfit=True))

    def close(self) -> list[bytes]:
        """It is over; returns the records that were stored and not applied."""
        return self.learner.left_over()

    def _proceed(self) -> None:
        """Do what the last input of the learner made possible."""
        learner = self.learner
        if learner.leader_state is not None:
            self._expected, learner.leader_state = learner.leader_state, None
            self._compare(learner.applied)
        if learner.has_due:
            self._apply()
        if learner.end is not None:
            return
        if not learner.is_serving and learner.may_serve:
            learner.is_serving = True
            self._serve()
        else:
            learner.finish()

    # -- packets ---------------------------------------------------------------------------------

    def _on_packet(self, packet: QuorumPacket) -> None:
        state, learner = self._state, self.learner
        forwarder = state.replica.forwarder
        kind = packet.type
        if kind in _BROADCAST:
            learner.on_packet(packet, state.now_ms)
            if kind == _COMMIT:
                self._proceed()
            return
        if kind in _SAYING:
            receipt = state.secrets.on_said(decode_said(packet))
            if receipt is not None:
                self._answer(QuorumPacket(PacketType.PING.value, Zxid(0), receipt))
        if kind == PacketType.PING:
            self._answer_ping(packet)
        elif kind == PacketType.REVALIDATE and forwarder is not None:
            answer = codec_of(RevalidateReply).decode(packet.data or b"")
            proposed, received = packet.zxid, learner.last_received
            state.replica.revalidated(answer.session_id, answer.is_valid, proposed, received)
        elif kind == PacketType.SYNC and forwarder is not None:
            forwarder.on_synced(learner.sync_point())
            state.replica.handle_ready()
        else:
            state.catch_up = catch_up_of(state, packet) or state.catch_up
            if kind == PacketType.SNAP:
                self._receiver = TreeReceiver(packet.zxid)
                self._promised_digests = decode_snap_digests(packet)
            learner.on_packet(packet, state.now_ms)
            self._proceed()
            return
        learner.on_receiving(state.now_ms)

    def _answer_ping(self, packet: QuorumPacket) -> None:
        forwarder = self._state.replica.forwarder
        touched = {} if forwarder is None else forwarder.sessions.take()
        table = encode_touched_sessions(
            TouchedSession(session_id, timeout_ms)  # type: ignore[arg-type]
            for session_id, timeout_ms in touched.items()
        )
        self._answer(QuorumPacket(PacketType.PING.value, packet.zxid, table))

    def _answer(self, packet: QuorumPacket) -> None:
        if self.link is not None:
            self._state.send_packet(self.link, packet)

    def _on_tree(self, receiver: TreeReceiver) -> None:
        self._receiver = None
        tree = receiver.finish()
        promised = self._promised_digests
        if promised is not None and promised != (tree.digest, tree.state_digest):
            raise PeerProtocolError("the tree that the leader sent is not the one it has")
        self.learner.on_tree(tree, promised is not None, self._state.now_ms)

    # -- txns ------------------------------------------------------------------------------------

    def _is_ready(self, entry: bytes) -> bool:
        """Whether the next txn can be applied now, without holding up clients."""
        replica = self._state.replica
        if replica.forwarder is None:
            return True
        return replica.long_reader.is_ready(entry) and may_apply(replica.service, entry)

    def _apply(self) -> None:
        """Apply what is due; a tree that is not the leader's shows here (R10, R12)."""
        replica, entries = self._state.replica, self.learner.take_due(self._is_ready)
        try:
            if replica.forwarder is not None:
                replica.commit_learned(entries, self._applied)
            else:
                replica.is_agreed_on = False  # not before this leader is established
                for entry in entries:
                    self._applied(self._catch_up(entry))
        except ReplayConflict as error:
            self.fence(f"{format_zxid(error.zxid)} does not fit the tree: {error}")

    def _catch_up(self, entry: bytes) -> LogEntry | None:
        """Apply a txn without clients; None: a plain one, with the digest that it carries."""
        tree, is_fuzzy = self._state.tree, self.learner.is_tree_fuzzy
        if tree is not None and not is_fuzzy and apply_plain_set(tree, entry) is not None:
            return None
        decoded = decode_entry(entry)
        if tree is not None:
            apply = tree.apply_fuzzy if is_fuzzy else tree.apply
            apply(decoded.header, decoded.body)
        return decoded

    def _applied(self, entry: LogEntry | None) -> None:
        """The tree has taken a txn; None: a plain one, with the digest that it carries."""
        state, guard = self._state, self._guard
        if guard is None:
            guard = self._guard = DigestGuard(self.learner.is_leader_keepfast)
        tree = state.tree
        if entry is None:
            if tree is not None:
                guard.note_agreement(tree.last_zxid)
                if self._expected is not None:
                    self._compare(tree.last_zxid)
            return
        changed = proposed_membership(entry)
        if changed is not None:
            self._change_members(changed)
        if tree is None or self.learner.is_tree_fuzzy or guard.agrees(tree, entry):
            if tree is not None and self._expected is not None:
                self._compare(tree.last_zxid)
            return
        zxid = format_zxid(entry.header.zxid)
        if not guard.trusts_leader and state.fenced_epoch == self.learner.epoch:
            # A new tree from this leader did not resolve it: then its digests are off.
            state.effects.append(note("digest-mismatch-stays", zxid=zxid))
            return
        self.fence(f"the digest after {zxid} is not the leader's")

    def _compare(self, applied: Zxid) -> None:
        """Compare our tree with the leader's as soon as ours is after the same txn (R10).

        A history that was given up may have the zxids of one that was made since.

        So the state decides, before anyone is served. Of a voter it is the digest that
        every txn has, as at any time: sessions or ACLs in which Apache's servers left a majority
        different must not stop the service.
        """
        expected, tree = self._expected, self._state.tree
        if expected is None or tree is None or applied < expected.zxid:
            return
        self._expected = None
        is_same = tree.digest == expected.digest and (
            self._has_voice or tree.shared_digest == expected.shared_digest
        )
        # Beyond it are records that were proposed to us before: there is nothing to compare then.
        if applied == expected.zxid and not is_same:
            self.fence(f"the state at {format_zxid(applied)} is not the leader's")

    def _change_members(self, membership: Membership) -> None:
        """A membership change was committed, or would be by a leader that is not yet one."""
        state = self._state
        if membership.version <= state.quorums.current.version:
            return  # of the past: it is among the records that we catch up with
        if not self.learner.is_established:
            state.members.consider(membership)
            self._changes.append(membership)
            return
        state.adopt_members(membership)
        spec = membership.find(state.server_id)
        # One that was removed continues serving its clients: the leader does not count it any more.
        # A server whose data is not whole has no voice for that reason, whatever it is.
        if spec is None or state.standing is not Standing.WHOLE:
            return
        if (spec.role is MemberRole.PARTICIPANT) != self._has_voice:
            self._leave("its role has changed")

    def _serve(self) -> None:
        """We are up to date: serve, or take part again."""
        state, epoch = self._state, self.learner.epoch
        state.ensemble = self.learner.ensemble
        self.learner.is_tree_fuzzy = False
        sent = [] if self.learner.membership is None else [self.learner.membership]
        last = max((*sent, *self._changes), key=lambda one: one.version, default=None)
        if last is not None and last.version > state.quorums.current.version:
            state.adopt_members(last)
        spec = state.quorums.find(state.server_id)
        is_observer = spec is None or spec.role is MemberRole.OBSERVER
        if not self._has_voice and not is_observer:
            self._end(EndOfFollowing("its data is whole again", is_whole_again=True))
            return
        if state.standing is not Standing.WHOLE:
            state.standing = Standing.WHOLE
        if state.tree is None or self.link is None:
            return
        role = PeerState.FOLLOWING if self._has_voice else PeerState.OBSERVING
        state.election.settle(role, state.leader_id or ServerId(0), epoch)
        state.remember_members()
        state.members.show(state.tree)
        if state.catch_up is not None:
            state.catch_up = state.catch_up._replace(is_over=True)
        state.replica.learn(state.tree, epoch, partial(state.send, self.link))
        state.note_serving(state.tree, epoch)
