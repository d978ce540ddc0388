"""What servers send each other on election connections: who they are, and whom they vote for.

first, from the one who dials                    then, either way, in frames: a notification
3.4   sid:8                                      0   4  state, a PeerState
V1    -65536:8, sid:8, n:4, address              4   8  sid of the proposed leader
V2    -65535:8, sid:8, n:4, addresses            12  8  its zxid
                                                 20  8  election epoch: the round
An address is `host:port`, IPv6 hosts in         28  8  peer epoch: the leader's current epoch
brackets; V2 may list several, with `|`          36  4  version: 2 since 3.5, 1 since 3.4.6
between them.                                    40  4  length n of the config; since 3.5
                                                 44  n  config, as text
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.jute import decode_text, encode_text
from keepfast.wire.zxid import ServerId, Zxid, epoch_of

# Longest frame on an election connection, and longest text of addresses.
MAX_NOTIFICATION_SIZE: Final = 524288
MAX_ADDRESSES_SIZE: Final = 2048
NOTIFICATION_VERSION: Final = 2


class HelloForm(IntEnum):
    """The forms of a Hello; the values of V1 and V2 are those on the wire."""

    V34 = 0
    V1 = -65536
    V2 = -65535


class Hello(NamedTuple):
    """The first bytes on an election connection: the sender, and where it listens."""

    form: HelloForm
    server_id: ServerId
    addresses: tuple[str, ...] = ()


_LONG: Final = Struct(">q")
_HELLO: Final = Struct(">qqi")


def encode_hello(hello: Hello) -> bytes:
    """The bytes of a Hello; one that no server could read is a bug of ours."""
    form, server_id, addresses = hello
    if form is HelloForm.V34:
        if addresses or server_id < 0:
            raise InvariantViolation(f"not in the form of 3.4: {hello}")
        return _LONG.pack(server_id)
    text = encode_text("|".join(addresses))
    if not 1 <= len(text) <= MAX_ADDRESSES_SIZE or (form is HelloForm.V1 and len(addresses) != 1):
        raise InvariantViolation(f"not in the form of {form.name}: {hello}")
    return _HELLO.pack(form, server_id, len(text)) + text


def decode_hello(data: bytes) -> tuple[Hello, int] | None:
    """The Hello that `data` starts with and its size; None while bytes are missing."""
    if len(data) < _LONG.size:
        return None
    (first,) = _LONG.unpack_from(data)
    if first >= 0:
        return Hello(HelloForm.V34, first), _LONG.size
    if first not in (HelloForm.V1, HelloForm.V2):
        raise MalformedRecord(f"unknown form {first} of an election connection", 0)
    if len(data) < _HELLO.size:
        return None
    form, server_id, size = _HELLO.unpack_from(data)
    if not 1 <= size <= MAX_ADDRESSES_SIZE:
        raise MalformedRecord(f"addresses of {size} bytes", 16)
    stop = _HELLO.size + size
    if len(data) < stop:
        return None
    text = decode_text(data[_HELLO.size : stop])
    addresses = (text,) if form == HelloForm.V1 else tuple(text.split("|"))
    return Hello(HelloForm(form), server_id, addresses), stop


class Notification(NamedTuple):
    """A vote. Fields that the form of the sender lacks are None.

    `version` and `config` None: the form of 28 bytes, which also has no peer epoch, or of 40 bytes
    (3.4), whose version no server reads.
    """

    state: int
    leader: ServerId
    zxid: Zxid
    election_epoch: int
    peer_epoch: int | None
    version: int | None
    config: bytes | None

    @property
    def leader_epoch(self) -> int:
        """The peer epoch, or its substitute if the sender does not send it."""
        return epoch_of(self.zxid) if self.peer_epoch is None else self.peer_epoch

    @property
    def format_version(self) -> int:
        """As 3.5 and later interpret it: 0 for the short forms, whatever they contain."""
        return 0 if self.version is None or self.config is None else self.version


_VOTE: Final = Struct(">iqqq")
_VOTE_EPOCH: Final = Struct(">qi")
_INT: Final = Struct(">i")
_SIZE_28: Final = 28
_SIZE_40: Final = 40
_SIZE_44: Final = 44


def encode_notification(vote: Notification) -> bytes:
    """The payload of a frame, in the form implied by the fields that are not None."""
    data = _VOTE.pack(vote.state, vote.leader, vote.zxid, vote.election_epoch)
    if vote.peer_epoch is None:
        if vote.version is not None or vote.config is not None:
            raise InvariantViolation("a version, but no peer epoch in front of it")
        return data
    if vote.version is None:
        raise InvariantViolation("a peer epoch, but no version after it")
    data += _VOTE_EPOCH.pack(vote.peer_epoch, vote.version)
    if vote.config is None:
        return data
    if vote.version < NOTIFICATION_VERSION:
        raise InvariantViolation(f"a config in a notification of version {vote.version}")
    return data + _INT.pack(len(vote.config)) + vote.config


def decode_notification(data: bytes) -> Notification:
    """The vote in the payload of a frame. MalformedRecord: drop the notification."""
    size = len(data)
    if size < _SIZE_28 or _SIZE_28 < size < _SIZE_40:
        raise MalformedRecord(f"notification of {size} bytes", size)
    state, leader, zxid, election_epoch = _VOTE.unpack_from(data)
    if size == _SIZE_28:
        return Notification(state, leader, zxid, election_epoch, None, None, None)
    peer_epoch, version = _VOTE_EPOCH.unpack_from(data, _SIZE_28)
    config = None
    if size > _SIZE_40 and version >= NOTIFICATION_VERSION:
        if size < _SIZE_44:
            raise MalformedRecord("notification ends before the length of the config", _SIZE_40)
        (length,) = _INT.unpack_from(data, _SIZE_40)
        if not 0 <= length <= size - _SIZE_44:
            raise MalformedRecord(f"config of {length} bytes in {size}", _SIZE_40)
        config = data[_SIZE_44 : _SIZE_44 + length]
    return Notification(state, leader, zxid, election_epoch, peer_epoch, version, config)
