"""A connection between a learner and its leader, as both machines see it."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import msgspec

from keepfast.wire import (
    MAX_TXN_BYTES,
    PacketParser,
    PacketType,
    QuorumPacket,
    ServerId,
    Zxid,
    codec_of,
    encode_int,
    encode_long,
)

# Longest packet: a proposal carries a txn; one that activates a membership names the leader, too.
MAX_PACKET_BYTES: Final = MAX_TXN_BYTES + 8

_NOTHING: Final = b"\xff\xff\xff\xff\xff\xff\xff\xff"
_NO_IDS: Final = b"\xff\xff\xff\xff"
_COMMIT: Final = encode_int(PacketType.COMMIT.value)
_ACK: Final = encode_int(PacketType.ACK.value)
_PROPOSAL: Final = PacketType.PROPOSAL.value
_INFORM: Final = PacketType.INFORM.value
# type, zxid, length of the data.
_pack_head: Final = Struct(">iqi").pack


class RecordStream(msgspec.Struct, frozen=True):
    """Records of the log after a zxid up to another, as PROPOSALs, and COMMITs."""

    after: Zxid
    up_to: Zxid
    # To one of our servers a COMMIT covers all before it as well; an Apache server needs each.
    commits_each: bool = True


class TreeStream(msgspec.Struct, frozen=True):
    """A tree of this server's history, as SNAP, and the records after it as in RecordStream."""

    up_to: Zxid
    commits_each: bool = True
    # The tree itself must be later than this: records that follow it do not count.
    beyond: Zxid = Zxid(-1)


class Link:
    """One connection. The driver creates it, feeds its bytes to the machine and drains `out`."""

    __slots__ = ("address", "is_open", "number", "out", "parser")

    def __init__(self, number: int, address: str = "") -> None:
        """`address` is the other side's, where it is known."""
        self.number = number
        self.address = address
        self.is_open = True
        self.parser = PacketParser(MAX_PACKET_BYTES)
        # What is to be sent, in order; a stream is read from the disk when it is next.
        self.out: list[bytes | RecordStream | TreeStream] = []

    def __repr__(self) -> str:
        return f"Link({self.number})"


def encode_packet(packet: QuorumPacket) -> bytes:
    """The bytes of a packet."""
    return codec_of(QuorumPacket).encode(packet)


def encode_commit(zxid: Zxid, designated: ServerId | None = None) -> bytes:
    """A COMMIT; there is one per txn, so it is encoded by hand.

    With a designated leader: COMMITANDACTIVATE, of a membership changehip.
    """
    if designated is None:
        return _COMMIT + encode_long(zxid) + _NOTHING
    activate = PacketType.COMMITANDACTIVATE.value
    return encode_packet(QuorumPacket(activate, zxid, encode_long(designated)))


def encode_ack(zxid: Zxid) -> bytes:
    """An ACK."""
    return _ACK + encode_long(zxid) + _NOTHING


def encode_proposal(zxid: Zxid, entry: bytes) -> bytes:
    """A PROPOSAL of a log entry."""
    return _pack_head(_PROPOSAL, zxid, len(entry)) + entry + _NO_IDS


def encode_inform(zxid: Zxid, entry: bytes, designated: ServerId | None = None) -> bytes:
    """An INFORM of a log entry; INFORMANDACTIVATE as in `encode_commit`."""
    if designated is not None:
        activate = PacketType.INFORMANDACTIVATE.value
        return encode_packet(QuorumPacket(activate, zxid, encode_long(designated) + entry))
    return _pack_head(_INFORM, zxid, len(entry)) + entry + _NO_IDS


class Activation(NamedTuple):
    """The txn that changes the membership, and who leads the new one."""

    zxid: Zxid
    leader: ServerId

    def leader_at(self, zxid: Zxid) -> ServerId | None:
        """Whom the packet of a txn has to name."""
        return self.leader if zxid == self.zxid else None


def encode_commits(txns: list[tuple[Zxid, bytes]], activation: Activation | None) -> bytes:
    """A COMMIT for each txn."""
    if activation is None:
        return b"".join([encode_commit(zxid) for zxid, _ in txns])
    return b"".join([encode_commit(zxid, activation.leader_at(zxid)) for zxid, _ in txns])


def encode_informs(txns: list[tuple[Zxid, bytes]], activation: Activation | None) -> bytes:
    """An INFORM for each txn."""
    if activation is None:
        return b"".join([encode_inform(zxid, entry) for zxid, entry in txns])
    return b"".join([encode_inform(z, entry, activation.leader_at(z)) for z, entry in txns])
