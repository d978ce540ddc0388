"""Requests as bytes, by an encoder of its own: what is compared must not be encoded by one side."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple


class Op(IntEnum):
    """The operations, by their numbers on the wire."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11


class Request(NamedTuple):
    """One request; `op` may be a number that no operation has."""

    op: int
    body: bytes
    # None: the next number of the connection.
    xid: int | None = None
    # Must be alone in its batch: it is answered beside the order of requests, or closes.
    is_alone: bool = False

    def payload(self, xid: int) -> bytes:
        return struct.pack(">ii", xid, self.op) + self.body

    def __str__(self) -> str:
        name = Op(self.op).name if self.op in Op._value2member_map_ else "?"
        return f"{name}({self.op}) xid={self.xid} {self.body!r}"


Entry = tuple[int, str | None, str | None]


def text(value: str | None) -> bytes:
    """A ustring, as a Java client writes it."""
    if value is None:
        return struct.pack(">i", -1)
    raw = value.encode("utf-8", "surrogatepass")
    return struct.pack(">i", len(raw)) + raw


def buffer(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def texts(values: Sequence[str] | None) -> bytes:
    if values is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def acl_list(entries: Sequence[Entry] | None) -> bytes:
    if entries is None:
        return struct.pack(">i", -1)
    parts = [struct.pack(">i", len(entries))]
    for perms, scheme, who in entries:
        parts += [struct.pack(">i", perms), text(scheme), text(who)]
    return b"".join(parts)


def create(
    path: str | None, data: bytes | None, entries: Sequence[Entry] | None, flags: int
) -> bytes:
    return text(path) + buffer(data) + acl_list(entries) + struct.pack(">i", flags)


def create_ttl(
    path: str | None, data: bytes | None, entries: Sequence[Entry] | None, flags: int, ttl: int
) -> bytes:
    return create(path, data, entries, flags) + struct.pack(">q", ttl)


def with_version(path: str | None, version: int) -> bytes:
    """delete, check, addWatch (the mode), checkWatches and removeWatches (the type)."""
    return text(path) + struct.pack(">i", version)


def with_flag(path: str | None, watch: bool) -> bytes:
    """exists, getData, getChildren, getChildren2."""
    return text(path) + struct.pack(">?", watch)


def set_data(path: str | None, data: bytes | None, version: int) -> bytes:
    return text(path) + buffer(data) + struct.pack(">i", version)


def set_acl(path: str | None, entries: Sequence[Entry] | None, version: int) -> bytes:
    return text(path) + acl_list(entries) + struct.pack(">i", version)


def multi(operations: Iterable[tuple[int, bytes]], *, has_end: bool = True) -> bytes:
    parts = []
    for op, body in operations:
        parts += [struct.pack(">i?i", op, False, -1), body]
    if has_end:
        parts.append(struct.pack(">i?i", -1, True, -1))
    return b"".join(parts)


def auth(scheme: str | None, credentials: bytes | None) -> bytes:
    return struct.pack(">i", 0) + text(scheme) + buffer(credentials)


def set_watches(zxid: int, *lists: Sequence[str] | None) -> bytes:
    """Three lists for setWatches, five for setWatches2."""
    return struct.pack(">q", zxid) + b"".join(map(texts, lists))


def connect(
    zxid: int, timeout_ms: int, session_id: int, password: bytes | None, flag: bool | None = False
) -> bytes:
    """The first frame; `flag` None leaves the read-only byte out."""
    head = struct.pack(">iqiq", 0, zxid, timeout_ms, session_id) + buffer(password)
    return head if flag is None else head + struct.pack(">?", flag)
