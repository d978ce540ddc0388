"""How a server got its leader's history: in words, for reports."""

from __future__ import annotations

from keepfast.quorum import Standing
from keepfast.replica.member_state import MemberState
from keepfast.replica.roles import CatchUpReport
from keepfast.wire import PacketType, QuorumPacket, ServerId, format_zxid


def catch_up_of(state: MemberState, packet: QuorumPacket) -> CatchUpReport | None:
    """What a packet says about how this server catches up; None if it says nothing about that."""
    leader = state.leader_id or ServerId(0)
    if packet.type == PacketType.SNAP:
        reason = "the leader sent its tree"
        if state.standing is not Standing.WHOLE:
            reason = f"our data was {state.standing.value}"
            reason += f": {state.fence_reason}" if state.fence_reason else ""
        return CatchUpReport("snap", reason, leader)
    if packet.type == PacketType.TRUNC:
        reason = f"the histories fork after {format_zxid(packet.zxid)}"
        return CatchUpReport("trunc", reason, leader)
    earlier = state.catch_up
    if earlier is not None and not earlier.is_over and earlier.leader == leader:
        return None
    if packet.type == PacketType.DIFF:
        head = "nothing" if state.tree is None else format_zxid(state.tree.last_zxid)
        return CatchUpReport("diff", f"both have {head}", leader)
    return None
