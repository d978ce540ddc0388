"""What crosses a link with a server of Apache's; see apache.py."""

from __future__ import annotations

from typing import Final

from keepfast.quorum import encode_packet
from keepfast.wire import PacketParser, PacketType, QuorumPacket

# What Apache reads of the packets after which Keepfast says more.
_READ_BYTES: Final = {
    PacketType.FOLLOWERINFO.value: 20,
    PacketType.OBSERVERINFO.value: 20,
    PacketType.LEADERINFO.value: 4,
    PacketType.ACKEPOCH.value: 4,
}


def plain(packets: bytes) -> bytes:
    """The same packets without what only Keepfast servers send each other."""
    return b"".join(encode_packet(_plain(packet)) for packet in PacketParser().feed(packets))


def _plain(packet: QuorumPacket) -> QuorumPacket:
    size = _READ_BYTES.get(packet.type)
    return packet if size is None else packet._replace(data=(packet.data or b"")[:size])
