"""Election connections: hellos and notifications, as captured, in all forms, and damaged."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.wire import (
    FrameParser,
    Hello,
    HelloForm,
    InvariantViolation,
    MalformedRecord,
    Notification,
    PeerState,
    ServerId,
    Zxid,
    decode_hello,
    decode_notification,
    encode_frame,
    encode_hello,
    encode_notification,
)
from keepfast.wire.election import MAX_NOTIFICATION_SIZE
from tests.wire.record_table import attempt

HELLOS = [
    (
        Hello(HelloForm.V1, ServerId(2), ("127.0.0.1:30732",)),
        bytes.fromhex("ffffffffffff0000 0000000000000002 0000000f") + b"127.0.0.1:30732",
    ),
    (
        Hello(HelloForm.V2, ServerId(1), ("127.0.0.2:30735", "127.0.0.1:30731")),
        bytes.fromhex("ffffffffffff0001 0000000000000001 0000001f")
        + b"127.0.0.2:30735|127.0.0.1:30731",
    ),
    (Hello(HelloForm.V34, ServerId(3)), bytes.fromhex("0000000000000003")),
]
VOTE = Notification(PeerState.LOOKING, ServerId(2), Zxid(0x500000003), 7, 5, 2, b"version=1")
LONGS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(("hello", "raw"), HELLOS)
def test_hello_as_captured(hello: Hello, raw: bytes) -> None:
    assert encode_hello(hello) == raw
    assert decode_hello(raw + b"what follows") == (hello, len(raw))
    for size in range(len(raw)):
        assert decode_hello(raw[:size]) is None


@pytest.mark.parametrize(
    ("raw", "reason", "offset"),
    [
        ("ffffffffffffffff", "unknown form -1", 0),
        ("fffffffffffeffff 0000000000000001", "unknown form -65537", 0),
        ("ffffffffffff0000 0000000000000001 00000000", "addresses of 0 bytes", 16),
        ("ffffffffffff0000 0000000000000001 00000801", "addresses of 2049 bytes", 16),
        ("ffffffffffff0001 0000000000000001 ffffffff", "addresses of -1 bytes", 16),
    ],
)
def test_malformed_hello(raw: str, reason: str, offset: int) -> None:
    with pytest.raises(MalformedRecord, match=reason) as caught:
        decode_hello(bytes.fromhex(raw))
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "hello",
    [
        Hello(HelloForm.V34, ServerId(3), ("a:1",)),
        Hello(HelloForm.V34, ServerId(-3)),
        Hello(HelloForm.V1, ServerId(3)),
        Hello(HelloForm.V1, ServerId(3), ("a:1", "b:2")),
        Hello(HelloForm.V2, ServerId(3), ("a" * 2049,)),
    ],
    ids=str,
)
def test_hello_that_nobody_could_read__never_sent(hello: Hello) -> None:
    with pytest.raises(InvariantViolation):
        encode_hello(hello)


def test_notification_layout() -> None:
    raw = encode_notification(VOTE)
    assert (
        raw
        == bytes.fromhex(
            "00000000 0000000000000002 0000000500000003 0000000000000007 0000000000000005"
            "00000002 00000009"
        )
        + b"version=1"
    )
    assert decode_notification(raw) == VOTE
    assert VOTE.leader_epoch == 5
    assert VOTE.format_version == 2


def test_notification_of_3_4__40_bytes() -> None:
    vote = VOTE._replace(version=1, config=None)
    raw = encode_notification(vote)
    assert len(raw) == 40
    assert decode_notification(raw) == vote
    assert vote.format_version == 0
    assert vote.leader_epoch == 5


def test_notification_before_3_4__28_bytes() -> None:
    vote = VOTE._replace(peer_epoch=None, version=None, config=None)
    raw = encode_notification(vote)
    assert len(raw) == 28
    assert decode_notification(raw) == vote
    assert vote.format_version == 0
    assert vote.leader_epoch == 5


def test_vote_of_an_observer() -> None:
    least = -(2**63)
    vote = VOTE._replace(
        state=PeerState.OBSERVING, leader=ServerId(least), zxid=Zxid(least), peer_epoch=least
    )
    assert encode_notification(vote)[4:20] == 2 * bytes.fromhex("8000000000000000")
    assert decode_notification(encode_notification(vote)) == vote


@given(st.integers(-(2**31), 2**31 - 1), LONGS, LONGS, LONGS, LONGS, st.binary(max_size=50))
def test_notification_round_trip(
    state: int, leader: int, zxid: int, election_epoch: int, peer_epoch: int, config: bytes
) -> None:
    vote = Notification(state, ServerId(leader), Zxid(zxid), election_epoch, peer_epoch, 2, config)
    assert decode_notification(encode_notification(vote)) == vote


@given(st.binary(max_size=80))
def test_arbitrary_bytes__an_error_with_an_offset(raw: bytes) -> None:
    for result in (attempt(decode_notification, raw), attempt(decode_hello, raw)):
        assert not isinstance(result, MalformedRecord) or 0 <= result.offset <= len(raw)


@pytest.mark.parametrize("size", [0, 27, 29, 36, 39, 41, 43])
def test_notification_of_no_known_length__dropped(size: int) -> None:
    with pytest.raises(MalformedRecord):
        decode_notification(encode_notification(VOTE)[:size])


@pytest.mark.parametrize("length", [-1, 10, 2**31 - 1])
def test_config_longer_than_the_notification__dropped(length: int) -> None:
    raw = encode_notification(VOTE)
    with pytest.raises(MalformedRecord, match=f"config of {length} bytes"):
        decode_notification(raw[:40] + struct.pack(">i", length) + raw[44:])


def test_bytes_behind_the_config_are_ignored() -> None:
    assert decode_notification(encode_notification(VOTE) + b"more") == VOTE


@pytest.mark.parametrize(
    "vote",
    [
        VOTE._replace(peer_epoch=None),
        VOTE._replace(version=None),
        VOTE._replace(version=1),
    ],
    ids=str,
)
def test_vote_in_no_known_form__never_sent(vote: Notification) -> None:
    with pytest.raises(InvariantViolation):
        encode_notification(vote)


def test_frame_of_an_election_connection() -> None:
    parser = FrameParser(MAX_NOTIFICATION_SIZE, 1)
    assert parser.feed(encode_frame(encode_notification(VOTE))) == [encode_notification(VOTE)]
    with pytest.raises(MalformedRecord, match="frame of 0 bytes; allowed are 1 to 524288"):
        parser.feed(bytes(4))
