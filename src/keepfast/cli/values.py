"""How single values are shown: zxids, times, data, ACLs.

Data of znodes is shown as text where it is printable, else in hex (text) or base64 (JSON); with
`redact` as its length and the start of its SHA-256, which still distinguishes equal from different.
The second half of an ACL id of the scheme `digest` is a password's hash and is never shown.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import Final

from keepfast.cli.output import CommandFailed
from keepfast.wire import (
    AclList,
    Zxid,
    counter_of,
    epoch_of,
    format_zxid,
    make_zxid,
    parse_zxid,
    safe_text,
)

_PERMISSIONS: Final = ((4, "c"), (8, "d"), (1, "r"), (2, "w"), (16, "a"))
# Schemes whose ids are not secret.
_OPEN_SCHEMES: Final = frozenset(("world", "auth", "ip", "sasl", "x509", "host"))
_SHOWN_CHARACTERS: Final = 64
_SHA_DIGITS: Final = 16
_CACHE_LIMIT: Final = 4096
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH_AND_COUNTER: Final = re.compile(r"([0-9a-fA-F]{1,8})\.([0-9a-fA-F]{1,8})\Z")

_seconds: dict[int, str] = {}


def zxid_fields(zxid: int) -> dict[str, object]:
    """A zxid for JSON, with its two halves."""
    return {"zxid": format_zxid(zxid), "epoch": epoch_of(zxid), "counter": counter_of(zxid)}


def optional_zxid(zxid: int | None) -> str | None:
    """A zxid in hex, or None."""
    return None if zxid is None else format_zxid(zxid)


def zxid_span(first: int, last: int) -> str:
    """A range of zxids."""
    return format_zxid(first) if first == last else f"{format_zxid(first)} to {format_zxid(last)}"


def hexadecimal(value: int) -> str:
    """A session id or a digest: 64 bits, unsigned."""
    return hex(value & 0xFFFFFFFFFFFFFFFF)


def utc(time_ms: int) -> str:
    """A time in milliseconds since 1970 as ISO 8601; as a bare number where no date has it."""
    second, millisecond = divmod(time_ms, 1000)
    text = _seconds.get(second)
    if text is None:
        try:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        except (OverflowError, ValueError, OSError):
            return f"{time_ms}ms"
        if len(_seconds) >= _CACHE_LIMIT:
            _seconds.clear()
        _seconds[second] = text
    return f"{text}.{millisecond:03d}Z"


def parse_moment(text: str) -> tuple[Zxid | None, int | None]:
    """What --at names: a zxid (0x500000003, 500000003, 5.3) or a time in ms (ISO 8601, UTC)."""
    match = _EPOCH_AND_COUNTER.match(text)
    if match is not None and int(match[1], 16) < 1 << 31:
        return make_zxid(int(match[1], 16), int(match[2], 16)), None
    try:
        return parse_zxid(text), None
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandFailed(
            f"--at {text!r} is neither a zxid (0x500000003 or 5.3) nor a time "
            "(2026-11-15T09:17:11Z)"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return None, round(moment.timestamp() * 1000)


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable() or all(c.isprintable() or c in "\n\t\r" for c in text):
        return text
    return None


def fingerprint(data: bytes) -> str:
    """The start of the SHA-256 of some data."""
    return hashlib.sha256(data).hexdigest()[:_SHA_DIGITS]


def data_text(data: bytes | None, redact: bool) -> str:
    """Data of a znode in a line of text, shortened."""
    text: str | None
    if data is None:
        return "null"
    if redact:
        return f"{len(data)} bytes sha256:{fingerprint(data)}"
    if len(data) <= _SHOWN_CHARACTERS:
        if data.isascii():  # nearly always, so without a detour
            text = data.decode("ascii")
            if text.isprintable() and '"' not in text and "\\" not in text:
                return f'"{text}"'
        text = _as_text(data)
    else:
        # Four bytes a character at most, and a cut inside one is no reason to show hex.
        text = _as_text(data[: 4 * _SHOWN_CHARACTERS])
        if text is None:
            text = data[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "ignore")
            text = text if text.isprintable() and len(text) > _SHOWN_CHARACTERS // 2 else None
    if text is None:
        shown = f"0x{data[: _SHOWN_CHARACTERS // 2].hex()}"
        return shown if len(data) <= _SHOWN_CHARACTERS // 2 else f"{shown}… ({len(data)} bytes)"
    quoted = text[:_SHOWN_CHARACTERS].replace("\\", "\\\\").replace('"', '\\"')
    quoted = f'"{safe_text(quoted)}"'
    return quoted if len(data) <= _SHOWN_CHARACTERS else f"{quoted}… ({len(data)} bytes)"


def data_fields(data: bytes | None, redact: bool) -> dict[str, object] | None:
    """Data of a znode for JSON, complete."""
    if data is None:
        return None
    if redact:
        return {"length": len(data), "sha256": fingerprint(data)}
    text = _as_text(data)
    if text is not None:
        return {"length": len(data), "text": text}
    return {"length": len(data), "base64": base64.b64encode(data).decode("ascii")}


def acl_texts(acl: AclList | None) -> list[str] | None:
    """An ACL list as `scheme:id:permissions`, without secrets."""
    if acl is None:
        return None
    texts = []
    for perms, (scheme, id_) in acl:
        letters = "".join(letter for bit, letter in _PERMISSIONS if perms & bit) or "-"
        texts.append(f"{safe_text(scheme)}:{_shown_id(scheme, id_)}:{letters}")
    return texts


def _shown_id(scheme: str, id_: str) -> str:
    if scheme in _OPEN_SCHEMES:
        return safe_text(id_)
    user, colon, _ = id_.partition(":")
    return f"{safe_text(user)}:(hidden)" if colon else "(hidden)"


def acl_text(acl: AclList | None) -> str:
    """An ACL list in a line of text."""
    texts = acl_texts(acl)
    return "open" if texts is None else ",".join(texts) or "none"


def size_text(size: int) -> str:
    """A size in bytes, as people read it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{size} B"


def counted(count: int, noun: str) -> str:
    """A number of things, with the plural where it belongs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def parse_duration(text: str, option: str) -> float:
    """Seconds of a text such as 30s, 12h or 7d."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise CommandFailed(f"{option} {text}: not a duration; write 30s, 15m, 12h, 7d or 4w")
    return float(found[1]) * _SECONDS[found[2]]
