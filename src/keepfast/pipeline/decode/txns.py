"""A log as Arrow batches of TXN_SCHEMA, or of the columns of it that are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from keepfast.pipeline.decode.bodies import Bodies, locate_bodies, locate_operations
from keepfast.pipeline.decode.frames import (
    FRAME_HEADER_SIZE,
    FRAME_OVERHEAD,
    Frames,
    read_frames,
)
from keepfast.pipeline.decode.gather import Bools, Ints, View, as_text, nullable, take_bytes
from keepfast.pipeline.decode.ops import OP_NAMES
from keepfast.pipeline.decode.slow_txns import acl_rows, read_acls, slow_row
from keepfast.pipeline.schemas import (
    ACL_LIST,
    OPERATION,
    OPERATIONS,
    TEXTS,
    TIME,
    TXN_SCHEMA,
    pruned,
)
from keepfast.storage import Ending, ReadFile
from keepfast.wire import OpCode

_HEADER_SIZE = 32
_BODY_OFFSET = FRAME_HEADER_SIZE + _HEADER_SIZE
_DIGEST_SIZE = 12
# Beyond this a time is no time, and would overflow.
_MAX_TIME_MS = 250_000_000_000_000
# A batch is what a Spark task hands over at once, and what a slow row makes to be built again.
BATCH_ROWS = 50_000

_LOWEST_TYPE = min(OP_NAMES)
_HIGHEST_TYPE = max(OP_NAMES)
# One more at the end, for types that have no name.
_NAME_TABLE = pa.array([OP_NAMES.get(type_) for type_ in range(_LOWEST_TYPE, _HIGHEST_TYPE + 2)])
_VERSIONED = (OpCode.SET_DATA, OpCode.RECONFIG, OpCode.SET_ACL, OpCode.CHECK)
_CREATES = (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """Whose file it is: the first three columns of every row."""

    ensemble: str = ""
    server: str = ""
    file: str = ""

    def columns(self, count: int) -> dict[str, Callable[[], pa.Array]]:
        """Makers of the three columns."""
        return {
            "ensemble": lambda: pa.repeat(pa.scalar(self.ensemble), count),
            "server": lambda: pa.repeat(pa.scalar(self.server), count),
            "file": lambda: pa.repeat(pa.scalar(self.file), count),
        }


def decode_log(
    file: ReadFile,
    origin: FileOrigin,
    columns: Sequence[str] | None = None,
    part: tuple[int, int | None] = (0, None),
    zxids: tuple[int, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """All records that begin in `part` of a log as rows; bytes that are not a record are rows too.

    With `zxids`, of the records only those from the first to the last of the two. Never fails on
    what a file holds; an OSError of `file` passes.
    """
    wanted = TXN_SCHEMA.names if columns is None else list(columns)
    for item in read_frames(file, *part):
        if isinstance(item, Frames):
            if zxids is not None:
                item = _between(item, *zxids)
            for first in range(0, len(item.offsets), BATCH_ROWS):
                yield decode_frames(item.part(slice(first, first + BATCH_ROWS)), origin, wanted)
        elif not item.ending.is_plain:
            yield damage_row(item.ending, origin, wanted, file.size())


def _between(frames: Frames, first: int, last: int) -> Frames:
    """Those of some records whose zxids are in a range."""
    zxids = frames.header("zxid")
    return frames.part((zxids >= first) & (zxids <= last))


def damage_row(
    ending: Ending, origin: FileOrigin, columns: Sequence[str], file_size: int
) -> pa.RecordBatch:
    """The row for bytes that are not a record."""
    behind = file_size if ending.valid_after is None else ending.valid_after
    row = {
        "ensemble": origin.ensemble,
        "server": origin.server,
        "file": origin.file,
        "offset": ending.offset,
        "size": min(behind - ending.offset, 2**31 - 1),
        "problem": ("torn tail: " if ending.torn else "") + ending.reason,
    }
    return _from_rows([row], list(columns))


def _from_rows(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    schema = pruned(TXN_SCHEMA, columns)
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Batch:
    """Lazily computed columns of some records."""

    def __init__(self, frames: Frames, origin: FileOrigin) -> None:
        self.view = frames.view
        self.frames = frames
        self.offsets = frames.offsets
        self.types = frames.header("type")
        self.origin = origin

    @cached_property
    def ends(self) -> Ints:
        return self.offsets + self.frames.lengths + FRAME_HEADER_SIZE

    @cached_property
    def bodies(self) -> Bodies:
        return locate_bodies(self.view, self.types, self.offsets + _BODY_OFFSET, self.ends)

    def header_columns(self) -> dict[str, Callable[[], pa.Array]]:
        frames = self.frames

        def number(name: str, kind: type[np.signedinteger[Any]]) -> Callable[[], pa.Array]:
            return lambda: pa.array(frames.headers[name].astype(kind))

        return {
            **self.origin.columns(len(frames.offsets)),
            "offset": lambda: pa.array(self.offsets + frames.base),
            "size": lambda: pa.array((frames.lengths + FRAME_OVERHEAD).astype(np.int32)),
            "checksum": number("checksum", np.int64),
            "session_id": number("session_id", np.int64),
            "cxid": number("cxid", np.int32),
            "zxid": number("zxid", np.int64),
            "epoch": lambda: pa.array((frames.header("zxid") >> 32).astype(np.int32)),
            "time": lambda: times(frames.header("time")),
        }

    def digest_columns(self) -> dict[str, Callable[[], pa.Array]]:
        position = self.bodies.end
        valid = self.ends - position >= _DIGEST_SIZE
        return {
            "digest_version": lambda: nullable(self.view.ints(position), valid, pa.int32()),
            "digest": lambda: nullable(self.view.longs(position + 4), valid, pa.int64()),
        }


def times(milliseconds: Ints) -> pa.Array:
    """A column of times; null where the number cannot be one."""
    valid = np.abs(milliseconds) < _MAX_TIME_MS
    micros = np.where(valid, milliseconds, 0) * 1000
    return pa.array(micros, pa.int64(), mask=~valid).view(TIME)


_HEADER_COLUMNS = {
    *("ensemble", "server", "file", "offset", "size", "checksum"),
    *("session_id", "cxid", "zxid", "epoch", "time", "type", "op"),
}


def decode_frames(frames: Frames, origin: FileOrigin, columns: Sequence[str]) -> pa.RecordBatch:
    """Sound records as rows with these columns of TXN_SCHEMA, in that order."""
    batch = _Batch(frames, origin)
    makers = batch.header_columns()
    bad = np.zeros(len(frames.offsets), np.bool_)
    if _HEADER_COLUMNS.issuperset(columns):
        makers |= _type_columns(batch.types)
    else:
        made, doubtful = _operation_columns(batch.view, batch.bodies, set(columns))
        makers |= made | batch.digest_columns()
        bad |= doubtful | ~batch.bodies.ok
        if not {"ops", "problem"}.isdisjoint(columns):
            ops, doubtful = _multi_column(batch)
            makers["ops"] = lambda: ops
            bad |= doubtful
        if not {"paths", "problem"}.isdisjoint(columns):
            paths, doubtful = _paths_column(batch)
            makers["paths"] = lambda: paths
            bad |= doubtful
        makers["problem"] = lambda: pa.nulls(len(bad), pa.string())
    schema = pruned(TXN_SCHEMA, list(columns))
    if not bad.any():
        return pa.RecordBatch.from_arrays([makers[name]() for name in columns], schema=schema)
    return _with_slow_rows(frames, origin, list(columns), bad)


def _with_slow_rows(
    frames: Frames, origin: FileOrigin, columns: list[str], bad: Bools
) -> pa.RecordBatch:
    """The same rows, those marked decoded by `wire`, one by one."""
    data = frames.view.data
    rows = []
    for row in np.flatnonzero(bad).tolist():
        start = int(frames.offsets[row]) + FRAME_HEADER_SIZE
        entry = data[start : start + int(frames.headers["length"][row])]
        rows.append(
            {
                "ensemble": origin.ensemble,
                "server": origin.server,
                "file": origin.file,
                "offset": frames.base + int(frames.offsets[row]),
                "size": len(entry) + FRAME_OVERHEAD,
                "checksum": int(frames.headers["checksum"][row]),
                **slow_row(entry, frames.base + start),
            }
        )
    slow = _from_rows(rows, columns)
    good = np.flatnonzero(~bad)
    if not len(good):
        return slow
    both = pa.concat_batches([decode_frames(frames.part(good), origin, columns), slow])
    order = np.argsort(np.concatenate([good, np.flatnonzero(bad)]), kind="stable")
    return both.take(pa.array(order))


def _type_columns(types: Ints) -> dict[str, Callable[[], pa.Array]]:
    known = np.where((types >= _LOWEST_TYPE) & (types <= _HIGHEST_TYPE), types, _HIGHEST_TYPE + 1)
    return {
        "type": lambda: pa.array(types.astype(np.int32)),
        "op": lambda: _NAME_TABLE.take(pa.array(known - _LOWEST_TYPE)),
    }


def _operation_columns(
    view: View, bodies: Bodies, wanted: set[str]
) -> tuple[dict[str, Callable[[], pa.Array]], Bools]:
    """Makers of the columns of OPERATION, and which rows hold text that only `wire` can read."""
    doubtful = np.zeros(len(bodies.types), np.bool_)
    makers = _type_columns(bodies.types)
    if not {"path", "problem"}.isdisjoint(wanted):
        lengths = np.where(bodies.ok, bodies.path_length, -1)
        text, unclear = as_text(take_bytes(view, bodies.path, lengths))
        doubtful |= unclear
        makers["path"] = lambda: text
    if not {"acl", "problem"}.isdisjoint(wanted):
        acl, unclear = _acl_column(view, bodies)
        doubtful |= unclear
        makers["acl"] = lambda: acl
    data_lengths = np.where(bodies.ok, bodies.data_length, -1)
    is_create = bodies.has(*_CREATES)
    makers |= {
        "data": lambda: take_bytes(view, bodies.data, data_lengths),
        "version": lambda: nullable(bodies.version, bodies.has(*_VERSIONED), pa.int32()),
        "ephemeral": lambda: pa.array(bodies.ephemeral, mask=~is_create),
        "parent_cversion": lambda: nullable(bodies.parent_cversion, is_create, pa.int32()),
        "ttl_ms": lambda: nullable(bodies.ttl, bodies.has(OpCode.CREATE_TTL), pa.int64()),
        "error": lambda: nullable(bodies.error, bodies.has(OpCode.ERROR), pa.int32()),
        "timeout_ms": lambda: nullable(
            bodies.timeout, bodies.has(OpCode.CREATE_SESSION), pa.int32()
        ),
    }
    return makers, doubtful


def _acl_column(view: View, bodies: Bodies) -> tuple[pa.Array, Bools]:
    """ACL lists: each distinct one is decoded once, since a log holds few of them."""
    raw = take_bytes(view, bodies.acl, np.where(bodies.ok, bodies.acl_length, -1))
    coded = raw.dictionary_encode()
    lists = [read_acls(value) for value in coded.dictionary.to_pylist()]
    unreadable = np.array([value is None for value in lists], np.bool_)
    table = pa.array([acl_rows(value) for value in lists], ACL_LIST)
    codes = coded.indices
    doubtful = np.zeros(len(raw), np.bool_)
    if unreadable.any():
        present = np.asarray(codes.is_valid())
        doubtful[present] = unreadable[np.asarray(codes.drop_null())]
    return table.take(codes), doubtful


def _paths_column(batch: _Batch) -> tuple[pa.Array, Bools]:
    """The paths of closed sessions."""
    bodies, data = batch.bodies, batch.view.data
    closes = np.flatnonzero(bodies.ok & (bodies.types == OpCode.CLOSE_SESSION))
    values: list[list[bytes] | None] = []
    counts = bodies.count[closes].tolist()
    positions = (batch.offsets[closes] + _BODY_OFFSET + 4).tolist()
    for count, position in zip(counts, positions, strict=True):
        paths: list[bytes] | None = None if count < 0 else []
        for _ in range(count):
            length = int.from_bytes(data[position : position + 4])
            position += 4 + length
            if paths is not None:
                paths.append(data[position - length : position])
        values.append(paths)
    raw = pa.array(values, pa.list_(pa.binary()))
    text, unclear = as_text(raw.values)
    doubtful = np.zeros(len(batch.offsets), np.bool_)
    if text is None:
        owners = np.repeat(closes, np.diff(np.asarray(raw.offsets)))
        doubtful[owners[unclear]] = True
        return pa.nulls(len(doubtful), TEXTS), doubtful
    lists = pa.ListArray.from_arrays(raw.offsets, text, type=TEXTS, mask=raw.is_null())
    index = np.zeros(len(doubtful), np.int64)
    index[closes] = np.arange(len(closes))
    absent = np.ones(len(doubtful), np.bool_)
    absent[closes] = False
    return lists.take(pa.array(index, mask=absent)), doubtful


def _multi_column(batch: _Batch) -> tuple[pa.Array, Bools]:
    """The operations of multis, as lists of structs."""
    view, bodies = batch.view, batch.bodies
    count = len(batch.offsets)
    multis = np.flatnonzero(bodies.ok & (bodies.types == OpCode.MULTI))
    doubtful = np.zeros(count, np.bool_)
    found = locate_operations(
        view, batch.offsets[multis] + _BODY_OFFSET, batch.ends[multis], bodies.count[multis]
    )
    inner = locate_bodies(view, found.types, found.starts, found.ends, inside_multi=True)
    makers, unclear = _operation_columns(view, inner, set(OPERATION.names))
    doubtful[multis[found.rows[unclear | ~inner.ok]]] = True
    if doubtful.any():
        # They are decoded again without these rows.
        return pa.nulls(count, OPERATIONS), doubtful
    fields = list(OPERATION)
    values = pa.StructArray.from_arrays([makers[field.name]() for field in fields], fields=fields)
    sizes = np.zeros(count, np.int32)
    sizes[multis] = bodies.count[multis]
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
    absent = pa.array(bodies.types != OpCode.MULTI)
    return pa.ListArray.from_arrays(
        pa.array(offsets), values, type=OPERATIONS, mask=absent
    ), doubtful
