"""What a leader does for the clients of its learners: their writes, syncs and sessions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from keepfast.quorum import Leader, Link
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

if TYPE_CHECKING:
    from keepfast.replica.member import Member

_REQUEST: Final = PacketType.REQUEST.value
_REVALIDATE: Final = PacketType.REVALIDATE.value
_PING: Final = PacketType.PING.value
_ACK: Final = PacketType.ACK.value
_SYNC: Final = OpCode.SYNC.value


class LearnerDesk:
    """See the module. A member makes one for each term in which it leads."""

    def __init__(self, member: Member) -> None:
        self._member = member
        # Syncs of learners' clients, with the txn that each waits for.
        self._syncs: deque[tuple[Zxid, Link]] = deque()

    def receive(self, leader: Leader, link: Link, data: bytes) -> None:
        """Bytes of a learner; raises PeerProtocolError or MalformedRecord: hang up."""
        member = self._member
        for packet in link.parser.feed(data):
            if member.leader is not leader or not link.is_open:
                return
            kind = packet.type
            if kind == _REQUEST:
                self._request(leader, link, packet)
            elif kind == _REVALIDATE:
                self._revalidate(leader, link, packet)
            else:
                if kind == _PING and packet.data:
                    self._touch(packet.data)
                leader.on_packet(link, packet, member.now_ms)
                if kind == _ACK:
                    member.hand_over_if_due()
        if member.leader is leader:
            leader.advance()

    def release(self, zxid: Zxid) -> None:
        """Answer the syncs whose txns are committed."""
        while self._syncs and self._syncs[0][0] <= zxid:
            self._answer_sync(self._syncs.popleft()[1])

    def next_stop(self, zxid: Zxid) -> Zxid:
        """The next txn that a sync waits for: SYNC must not come behind what was asked for later.

        Otherwise a client that pipelines a write behind a sync is shown a later zxid first.
        """
        return min(self._syncs[0][0], zxid) if self._syncs else zxid

    def _revalidate(self, leader: Leader, link: Link, packet: QuorumPacket) -> None:
        proposer = self._member.replica.proposer
        if proposer is None:
            raise PeerProtocolError("a session before the leader was established")
        asked = codec_of(RevalidateRequest).decode(packet.data or b"")
        server_id = leader.learners[link].server_id
        found = proposer.revalidate(asked.session_id, asked.timeout_ms, server_id)
        answer = encode(RevalidateReply(SessionId(asked.session_id), found))
        self._member.send_packet(link, QuorumPacket(packet.type, Zxid(-1), answer))

    def _request(self, leader: Leader, link: Link, packet: QuorumPacket) -> None:
        proposer = self._member.replica.proposer
        if proposer is None:
            raise PeerProtocolError("a request before the leader was established")
        request = decode_forwarded_request(packet.data or b"")
        if request.type != _SYNC:
            server_id = leader.learners[link].server_id
            proposer.propose_forwarded(server_id, request, packet.authinfo or ())
        elif proposer.proposals:
            self._syncs.append((proposer.last_proposed, link))
        else:
            self._answer_sync(link)

    def _answer_sync(self, link: Link) -> None:
        if link.is_open:
            self._member.send_packet(link, QuorumPacket(PacketType.SYNC.value, Zxid(0)))

    def _touch(self, data: bytes) -> None:
        proposer = self._member.replica.proposer
        if proposer is not None:
            for session_id, timeout_ms in decode_touched_sessions(data):
                if session_id in proposer.sessions:
                    proposer.sessions.track(session_id, timeout_ms, self._member.now_ms)
