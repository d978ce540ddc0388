"""Random logs with every kind of record, and the rows that `wire` makes of them."""

from __future__ import annotations

import random
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

from keepfast.pipeline.decode.ops import OP_NAMES
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    READ_ACL,
    AclList,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    Id,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetACLTxn,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_entry,
    decode_header,
    decode_txn_body,
    encode_entry,
    encode_txn_body,
    make_zxid,
)

LOG_HEADER = b"ZKLG\0\0\0\2" + bytes(8)
_FRAME = struct.Struct(">qi")
_START = datetime(1970, 1, 1, tzinfo=UTC)
_PATHS = ("/a", "/b/c", "/é/日本", "/" + "long" * 60, "/x\U0001f600y")
_ACLS: tuple[AclList | None, ...] = (
    OPEN_ACL,
    READ_ACL,
    (),
    None,
    (ACL(3, Id("digest", "me:\U0001f511")), ACL(31, Id("world", "anyone"))),
)


def frame(entry: bytes) -> bytes:
    """A whole record."""
    return _FRAME.pack(zlib.adler32(entry), len(entry)) + entry + b"B"


def log_of(entries: list[bytes], padding: int = 0) -> bytes:
    """A log file."""
    return LOG_HEADER + b"".join(map(frame, entries)) + bytes(padding)


def entry(
    zxid: int, type_: int, body: TxnBody | None, digest: int | None = None, trailing: bytes = b""
) -> bytes:
    """An encoded txn."""
    header = TxnHeader(SessionId(0x1000 + zxid), zxid & 0xFF, Zxid(zxid), 1_790_000_000_123, type_)
    sealed = None if digest is None else TxnDigest(2, digest)
    return encode_entry(LogEntry(header, body, sealed, trailing))


def random_entries(seed: int, count: int) -> list[bytes]:
    """Txns of all kinds in the order of their zxids, some in forms that only old servers wrote."""
    choose = random.Random(seed)
    result = []
    for number in range(1, count + 1):
        zxid = make_zxid(1 + number // 40, 1 + number % 40)
        type_, body = _random_body(choose)
        digest = choose.getrandbits(64) if choose.random() < 0.8 else None
        if isinstance(body, CreateTxnV0) or (body is None and choose.random() < 0.5):
            digest = None
        trailing = (
            b"\1\2\3" if digest is not None and body is not None and number % 50 == 7 else b""
        )
        result.append(entry(zxid, type_, body, digest, trailing))
        if number % 45 == 9:
            # A body that is no body, sound in every other way.
            result.append(result[-1][:28] + struct.pack(">i", 99) + b"nonsense")
        if number % 31 == 5:
            result.append(entry(zxid, OpCode.ERROR, ErrorTxn(-5)))
    return result


def _random_body(choose: random.Random) -> tuple[int, TxnBody | None]:
    path = choose.choice(_PATHS)
    data = choose.choice((None, b"", b"x", choose.randbytes(choose.randrange(200))))
    acl = choose.choice(_ACLS)
    number = choose.randrange(-2, 1 << 31)
    bodies: list[tuple[int, TxnBody | None]] = [
        (OpCode.CREATE, CreateTxn(path, data, acl, choose.random() < 0.5, number)),
        (OpCode.CREATE2, CreateTxn(path, data, acl, False, number)),
        (OpCode.CREATE, CreateTxnV0(path, data, acl, True)),
        (OpCode.CREATE_CONTAINER, CreateContainerTxn(path, data, acl, number)),
        (OpCode.CREATE_TTL, CreateTTLTxn(path, data, acl, number, 1 << 39)),
        (OpCode.DELETE, DeleteTxn(path)),
        (OpCode.DELETE_CONTAINER, DeleteTxn(path)),
        (OpCode.SET_DATA, SetDataTxn(path, data, number)),
        (OpCode.RECONFIG, SetDataTxn("/zookeeper/config", data, -1)),
        (OpCode.SET_ACL, SetACLTxn(path, acl, number)),
        (OpCode.CREATE_SESSION, CreateSessionTxn(number)),
        (OpCode.CLOSE_SESSION, CloseSessionTxn(tuple(choose.choices(_PATHS, k=number % 4)))),
        (OpCode.CLOSE_SESSION, CloseSessionTxn(())),
        (OpCode.CLOSE_SESSION, None),
        (OpCode.ERROR, ErrorTxn(-110)),
        (OpCode.MULTI, random_multi(choose)),
        (OpCode.MULTI, MultiTxn(())),
    ]
    return choose.choice(bodies)


def random_multi(choose: random.Random) -> MultiTxn:
    """A multi; one in three failed, in one of the two forms in which servers log that."""
    path = choose.choice(_PATHS)
    bodies: list[tuple[int, TxnBody]] = [
        (OpCode.CREATE, CreateTxn(path, b"m", OPEN_ACL, False, 1)),
        (OpCode.DELETE, DeleteTxn(path)),
        (OpCode.SET_DATA, SetDataTxn(path, None, 3)),
        (OpCode.CHECK, CheckVersionTxn(path, 4)),
        (OpCode.CREATE_TTL, CreateTTLTxn(path, b"", None, 2, 77)),
        (OpCode.CREATE_CONTAINER, CreateContainerTxn(path, None, OPEN_ACL, 2)),
    ]
    picked = choose.choices(bodies, k=choose.randrange(1, 5))
    subs = [SubTxn(type_, encode_txn_body(body)) for type_, body in picked]
    if choose.random() < 0.33:
        if choose.random() < 0.5:
            subs = [SubTxn(OpCode.ERROR, sub.data) for sub in subs]
        subs.append(SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-101))))
    return MultiTxn(tuple(subs))


def header_row(raw: bytes) -> dict[str, Any]:
    """What a row must say about the header of an entry."""
    header = decode_header(raw)
    row = {
        "session_id": header.session_id,
        "cxid": header.cxid,
        "zxid": header.zxid,
        "epoch": header.zxid >> 32,
        "time": _START + timedelta(milliseconds=header.time_ms),
        "type": header.type,
    }
    name = OP_NAMES.get(header.type)
    return row if name is None else row | {"op": name}


def expected_row(raw: bytes) -> dict[str, Any]:
    """What a row must say about a sound entry; columns that are not here must be null."""
    _, body, digest, _ = decode_entry(raw)
    row = header_row(raw)
    if isinstance(body, MultiTxn):
        if body.txns is not None:
            row["ops"] = [_operation(sub) for sub in body.txns]
    elif isinstance(body, CloseSessionTxn):
        row["paths"] = None if body.paths is None else list(body.paths)
    elif isinstance(body, CreateSessionTxn):
        row["timeout_ms"] = body.timeout_ms
    elif body is not None:
        row |= _fields(body)
    if digest is not None:
        row["digest_version"] = digest.version
        row["digest"] = (digest.tree_digest ^ 1 << 63) - (1 << 63)
    return {name: value for name, value in row.items() if value is not None}


def _operation(sub: SubTxn) -> dict[str, Any]:
    fields = {
        **dict.fromkeys(("path", "data", "acl", "version", "ephemeral"), None),
        **dict.fromkeys(("parent_cversion", "ttl_ms", "error"), None),
    }
    body = decode_txn_body(sub.type, sub.data)
    return {"type": sub.type, "op": OP_NAMES[sub.type], **fields, **_fields(body)}


def _fields(body: TxnBody) -> dict[str, Any]:
    if isinstance(body, ErrorTxn):
        return {"error": body.err}
    fields: dict[str, Any] = body._asdict()
    if fields.get("acl") is not None:
        fields["acl"] = [
            {"perms": acl.perms, "scheme": acl.id.scheme, "id": acl.id.id} for acl in fields["acl"]
        ]
    if "ttl" in fields:
        fields["ttl_ms"] = fields.pop("ttl")
    if "parent_cversion" in fields:
        fields.setdefault("ephemeral", False)
    return fields
