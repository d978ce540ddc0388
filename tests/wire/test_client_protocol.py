"""Requests and replies against bytes that a real 3.9.5 sent and took."""

from __future__ import annotations

import pytest

from keepfast import wire
from keepfast.wire import (
    OPEN_ACL,
    ConnectRequest,
    ConnectResponse,
    CreateMode,
    CreateRequest,
    CreateResponse,
    EventType,
    MalformedRecord,
    OpCode,
    ReplyHeader,
    RequestHeader,
    SessionId,
    Stat,
    Xid,
    Zxid,
    decode,
    decode_reply,
    decode_request,
    encode,
    encode_event,
    encode_frame,
    encode_reply,
    session_password,
)

STAT = Stat(3, 3, 0x1A1DE7F1183, 0x1A1DE7F1183, 0, 0, 0, 0, 1, 0, 3)
STAT_BYTES = bytes.fromhex(
    "0000000000000003 0000000000000003 000001a1de7f1183 000001a1de7f1183"
    "00000000 00000000 00000000 0000000000000000 00000001 00000000 0000000000000003"
)
CREATE = CreateRequest("/a", b"hi", OPEN_ACL, CreateMode.PERSISTENT)
CREATE_FRAME = bytes.fromhex(
    "00000033 00000001 00000001 00000002 2f61 00000002 6869"
    "00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000"
)


def test_create_request_as_captured() -> None:
    header = RequestHeader(1, OpCode.CREATE)
    assert encode_frame(encode(header) + encode(CREATE)) == CREATE_FRAME
    assert decode(RequestHeader, CREATE_FRAME, 4) == header
    assert decode_request(OpCode.CREATE, CREATE_FRAME, 12) == CREATE


def test_create_reply_as_captured() -> None:
    frame = bytes.fromhex("00000016 00000001 0000000000000002 00000000 00000002 2f61")
    assert encode_reply(1, 2, 0, encode(CreateResponse("/a"))) == frame
    assert decode(ReplyHeader, frame, 4) == ReplyHeader(1, Zxid(2), 0)
    assert decode_reply(OpCode.CREATE, frame, 20) == CreateResponse("/a")


def test_whole_stat_as_captured() -> None:
    assert len(STAT_BYTES) == 68
    assert encode(STAT) == STAT_BYTES
    assert decode(Stat, STAT_BYTES) == STAT


def test_null_data_as_stored() -> None:
    request = wire.SetDataRequest("/nul", None, -1)
    assert encode(request) == bytes.fromhex("00000004 2f6e756c ffffffff ffffffff")
    assert decode_request(OpCode.SET_DATA, encode(request)) == request


def test_connect_as_captured() -> None:
    frame = bytes.fromhex(
        "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010"
        "00000000000000000000000000000000 00"
    )
    request = ConnectRequest(0, Zxid(0), 10000, SessionId(0), bytes(16), False)
    assert encode_frame(encode(request)) == frame
    assert decode(ConnectRequest, frame, 4) == request
    answer = bytes.fromhex(
        "00000025 00000000 00002710 01000010b3430000 000000109fc979dd40e42845157b7bc2898e2602 00"
    )
    session = SessionId(0x01000010B3430000)
    response = ConnectResponse(0, 10000, session, session_password(session), False)
    assert encode_frame(encode(response)) == answer
    assert decode(ConnectResponse, answer, 4) == response


def test_connect_without_the_read_only_byte() -> None:
    request = ConnectRequest(0, Zxid(0), 10000, SessionId(0), bytes(16))
    assert len(encode(request)) == 44
    assert decode(ConnectRequest, encode(request)).read_only is None
    response = ConnectResponse(0, 10000, SessionId(1), bytes(16))
    assert len(encode(response)) == 36
    assert decode(ConnectResponse, encode(response)).read_only is None


def test_event_as_captured() -> None:
    frame = bytes.fromhex(
        "0000001e ffffffff 0000000000000004 00000000 00000003 00000003 00000002 2f61"
    )
    assert encode_event(EventType.NODE_DATA_CHANGED, "/a", 4) == frame
    assert encode_event(EventType.NODE_DATA_CHANGED, "/a")[8:16] == b"\xff" * 8
    assert decode(ReplyHeader, frame, 4).xid == Xid.EVENT
    assert decode(wire.WatcherEvent, frame, 20) == wire.WatcherEvent(3, 3, "/a")


def test_error_reply__header_only() -> None:
    assert encode_reply(5, 9, -101) == bytes.fromhex("00000010 00000005 0000000000000009 ffffff9b")


def test_extra_bytes_behind_a_request_are_ignored() -> None:
    request = wire.GetDataRequest("/a", False)
    assert decode_request(OpCode.GET_DATA, encode(request) + b"more") == request


@pytest.mark.parametrize("type_", sorted(wire.REQUESTS))
def test_every_operation_with_a_body__decoded_by_its_number(type_: int) -> None:
    record = wire.REQUESTS[type_]
    with pytest.raises(MalformedRecord, match=record.__name__):
        decode_request(type_, b"")


@pytest.mark.parametrize("type_", sorted(wire.REPLIES))
def test_every_reply_with_a_body__decoded_by_its_number(type_: int) -> None:
    with pytest.raises(MalformedRecord, match="input ends"):
        decode_reply(type_, b"")


@pytest.mark.parametrize("type_", [OpCode.PING, OpCode.CLOSE_SESSION, OpCode.MULTI, 99, 0, 20])
def test_operation_without_a_body_of_its_own(type_: int) -> None:
    with pytest.raises(MalformedRecord, match=f"no request body is known for type {int(type_)}"):
        decode_request(type_, bytes(100), 8)
    with pytest.raises(MalformedRecord, match=f"no reply body is known for type {int(type_)}"):
        decode_reply(type_, bytes(100), 8)


def test_null_path__malformed() -> None:
    with pytest.raises(MalformedRecord, match=r"GetDataRequest\.path: null is not allowed"):
        decode_request(OpCode.GET_DATA, b"\xff\xff\xff\xff\0")


def test_password_depends_on_all_that_counts() -> None:
    assert session_password(0x01000010B3430000).hex() == "9fc979dd40e42845157b7bc2898e2602"
    assert session_password(0x01000010B3430001) != session_password(0x01000010B3430000)
    # The generator has 48 bits of state: the high 16 bits of the id do not reach it.
    assert session_password(0x02000010B3430000) == session_password(0x01000010B3430000)
    # Session ids are signed on the wire; both readings must give the same bytes.
    assert session_password(-1) == session_password(2**64 - 1)


def test_create_modes_say_what_they_are() -> None:
    ephemeral = {mode for mode in CreateMode if mode.is_ephemeral}
    sequential = {mode for mode in CreateMode if mode.is_sequential}
    assert ephemeral == {CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL}
    assert {int(mode) for mode in sequential} == {2, 3, 6}
    assert [mode for mode in CreateMode if mode.is_container] == [CreateMode.CONTAINER]
    assert {int(mode) for mode in CreateMode if mode.has_ttl} == {5, 6}
