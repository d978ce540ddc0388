"""Packets between leader and learner: QuorumPacket, what it carries, and the parser of the stream.

    QuorumPacket
    0     4   type, a PacketType
    4     8   zxid
    12    4   length n of data; -1 is null
    16    n   data; its form depends on the type
    16+n  4   number of ids; -1 is null, as in all packets but REQUEST
    …         ids: scheme and id, two strings each

Packets follow each other without frames: only their own fields show where one ends. A SNAP packet
is followed by a tree in the form of a snapshot, which does not state its length either; the reader
of the tree knows where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import Struct
from typing import Annotated, Any, Final, NamedTuple

from keepfast.wire.data import Id
from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FIELD, INT, bad_length
from keepfast.wire.opcodes import PacketType
from keepfast.wire.records import AT_END, Int, Long, codec_of
from keepfast.wire.zxid import ServerId, SessionId, Zxid

# The protocol version that LearnerInfo and LEADERINFO carry since 3.4.
PROTOCOL_VERSION: Final = 0x10000
QUORUM_AUTH_MAGIC: Final = 0x5F2435013501EDCC


class QuorumPacket(NamedTuple):
    type: Int
    zxid: Zxid
    data: bytes | None = None
    authinfo: tuple[Id, ...] | None = None


class LearnerInfo(NamedTuple):
    """Data of FOLLOWERINFO and OBSERVERINFO. 20 bytes; 12 from 3.4, without the config version."""

    server_id: ServerId
    protocol_version: Int
    config_version: Annotated[Long | None, AT_END] = None


class QuorumAuthPacket(NamedTuple):
    """One step of a SASL exchange between servers; `status` 0 continues, 1 success, -1 error."""

    magic: Long
    status: Int
    token: bytes | None


class RevalidateRequest(NamedTuple):
    """Data of REVALIDATE from a learner: a client has come back to it."""

    session_id: SessionId
    timeout_ms: Int


class RevalidateReply(NamedTuple):
    """Data of REVALIDATE from the leader."""

    session_id: SessionId
    is_valid: bool


class ForwardedRequest(NamedTuple):
    """Data of REQUEST: a client's request, with its body unchanged."""

    session_id: SessionId
    cxid: int
    type: int
    body: bytes


class TouchedSession(NamedTuple):
    """Data of a learner's PING is any number of these: sessions heard of since the last one."""

    session_id: SessionId
    timeout_ms: Int


_FORWARDED: Final = Struct(">qii")
_TOUCHED: Final = Struct(">qi")
_PACKET: Final = codec_of(QuorumPacket)
_PACKET_HEAD: Final = Struct(">iqi")
_PACKET_HEAD_SIZE: Final = 16
_head_at: Final = _PACKET_HEAD.unpack_from
_NO_IDS: Final = b"\xff\xff\xff\xff"
# Head of a packet and of the request in it. Ids are the same for all requests of a client.
_pack_request: Final = Struct(">iqiqii").pack
_REMEMBERED_IDS: Final = 4096
_SNAP: Final = PacketType.SNAP.value
_REQUEST: Final = PacketType.REQUEST.value
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__
_MIN_PACKET_SIZE: Final = 20
# Longer ones are decoded each time, and not cached.
_SHORT_IDS: Final = 4096
# Two empty strings.
_MIN_ID_SIZE: Final = 8


def encode_request_packet(
    session_id: SessionId, cxid: int, type_: int, body: bytes, ids: tuple[Id, ...] | None
) -> bytes:
    """A whole REQUEST packet: what a learner sends for each write of its clients."""
    size = _FORWARDED.size + len(body)
    head = _pack_request(_REQUEST, -1, size, session_id, cxid, type_)
    return head + body + (_NO_IDS if ids is None else _encode_ids(ids))


@lru_cache(_REMEMBERED_IDS)
def _encode_ids(ids: tuple[Id, ...]) -> bytes:
    return INT.pack(len(ids)) + b"".join(map(codec_of(Id).encode, ids))


def decode_forwarded_request(data: bytes) -> ForwardedRequest:
    if len(data) < _FORWARDED.size:
        raise MalformedRecord(f"forwarded request of {len(data)} bytes", 0)
    session_id, cxid, type_ = _FORWARDED.unpack_from(data)
    return ForwardedRequest(session_id, cxid, type_, data[_FORWARDED.size :])


def encode_touched_sessions(sessions: Iterable[TouchedSession]) -> bytes:
    return b"".join(_TOUCHED.pack(*session) for session in sessions)


def decode_touched_sessions(data: bytes) -> list[TouchedSession]:
    whole = len(data) - len(data) % _TOUCHED.size
    if whole != len(data):
        raise MalformedRecord("the table of sessions ends inside an entry", whole)
    return [TouchedSession(*session) for session in _TOUCHED.iter_unpack(data)]


class PacketParser:
    """Cuts the stream of one connection into packets.

    Holds at most one incomplete packet, and its size is limited: `max_field` for the data, and
    as much again for the ids. Malformed input raises MalformedRecord, with an offset that counts
    from the start of the stream; the connection is then unusable.

    After a SNAP packet the parser stops (`is_raw`): all further bytes are kept for `take_raw`,
    until `resume` is called with those after the tree.
    """

    __slots__ = ("_chunks", "_have", "_last_ids", "_needed", "_offset", "is_raw", "max_field")

    def __init__(self, max_field: int = DEFAULT_MAX_FIELD) -> None:
        self.max_field = max_field
        self.is_raw = False
        self._chunks: list[bytes] = []
        self._have = 0
        # Below this many bytes there is no point in looking: a long packet that arrives
        # in small pieces would be copied and scanned once for each piece.
        self._needed = _MIN_PACKET_SIZE
        self._offset = 0
        # The ids of the last REQUEST, encoded and decoded.
        self._last_ids: tuple[bytes, tuple[Id, ...] | None] = (_NO_IDS, None)

    def feed(self, data: bytes) -> list[QuorumPacket]:
        """The packets that are complete now, in order; a SNAP can only be the last of them."""
        self._chunks.append(data)
        self._have += len(data)
        if self.is_raw or self._have < self._needed:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        packets: list[QuorumPacket] = []
        pos, end, max_field = 0, len(buffer), self.max_field
        while True:
            if end - pos >= _MIN_PACKET_SIZE:
                # Most packets have no ids, or the previous packet's: these are parsed by hand.
                type_, zxid, length = _head_at(buffer, pos)
                start = pos + _PACKET_HEAD_SIZE
                stop = start + length if length > 0 else start
                raw, ids = (_NO_IDS, None) if type_ != _REQUEST else self._last_ids
                if buffer.startswith(raw, stop) and -1 <= length <= max_field and type_ != _SNAP:
                    content = buffer[start:stop] if length >= 0 else None
                    packets.append(_new_tuple(QuorumPacket, (type_, zxid, content, ids)))
                    pos = stop + len(raw)
                    continue
            try:
                size = self._size(buffer, pos, end)
                if size > end - pos:
                    break
                packet, pos = _PACKET.unpack(buffer, pos, end, max_field)
            except MalformedRecord as error:
                raise MalformedRecord(error.reason, error.offset + self._offset) from None
            packets.append(packet)
            if packet.type == _REQUEST and pos - stop <= _SHORT_IDS:
                self._last_ids = buffer[stop:pos], packet.authinfo
            if packet.type == PacketType.SNAP:
                self.is_raw = True
                size = _MIN_PACKET_SIZE
                break
        self._needed = size
        self._offset += pos
        self._chunks = [buffer[pos:]] if pos < end else []
        self._have = end - pos
        return packets

    def take_raw(self) -> bytes:
        """The bytes after a SNAP packet that came since the last call."""
        if not self.is_raw:
            raise InvariantViolation("raw bytes are there only after a SNAP packet")
        raw = b"".join(self._chunks)
        self._chunks = []
        self._have = 0
        self._offset += len(raw)
        return raw

    def resume(self, rest: bytes) -> list[QuorumPacket]:
        """Continue with packets: `rest` is what `take_raw` gave beyond the end of the tree."""
        untaken = self.take_raw()
        self.is_raw = False
        self._offset -= len(rest) + len(untaken)
        return self.feed(rest + untaken)

    def _size(self, buffer: bytes, pos: int, end: int) -> int:
        """The size of the packet at `pos`; or, while it is unknown, more than is available."""
        if end - pos < _MIN_PACKET_SIZE:
            return _MIN_PACKET_SIZE
        length: int = _PACKET_HEAD.unpack_from(buffer, pos)[2]
        if length < -1 or length > self.max_field:
            raise bad_length("QuorumPacket.data", length, pos + 12, end, self.max_field)
        ids = pos + _PACKET_HEAD_SIZE + max(length, 0)
        if ids + 4 > end:
            return ids + 4 - pos
        (count,) = INT.unpack_from(buffer, ids)
        if count < -1 or count * _MIN_ID_SIZE > self.max_field:
            raise MalformedRecord(f"QuorumPacket.authinfo: unreasonable count {count}", ids)
        at = ids + 4
        for strings_left in range(2 * max(count, 0), 0, -1):
            stop = at + 4 * strings_left
            if stop > end:
                return stop - pos
            (length,) = INT.unpack_from(buffer, at)
            if length < 0 or at + 4 + length - ids > self.max_field:
                raise bad_length("QuorumPacket.authinfo", length, at, end, self.max_field)
            at += 4 + length
        return at - pos
