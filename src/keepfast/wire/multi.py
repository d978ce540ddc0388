"""multi and multiRead: several operations in one request, several results in one reply.

    request   { MultiHeader(type, false, -1), sub-request }*       MultiHeader(-1, true, -1)
    reply     { MultiHeader(type, false, err), result }*           MultiHeader(-1, true, -1)

A result that failed has type -1, and its code twice: in the header and as an ErrorResponse.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FIELD, ends_early
from keepfast.wire.opcodes import OpCode
from keepfast.wire.records import CodecTable, Int, codec_of, encode
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
    """Precedes each operation and each result, and ends the list."""

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
_Unpack = Callable[[bytes, int, int, int], tuple[Any, int]]
_ALLOWED: Final[dict[int, CodecTable[int, _Unpack]]] = {
    type_.value: CodecTable(records, lambda record: codec_of(record).unpack)
    for type_, records in ((OpCode.MULTI, _WRITES), (OpCode.MULTI_READ, _READS))
}
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
# Preformatted, without a record: there is one before each operation.
_header_at: Final = Struct(">i?i").unpack_from
_HEADER_SIZE: Final = 9
# The constructor of a NamedTuple takes twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__
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
    type_: int,
    data: bytes,
    offset: int = 0,
    max_field: int = DEFAULT_MAX_FIELD,
    check: Callable[[int, int], None] | None = None,
) -> tuple[MultiOp, ...]:
    """The operations of a multi (14) or multiRead (22); bytes after them are ignored.

    An operation that is not allowed there, such as a read in a multi, is malformed: it fails the
    whole request. `check` is given the type and offset of each operation before it is decoded, and
    may raise.
    """
    reader = MultiReader(type_, data, offset, max_field, check)
    while data and not reader.read(len(data)):
        pass
    return tuple(reader.ops)


# Bytes of a multi that are decoded in one call, up to about 10 ms.
_READ_AT_ONCE: Final = 64 << 10


class MultiReader:
    """Decodes a multi some operations at a time; see `decode_multi_request`."""

    __slots__ = ("_allowed", "_check", "_data", "_max_field", "_offset", "_type", "ops")

    def __init__(
        self,
        type_: int,
        data: bytes,
        offset: int,
        max_field: int,
        check: Callable[[int, int], None] | None,
    ) -> None:
        allowed = _ALLOWED.get(type_)
        if allowed is None:
            raise MalformedRecord(f"type {type_} is not a multi", offset)
        self._allowed = allowed
        self._type = type_
        self._data = data
        self._offset = offset
        self._max_field = max_field
        self._check = check
        # What was read so far.
        self.ops: list[MultiOp] = []

    def read(self, count: int) -> bool:
        """Read up to this many operations; True when there are no more. Raises MalformedRecord.

        Fewer, if they are long: lists of ACLs take as long to decode as many operations.
        """
        data, offset, check, max_field = self._data, self._offset, self._check, self._max_field
        ops, allowed = self.ops, self._allowed
        end, enough = len(data), offset + _READ_AT_ONCE
        for _ in range(count):
            if offset > enough:
                break
            if offset + _HEADER_SIZE > end:
                raise ends_early("MultiHeader", _HEADER_SIZE, offset, end)
            op, is_done, _ = _header_at(data, offset)
            if is_done:
                return True
            try:
                unpack = allowed[op]
            except KeyError:
                wrong = f"operation {op} in a multi of type {self._type}"
                raise MalformedRecord(wrong, offset) from None
            offset += _HEADER_SIZE
            if check is not None:
                check(op, offset)
            body, offset = unpack(data, offset, end, max_field)
            ops.append(_new_tuple(MultiOp, (op, body)))
        self._offset = offset
        return False


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
    """The results in a reply; bytes after them are ignored."""
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
