"""What a leader does for the clients of its learners: their writes, syncs and sessions."""

from __future__ import annotations

from collections import deque
from typing import Final

from keepfast.quorum import Leader, Link, decode_receipt
from keepfast.replica.commit_turns import next_stop
from keepfast.replica.member_state import MemberState
from keepfast.replica.proposer import Proposer
from keepfast.wire import (
    OpCode,
    PacketType,
    PeerProtocolError,
    QuorumPacket,
    RevalidateReply,
    RevalidateRequest,
    SessionId,
    Zxid,
    codec_of,
    decode_forwarded_request,
    decode_touched_sessions,
    encode,
)

_REQUEST: Final = PacketType.REQUEST.value
_REVALIDATE: Final = PacketType.REVALIDATE.value
_PING: Final = PacketType.PING.value
_SYNC: Final = OpCode.SYNC.value
# What a learner sends for its clients: it serves none before it has caught up.
_OF_CURRENT: Final = frozenset((_REQUEST, _REVALIDATE))


class LearnerDesk:
    """Serves what learners ask their leader for.

    A member creates one per term in which it leads.
    """

    def __init__(self, leader: Leader, state: MemberState) -> None:
        self._leader = leader
        self._replica = state.replica
        self._secrets = state.secrets
        self._send = state.send_packet
        # Syncs of learners' clients, with the txn and the confirmation that each waits for.
        self._syncs: deque[tuple[Zxid, int, Link]] = deque()
        # Questions for sessions that have ended, as far as is known here, with what each waits for:
        # a txn that does not come before its end, or the confirmation that we still lead.
        self._revalidations: deque[tuple[Zxid, int, Link, RevalidateRequest]] = deque()

    def handle(self, link: Link, packet: QuorumPacket) -> bool:
        """A packet of a learner; False: it is for the leader's protocol.

        Raises PeerProtocolError or MalformedRecord: hang up.
        """
        kind = packet.type
        if kind in _OF_CURRENT and not self._leader.is_current(link):
            raise PeerProtocolError("a request of a learner that has not caught up")
        if kind == _REQUEST:
            self._request(link, packet)
        elif kind == _REVALIDATE:
            self._revalidate(link, packet)
        elif kind == _PING and packet.data:
            if self._is_receipt(link, packet):
                return True
            if self._leader.is_current(link):
                self._touch(packet.data)
            return False
        else:
            return False
        return True

    def _is_receipt(self, link: Link, packet: QuorumPacket) -> bool:
        """Whether it is about session passwords; then it answers no ping."""
        receipt = decode_receipt(packet.data)
        if receipt is not None and self._leader.is_current(link):
            self._secrets.on_receipt(self._leader.learners[link].server_id, receipt)
        return receipt is not None

    def release(self, zxid: Zxid) -> None:
        """Answer what waited for the txns that are committed now, and for a quorum."""
        confirmed = self._leader.confirmations.last
        while self._revalidations:
            proposed, round_, link, asked = self._revalidations[0]
            if proposed > zxid or round_ > confirmed:
                break
            self._revalidations.popleft()
            proposer = self._replica.proposer
            if proposer is not None and link in self._leader.learners:
                is_valid = self._is_alive(proposer, link, asked)
                self._answer_revalidation(link, asked, is_valid=is_valid)
        while self._syncs:
            proposed, round_, link = self._syncs[0]
            if proposed > zxid or round_ > confirmed:
                return
            self._syncs.popleft()
            if link.is_open:
                self._send(link, QuorumPacket(PacketType.SYNC.value, Zxid(0)))

    def next_stop(self, zxid: Zxid) -> Zxid:
        """The next txn that a sync waits for: SYNC must not come after what was asked for later.

        Otherwise a client that pipelines a write after a sync is shown a later zxid first. Not
        more than is applied at once, either.
        """
        stop = self._replica.syncs.next_stop(zxid)
        if self._syncs:
            stop = min(self._syncs[0][0], stop)
        return next_stop(self._replica.service, stop)

    def _revalidate(self, link: Link, packet: QuorumPacket) -> None:
        proposer = self._replica.proposer
        if proposer is None:
            raise PeerProtocolError("a session before the leader was established")
        asked = codec_of(RevalidateRequest).decode(packet.data or b"")
        # After the writes that came before: the reply implies that these were proposed.
        proposer.when_free(lambda: self._judge_session(proposer, link, asked))

    def _judge_session(self, proposer: Proposer, link: Link, asked: RevalidateRequest) -> None:
        if link not in self._leader.learners:
            return
        if asked.session_id in proposer.ending:
            # Its end may still be undone: nobody is notified of it before it is committed.
            self._revalidations.append((self._replica.service.last_proposed, 0, link, asked))
        elif self._is_alive(proposer, link, asked):
            self._answer_revalidation(link, asked, is_valid=True)
        else:
            # If we were deposed and do not know it, it may live under our successor.
            self._revalidations.append((Zxid(0), self._leader.confirmations.ask(), link, asked))
            self.release(self._leader.last_committed)

    def _is_alive(self, proposer: Proposer, link: Link, asked: RevalidateRequest) -> bool:
        server_id = self._leader.learners[link].server_id
        return proposer.revalidate(asked.session_id, asked.timeout_ms, server_id)

    def _answer_revalidation(self, link: Link, asked: RevalidateRequest, *, is_valid: bool) -> None:
        answer = encode(RevalidateReply(SessionId(asked.session_id), is_valid))
        # Apache's leaders leave this empty; ours report what other servers forwarded before.
        self._send(link, QuorumPacket(_REVALIDATE, self._replica.service.last_proposed, answer))

    def _request(self, link: Link, packet: QuorumPacket) -> None:
        proposer = self._replica.proposer
        if proposer is None:
            raise PeerProtocolError("a request before the leader was established")
        request = decode_forwarded_request(packet.data or b"")
        if request.type != _SYNC:
            server_id = self._leader.learners[link].server_id
            proposer.propose_forwarded(server_id, request, packet.authinfo or ())
        else:
            proposer.when_free(lambda: self._sync(link))

    def _sync(self, link: Link) -> None:
        service = self._replica.service
        proposed = service.last_proposed if service.proposals else Zxid(0)
        self._syncs.append((proposed, self._leader.confirmations.ask(), link))
        self.release(self._leader.last_committed)

    def _touch(self, data: bytes) -> None:
        proposer = self._replica.proposer
        if proposer is not None:
            for session_id, timeout_ms in decode_touched_sessions(data):
                if session_id in proposer.sessions:
                    proposer.sessions.track(session_id, timeout_ms, self._replica.now_ms)
