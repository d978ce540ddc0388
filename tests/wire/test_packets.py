"""Quorum packets as captured between real servers, and the parser of their stream."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import (
    ForwardedRequest,
    Id,
    InvariantViolation,
    LearnerInfo,
    MalformedRecord,
    OpCode,
    PacketParser,
    PacketType,
    QuorumPacket,
    ServerId,
    SessionId,
    TouchedSession,
    Zxid,
)
from tests.wire.record_table import attempt, records

SESSION = SessionId(0x01000014AE3C0000)
CAPTURES = {
    "commit": (
        QuorumPacket(PacketType.COMMIT, Zxid(0x100000001)),
        "00000004 0000000100000001 ffffffff ffffffff",
    ),
    "followerinfo": (
        QuorumPacket(
            PacketType.FOLLOWERINFO, Zxid(0), wire.encode(LearnerInfo(ServerId(1), 0x10000, 0))
        ),
        "0000000b 0000000000000000 00000014 0000000000000001 00010000 0000000000000000 ffffffff",
    ),
    "leaderinfo": (
        QuorumPacket(PacketType.LEADERINFO, Zxid(1 << 32), wire.encode_int(wire.PROTOCOL_VERSION)),
        "00000011 0000000100000000 00000004 00010000 ffffffff",
    ),
    "ackepoch": (
        QuorumPacket(PacketType.ACKEPOCH, Zxid(0), wire.encode_int(0)),
        "00000012 0000000000000000 00000004 00000000 ffffffff",
    ),
    "diff": (QuorumPacket(PacketType.DIFF, Zxid(0)), "0000000d 0000000000000000 ffffffff ffffffff"),
    "uptodate": (
        QuorumPacket(PacketType.UPTODATE, Zxid(-1)),
        "0000000c ffffffffffffffff ffffffff ffffffff",
    ),
    "ack": (
        QuorumPacket(PacketType.ACK, Zxid(1 << 32)),
        "00000003 0000000100000000 ffffffff ffffffff",
    ),
    "ping reply": (
        QuorumPacket(
            PacketType.PING,
            Zxid(0x10000000A),
            wire.encode_touched_sessions([TouchedSession(SESSION, 8000)] * 3),
        ),
        "00000005 000000010000000a 00000024" + 3 * "01000014ae3c000000001f40" + "ffffffff",
    ),
    "commitandactivate": (
        QuorumPacket(PacketType.COMMITANDACTIVATE, Zxid(0x200000004), wire.encode_long(3)),
        "00000009 0000000200000004 00000008 0000000000000003 ffffffff",
    ),
}
PACKETS = st.lists(records(wire.QuorumPacket), max_size=6)


@pytest.mark.parametrize(("packet", "raw"), CAPTURES.values(), ids=CAPTURES)
def test_packet_as_captured(packet: QuorumPacket, raw: str) -> None:
    assert wire.encode(packet) == bytes.fromhex(raw)
    assert PacketParser().feed(bytes.fromhex(raw)) == [packet]


def test_learner_info_of_3_4__12_bytes() -> None:
    info = LearnerInfo(ServerId(3), 0x10000)
    raw = bytes.fromhex("0000000000000003 00010000")
    assert wire.encode(info) == raw
    assert wire.decode(LearnerInfo, raw) == info
    with pytest.raises(MalformedRecord, match=r"LearnerInfo\.config_version"):
        wire.decode(LearnerInfo, raw + b"\0")


def test_revalidate_as_captured() -> None:
    request = wire.RevalidateRequest(SESSION, 8000)
    assert wire.encode(request) == bytes.fromhex("01000014ae3c0000 00001f40")
    assert wire.encode(wire.RevalidateReply(SESSION, True)) == bytes.fromhex("01000014ae3c0000 01")


def test_quorum_auth_magic() -> None:
    packet = wire.QuorumAuthPacket(wire.QUORUM_AUTH_MAGIC, 0, None)
    assert wire.encode(packet) == bytes.fromhex("5f24350135 01edcc 00000000 ffffffff")


def test_forwarded_request() -> None:
    raw = bytes.fromhex("01000014ae3c0000 00000005 fffffff6 00001f40")
    request = ForwardedRequest(SESSION, 5, OpCode.CREATE_SESSION, b"\0\0\x1f\x40")
    assert wire.decode_forwarded_request(raw) == request
    for size in range(16):
        with pytest.raises(MalformedRecord, match=f"of {size} bytes"):
            wire.decode_forwarded_request(raw[:size])


def test_touched_sessions() -> None:
    sessions = [TouchedSession(SessionId(n), 1000 * n) for n in range(4)]
    raw = wire.encode_touched_sessions(sessions)
    assert wire.decode_touched_sessions(raw) == sessions
    assert wire.decode_touched_sessions(b"") == []
    with pytest.raises(MalformedRecord, match="ends inside an entry at offset 36"):
        wire.decode_touched_sessions(raw[:-1])


@given(PACKETS, st.data())
def test_stream_cut_anywhere__the_same_packets(
    packets: list[QuorumPacket], data: st.DataObject
) -> None:
    packets = [p for p in packets if p.type != PacketType.SNAP]
    stream = b"".join(map(wire.encode, packets))
    parser = PacketParser()
    seen: list[QuorumPacket] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        seen += parser.feed(stream[:size])
        stream = stream[size:]
    assert seen == packets


def test_stream_byte_by_byte__each_packet_with_its_last_byte() -> None:
    packet = QuorumPacket(
        PacketType.REQUEST, Zxid(-1), b"data", (Id("ip", "127.0.0.1"), Id("", ""))
    )
    stream = wire.encode(packet) * 2
    parser = PacketParser()
    completed = [n for n in range(len(stream)) if parser.feed(stream[n : n + 1])]
    assert completed == [len(stream) // 2 - 1, len(stream) - 1]


@given(st.binary(max_size=200), PACKETS, st.integers(1, 50))
@settings(max_examples=200)
def test_arbitrary_bytes__an_error_with_an_offset(
    tail: bytes, packets: list[QuorumPacket], step: int
) -> None:
    stream = b"".join(map(wire.encode, packets[:2])) + tail
    parser = PacketParser(max_field=1000)
    for start in range(0, len(stream), step):
        result = attempt(parser.feed, stream[start : start + step])
        if isinstance(result, MalformedRecord):
            assert 0 <= result.offset <= len(stream)
            return


@pytest.mark.parametrize(
    ("raw", "reason", "offset"),
    [
        ("00000002 0000000000000001 fffffffe ffffffff", "unreasonable length -2", 12),
        ("00000002 0000000000000001 000003e9 00000000", "length 1001 exceeds the limit", 12),
        ("00000002 0000000000000001 ffffffff fffffffe", "unreasonable count -2", 16),
        ("00000002 0000000000000001 ffffffff 7fffffff", "unreasonable count 2147483647", 16),
        ("00000002 0000000000000001 ffffffff 00000001 ffffffff 00000000", "null", 20),
        ("00000002 0000000000000001 ffffffff 00000001 000003e9 00000000", "limit 1000", 20),
    ],
)
def test_malformed_packet__refused_as_soon_as_it_shows(raw: str, reason: str, offset: int) -> None:
    good = wire.encode(QuorumPacket(PacketType.ACK, Zxid(1)))
    parser = PacketParser(max_field=1000)
    assert len(parser.feed(good)) == 1
    with pytest.raises(MalformedRecord, match=reason) as caught:
        parser.feed(bytes.fromhex(raw))
    assert caught.value.offset == len(good) + offset


def test_ids_without_end__refused_at_the_limit() -> None:
    head = bytes.fromhex("00000001 ffffffffffffffff ffffffff 00000064")
    parser = PacketParser(max_field=1000)
    assert parser.feed(head) == []
    name = wire.encode(Id("x" * 400, "y" * 400))
    assert parser.feed(name) == []
    with pytest.raises(MalformedRecord, match="authinfo"):
        parser.feed(name)


def test_snap__the_parser_stands_still_until_the_tree_is_read() -> None:
    snap = QuorumPacket(PacketType.SNAP, Zxid(9))
    newleader = QuorumPacket(PacketType.NEWLEADER, Zxid(1 << 32))
    uptodate = QuorumPacket(PacketType.UPTODATE, Zxid(-1))
    parser = PacketParser()
    assert parser.feed(wire.encode(newleader) + wire.encode(snap) + b"tr") == [newleader, snap]
    assert parser.is_raw
    assert parser.feed(b"ee") == []
    assert parser.take_raw() == b"tree"
    assert parser.feed(b"tree" + wire.encode(newleader)) == []
    raw = parser.take_raw()
    assert parser.feed(wire.encode(uptodate)[:7]) == []
    assert parser.resume(raw[4:]) == [newleader]
    assert parser.feed(wire.encode(uptodate)[7:]) == [uptodate]
    with pytest.raises(MalformedRecord) as caught:
        parser.feed(bytes.fromhex("00000002 0000000000000001 fffffffe ffffffff"))
    assert caught.value.offset == 20 + 20 + 8 + 20 + 20 + 12


def test_raw_bytes_without_a_snap__our_own_bug() -> None:
    with pytest.raises(InvariantViolation):
        PacketParser().take_raw()


def test_long_packet_in_small_pieces__scanned_once() -> None:
    packet = QuorumPacket(PacketType.PROPOSAL, Zxid(5), bytes(2_000_000))
    stream = wire.encode(packet)
    parser = PacketParser()
    seen: list[QuorumPacket] = []
    # Joined again for each piece this would copy 30 GB.
    for start in range(0, len(stream), 64):
        seen += parser.feed(stream[start : start + 64])
    assert seen == [packet]


def test_requests_of_several_clients__each_has_its_own_ids_however_the_stream_is_cut() -> None:
    ip, bob = Id("ip", "127.0.0.1"), Id("digest", "bob:x")
    callers = [(ip,), (ip,), (ip, bob), (ip,), None, (), (bob,), (ip, bob), (ip, bob)]
    sent = [
        QuorumPacket(
            PacketType.REQUEST.value,
            Zxid(-1),
            struct.pack(">qii", 7, cxid, 5) + b"body",
            ids,
        )
        for cxid, ids in enumerate(callers)
    ]
    stream = b"".join(
        wire.encode_request_packet(SessionId(7), cxid, 5, b"body", ids)
        for cxid, ids in enumerate(callers)
    )
    assert stream == b"".join(map(wire.encode, sent))
    for size in range(1, len(stream) + 1):
        parser = PacketParser()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [packet for piece in pieces for packet in parser.feed(piece)] == sent
