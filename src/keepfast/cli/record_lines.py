"""Log records as text and as JSON, and the filter for them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from keepfast.cli.output import CommandFailed
from keepfast.cli.values import (
    acl_text,
    acl_texts,
    counted,
    data_fields,
    data_text,
    hexadecimal,
    utc,
)
from keepfast.storage import Frame
from keepfast.wire import (
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    LogEntry,
    MalformedRecord,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    SubTxn,
    TxnBody,
    Zxid,
    decode_entry,
    decode_txn_body,
    encode_text,
    has_failed,
    safe_text,
)

TYPE_NAMES: Final[dict[int, str]] = {
    OpCode.CREATE: "create",
    OpCode.DELETE: "delete",
    OpCode.SET_DATA: "setData",
    OpCode.SET_ACL: "setACL",
    OpCode.CHECK: "check",
    OpCode.MULTI: "multi",
    OpCode.CREATE2: "create2",
    OpCode.RECONFIG: "reconfig",
    OpCode.CREATE_CONTAINER: "createContainer",
    OpCode.DELETE_CONTAINER: "deleteContainer",
    OpCode.CREATE_TTL: "createTTL",
    OpCode.ERROR: "error",
    OpCode.CREATE_SESSION: "createSession",
    OpCode.CLOSE_SESSION: "closeSession",
}
_PADDED_NAMES: Final = {number: f"{name:<15}" for number, name in TYPE_NAMES.items()}
_NUMBERS: Final = {name.lower(): int(number) for number, name in TYPE_NAMES.items()}
_TIME_AND_TYPE: Final = struct.Struct(">qi")
_TIME_OFFSET: Final = 20  # in an entry: after session id, cxid and zxid
_CACHE_LIMIT: Final = 4096
_UNSIGNED: Final = 0xFFFFFFFFFFFFFFFF

_acl_cache: dict[Any, str] = {}

Decoded = LogEntry | MalformedRecord
Selected = tuple[Frame, Decoded]


def type_name(number: int) -> str:
    """A txn type as ZooKeeper calls it."""
    return TYPE_NAMES.get(number) or f"type {number}"


def error_name(code: int) -> str:
    """An error code with its name."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return str(code)


def parse_types(names: Iterable[str]) -> frozenset[int]:
    """The types that --type names."""
    numbers = set()
    for name in names:
        if name.lower() not in _NUMBERS:
            known = ", ".join(sorted(TYPE_NAMES.values(), key=str.lower))
            raise CommandFailed(f"--type {name!r} is no type of transaction; known are {known}")
        numbers.add(_NUMBERS[name.lower()])
    return frozenset(numbers)


def is_below(path: str, top: str) -> bool:
    """Whether `path` is `top` or lies below it."""
    return top in (path, "/") or path.startswith(top + "/")


def paths_of(body: TxnBody | None) -> list[str]:
    """The znodes that a txn names, those of a multi's operations included."""
    if isinstance(body, MultiTxn):
        return [path for sub in body.txns or () for path in _sub_paths(sub)]
    if isinstance(body, CloseSessionTxn):
        return list(body.paths or ())
    path = getattr(body, "path", None)
    return [] if path is None else [path]


def _sub_paths(sub: SubTxn) -> list[str]:
    try:
        return paths_of(decode_txn_body(sub.type, sub.data))
    except MalformedRecord:
        return []


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records were requested."""

    at: Zxid | None = None
    at_time_ms: int | None = None
    path: str | None = None
    types: frozenset[int] = frozenset()

    def select(self, frames: Iterable[Frame]) -> Iterator[Selected]:
        """Decode the requested records, and as few others as possible."""
        if self.at is not None:
            frames = (frame for frame in frames if frame.zxid == self.at)
        elif self.at_time_ms is not None:
            frames = self._last_before(frames, self.at_time_ms)
        if self.path is None and not self.types:
            return map(_decoded, frames)
        return self._matching(frames)

    @staticmethod
    def _last_before(frames: Iterable[Frame], time_ms: int) -> Iterator[Frame]:
        found = None
        for frame in frames:
            if _TIME_AND_TYPE.unpack_from(frame.entry, _TIME_OFFSET)[0] > time_ms:
                break
            found = frame
        if found is not None:
            yield found

    def _matching(self, frames: Iterable[Frame]) -> Iterator[Selected]:
        needle = b"" if self.path in (None, "/") else encode_text(self.path or "")
        types = self.types
        for frame in frames:
            number = _TIME_AND_TYPE.unpack_from(frame.entry, _TIME_OFFSET)[1]
            if types and number not in types and number != OpCode.MULTI:
                continue
            if needle not in frame.entry:
                continue
            selected = _decoded(frame)
            if self._matches(selected[1]):
                yield selected

    def _matches(self, entry: Decoded) -> bool:
        if isinstance(entry, MalformedRecord):
            return True  # it may be one
        body = entry.body
        if self.types and entry.header.type not in self.types:
            subs = body.txns if isinstance(body, MultiTxn) else None
            if not any(sub.type in self.types for sub in subs or ()):
                return False
        path = self.path
        return path is None or any(is_below(found, path) for found in paths_of(body))


def _decoded(frame: Frame) -> Selected:
    try:
        return frame, decode_entry(frame.entry)
    except MalformedRecord as error:
        return frame, error


# -- text ----------------------------------------------------------------------------------------

TEXT_HEAD: Final = (
    f"{'offset':>10}  {'zxid':<12}  {'time':<24}  {'session':<18}  {'cxid':>8}  "
    f"{'type':<15}  path, details, digest"
)


def _acl(acl: Any) -> str:
    text = _acl_cache.get(acl)
    if text is None:
        if len(_acl_cache) >= _CACHE_LIMIT:
            _acl_cache.clear()
        text = _acl_cache[acl] = acl_text(acl)
    return text


def _create_text(body: Any, redact: bool) -> str:
    text = f"{safe_text(body.path)}  {data_text(body.data, redact)}  acl={_acl(body.acl)}"
    if getattr(body, "ephemeral", False):
        text += "  ephemeral"
    if isinstance(body, CreateTTLTxn):
        text += f"  ttl={body.ttl}ms"
    if not isinstance(body, CreateTxnV0):
        text += f"  parent_cversion={body.parent_cversion}"
    return text


def _set_data_text(body: Any, redact: bool) -> str:
    return f"{safe_text(body.path)}  {data_text(body.data, redact)}  version={body.version}"


def _set_acl_text(body: Any, _: bool) -> str:
    return f"{safe_text(body.path)}  acl={_acl(body.acl)}  aversion={body.version}"


def _check_text(body: Any, _: bool) -> str:
    return f"{safe_text(body.path)}  version={body.version}"


def _close_text(body: Any, _: bool) -> str:
    return "deletes " + (" ".join(map(safe_text, body.paths or ())) or "nothing")


def _multi_text(body: Any, _: bool) -> str:
    count = len(body.txns or ())
    return counted(count, "operation") + (
        "  failed: nothing is applied" if has_failed(body) else ""
    )


_TEXTS: Final[dict[type[Any], Callable[[Any, bool], str]]] = {
    CreateTxn: _create_text,
    CreateTxnV0: _create_text,
    CreateTTLTxn: _create_text,
    CreateContainerTxn: _create_text,
    DeleteTxn: lambda body, _: safe_text(body.path),
    SetDataTxn: _set_data_text,
    SetACLTxn: _set_acl_text,
    CheckVersionTxn: _check_text,
    CreateSessionTxn: lambda body, _: f"timeout={body.timeout_ms}ms",
    CloseSessionTxn: _close_text,
    ErrorTxn: lambda body, _: error_name(body.err),
    MultiTxn: _multi_text,
    type(None): lambda body, _: "deletes the session's ephemerals (no list: 3.5 or older)",
}


def body_text(body: TxnBody | None, redact: bool) -> str:
    """What a txn does: path and details."""
    return _TEXTS[type(body)](body, redact)


def record_text(frame: Frame, entry: Decoded, redact: bool) -> str:
    """A record in one line; a multi in one line for each of its operations too."""
    if isinstance(entry, MalformedRecord):
        return f"{frame.offset:>10}  {frame.zxid:<#12x}  cannot be decoded: {entry}\n"
    (session_id, cxid, zxid, time_ms, number), body, digest, trailing = entry
    if isinstance(body, SetDataTxn):  # most of all records, so without a detour
        path, data, version = body
        path = path if path.isprintable() else safe_text(path)
        what = f"{path}  {data_text(data, redact)}  version={version}"
    else:
        what = _TEXTS[type(body)](body, redact)
    # hex() and a width: the format "#x" with an alignment takes three times as long.
    text = (
        f"{frame[0]:10}  {hex(zxid & _UNSIGNED):12}  {utc(time_ms)}  "
        f"{hex(session_id & _UNSIGNED):18}  {cxid:8}  {_PADDED_NAMES[number]}  {what}"
    )
    if digest is not None:
        text += f"  digest={hex(digest[1])}"
    if trailing:
        text += f"  {len(trailing)} unknown bytes"
    if number == OpCode.MULTI:
        text += "".join(f"\n{'':>82}{line}" for line in _members(body, redact))
    return text + "\n"


def _members(body: Any, redact: bool) -> Iterator[str]:
    for number, sub in enumerate(body.txns or (), 1):
        name = type_name(sub.type)
        try:
            text = body_text(decode_txn_body(sub.type, sub.data), redact)
        except MalformedRecord as error:
            text = f"cannot be decoded: {error}"
        yield f"{number}. {name:<15}  {text}"


# -- JSON ----------------------------------------------------------------------------------------


def body_fields(body: Any, redact: bool) -> dict[str, object]:
    """What a txn does, for JSON."""
    fields: dict[str, object] = {}
    if body is None:
        return {"paths": None}
    for name, value in zip(body._fields, body, strict=True):
        if name == "data":
            fields[name] = data_fields(value, redact)
        elif name == "acl":
            fields[name] = acl_texts(value)
        elif name == "err":
            fields["error"] = value
            fields["error_name"] = error_name(value)
        elif name == "txns":
            fields["failed"] = has_failed(body)
            fields["operations"] = [_member_fields(sub, redact) for sub in value or ()]
        else:
            fields[name] = value
    return fields


def _member_fields(sub: Any, redact: bool) -> dict[str, object]:
    fields: dict[str, object] = {"type": type_name(sub.type)}
    try:
        fields.update(body_fields(decode_txn_body(sub.type, sub.data), redact))
    except MalformedRecord as error:
        fields["problem"] = str(error)
    return fields


def record_fields(frame: Frame, entry: Decoded, redact: bool) -> dict[str, object]:
    """A record for JSON."""
    if isinstance(entry, MalformedRecord):
        return {
            "offset": frame.offset,
            "zxid": hexadecimal(frame.zxid),
            "problem": f"cannot be decoded: {entry}",
        }
    (session_id, cxid, zxid, time_ms, number), body, digest, trailing = entry
    fields: dict[str, object] = {
        "offset": frame[0],
        "zxid": hex(zxid & _UNSIGNED),
        "time": utc(time_ms),
        "session": hex(session_id & _UNSIGNED),
        "cxid": cxid,
        "type": TYPE_NAMES.get(number),
    }
    if isinstance(body, SetDataTxn):  # most of all records, so without a loop over its fields
        fields["path"] = body[0]
        fields["data"] = data_fields(body[1], redact)
        fields["version"] = body[2]
    else:
        fields.update(body_fields(body, redact))
    fields["digest"] = None if digest is None else hex(digest[1])
    if trailing:
        fields["unknown_bytes"] = len(trailing)
    return fields
