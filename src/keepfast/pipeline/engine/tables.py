"""The rows of parts of files, table by table: what the data sources yield. No Spark here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keepfast.pipeline.decode import FileOrigin, SnapshotReader, decode_log, open_file
from keepfast.pipeline.decode.slow_txns import signed
from keepfast.pipeline.files.layout import FileKind
from keepfast.pipeline.files.parts import Bounds, Part
from keepfast.pipeline.scan.summaries import ScanSummary, as_batch, summarize
from keepfast.pipeline.schemas import (
    FILE_SCHEMA,
    SESSION_SCHEMA,
    SUMMARY_SCHEMA,
    TXN_SCHEMA,
    ZNODE_SCHEMA,
    pruned,
)
from keepfast.storage import ReadFile

_Reader = Callable[[ReadFile, Part, list[str], Bounds], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Table:
    """One kind of rows: its name as a format of Spark, its schema, the files that it needs."""

    name: str
    schema: pa.Schema
    kinds: tuple[FileKind, ...]
    read: _Reader
    can_cut: bool = False  # whether a part of a file gives a part of the rows

    def rows(
        self, parts: Sequence[Part], columns: Sequence[str], bounds: Bounds
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some parts; a file that cannot be read becomes a row that says so."""
        for part in parts:
            try:
                with open_file(part.path) as file:
                    yield from self.read(file, part, list(columns), bounds)
            except OSError as error:
                yield _unreadable(self, part, list(columns), error)


def _origin(part: Part) -> FileOrigin:
    return FileOrigin(part.ensemble, part.server, part.path)


def _one_row(schema: pa.Schema, columns: list[str], row: dict[str, Any]) -> pa.RecordBatch:
    wanted = pruned(schema, columns)
    arrays = [pa.array([row.get(field.name)], field.type) for field in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _names(part: Part) -> dict[str, Any]:
    return {"ensemble": part.ensemble, "server": part.server, "file": part.path}


def _unreadable(table: Table, part: Part, columns: list[str], error: OSError) -> pa.RecordBatch:
    row = _names(part) | {
        "kind": "damage" if table is SUMMARIES else part.kind,
        "problem": f"cannot be read: {error.strerror or error}",
        "snapshot_zxid": part.zxid,
        "name_zxid": part.zxid,
        "size": part.size if table is FILES else None,
    }
    return _one_row(table.schema, columns, row)


def _read_txns(
    file: ReadFile, part: Part, columns: list[str], bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    return decode_log(file, _origin(part), columns, (part.start, part.stop), bounds.zxids)


def _read_znodes(
    file: ReadFile, part: Part, columns: list[str], _: Bounds
) -> Iterator[pa.RecordBatch]:
    return SnapshotReader(file, _origin(part)).batches(columns)


def _read_sessions(
    file: ReadFile, part: Part, columns: list[str], _: Bounds
) -> Iterator[pa.RecordBatch]:
    reader = SnapshotReader(file, _origin(part))
    for _batch in reader.batches(["offset"]):
        # To the last seal: sessions of a file that is not whole are nobody's sessions.
        continue
    if reader.problem is not None:
        yield _one_row(SESSION_SCHEMA, columns, _names(part) | {"problem": reader.problem})
        return
    count = len(reader.sessions)
    arrays = {
        **{name: pa.repeat(pa.scalar(value), count) for name, value in _names(part).items()},
        "snapshot_zxid": pa.repeat(pa.scalar(part.zxid, pa.int64()), count),
        "session_id": pa.array(list(reader.sessions), pa.int64()),
        "timeout_ms": pa.array(list(reader.sessions.values()), pa.int32()),
        "problem": pa.nulls(count, pa.string()),
    }
    if count:
        yield pa.RecordBatch.from_arrays(
            [arrays[name] for name in columns], schema=pruned(SESSION_SCHEMA, columns)
        )


def _read_summaries(
    file: ReadFile, part: Part, columns: list[str], _: Bounds
) -> Iterator[pa.RecordBatch]:
    yield as_batch(summarize(file, part.start, part.stop), _origin(part)).select(columns)


def _read_files(
    file: ReadFile, part: Part, columns: list[str], _: Bounds
) -> Iterator[pa.RecordBatch]:
    row = _names(part) | {
        "kind": part.kind,
        "name_zxid": part.zxid if part.kind in ("log", "snapshot") else None,
        "size": part.size,
        "modified": int(part.mtime * 1_000_000),
    }
    if part.kind == "log":
        row |= _log_row(summarize(file))
    elif part.kind == "snapshot":
        reader = SnapshotReader(file, _origin(part))
        for _batch in reader.batches(["offset"]):
            continue
        row |= _snapshot_row(reader)
    yield _one_row(FILE_SCHEMA, columns, row)


def _log_row(rows: list[ScanSummary]) -> dict[str, Any]:
    runs = [row for row in rows if row.kind == "run"]
    problems = [row.problem for row in rows if row.problem is not None]
    return {
        "records": sum(row.records + row.unnumbered for row in runs),
        "first_zxid": runs[0].first_zxid if runs else None,
        "last_zxid": runs[-1].last_zxid if runs else None,
        "used_bytes": runs[-1].end_offset if runs else 0,
        "problem": problems[0] if problems else None,
    }


def _snapshot_row(reader: SnapshotReader) -> dict[str, Any]:
    row: dict[str, Any] = {"records": reader.node_count, "problem": reader.problem}
    if reader.info is not None:
        digest = reader.info.digest
        row |= {
            "sessions": reader.info.session_count,
            "digest_zxid": reader.info.digest_zxid,
            "digest": None if digest is None else signed(digest),
            "last_processed_zxid": reader.info.last_processed,
        }
    return row


TXNS = Table("zktxnlog", TXN_SCHEMA, ("log",), _read_txns, can_cut=True)
ZNODES = Table("zksnapshot", ZNODE_SCHEMA, ("snapshot",), _read_znodes)
SESSIONS = Table("zksession", SESSION_SCHEMA, ("snapshot",), _read_sessions)
SUMMARIES = Table("zksummary", SUMMARY_SCHEMA, ("log",), _read_summaries, can_cut=True)
FILES = Table("zkfile", FILE_SCHEMA, ("log", "snapshot", "epoch", "config", "other"), _read_files)
TABLES = {table.name: table for table in (TXNS, ZNODES, SESSIONS, SUMMARIES, FILES)}
