"""Frames of one server, without what may differ between two healthy ones.

Times become the zxid whose txn they belong to, after a check that one txn has one time. Session ids
become the number of the session. Lists that are sets on the server are sorted. Everything else is
kept, down to bytes behind the end of a reply.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import Any

from tests.differential.requests import Op

_STAT = struct.Struct(">qqqqiiiqiiq")
_EVENT_XID = -1


class _Bytes:
    """Reads one body; raises struct.error where it is too short."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, form: struct.Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.data, self.position)
        self.position += form.size
        return values

    def int(self) -> int:
        value: int = self.take(_INT)[0]
        return value

    def buffer(self) -> bytes | None:
        size = self.int()
        if size == -1:
            return None
        start = self.position
        if size < 0 or start + size > len(self.data):
            raise struct.error("a length that does not fit")
        self.position += size
        return self.data[start : self.position]

    def rest(self) -> bytes:
        return self.data[self.position :]


_INT = struct.Struct(">i")
_MULTI = struct.Struct(">i?i")


class Normaliser:
    """What one server has told so far about its sessions and times."""

    def __init__(self) -> None:
        self.sessions: dict[int, str] = {0: "no session"}
        self._times: dict[int, int] = {}

    def session(self, session_id: int) -> str:
        """The name of a session: sessions are numbered in the order in which they appear."""
        return self.sessions.setdefault(session_id, f"session {len(self.sessions)}")

    def event_or_reply(self, op: int | None, frame: bytes) -> tuple[Any, ...]:
        """A frame that is not the answer to a connect request; `op` None for events."""
        xid, zxid, error = struct.unpack_from(">iqi", frame)
        body = frame[16:]
        if xid == _EVENT_XID:
            type_, state, size = struct.unpack_from(">iii", body)
            return ("event", zxid, error, type_, state, body[12 : 12 + size], body[12 + size :])
        if error and op == Op.MULTI_READ:
            # Apache sends the results that it had; no client reads a body behind an error.
            body = b""
        if error or op is None:
            return ("reply", xid, zxid, error, body)
        reader = _Bytes(body)
        try:
            found = self._body(op, reader)
        except struct.error as problem:
            return ("reply", xid, zxid, error, "undecodable", str(problem), body)
        return ("reply", xid, zxid, error, found, reader.rest())

    def _stat(self, reader: _Bytes) -> tuple[Any, ...]:
        fields = list(reader.take(_STAT))
        fields[2] = self._time(fields[0], fields[2])
        fields[3] = self._time(fields[1], fields[3])
        if fields[7]:
            fields[7] = self.session(fields[7])
        return tuple(fields)

    def _time(self, zxid: int, time_ms: int) -> str:
        if zxid <= 0:
            # Built-in znodes: 0, or the time of the start.
            return "none" if time_ms == 0 else "start"
        known = self._times.setdefault(zxid, time_ms)
        return f"time of {zxid:#x}" if known == time_ms else f"{time_ms} and {known} for {zxid:#x}"

    def _body(self, op: int, reader: _Bytes) -> Any:
        if op in (Op.CREATE, Op.SYNC, Op.SASL):
            return reader.buffer()
        if op in (Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL):
            return reader.buffer(), self._stat(reader)
        if op in (Op.EXISTS, Op.SET_DATA, Op.SET_ACL):
            return self._stat(reader)
        if op in (Op.GET_DATA, Op.RECONFIG):
            return reader.buffer(), self._stat(reader)
        if op in (Op.GET_CHILDREN, Op.GET_EPHEMERALS):
            return _sorted_texts(reader)
        if op == Op.GET_CHILDREN2:
            return _sorted_texts(reader), self._stat(reader)
        if op == Op.GET_ACL:
            entries = [
                (reader.int(), reader.buffer(), reader.buffer()) for _ in range(reader.int())
            ]
            return _with_sorted_ids(entries), self._stat(reader)
        if op == Op.WHO_AM_I:
            # A set of ids on the server.
            return sorted((reader.buffer(), reader.buffer()) for _ in range(reader.int()))
        if op in (Op.MULTI, Op.MULTI_READ):
            return self._multi(reader)
        return reader.rest()

    def _multi(self, reader: _Bytes) -> list[Any]:
        results: list[Any] = []
        while True:
            type_, is_done, error = reader.take(_MULTI)
            if is_done:
                results.append(("end", type_, error))
                return results
            if type_ == -1:
                results.append(("error", error, reader.int()))
            elif type_ in (Op.DELETE, Op.CHECK):
                results.append((type_, error))
            else:
                results.append((type_, error, self._body(type_, reader)))


def _with_sorted_ids(entries: list[Any]) -> list[Any]:
    """An ACL; the ids that `auth` stood for, which are a set on the server, in a fixed order."""
    found: list[Any] = []
    for _, group in groupby(entries, lambda entry: (entry[0], entry[1] == b"digest")):
        members = list(group)
        found += sorted(members) if members[0][1] == b"digest" else members
    return found


def _sorted_texts(reader: _Bytes) -> list[bytes | None]:
    count = reader.int()
    return sorted((reader.buffer() for _ in range(count)), key=lambda value: value or b"")
