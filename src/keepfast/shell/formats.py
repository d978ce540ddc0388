"""How values look: in text as ZooKeeper's shell prints them, and in JSON."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from keepfast.client import ClientEvent
from keepfast.wire import (
    ACL,
    AclList,
    ErrorCode,
    EventType,
    KeeperState,
    Perms,
    Stat,
    format_zxid,
)

Document = dict[str, object]

# Java's names, in English whatever the locale.
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_PERMISSIONS: Final = (
    (Perms.CREATE, "c"),
    (Perms.DELETE, "d"),
    (Perms.READ, "r"),
    (Perms.WRITE, "w"),
    (Perms.ADMIN, "a"),
)
_EVENTS: Final = {
    EventType.NONE: "None",
    EventType.NODE_CREATED: "NodeCreated",
    EventType.NODE_DELETED: "NodeDeleted",
    EventType.NODE_DATA_CHANGED: "NodeDataChanged",
    EventType.NODE_CHILDREN_CHANGED: "NodeChildrenChanged",
    EventType.DATA_WATCH_REMOVED: "DataWatchRemoved",
    EventType.CHILD_WATCH_REMOVED: "ChildWatchRemoved",
    EventType.PERSISTENT_WATCH_REMOVED: "PersistentWatchRemoved",
}
_STATES: Final = {
    KeeperState.DISCONNECTED: "Disconnected",
    KeeperState.SYNC_CONNECTED: "SyncConnected",
    KeeperState.AUTH_FAILED: "AuthFailed",
    KeeperState.CONNECTED_READ_ONLY: "ConnectedReadOnly",
    KeeperState.SASL_AUTHENTICATED: "SaslAuthenticated",
    KeeperState.CLOSED: "Closed",
    KeeperState.EXPIRED: "Expired",
}
_ROW: Final = 16
_RULE: Final = "+-------------------------------------------------+"
_FULL_RULE: Final = f"+--------{_RULE}----------------+"


def local_time(time_ms: int) -> str:
    """A moment in the local time zone: `Sun Nov 15 09:18:18 UTC 2026`."""
    try:
        moment = time.localtime(time_ms // 1000)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02d}:{moment.tm_min:02d}:{moment.tm_sec:02d}"
    return f"{day} {month} {moment.tm_mday:02d} {clock} {moment.tm_zone} {moment.tm_year:04d}"


def utc_time(time_ms: int) -> str:
    """A moment for machines: ISO 8601, UTC, with milliseconds."""
    second, millisecond = divmod(time_ms, 1000)
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms}ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{millisecond:03d}Z"


def stat_lines(stat: Stat) -> list[str]:
    return [
        f"cZxid = {format_zxid(stat.czxid)}",
        f"ctime = {local_time(stat.ctime)}",
        f"mZxid = {format_zxid(stat.mzxid)}",
        f"mtime = {local_time(stat.mtime)}",
        f"pZxid = {format_zxid(stat.pzxid)}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = {format_zxid(stat.ephemeral_owner)}",
        f"dataLength = {stat.data_length}",
        f"numChildren = {stat.num_children}",
    ]


def stat_document(stat: Stat) -> Document:
    return {
        "czxid": format_zxid(stat.czxid),
        "ctime": utc_time(stat.ctime),
        "mzxid": format_zxid(stat.mzxid),
        "mtime": utc_time(stat.mtime),
        "pzxid": format_zxid(stat.pzxid),
        "cversion": stat.cversion,
        "version": stat.version,
        "aversion": stat.aversion,
        "ephemeral_owner": format_zxid(stat.ephemeral_owner),
        "data_length": stat.data_length,
        "num_children": stat.num_children,
    }


def data_document(data: bytes | None) -> Document | None:
    """Data of a znode: as text if it is text, else in base64."""
    if data is None:
        return None
    try:
        return {"length": len(data), "text": data.decode()}
    except UnicodeDecodeError:
        return {"length": len(data), "base64": base64.b64encode(data).decode("ascii")}


def hex_dump(data: bytes) -> str:
    """Sixteen bytes per row, in hex and as characters; nothing for empty data."""
    if not data:
        return ""
    heads = "".join(f"{column:3x}" for column in range(_ROW))
    rows = [f"         {_RULE}", f"         |{heads} |", _FULL_RULE]
    for start in range(0, len(data), _ROW):
        row = data[start : start + _ROW]
        cells = "".join(f" {byte:02x}" for byte in row)
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
        rows.append(f"|{start:08x}|{cells:<{3 * _ROW}} |{shown:<{_ROW}}|")
    return "\n".join([*rows, _FULL_RULE])


def permission_letters(perms: int) -> str:
    return "".join(letter for bit, letter in _PERMISSIONS if perms & bit)


def permission_bits(letters: str) -> tuple[int, list[str]]:
    """The bits of permission letters, and the letters that are none."""
    bits = {letter: bit for bit, letter in _PERMISSIONS}
    perms = 0
    for letter in letters:
        perms |= bits.get(letter, 0)
    return perms, [letter for letter in letters if letter not in bits]


def acl_lines(acl: AclList) -> Iterator[str]:
    for perms, id in acl:
        yield f"'{id.scheme},'{id.id}"
        yield f": {permission_letters(perms)}"


def acl_document(acl: AclList) -> list[Document]:
    return [_acl_entry(entry) for entry in acl]


def _acl_entry(entry: ACL) -> Document:
    letters = permission_letters(entry.perms)
    return {"scheme": entry.id.scheme, "id": entry.id.id, "perms": letters}


def event_text(event: ClientEvent) -> str:
    path = "null" if event.path is None else event.path
    return (
        f"WatchedEvent state:{_STATES[event.state]} type:{_EVENTS[event.type]} "
        f"path:{path} zxid: {event.zxid}"
    )


def event_document(event: ClientEvent) -> Document:
    zxid = None if event.zxid == -1 else format_zxid(event.zxid)
    return {
        "type": _EVENTS[event.type],
        "state": _STATES[event.state],
        "path": event.path,
        "zxid": zxid,
    }


def error_name(code: ErrorCode) -> str:
    """Apache's name of an error code: NONODE, BADVERSION, ..."""
    return code.name.replace("_", "")
