"""Decodes writes, and answers those that cannot be decoded as Apache does.

A body that ends early, or that has a length which cannot be, is refused at once: it never becomes
a txn and uses up no zxid. A path that is null is noticed later, when the request is made into a
txn: its refusal is a txn. A multi is refused by a txn in either case.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, NamedTuple

from keepfast.tree import MAX_TTL_MS
from keepfast.wire import (
    CreateMode,
    CreateRequest,
    CreateTTLRequest,
    ErrorCode,
    KeeperError,
    MalformedRecord,
    MultiOp,
    MultiReader,
    OpCode,
    decode_multi_request,
    decode_request,
    encode_string,
    stated_acl_entries,
)

_MULTI: Final = OpCode.MULTI.value
# What is not one record.
_OWN_FORMS: Final = frozenset((_MULTI, OpCode.CLOSE_SESSION.value))
_NULL: Final = encode_string(None)
_EMPTY: Final = encode_string("")
# They check the path as a whole before its components.
_CHECKING: Final = frozenset((OpCode.SET_DATA.value, OpCode.SET_ACL.value))
# An entry of an ACL with empty texts.
_MIN_ENTRY_BYTES: Final = 12
# An operation of a multi: its header, and a path and a version.
_MIN_OPERATION_BYTES: Final = 17
_MODES: Final = {mode.value: mode for mode in CreateMode}


class UnreadableError(KeeperError):
    """A write that is refused without a txn."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.MARSHALLING_ERROR)


def refusal(op: int, payload: bytes, offset: int, max_field: int) -> KeeperError:
    """Why a write that cannot be decoded is refused."""
    if op == OpCode.MULTI:
        return KeeperError(ErrorCode.MARSHALLING_ERROR)
    start, end = offset, offset + len(_NULL)
    if payload[start:end] != _NULL:
        return UnreadableError()
    try:
        request = decode_request(op, payload[:start] + _EMPTY + payload[end:], offset, max_field)
    except MalformedRecord:
        return UnreadableError()
    if op in _CHECKING:
        return KeeperError(ErrorCode.BAD_ARGUMENTS, "null")
    if isinstance(request, CreateRequest | CreateTTLRequest):
        mode = _MODES.get(request.flags)
        if mode is None:
            return KeeperError(ErrorCode.BAD_ARGUMENTS, f"create flags {request.flags}")
        ttl = request.ttl if isinstance(request, CreateTTLRequest) else -1
        if mode.has_ttl and not 0 < ttl <= MAX_TTL_MS:
            return KeeperError(ErrorCode.BAD_ARGUMENTS, f"a TTL of {ttl} ms")
    return KeeperError(ErrorCode.MARSHALLING_ERROR)


def decode_write(op: int, payload: bytes, offset: int, max_field: int, max_acl_entries: int) -> Any:
    """What a write asks for; a KeeperError for what cannot be read, which is refused by a txn.

    A write with an ACL that is too long is refused before that is decoded: decoding takes long.
    """
    is_roomy = len(payload) - offset > max_acl_entries * _MIN_ENTRY_BYTES
    acls = _AclLength(payload, max_acl_entries) if is_roomy else None
    try:
        if op not in _OWN_FORMS:
            if acls is not None:
                acls(op, offset)
            return decode_request(op, payload, offset, max_field)
        return decode_multi_request(op, payload, offset, max_field, acls) if op == _MULTI else None
    except MalformedRecord:
        return refusal(op, payload, offset, max_field)
    except KeeperError as error:
        return error


def may_be_long_multi(size_bytes: int, operations: int) -> bool:
    """Whether the body of a multi has room for more than this many operations."""
    return size_bytes > operations * _MIN_OPERATION_BYTES


class LateMulti(NamedTuple):
    """A multi that may have very many operations: it is decoded in slices."""

    payload: bytes
    offset: int
    max_field: int
    max_acl_entries: int

    def decode(self, size: int) -> Generator[None, None, tuple[MultiOp, ...]]:
        """As `decode_write`, `size` operations in each step. Raises KeeperError."""
        payload, offset = self.payload, self.offset
        most = self.max_acl_entries
        is_roomy = len(payload) - offset > most * _MIN_ENTRY_BYTES
        check = _AclLength(payload, most) if is_roomy else None
        reader = MultiReader(_MULTI, payload, offset, self.max_field, check)
        try:
            while not reader.read(size):
                yield
        except MalformedRecord:
            raise refusal(_MULTI, payload, offset, self.max_field) from None
        return tuple(reader.ops)


class _AclLength:
    """Refuses a request that has an ACL of more entries than one may have.

    Needed only where there is room for one that is too long.
    """

    def __init__(self, payload: bytes, limit: int) -> None:
        self._payload = payload
        self._limit = limit

    def __call__(self, op: int, offset: int) -> None:
        if stated_acl_entries(op, self._payload, offset) > self._limit:
            raise KeeperError(ErrorCode.INVALID_ACL, "too many entries")
