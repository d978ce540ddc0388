"""Records and snapshots as rows about paths: what the relational replay shuffles and sums.

A transaction is physical: it carries the resulting version, the parent's cversion, the ACL.  So
each operation is one event of its path, and a create or delete one of the parent's too; nobody
needs the tree to know what an event does.  A path is a 64-bit hash here, data the CRC that it has
together with its path: neither travels.

    EVENT   one operation on one path, or one child more or less
    ZNODE   one znode of a snapshot
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.bodies import Bodies, locate_bodies, locate_operations
from keepfast.pipeline.decode.frames import FRAME_HEADER_SIZE, Frames
from keepfast.pipeline.decode.gather import Ints, View, among, take_bytes
from keepfast.pipeline.decode.hashing import Hashes
from keepfast.pipeline.decode.path_keys import (
    OWN,
    RESERVED,
    RESERVED_HEAD,
    RESERVED_PREFIX,
    PathTable,
    keys_at,
    parents_at,
    path_table,
)
from keepfast.pipeline.decode.slow_txns import read_acls
from keepfast.pipeline.decode.snapshots import Nodes, SnapshotReader
from keepfast.pipeline.decode.stat_crc import HASHED_STAT, crc_of
from keepfast.pipeline.decode.txns import FileOrigin
from keepfast.storage import ReadFile
from keepfast.tree import (
    CONTAINER_OWNER,
    DIGEST_VERSION,
    QUOTA,
    ROOT,
    ZOOKEEPER,
    acl_weight,
    ttl_owner,
)
from keepfast.wire import (
    OPEN_ACL,
    AclList,
    CorruptSnapshot,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MalformedRecord,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    decode_entry,
    decode_txn_body,
    encode_text,
)

# To move rows use `take` and `compress`: brackets copy field by field, 30 times as slowly.
Rows = NDArray[np.void]

_HEADER_SIZE = 32
_BODY_OFFSET = FRAME_HEADER_SIZE + _HEADER_SIZE
_DIGEST_SIZE = 12
_CREATES = (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)
_DELETES = (OpCode.DELETE, OpCode.DELETE_CONTAINER)
_SETS = (OpCode.SET_DATA, OpCode.RECONFIG)
_OPEN_WEIGHT = acl_weight(OPEN_ACL)
_SLASH = ord("/")
_OPERATIONS = (
    *(CreateTxn, CreateTxnV0, CreateContainerTxn, CreateTTLTxn),
    *(DeleteTxn, SetDataTxn, SetACLTxn),
)
# In the place of a parent's cversion: one more than before (the create record of old).
NEXT_CVERSION = -1


class Happening(IntEnum):
    """What an event is."""

    CREATED = 0
    DELETED = 1
    DATA = 2
    ACL = 3
    CHILD_ADDED = 4
    CHILD_GONE = 5
    # A session's end that does not list its ephemerals: an event of every path that it owns.
    SESSION_GONE = 6


EVENT = np.dtype(
    [
        *(("path", "u8"), ("zxid", "i8"), ("time", "i8"), ("owner", "i8"), ("weight", "u8")),
        *(("parent", "u8"), ("value", "i4"), ("crc", "u4"), ("late", "u4")),
        *(("kind", "u1"), ("marks", "u1")),
    ]
)
ZNODE = np.dtype(
    [
        *(("path", "u8"), ("parent", "u8"), ("weight", "u8"), ("crc", "u4"), ("marks", "u1")),
        ("stat", HASHED_STAT),
    ]
)
# The weight of a znode of a snapshot whose ACL is not in its table.
NO_ACL = 1
# In `late`: no digest follows in this part of the log.
NO_DIGEST = 0xFFFFFFFF


@dataclass(slots=True)
class LogEvents:
    """The events of some records, and what the records say about the whole tree."""

    events: list[Rows] = field(default_factory=list)
    # Of the records with a digest: zxid and digest.
    zxids: list[Ints] = field(default_factory=list)
    digests: list[Hashes] = field(default_factory=list)
    records: int = 0
    undecodable: list[int] = field(default_factory=list)  # offsets in the file
    has_unknown_digests: bool = False  # of a version that cannot be computed
    sessions: set[int] = field(default_factory=set)  # of those that were asked for, seen in headers
    config: tuple[int, bytes] | None = None  # the newest membership change
    session_rows: list[Rows] = field(default_factory=list)

    def rows(self) -> Rows:
        """All events, with the distance to the first digest that covers each."""
        if not self.events:
            return np.empty(0, EVENT)
        rows = np.concatenate(self.events)
        stated = np.concatenate(self.zxids) if self.zxids else np.empty(0, np.int64)
        place = np.searchsorted(stated, rows["zxid"])
        due = np.append(stated, 0)[place]
        rows["late"] = np.where(place < len(stated), due - rows["zxid"], NO_DIGEST)
        return rows


def add_frames(found: LogEvents, frames: Frames, wanted_sessions: frozenset[int]) -> None:
    """Add the events of sound records."""
    view, offsets = frames.view, frames.offsets
    types = frames.header("type")
    ends = offsets + frames.lengths + FRAME_HEADER_SIZE
    bodies = locate_bodies(view, types, offsets + _BODY_OFFSET, ends)
    found.records += len(offsets)
    if wanted_sessions:
        seen = set(frames.header("session_id").tolist())
        found.sessions |= seen & wanted_sessions
    zxids = frames.header("zxid")
    heads = _Heads(zxids, frames.header("time"), frames.header("session_id"))
    plain = bodies.ok & (types != OpCode.MULTI)
    parts: list[tuple[Ints, Rows]] = [
        *_operations(view, bodies, np.flatnonzero(plain), heads, None),
        *_multis(found, frames, bodies, ends, heads),
        *_closed(view, bodies, np.flatnonzero(plain & (types == OpCode.CLOSE_SESSION)), heads),
    ]
    slow = np.flatnonzero(~bodies.ok)
    digest_at = bodies.end
    stated = bodies.ok & (ends - digest_at >= _DIGEST_SIZE)
    is_known = view.ints(np.minimum(digest_at, view.size - 1)) == DIGEST_VERSION
    found.has_unknown_digests |= bool((stated & ~is_known).any())
    stated &= is_known
    digests = view.longs(np.minimum(digest_at + 4, view.size - 1)).view(np.uint64)
    for row in slow.tolist():
        entry = _decoded(found, frames, row)
        if entry is not None:
            events = _slow_events(entry)
            parts.append((np.full(len(events), row), events))
            if entry.digest is not None and entry.digest.version != DIGEST_VERSION:
                found.has_unknown_digests = True
            elif entry.digest is not None:
                stated[row], digests[row] = True, np.uint64(entry.digest.tree_digest)
    _note_config(found, view, bodies, zxids)
    order = np.concatenate([rows for rows, _ in parts]) if parts else np.empty(0)
    if len(order):
        events = np.concatenate([events for _, events in parts])
        # Operations of a multi keep their order, and so does a parent's event after its child's.
        found.events.append(events.take(np.argsort(order, kind="stable")))
    found.zxids.append(zxids[stated])
    found.digests.append(digests[stated])


@dataclass(frozen=True, slots=True)
class _Heads:
    zxids: Ints
    times: Ints
    sessions: Ints


def _decoded(found: LogEvents, frames: Frames, row: int) -> LogEntry | None:
    start = int(frames.offsets[row]) + FRAME_HEADER_SIZE
    try:
        return decode_entry(frames.view.data[start : start + int(frames.headers["length"][row])])
    except MalformedRecord:
        found.undecodable.append(frames.base + int(frames.offsets[row]))
        return None


def _note_config(found: LogEvents, view: View, bodies: Bodies, zxids: Ints) -> None:
    for row in np.flatnonzero(bodies.ok & (bodies.types == OpCode.RECONFIG)).tolist():
        start, length = int(bodies.data[row]), max(int(bodies.data_length[row]), 0)
        found.config = (int(zxids[row]), view.data[start : start + length])


def _operations(
    view: View, bodies: Bodies, rows: Ints, heads: _Heads, owners: Ints | None
) -> Iterator[tuple[Ints, Rows]]:
    """The events of creates, deletes and sets; `owners`: the record that each body belongs to."""
    types = bodies.types[rows]
    wanted = np.isin(types, (*_CREATES, *_DELETES, *_SETS, OpCode.SET_ACL))
    rows, types = rows[wanted], types[wanted]
    if not len(rows):
        return
    records = rows if owners is None else owners[rows]
    coded = take_bytes(view, bodies.path[rows], bodies.path_length[rows]).dictionary_encode()
    paths = path_table(coded.dictionary.to_pylist())
    codes = np.asarray(coded.indices)
    events = np.zeros(len(rows), EVENT)
    events["path"], events["marks"] = paths.keys[codes], paths.marks[codes]
    events["zxid"], events["time"] = heads.zxids[records], heads.times[records]
    is_create, is_delete = np.isin(types, _CREATES), np.isin(types, _DELETES)
    is_acl = types == OpCode.SET_ACL
    is_set = ~(is_create | is_delete | is_acl)
    events["kind"] = np.select(
        [is_create, is_delete, is_acl],
        [Happening.CREATED, Happening.DELETED, Happening.ACL],
        Happening.DATA,
    )
    events["value"] = np.where(is_create, bodies.parent_cversion[rows], bodies.version[rows])
    _put_crcs(events, view, bodies, rows, np.flatnonzero(is_create | is_set), paths, codes)
    has_acl = np.flatnonzero(is_create | is_acl)
    if len(has_acl):
        events["weight"][has_acl] = _weights(view, bodies, rows[has_acl])
    owner = np.where(bodies.ephemeral[rows], heads.sessions[records], 0)
    owner[types == OpCode.CREATE_CONTAINER] = CONTAINER_OWNER
    ttl = types == OpCode.CREATE_TTL
    owner[ttl] = ttl_owner(0) | bodies.ttl[rows][ttl]
    events["owner"] = np.where(is_create, owner, 0)
    events["parent"] = paths.parents[codes]
    moves = is_create | is_delete
    parents = parents_of(events.compress(moves))
    # A parent's event directly after its child's: stable by record, then by place.
    place = np.concatenate([np.arange(len(rows)), np.flatnonzero(moves)])
    order = np.argsort(place, kind="stable")
    records = np.concatenate([records, records[moves]])[order]
    yield records, np.concatenate([events, parents]).take(order)


def parents_of(events: Rows) -> Rows:
    """What creations and deletions are to the parents."""
    parents = events.copy()
    parents["path"] = events["parent"]
    parents["kind"] = np.where(
        events["kind"] == Happening.CREATED, Happening.CHILD_ADDED, Happening.CHILD_GONE
    )
    parents["owner"] = parents["parent"] = parents["crc"] = parents["weight"] = 0
    # The parent of a znode below /zookeeper is below it too, or is /zookeeper itself.
    parents["marks"] &= ~np.uint8(OWN)
    return parents


def _put_crcs(
    events: Rows,
    view: View,
    bodies: Bodies,
    rows: Ints,
    wanted: Ints,
    paths: PathTable,
    codes: Ints,
) -> None:
    codes, starts = codes[wanted], bodies.data[rows[wanted]]
    is_read = np.array(paths.is_counted)[codes]
    ends = starts + np.where(is_read, np.maximum(bodies.data_length[rows[wanted]], 0), 0)
    crcs = np.array(paths.crcs, np.uint32)[codes].tolist()
    data, crc32 = view.data, zlib.crc32
    events["crc"][wanted] = [
        crc32(data[start:end], crc)
        for start, end, crc in zip(starts.tolist(), ends.tolist(), crcs, strict=True)
    ]


def _weights(view: View, bodies: Bodies, rows: Ints) -> Hashes:
    coded = take_bytes(view, bodies.acl[rows], bodies.acl_length[rows]).dictionary_encode()
    lists = [read_acls(raw) for raw in coded.dictionary.to_pylist()]
    weights = np.array([weight_of_acl(acl) for acl in lists], np.uint64)
    return weights.take(np.asarray(coded.indices))


def weight_of_acl(acl: AclList | None) -> int:
    """What an ACL list counts; a null one is the open one."""
    return _OPEN_WEIGHT if acl is None else acl_weight(acl)


def _multis(
    found: LogEvents, frames: Frames, bodies: Bodies, ends: Ints, heads: _Heads
) -> Iterator[tuple[Ints, Rows]]:
    view = frames.view
    multis = np.flatnonzero(bodies.ok & (bodies.types == OpCode.MULTI))
    if not len(multis):
        return
    starts = frames.offsets[multis] + _BODY_OFFSET
    ops = locate_operations(view, starts, ends[multis], bodies.count[multis])
    inner = locate_bodies(view, ops.types, ops.starts, ops.ends, inside_multi=True)
    owners = multis[ops.rows]
    # One failed operation, and nothing of a multi is applied.
    failed = np.unique(owners[ops.types == OpCode.ERROR])
    odd = np.setdiff1d(np.unique(owners[~inner.ok]), failed)
    good = np.flatnonzero(~np.isin(owners, np.concatenate([failed, odd])))
    yield from _operations(view, inner, good, heads, owners)
    for row in odd.tolist():
        entry = _decoded(found, frames, row)
        if entry is not None:
            events = _slow_events(entry)
            yield np.full(len(events), row), events


def _closed(view: View, bodies: Bodies, rows: Ints, heads: _Heads) -> Iterator[tuple[Ints, Rows]]:
    """The ephemerals that go with sessions: those that are listed, or all of a session."""
    bare = rows[bodies.count[rows] < 0]
    if len(bare):
        events = np.zeros(len(bare), EVENT)
        events["kind"] = Happening.SESSION_GONE
        events["zxid"], events["owner"] = heads.zxids[bare], heads.sessions[bare]
        yield bare, events
    listed: list[bytes] = []
    records: list[int] = []
    for row in rows[bodies.count[rows] > 0].tolist():
        position = int(bodies.path[row]) + 4
        for _ in range(int(bodies.count[row])):
            length = int.from_bytes(view.data[position : position + 4])
            position += 4 + length
            listed.append(view.data[position - length : position])
            records.append(row)
    if listed:
        owners = np.array(records, np.int64)
        yield np.repeat(owners, 2), _deletions(listed, heads.zxids[owners])


def _deletions(paths: list[bytes], zxids: Ints) -> Rows:
    """Each path's event, and directly after it its parent's."""
    table = path_table(paths)
    events = np.zeros(len(paths), EVENT)
    events["kind"], events["zxid"] = Happening.DELETED, zxids
    events["path"], events["parent"], events["marks"] = table.keys, table.parents, table.marks
    return np.stack([events, parents_of(events)], axis=1).reshape(-1)


def _slow_events(entry: LogEntry) -> Rows:
    """The events of one record that `wire` decoded."""
    header, body = entry.header, entry.body
    zxids = np.array([header.zxid], np.int64)
    if isinstance(body, MultiTxn):
        try:
            subs = [decode_txn_body(sub.type, sub.data) for sub in body.txns or ()]
        except MalformedRecord:
            subs = []
        if any(isinstance(sub, ErrorTxn) for sub in subs):
            subs = []
        found = [_slow_events(LogEntry(header, sub, None)) for sub in subs]
        return np.concatenate([np.empty(0, EVENT), *found])
    row = np.zeros(1, EVENT)
    row["zxid"], row["time"] = header.zxid, header.time_ms
    if header.type == OpCode.CLOSE_SESSION and not isinstance(body, _OPERATIONS):
        listed = [encode_text(path) for path in getattr(body, "paths", None) or ()]
        if listed:
            return _deletions(listed, np.repeat(zxids, len(listed)))
        row["kind"], row["owner"] = Happening.SESSION_GONE, header.session_id
        return row
    if not isinstance(body, _OPERATIONS):
        return np.empty(0, EVENT)
    raw = encode_text(body.path)
    if isinstance(body, DeleteTxn):
        return _deletions([raw], zxids)
    table = path_table([raw])
    row["path"], row["parent"], row["marks"] = table.keys, table.parents, table.marks
    data = getattr(body, "data", None) or b""
    row["crc"] = zlib.crc32(data, table.crcs[0]) if table.is_counted[0] else table.crcs[0]
    if isinstance(body, SetDataTxn):
        row["kind"], row["value"] = Happening.DATA, body.version
        return row
    row["weight"] = weight_of_acl(body.acl)
    if isinstance(body, SetACLTxn):
        row["kind"], row["value"] = Happening.ACL, body.version
        return row
    row["value"] = getattr(body, "parent_cversion", NEXT_CVERSION)
    row["owner"] = header.session_id if getattr(body, "ephemeral", False) else 0
    if isinstance(body, CreateContainerTxn):
        row["owner"] = CONTAINER_OWNER
    elif isinstance(body, CreateTTLTxn):
        row["owner"] = ttl_owner(body.ttl)
    return np.concatenate([row, parents_of(row)])


# -- snapshots -------------------------------------------------------------------------------------


def znode_rows(nodes: Nodes, weights: dict[int, int]) -> Rows:
    """Znodes of a snapshot as rows; `weights`: what its ACLs count, by their keys.

    Raises CorruptSnapshot where a path is none.
    """
    view, tail, offsets = nodes.view, nodes.tail, nodes.offsets
    rows = np.zeros(len(offsets), ZNODE)
    starts, ends = offsets + 4, nodes.data_at
    rows["path"] = keys_at(view, starts, ends)
    rows["parent"] = parents_at(view, starts, ends)
    odd = _odd_paths(nodes)
    _check_paths(nodes, odd)
    rows["crc"] = _znode_crcs(nodes)
    distinct, codes = np.unique(view.longs(tail), return_inverse=True)
    rows["weight"] = np.array([weights.get(key, NO_ACL) for key in distinct.tolist()], np.uint64)[
        codes
    ]
    stat = rows["stat"]
    places = {"czxid": 8, "mzxid": 16, "ctime": 24, "mtime": 32, "owner": 52, "pzxid": 60}
    for name, distance in places.items():
        stat[name] = view.longs(tail + distance)
    for name, distance in {"version": 40, "cversion": 44, "aversion": 48}.items():
        stat[name] = view.ints(tail + distance)
    if len(odd):
        table = path_table([_path_at(nodes, row) for row in odd.tolist()])
        rows["path"][odd], rows["parent"][odd] = table.keys, table.parents
        rows["marks"][odd] = table.marks
        for index, row in enumerate(odd.tolist()):
            data = znode_data(nodes, row) if table.is_counted[index] else b""
            rows["crc"][row] = zlib.crc32(data, table.crcs[index])
    return rows


def _only(nodes: Nodes, wanted: Hashes) -> Nodes:
    """The znodes with some keys, and all whose keys are not those of the bytes of their paths."""
    kept = among(keys_at(nodes.view, nodes.offsets + 4, nodes.data_at), wanted)
    kept[_odd_paths(nodes)] = True
    return Nodes(nodes.view, nodes.base, nodes.offsets[kept])


def _path_at(nodes: Nodes, row: int) -> bytes:
    start = int(nodes.offsets[row]) + 4
    return nodes.view.data[start : start + int(nodes.path_lengths[row])]


def _odd_paths(nodes: Nodes) -> Ints:
    """Znodes whose paths are looked at one by one: the root, those below /zookeeper, not ASCII."""
    view, starts, lengths = nodes.view, nodes.offsets + 4, nodes.path_lengths
    is_odd = (lengths == 0) | (
        (view.longs(starts) == RESERVED_HEAD) & (lengths >= len(RESERVED_PREFIX))
    )
    raw = take_bytes(view, starts, lengths)
    content = np.frombuffer(raw.buffers()[2] or b"", np.uint8)
    if len(content) and content.max() >= 0x80:
        is_odd |= np.array([not value.isascii() for value in raw.to_pylist()])
    return np.flatnonzero(is_odd)


def _check_paths(nodes: Nodes, odd: Ints) -> None:
    """Refuse what is no path, as whoever loads the file does."""
    view, starts, lengths = nodes.view, nodes.offsets + 4, nodes.path_lengths
    is_bad = (view.octets(starts) != _SLASH) | (view.octets(nodes.data_at - 1) == _SLASH)
    is_bad &= lengths > 0
    for row in odd.tolist():
        try:
            _path_at(nodes, row).decode()
        except UnicodeDecodeError:
            is_bad[row] = True
    if is_bad.any():
        row = int(is_bad.argmax())
        reason = f"{_path_at(nodes, row)!r} is not a path"
        raise CorruptSnapshot(reason, None, nodes.base + int(nodes.offsets[row]))


def _znode_crcs(nodes: Nodes) -> list[int]:
    # Path and data beside each other, so that one call reads both.
    starts = np.stack([nodes.offsets + 4, nodes.data_at + 4], axis=1).reshape(-1)
    lengths = np.stack([nodes.path_lengths, np.maximum(nodes.data_lengths, 0)], axis=1).reshape(-1)
    raw = take_bytes(nodes.view, starts, lengths)
    data, crc32 = b"" if raw.buffers()[2] is None else raw.buffers()[2].to_pybytes(), zlib.crc32
    ends = np.frombuffer(raw.buffers()[1], np.int32)[: len(starts) + 1 : 2].tolist()
    return [crc32(data[start:end]) for start, end in pairwise(ends)]


def znode_states(rows: Rows) -> Hashes:
    """What each znode of a snapshot adds to our digest."""
    return _states(rows, crc_of(rows["crc"], rows["stat"]).astype(np.uint64))


def _states(rows: Rows, crcs: Hashes) -> Hashes:
    is_own = rows["marks"] & OWN != 0
    return np.where(is_own, np.uint64(0), (crcs + np.uint64(1)) * rows["weight"])


def znode_sums(rows: Rows) -> tuple[int, int]:
    """What znodes of a snapshot add to our digest, and to Apache's, which leaves some out."""
    crcs = crc_of(rows["crc"], rows["stat"]).astype(np.uint64)
    counted = crcs[rows["marks"] & RESERVED == 0]
    return int(_states(rows, crcs).sum(dtype=np.uint64)), int(counted.sum(dtype=np.uint64))


def znode_data(nodes: Nodes, row: int) -> bytes:
    """The data of one znode; empty if it is null."""
    start = int(nodes.data_at[row]) + 4
    return nodes.view.data[start : start + max(int(nodes.data_lengths[row]), 0)]


class SnapshotRows:
    """The znodes of a snapshot as rows, some at a time."""

    def __init__(self, file: ReadFile, path: str) -> None:
        self.reader = SnapshotReader(file, FileOrigin(file=path))
        self.config = b""  # the text that names the members

    def batches(self, wanted: Hashes | None = None) -> Iterator[Rows]:
        """All znodes, and the built-in ones that a server adds; raises CorruptSnapshot.

        With `wanted`, sorted keys of paths, those alone, and some that are odd.
        """
        builtin = builtin_rows()
        own = np.sort(builtin["path"])
        seen = own[:0]
        keys = None if wanted is None else np.union1d(wanted, own)
        for rows in self._rows(self.reader.nodes(), keys):
            seen = np.concatenate([seen, rows["path"][among(rows["path"], own)]])
            yield rows
        missing = ~np.isin(builtin["path"], seen)
        if missing.any():
            yield builtin[missing]

    def part(
        self,
        start: int,
        stop: int | None,
        *,
        is_guess: bool = False,
        wanted: Hashes | None = None,
    ) -> Iterator[Rows]:
        """The znodes that begin in a range of bytes; see `SnapshotReader.part` and `batches`."""
        return self._rows(self.reader.part(start, stop, is_guess=is_guess), wanted)

    def _rows(self, found: Iterator[Nodes], wanted: Hashes | None) -> Iterator[Rows]:
        weights: dict[int, int] = {}
        for nodes in found:
            if wanted is not None:
                nodes = _only(nodes, wanted)
            if not weights:
                known = self.reader.acls.items()
                weights = {key: acl_weight(acl) for key, acl in known} | {-1: _OPEN_WEIGHT}
            rows = znode_rows(nodes, weights)
            for row in np.flatnonzero(rows["marks"] & OWN).tolist():
                self.config = znode_data(nodes, row)
            yield rows


def builtin_rows() -> Rows:
    """Apache's built-in znodes, which come from no record."""
    table = path_table([path.encode() for path in (ROOT, ZOOKEEPER, QUOTA)])
    rows = np.zeros(len(table.crcs), ZNODE)
    rows["path"], rows["parent"], rows["marks"] = table.keys, table.parents, table.marks
    rows["crc"], rows["weight"] = table.crcs, _OPEN_WEIGHT
    return rows
