"""multi and multiRead, requests and replies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast import wire
from keepfast.wire import (
    OPEN_ACL,
    ErrorCode,
    InvariantViolation,
    MalformedRecord,
    MultiOp,
    MultiResult,
    OpCode,
    Stat,
    decode_multi_reply,
    decode_multi_request,
    encode_multi_reply,
    encode_multi_request,
)
from tests.wire.record_table import attempt, records

STAT = Stat(3, 3, 5, 5, 0, 0, 0, 0, 1, 0, 3)
END = "ffffffff 01 ffffffff"

_WRITES = st.one_of(
    *(
        st.tuples(st.just(int(op)), records(record)).map(lambda pair: MultiOp(*pair))
        for op, record in [
            (OpCode.CREATE, wire.CreateRequest),
            (OpCode.CREATE2, wire.CreateRequest),
            (OpCode.CREATE_CONTAINER, wire.CreateRequest),
            (OpCode.CREATE_TTL, wire.CreateTTLRequest),
            (OpCode.DELETE, wire.DeleteRequest),
            (OpCode.SET_DATA, wire.SetDataRequest),
            (OpCode.CHECK, wire.CheckVersionRequest),
        ]
    )
)
_READS = st.one_of(
    *(
        st.tuples(st.just(int(op)), records(record)).map(lambda pair: MultiOp(*pair))
        for op, record in [
            (OpCode.GET_DATA, wire.GetDataRequest),
            (OpCode.GET_CHILDREN, wire.GetChildrenRequest),
        ]
    )
)


@given(st.lists(_WRITES, max_size=5).map(tuple), st.lists(_READS, max_size=5).map(tuple))
def test_request_round_trip(writes: tuple[MultiOp, ...], reads: tuple[MultiOp, ...]) -> None:
    assert decode_multi_request(OpCode.MULTI, encode_multi_request(writes)) == writes
    assert decode_multi_request(OpCode.MULTI_READ, b"?" + encode_multi_request(reads), 1) == reads


@given(st.binary(max_size=100), st.lists(_WRITES, max_size=2), st.integers(0, 200))
def test_arbitrary_bytes__an_error_with_an_offset(
    tail: bytes, ops: list[MultiOp], cut: int
) -> None:
    for raw in (tail, encode_multi_request(tuple(ops))[:-9][:cut] + tail):
        for type_ in (OpCode.MULTI, OpCode.MULTI_READ):
            result = attempt(decode_multi_request, type_, raw)
            assert not isinstance(result, MalformedRecord) or 0 <= result.offset <= len(raw)
        reply = attempt(decode_multi_reply, raw)
        assert not isinstance(reply, MalformedRecord) or 0 <= reply.offset <= len(raw)


def test_empty_multi_is_legal() -> None:
    assert encode_multi_request(()) == bytes.fromhex(END)
    assert decode_multi_request(OpCode.MULTI, bytes.fromhex(END)) == ()
    assert decode_multi_reply(encode_multi_reply(())) == ()


def test_request_layout() -> None:
    raw = encode_multi_request((MultiOp(OpCode.DELETE, wire.DeleteRequest("/a", -1)),))
    assert raw == bytes.fromhex(f"00000002 00 ffffffff 00000002 2f61 ffffffff {END}")


@pytest.mark.parametrize(
    ("type_", "op"),
    [
        (OpCode.MULTI, OpCode.GET_DATA),
        (OpCode.MULTI, OpCode.SET_ACL),
        (OpCode.MULTI, OpCode.MULTI),
        (OpCode.MULTI, OpCode.DELETE_CONTAINER),
        (OpCode.MULTI, 99),
        (OpCode.MULTI_READ, OpCode.CREATE),
        (OpCode.MULTI_READ, OpCode.EXISTS),
    ],
)
def test_operation_that_is_not_allowed__the_whole_request_is_malformed(type_: int, op: int) -> None:
    raw = wire.encode(wire.MultiHeader(op, False, -1)) + bytes(50)
    with pytest.raises(MalformedRecord, match=f"operation {int(op)} in a multi") as caught:
        decode_multi_request(type_, b"12345678" + raw, 8)
    assert caught.value.offset == 8


def test_type_that_is_no_multi__refused() -> None:
    with pytest.raises(MalformedRecord, match="type 1 is not a multi"):
        decode_multi_request(OpCode.CREATE, bytes.fromhex(END))


def test_missing_end__refused() -> None:
    raw = encode_multi_request((MultiOp(OpCode.DELETE, wire.DeleteRequest("/a", -1)),))
    with pytest.raises(MalformedRecord, match="MultiHeader: input ends"):
        decode_multi_request(OpCode.MULTI, raw[:-9])


def test_failed_multi_reply_as_captured() -> None:
    raw = bytes.fromhex(
        "ffffffff 00 00000000 00000000"
        "ffffffff 00 ffffff9b ffffff9b"
        "ffffffff 00 fffffffe fffffffe" + END
    )
    results = (
        MultiResult(OpCode.ERROR, None, ErrorCode.OK),
        MultiResult(OpCode.ERROR, None, ErrorCode.NO_NODE),
        MultiResult(OpCode.ERROR, None, ErrorCode.RUNTIME_INCONSISTENCY),
    )
    assert encode_multi_reply(results) == raw
    assert decode_multi_reply(raw) == results


def test_reply_with_all_kinds_of_results() -> None:
    results = (
        MultiResult(OpCode.CREATE, wire.CreateResponse("/a")),
        MultiResult(OpCode.CREATE2, wire.Create2Response("/b", STAT)),
        MultiResult(OpCode.DELETE),
        MultiResult(OpCode.CHECK),
        MultiResult(OpCode.SET_DATA, wire.SetDataResponse(STAT)),
        MultiResult(OpCode.GET_DATA, wire.GetDataResponse(None, STAT)),
        MultiResult(OpCode.GET_CHILDREN, wire.GetChildrenResponse(("x", "y"))),
        MultiResult(OpCode.ERROR, None, -101),
    )
    assert decode_multi_reply(encode_multi_reply(results)) == results


@pytest.mark.parametrize(
    "result",
    [
        MultiResult(OpCode.CREATE),
        MultiResult(OpCode.DELETE, wire.CreateResponse("/a")),
        MultiResult(OpCode.CREATE_TTL, wire.Create2Response("/a", STAT)),
        MultiResult(99),
    ],
    ids=str,
)
def test_result_that_no_client_understands__never_sent(result: MultiResult) -> None:
    with pytest.raises(InvariantViolation):
        encode_multi_reply((result,))


def test_reply_with_an_unknown_type__refused() -> None:
    with pytest.raises(MalformedRecord, match="result of type 99 in a multi at offset 0"):
        decode_multi_reply(wire.encode(wire.MultiHeader(99, False, 0)))


def test_acl_of_a_create_survives() -> None:
    op = MultiOp(OpCode.CREATE, wire.CreateRequest("/a", None, OPEN_ACL, 0))
    assert decode_multi_request(OpCode.MULTI, encode_multi_request((op,))) == (op,)
