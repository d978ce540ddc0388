"""Transactions: what is proposed, logged and applied.

    entry of a log, and data of PROPOSAL and INFORM
    0     32   TxnHeader
    32    n    body; TxnHeader.type says which
    32+n  12   TxnDigest; written by 3.6+, and not for every txn

Nothing states how long the body is, so a reader assumes a digest if bytes remain. Three cases need
care, and each is decided by what no writer can have meant otherwise:

- create without parentCVersion (3.3): the input ends where it should be. No writer of digests wrote
  this form, so bytes at that place are always parentCVersion.
- closeSession without a body (3.5 and older, or switched off later): nothing after the header, or
  12 bytes that start with the digest version 2. As a list of paths these would be two strings in
  the space of their lengths, that is two empty paths, which no session can have created.
- leftover bytes: Java ignores them; here they are kept in `trailing`, so that an entry always
  encodes to the bytes that it came from.

Decoding is exact: an entry that would not encode back to the same bytes is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from struct import Struct
from typing import Any, Final, NamedTuple

from keepfast.wire.data import AclList
from keepfast.wire.errors import InvariantViolation, MalformedRecord
from keepfast.wire.jute import INT, ends_early
from keepfast.wire.opcodes import OpCode
from keepfast.wire.records import CodecTable, Int, Long, UnsignedLong, exact_codec_of
from keepfast.wire.zxid import SessionId, Zxid

DIGEST_VERSION: Final = 2


class TxnHeader(NamedTuple):
    """Who requested a txn, its zxid, when the leader created it, and what it does."""

    session_id: SessionId
    cxid: Int
    zxid: Zxid
    time_ms: Long
    type: Int


class TxnDigest(NamedTuple):
    """The digest of the tree once the txn is applied."""

    version: Int
    tree_digest: UnsignedLong


class CreateTxnV0(NamedTuple):
    """A create as 3.3 logged it; it increments the parent's cversion."""

    path: str
    data: bytes | None
    # The format allows null; only an old server that skips all ACL checks could log it.
    acl: AclList | None
    ephemeral: bool


class CreateTxn(NamedTuple):
    path: str
    data: bytes | None
    acl: AclList | None
    ephemeral: bool
    # The parent's persisted cversion after this create.
    parent_cversion: Int


class CreateTTLTxn(NamedTuple):
    path: str
    data: bytes | None
    acl: AclList | None
    parent_cversion: Int
    ttl: Long


class CreateContainerTxn(NamedTuple):
    path: str
    data: bytes | None
    acl: AclList | None
    parent_cversion: Int


class DeleteTxn(NamedTuple):
    path: str


class SetDataTxn(NamedTuple):
    """`version` is the resulting one."""

    path: str
    data: bytes | None
    version: Int


class CheckVersionTxn(NamedTuple):
    """Only inside a multi; `version` is one more than the znode's, and replay does not use it."""

    path: str
    version: Int


class SetACLTxn(NamedTuple):
    """`version` is the resulting aversion."""

    path: str
    acl: AclList | None
    version: Int


class CreateSessionTxn(NamedTuple):
    timeout_ms: Int


class CloseSessionTxn(NamedTuple):
    """The ephemerals that are deleted with the session.

    Before 3.6 a closeSession had no body at all: None in a LogEntry.
    """

    paths: tuple[str, ...] | None


class ErrorTxn(NamedTuple):
    """A write that failed. It changes nothing, but its zxid is used up."""

    err: Int


class SubTxn(NamedTuple):
    """One operation of a multi; `data` is the encoded body of its type."""

    type: Int
    data: bytes | None


class MultiTxn(NamedTuple):
    """If any operation is an ErrorTxn the whole multi failed, and nothing is applied."""

    txns: tuple[SubTxn, ...] | None


TxnBody = (
    CreateTxn
    | CreateTxnV0
    | CreateTTLTxn
    | CreateContainerTxn
    | DeleteTxn
    | SetDataTxn
    | CheckVersionTxn
    | SetACLTxn
    | CreateSessionTxn
    | CloseSessionTxn
    | ErrorTxn
    | MultiTxn
)


class LogEntry(NamedTuple):
    """One txn as it is proposed and logged."""

    header: TxnHeader
    # None: a closeSession without the list of its ephemerals.
    body: TxnBody | None
    digest: TxnDigest | None = None
    # Bytes after the last known field.
    trailing: bytes = b""


# Types that occur on their own in a log, and those that occur inside a multi.
_ENTRY_BODIES: Final[dict[int, type[TxnBody]]] = {
    OpCode.CREATE: CreateTxn,
    OpCode.CREATE2: CreateTxn,
    OpCode.CREATE_TTL: CreateTTLTxn,
    OpCode.CREATE_CONTAINER: CreateContainerTxn,
    OpCode.DELETE: DeleteTxn,
    OpCode.DELETE_CONTAINER: DeleteTxn,
    OpCode.SET_DATA: SetDataTxn,
    OpCode.RECONFIG: SetDataTxn,
    OpCode.SET_ACL: SetACLTxn,
    OpCode.CREATE_SESSION: CreateSessionTxn,
    OpCode.CLOSE_SESSION: CloseSessionTxn,
    OpCode.ERROR: ErrorTxn,
    OpCode.MULTI: MultiTxn,
}
_SUB_BODIES: Final[dict[int, type[TxnBody]]] = {
    OpCode.CREATE: CreateTxn,
    OpCode.CREATE2: CreateTxn,
    OpCode.CREATE_TTL: CreateTTLTxn,
    OpCode.CREATE_CONTAINER: CreateContainerTxn,
    OpCode.DELETE: DeleteTxn,
    OpCode.DELETE_CONTAINER: DeleteTxn,
    OpCode.SET_DATA: SetDataTxn,
    OpCode.CHECK: CheckVersionTxn,
    OpCode.ERROR: ErrorTxn,
}

_HEADER: Final = Struct(">qiqqi")
_DIGEST: Final = Struct(">iQ")
_CREATE: Final = OpCode.CREATE.value
_HEADER_SIZE: Final = 32
# The type of a txn is the last field of its header.
_TYPE_AT: Final = 28
_RECONFIG: Final = OpCode.RECONFIG.to_bytes(4, "big")
_DIGEST_SIZE: Final = 12
_ERROR_SIZE: Final = 4
# An operation of a failed multi that did not itself fail.
_NOT_TO_BLAME: Final = ErrorTxn(0)

_DIGEST_START: Final = DIGEST_VERSION.to_bytes(4, "big")

_Unpack = Callable[[bytes, int, int, int], tuple[Any, int]]
_ENTRY_UNPACK: Final[CodecTable[int, _Unpack]] = CodecTable(
    _ENTRY_BODIES, lambda body: exact_codec_of(body).unpack
)
_SUB_CODECS: Final = CodecTable(_SUB_BODIES, exact_codec_of)
_ENCODE: Final[CodecTable[type[Any], Callable[[Any], bytes]]] = CodecTable(
    {body: body for body in (*_ENTRY_BODIES.values(), *_SUB_BODIES.values(), CreateTxnV0)},
    lambda body: exact_codec_of(body).encode,
)
# A closeSession without a list.
_ENCODE[type(None)] = lambda _: b""


def _encode_multi(body: MultiTxn) -> bytes:
    """As the codec of MultiTxn does it, without a call for each operation."""
    txns = body.txns
    if txns is None:
        return _pack_int(-1)
    parts = [_pack_int(len(txns))]
    for type_, data in txns:
        if data is None:
            parts.append(_pack_sub_txn(type_, -1))
        else:
            parts += (_pack_sub_txn(type_, len(data)), data)
    return b"".join(parts)


_ENCODE[MultiTxn] = _encode_multi
# Bound once: on the hot path each attribute lookup shows.
_pack_header = _HEADER.pack
_pack_digest = _DIGEST.pack
_pack_int = Struct(">i").pack
# Type, and the length of the body after it.
_pack_sub_txn = Struct(">ii").pack
_unpack_header = _HEADER.unpack_from
_unpack_digest = _DIGEST.unpack_from
_new_tuple: Final[Callable[[type[Any], Any], Any]] = tuple.__new__


def _unpack_create(data: bytes, pos: int, end: int, limit: int) -> tuple[Any, int]:
    try:
        return _SUB_CODECS[_CREATE].unpack(data, pos, end, limit)
    except MalformedRecord as error:
        try:
            body, stop = exact_codec_of(CreateTxnV0).unpack(data, pos, end, limit)
        except MalformedRecord:
            raise error from None
        if end - stop >= 4:
            raise
        return body, stop


def _unpack_close_session(data: bytes, pos: int, end: int, limit: int) -> tuple[Any, int]:
    if pos == end or (end - pos == _DIGEST_SIZE and data.startswith(_DIGEST_START, pos)):
        return None, pos
    return exact_codec_of(CloseSessionTxn).unpack(data, pos, end, limit)


_ENTRY_UNPACK[OpCode.CREATE] = _unpack_create
_ENTRY_UNPACK[OpCode.CLOSE_SESSION] = _unpack_close_session


def decode_header(data: bytes) -> TxnHeader:
    """The header of an entry, without decoding the rest."""
    if len(data) < _HEADER_SIZE:
        raise ends_early("TxnHeader", _HEADER_SIZE, 0, len(data))
    header: TxnHeader = _new_tuple(TxnHeader, _unpack_header(data))
    return header


def is_reconfig(entry: bytes) -> bool:
    """Whether an entry changes the members, by the type in its header alone."""
    return entry[_TYPE_AT:_HEADER_SIZE] == _RECONFIG


def decode_entry(data: bytes, base_offset: int = 0) -> LogEntry:
    """The txn that `data` holds, from its first byte to its last.

    `encode_entry` returns exactly `data`. Raises MalformedRecord, with an offset that counts
    from `base_offset` (where `data` starts in its file). Fields are limited by the length of
    `data` alone: the caller has checked it against the limit in force.
    """
    try:
        end = len(data)
        if end < _HEADER_SIZE:
            raise ends_early("TxnHeader", _HEADER_SIZE, 0, end)
        header = _new_tuple(TxnHeader, _unpack_header(data))
        try:
            unpack_body = _ENTRY_UNPACK[header[4]]
        except KeyError:
            raise MalformedRecord(f"unknown txn type {header[4]}", _HEADER_SIZE - 4) from None
        body, pos = unpack_body(data, _HEADER_SIZE, end, end)
    except MalformedRecord as error:
        if base_offset == 0:
            raise
        raise MalformedRecord(error.reason, error.offset + base_offset) from None
    digest = None
    if end - pos >= _DIGEST_SIZE:
        digest = _new_tuple(TxnDigest, _unpack_digest(data, pos))
        pos += _DIGEST_SIZE
    entry: LogEntry = _new_tuple(LogEntry, (header, body, digest, data[pos:]))
    return entry


def encode_entry(entry: LogEntry) -> bytes:
    """The bytes of a txn, for a proposal or a log.

    An entry that `decode_entry` would read as something else is a bug of ours, and is rejected
    before it can reach a disk: InvariantViolation.
    """
    header, body, digest, trailing = entry
    body_class = type(body)
    if body_class is not _ENTRY_BODIES.get(header.type) or trailing or digest is None:
        _check_encodable(entry)
    try:
        start = _pack_header(*header) + _ENCODE[body_class](body)
        return start + (b"" if digest is None else _pack_digest(*digest)) + trailing
    except struct.error as error:
        raise InvariantViolation(f"{entry} cannot be encoded: {error}") from error


def encode_entry_in_slices(entry: LogEntry, size: int) -> Generator[None, None, bytes]:
    """The same of a multi or a session's end, `size` operations or paths at a time."""
    header, body, digest, trailing = entry
    if isinstance(body, MultiTxn | CloseSessionTxn) and body[0] is not None:
        items, encode_items = body[0], _ENCODE[type(body)]
        head = encode_entry(LogEntry(header, type(body)(()), None))
        parts = [head[: -INT.size], INT.pack(len(items))]
        for start in range(0, len(items), size):
            some: Any = items[start : start + size]
            parts.append(encode_items(type(body)(some))[INT.size :])
            yield
        if digest is not None:
            parts.append(_pack_digest(*digest))
        return b"".join((*parts, trailing))
    return encode_entry(entry)


def _check_encodable(entry: LogEntry) -> None:
    """Refuse an entry that would be read back as another one."""
    header, body, digest, trailing = entry
    zxid = f"txn {header.zxid:#x}"
    if digest is None and len(trailing) >= _DIGEST_SIZE:
        raise InvariantViolation(f"{zxid}: trailing bytes would be read as a digest")
    if body is None:
        if header.type != OpCode.CLOSE_SESSION:
            raise InvariantViolation(f"{zxid}: type {header.type} needs a body")
        if trailing or (digest is not None and digest.version != DIGEST_VERSION):
            raise InvariantViolation(f"{zxid}: the rest would be read as a list of paths")
    elif isinstance(body, CreateTxnV0):
        if header.type != OpCode.CREATE:
            raise InvariantViolation(f"{zxid}: type {header.type} with a {type(body).__name__}")
        if digest is not None or len(trailing) >= 4:
            raise InvariantViolation(f"{zxid}: the rest would be read as parentCVersion")
    elif type(body) is not _ENTRY_BODIES.get(header.type):
        raise InvariantViolation(f"{zxid}: type {header.type} with a {type(body).__name__}")
    elif body == CloseSessionTxn(("", "")) and digest is None and not trailing:
        raise InvariantViolation(f"{zxid}: two empty paths would be read as a digest")


def decode_txn_body(type_: int, data: bytes | None) -> TxnBody:
    """The body of one operation of a multi.

    Bytes after it are rejected: unlike in a LogEntry, there would be no trace of them.

    An error with the body of another operation is ErrorTxn(0). Apache servers log these, see
    `canonical_entry`.
    """
    try:
        codec = _SUB_CODECS[type_]
    except KeyError:
        raise MalformedRecord(f"txn type {type_} inside a multi", 0) from None
    if data is None:
        raise MalformedRecord(f"no body for txn type {type_} inside a multi", 0)
    if type_ == OpCode.ERROR and len(data) != _ERROR_SIZE:
        _check_any_body(data)
        return _NOT_TO_BLAME
    body: TxnBody = codec.decode_all(data, max_field=len(data))
    return body


def _check_any_body(data: bytes) -> None:
    for type_ in _SUB_BODIES:
        if type_ != OpCode.ERROR:
            try:
                _SUB_CODECS[type_].decode_all(data, max_field=len(data))
            except MalformedRecord:
                continue
            return
    raise MalformedRecord("an error inside a multi whose body is of no known kind", 0)


def has_failed(body: MultiTxn) -> bool:
    """Whether a multi failed: it is in the log, but nothing of it is applied."""
    return any(sub.type == OpCode.ERROR for sub in body.txns or ())


def canonical_entry(entry: LogEntry) -> LogEntry:
    """The same entry for all servers that agree, even where Apache's own logs differ.

    In a failed multi, the operations before the one that failed are proposed with their real type
    and body. When Apache's DataTree applies the multi it overwrites their type with -1 (error) and
    leaves the body, in the very object that is encoded again later: a learner that gets the multi
    by DIFF logs the second form, and so may the leader itself if it applies before it logs. So
    healthy servers of one ensemble hold either form under one zxid. Here all operations but the
    failed ones become ErrorTxn(0), which is what a client is sent about them.
    """
    body = entry.body
    if not isinstance(body, MultiTxn) or body.txns is None or not has_failed(body):
        return entry
    is_error = [
        sub.type == OpCode.ERROR and sub.data is not None and len(sub.data) == _ERROR_SIZE
        for sub in body.txns
    ]
    not_to_blame = SubTxn(OpCode.ERROR, encode_txn_body(_NOT_TO_BLAME))
    subs = tuple(sub if is_error[index] else not_to_blame for index, sub in enumerate(body.txns))
    return entry._replace(body=MultiTxn(subs))


def encode_txn_body(body: TxnBody) -> bytes:
    """The bytes of a body alone, as a multi holds them."""
    return _ENCODE[type(body)](body)
