"""What Keepfast servers send each other beyond Apache's fields when a learner connects.

Apache reads the first bytes of FOLLOWERINFO, LEADERINFO and ACKEPOCH and ignores what follows, so
the identity of the ensemble and the learner's chain travel after them.

    identity, after LearnerInfo and after the protocol version of LEADERINFO
    4    "KFid"
    16   identity of the ensemble; all 0: there is none yet

    after that of a learner, where it has stored one that it cannot prove
    16   that identity
    8    the epoch that it is stored with
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from keepfast.quorum.chains import Chain, decode_chain, encode_chain
from keepfast.wire import (
    PROTOCOL_VERSION,
    MalformedRecord,
    PacketType,
    QuorumPacket,
    ServerId,
    Zxid,
    encode_string,
    make_zxid,
)

_MAGIC: Final = b"KFid"
_IDENTITY: Final = Struct(">4s16s")
_NONE: Final = bytes(16)
_STORED: Final = Struct(">16sq")
_INFO_34: Final = Struct(">qi")
_INFO: Final = Struct(">qiq")
_INT: Final = Struct(">i")
_SNAP_MAGIC: Final = b"KFsn"
_SNAP: Final = Struct(">4sQQ")
_STATE_MAGIC: Final = b"KFst"
_STATE: Final = Struct(">4sqQQ")
# What ends the tree after a SNAP.
TREE_SIGNATURE: Final = encode_string("BenWasHere")


class StoredIdentity(NamedTuple):
    """An identity that a server has stored, and the epoch of the leader that named it."""

    ensemble: str
    since: int


class LearnerHello(NamedTuple):
    """A learner introduces itself."""

    server_id: ServerId
    is_follower: bool
    accepted_epoch: int
    config_version: Zxid
    # None: it is not a Keepfast server; "": it belongs to no ensemble yet.
    ensemble: str | None
    # What it may belong to, where it cannot prove that this was ever committed.
    unproven: StoredIdentity | None = None


def encode_learner_hello(hello: LearnerHello) -> QuorumPacket:
    """FOLLOWERINFO or OBSERVERINFO."""
    kind = PacketType.FOLLOWERINFO if hello.is_follower else PacketType.OBSERVERINFO
    data = _INFO.pack(hello.server_id, PROTOCOL_VERSION, hello.config_version)
    data += _encode_identity(hello.ensemble)
    if hello.unproven is not None:
        data += _STORED.pack(bytes.fromhex(hello.unproven.ensemble), hello.unproven.since)
    return QuorumPacket(kind.value, make_zxid(hello.accepted_epoch, 0), data)


def decode_learner_hello(packet: QuorumPacket) -> LearnerHello:
    """What a learner said first. Raises MalformedRecord."""
    data = packet.data or b""
    if len(data) < _INFO_34.size:
        raise MalformedRecord(f"a learner's introduction of {len(data)} bytes", 0)
    server_id, version = _INFO_34.unpack_from(data)
    if version < PROTOCOL_VERSION:
        raise MalformedRecord(f"protocol version {version:#x}", 8)
    config_version = Zxid(0)
    if len(data) >= _INFO.size:
        config_version = _INFO.unpack_from(data)[2]
    return LearnerHello(
        ServerId(server_id),
        packet.type == PacketType.FOLLOWERINFO,
        packet.zxid >> 32,
        config_version,
        _decode_identity(data[_INFO.size :]),
        _decode_stored(data[_INFO.size + _IDENTITY.size :]),
    )


class LeaderHello(NamedTuple):
    """A leader says which epoch it wants to open."""

    epoch: int
    # As in LearnerHello.
    ensemble: str | None


def encode_leader_hello(hello: LeaderHello) -> QuorumPacket:
    """LEADERINFO."""
    data = _INT.pack(PROTOCOL_VERSION) + _encode_identity(hello.ensemble)
    return QuorumPacket(PacketType.LEADERINFO.value, make_zxid(hello.epoch, 0), data)


def decode_leader_hello(packet: QuorumPacket) -> LeaderHello:
    """What a leader answered. Raises MalformedRecord."""
    data = packet.data or b""
    if len(data) < _INT.size:
        raise MalformedRecord("LEADERINFO without a protocol version", 0)
    return LeaderHello(packet.zxid >> 32, _decode_identity(data[_INT.size :]))


class EpochAck(NamedTuple):
    """A learner promises an epoch, and reports what it has."""

    current_epoch: int  # -1: this ack does not count
    last: Zxid
    chain: Chain | None


def encode_epoch_ack(ack: EpochAck) -> QuorumPacket:
    """ACKEPOCH."""
    data = _INT.pack(ack.current_epoch)
    if ack.chain is not None:
        data += encode_chain(ack.chain)
    return QuorumPacket(PacketType.ACKEPOCH.value, ack.last, data)


def decode_epoch_ack(packet: QuorumPacket) -> EpochAck:
    """What a learner answered. Raises MalformedRecord."""
    data = packet.data or b""
    if len(data) < _INT.size:
        raise MalformedRecord("ACKEPOCH without an epoch", 0)
    return EpochAck(_INT.unpack_from(data)[0], packet.zxid, decode_chain(data[_INT.size :]))


def encode_snap(zxid: Zxid, digest: int, state_digest: int) -> QuorumPacket:
    """SNAP, with Apache's digest and ours of the tree that follows; Apache reads no data here."""
    data = _SNAP.pack(_SNAP_MAGIC, digest, state_digest)
    return QuorumPacket(PacketType.SNAP.value, zxid, data)


def decode_snap_digests(packet: QuorumPacket) -> tuple[int, int] | None:
    """The digests of the tree that follows, where the leader sends them: then it is exact."""
    data = packet.data or b""
    if len(data) != _SNAP.size or data[: len(_SNAP_MAGIC)] != _SNAP_MAGIC:
        return None
    _, digest, state_digest = _SNAP.unpack(data)
    return digest, state_digest


class LeaderState(NamedTuple):
    """The leader's tree after its last committed txn: Apache's digest, and ours."""

    zxid: Zxid
    digest: int
    shared_digest: int


def encode_up_to_date(state: LeaderState, said: bytes | None) -> QuorumPacket:
    """UPTODATE for a learner of our kind; `said`: what else it is sent (shared_secret.py)."""
    data = _STATE.pack(_STATE_MAGIC, *state) + (said or b"")
    return QuorumPacket(PacketType.UPTODATE.value, Zxid(-1), data)


def decode_leader_state(packet: QuorumPacket) -> LeaderState | None:
    """What the leader's tree is, where it sends that."""
    data = packet.data or b""
    if len(data) < _STATE.size or not data.startswith(_STATE_MAGIC):
        return None
    _, zxid, digest, shared_digest = _STATE.unpack_from(data)
    return LeaderState(Zxid(zxid), digest, shared_digest)


def decode_said(packet: QuorumPacket) -> bytes | None:
    """What a leader of our kind says beside the packet's own content."""
    data = packet.data
    if data is not None and data.startswith(_STATE_MAGIC):
        return data[_STATE.size :]
    return data


def _encode_identity(ensemble: str | None) -> bytes:
    return _IDENTITY.pack(_MAGIC, bytes.fromhex(ensemble) if ensemble else _NONE)


def _decode_stored(data: bytes) -> StoredIdentity | None:
    if len(data) < _STORED.size:
        return None
    identity, since = _STORED.unpack_from(data)
    return StoredIdentity(identity.hex(), since)


def _decode_identity(data: bytes) -> str | None:
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    if len(data) < _IDENTITY.size:
        raise MalformedRecord("an identity that is cut short", 0)
    identity = _IDENTITY.unpack_from(data)[1]
    return "" if identity == _NONE else identity.hex()
