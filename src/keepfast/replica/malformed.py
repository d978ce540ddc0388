"""Writes that cannot be decoded, and what Apache answers to them.

A body that ends early, or that has a length which cannot be, is refused at once: it never becomes
a txn and uses up no zxid. A path that is null is noticed later, by whoever makes a txn of the
request: its refusal is a txn. A multi is refused by a txn in either case.
"""

from __future__ import annotations

from typing import Final

from keepfast.tree import MAX_TTL_MS
from keepfast.wire import (
    CreateMode,
    CreateRequest,
    CreateTTLRequest,
    ErrorCode,
    KeeperError,
    MalformedRecord,
    OpCode,
    decode_request,
    encode_string,
)

_NULL: Final = encode_string(None)
_EMPTY: Final = encode_string("")
# They check the path as a whole before they look into it.
_CHECKING: Final = frozenset((OpCode.SET_DATA.value, OpCode.SET_ACL.value))
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
