"""Single records decoded by `wire`, as rows of TXN_SCHEMA: what the fast path does not know."""

from __future__ import annotations

from typing import Any

from keepfast.pipeline.decode.ops import OP_NAMES
from keepfast.wire import (
    ACL,
    AclList,
    CloseSessionTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    ErrorTxn,
    MalformedRecord,
    MultiTxn,
    Reader,
    TxnBody,
    decode_entry,
    decode_header,
    decode_txn_body,
    epoch_of,
    exact_codec_of,
)

_ACL_CODEC = exact_codec_of(ACL)
_MIN_ACL = 12
_MAX_TIME_MS = 250_000_000_000_000
_SIGN = 1 << 63


def read_acls(raw: bytes | None) -> AclList | None:
    """An encoded list of ACLs; None if it is null or cannot be read."""
    if raw is None:
        return None
    try:
        reader = Reader(raw)
        count = reader.read_count(_MIN_ACL, "ACL list")
        if count is None:
            return None
        return tuple(_ACL_CODEC.read(reader) for _ in range(count))
    except MalformedRecord:
        return None


def acl_rows(acl: AclList | None) -> list[dict[str, Any]] | None:
    """A list of ACLs as rows of schemas.ACL."""
    if acl is None:
        return None
    return [{"perms": entry.perms, "scheme": entry.id.scheme, "id": entry.id.id} for entry in acl]


def slow_row(entry: bytes, offset: int) -> dict[str, Any]:
    """The row of one entry, which begins at `offset` of its file; `problem` if it has one."""
    header = decode_header(entry)
    row: dict[str, Any] = {
        "session_id": header.session_id,
        "cxid": header.cxid,
        "zxid": header.zxid,
        "epoch": epoch_of(header.zxid),
        "time": header.time_ms * 1000 if abs(header.time_ms) < _MAX_TIME_MS else None,
        "type": header.type,
        "op": OP_NAMES.get(header.type),
    }
    try:
        decoded = decode_entry(entry, offset)
        if decoded.body is not None:
            row |= body_row(decoded.body)
    except MalformedRecord as error:
        return row | {"problem": f"cannot be decoded: {error.reason} (offset {error.offset})"}
    if decoded.digest is not None:
        row["digest_version"] = decoded.digest.version
        row["digest"] = signed(decoded.digest.tree_digest)
    return row


def signed(value: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits."""
    return (value ^ _SIGN) - _SIGN


def body_row(body: TxnBody) -> dict[str, Any]:
    """The columns that a body fills; raises MalformedRecord for an operation that is none."""
    if isinstance(body, MultiTxn):
        subs = body.txns
        if subs is None:
            return {}
        return {
            "ops": [
                {"type": sub.type, "op": OP_NAMES.get(sub.type)}
                | body_row(decode_txn_body(sub.type, sub.data))
                for sub in subs
            ]
        }
    if isinstance(body, CloseSessionTxn):
        return {"paths": None if body.paths is None else list(body.paths)}
    if isinstance(body, CreateSessionTxn):
        return {"timeout_ms": body.timeout_ms}
    if isinstance(body, ErrorTxn):
        return {"error": body.err}
    row: dict[str, Any] = body._asdict()
    if "acl" in row:
        row["acl"] = acl_rows(row["acl"])
    if isinstance(body, CreateTTLTxn):
        row["ttl_ms"] = row.pop("ttl")
    if isinstance(body, CreateTxnV0 | CreateTxn):
        return row
    if "parent_cversion" in row:
        row["ephemeral"] = False
    return row
