"""multi and multiRead: several operations in one request, several results in one reply.

    request   { MultiHeader(type, false, -1), sub-request }*       MultiHeader(-1, true, -1)
    reply     { MultiHeader(type, false, err), result }*           MultiHeader(-1, true, -1)

A result that failed has type -1, and its code twice: in the header and as an ErrorResponse.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FIELD
from keepfast.wire.opcodes import OpCode
from keepfast.wire.records import Int, codec_of, encode
from keepfast.wire.replies import (
    Create2Response,
    CreateResponse,
    ErrorResponse,
    GetChildrenResponse,
    GetDataResponse,
    SetDataResponse,
)
from keepfast.wire.requests import (
    CheckVersionRequest,
    CreateRequest,
    CreateTTLRequest,
    DeleteRequest,
    GetChildrenRequest,
    GetDataRequest,
    SetDataRequest,
)


class MultiHeader(NamedTuple):
    """In front of each operation and each result, and once more at the end."""

    type: Int
    done: bool
    err: Int


SubRequest = (
    CreateRequest
    | CreateTTLRequest
    | DeleteRequest
    | SetDataRequest
    | CheckVersionRequest
    | GetDataRequest
    | GetChildrenRequest
)
SubResult = (
    CreateResponse | Create2Response | SetDataResponse | GetDataResponse | GetChildrenResponse
)


class MultiOp(NamedTuple):
    """One operation of a multi request."""

    type: int
    request: SubRequest


class MultiResult(NamedTuple):
    """One result of a multi reply. delete and check have no record; what failed has only `err`."""

    type: int
    result: SubResult | None = None
    err: int = 0


_WRITES: Final[dict[int, type[SubRequest]]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.DELETE: DeleteRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.CHECK: CheckVersionRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTTLRequest,
}
_READS: Final[dict[int, type[SubRequest]]] = {
    OpCode.GET_DATA: GetDataRequest,
    OpCode.GET_CHILDREN: GetChildrenRequest,
}
_ALLOWED: Final = {int(OpCode.MULTI): _WRITES, int(OpCode.MULTI_READ): _READS}
# createContainer and createTTL are answered as create2.
_RESULTS: Final[dict[int, type[SubResult] | None]] = {
    OpCode.CREATE: CreateResponse,
    OpCode.CREATE2: Create2Response,
    OpCode.SET_DATA: SetDataResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.GET_CHILDREN: GetChildrenResponse,
    OpCode.DELETE: None,
    OpCode.CHECK: None,
}
_HEADER: Final = codec_of(MultiHeader)
_ERROR: Final = codec_of(ErrorResponse)
_END: Final = _HEADER.encode(MultiHeader(OpCode.ERROR, True, -1))


def encode_multi_request(ops: tuple[MultiOp, ...]) -> bytes:
    """The body of a multi or multiRead request."""
    parts = []
    for op in ops:
        parts.append(_HEADER.encode(MultiHeader(op.type, False, -1)))
        parts.append(encode(op.request))
    return b"".join([*parts, _END])


def decode_multi_request(
    type_: int, data: bytes, offset: int = 0, max_field: int = DEFAULT_MAX_FIELD
) -> tuple[MultiOp, ...]:
    """The operations of a multi (14) or multiRead (22); bytes behind them are ignored.

    An operation that is not allowed there, a read in a multi for one, is malformed: it fails the
    whole request.
    """
    allowed = _ALLOWED.get(type_)
    if allowed is None:
        raise MalformedRecord(f"type {type_} is not a multi", offset)
    ops: list[MultiOp] = []
    end = len(data)
    while True:
        header, behind = _HEADER.unpack(data, offset, end, max_field)
        if header.done:
            return tuple(ops)
        request = allowed.get(header.type)
        if request is None:
            raise MalformedRecord(f"operation {header.type} in a multi of type {type_}", offset)
        body: SubRequest
        body, offset = codec_of(request).unpack(data, behind, end, max_field)
        ops.append(MultiOp(header.type, body))


def encode_multi_reply(results: tuple[MultiResult, ...]) -> bytes:
    """The body of the reply to a multi or multiRead."""
    parts = []
    for type_, result, err in results:
        parts.append(_HEADER.encode(MultiHeader(type_, False, err)))
        if type_ == OpCode.ERROR:
            parts.append(_ERROR.encode(ErrorResponse(err)))
            continue
        expected = _RESULTS.get(type_)
        if type_ not in _RESULTS or type(result) is not (expected or type(None)):
            raise InvariantViolation(f"a multi cannot answer type {type_} by {result}")
        if result is not None:
            parts.append(encode(result))
    return b"".join([*parts, _END])


def decode_multi_reply(data: bytes, offset: int = 0) -> tuple[MultiResult, ...]:
    """The results in a reply; bytes behind them are ignored."""
    results: list[MultiResult] = []
    end = len(data)
    while True:
        start = offset
        header, offset = _HEADER.unpack(data, offset, end, DEFAULT_MAX_FIELD)
        if header.done:
            return tuple(results)
        result: SubResult | None = None
        err = header.err
        if header.type == OpCode.ERROR:
            error, offset = _ERROR.unpack(data, offset, end, DEFAULT_MAX_FIELD)
            err = error.err
        elif header.type not in _RESULTS:
            raise MalformedRecord(f"result of type {header.type} in a multi", start)
        else:
            record = _RESULTS[header.type]
            if record is not None:
                result, offset = codec_of(record).unpack(data, offset, end, DEFAULT_MAX_FIELD)
        results.append(MultiResult(header.type, result, err))
