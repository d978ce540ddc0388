"""The change feed as a table: its columns, and rows as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from keepfast.pipeline.replay.changes import ZnodeChange
from keepfast.pipeline.schemas import ACL_LIST, TIME
from keepfast.wire import format_zxid

# The columns are described in docs/data-dictionary.md.
HISTORY_SCHEMA = pa.schema(
    [
        ("ensemble", pa.string()),
        ("zxid", pa.int64()),
        ("zxid_hex", pa.string()),
        ("operation", pa.int32()),
        ("time", TIME),
        ("session_id", pa.int64()),
        ("session_hex", pa.string()),
        ("cxid", pa.int32()),
        ("op", pa.string()),
        ("change", pa.string()),
        ("path", pa.string()),
        ("parent", pa.string()),
        ("depth", pa.int32()),
        ("old_data", pa.binary()),
        ("new_data", pa.binary()),
        ("old_version", pa.int32()),
        ("new_version", pa.int32()),
        ("acl", ACL_LIST),
        ("kind", pa.string()),
        ("ttl_ms", pa.int64()),
        ("parent_cversion", pa.int32()),
        ("timeout_ms", pa.int32()),
        ("error", pa.int32()),
        ("is_old_known", pa.bool_()),
    ]
)
# Changes as values of a column: one word each, whatever they are for people.
_VALUES = {
    "data set": "set_data",
    "ACL set": "set_acl",
    "session opened": "session_opened",
    "session closed": "session_closed",
}
_MADE = ("ensemble", "zxid_hex", "time", "session_hex", "change", "parent", "depth", "acl")
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16 << 20
# The end of the year 9999: what lies after it is no clock's time, and some readers refuse it.
_MASK = (1 << 64) - 1
_LAST_TIME_MS = 253_402_300_799_999


def batches(ensemble: str, transactions: Iterable[list[ZnodeChange]]) -> Iterator[pa.RecordBatch]:
    """Rows in batches of bounded size; those of one transaction stay together."""
    rows: list[ZnodeChange] = []
    size = 0
    for transaction in transactions:
        rows += transaction
        size += sum(len(row.old_data or b"") + len(row.new_data or b"") for row in transaction)
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(ensemble, rows)
            rows, size = [], 0
    if rows:
        yield _batch(ensemble, rows)


def _parent(path: str | None) -> str | None:
    return None if path is None or path == "/" else path.rpartition("/")[0] or "/"


def _depth(path: str | None) -> int | None:
    if path is None:
        return None
    return 0 if path == "/" else path.count("/")


def _batch(ensemble: str, rows: list[ZnodeChange]) -> pa.RecordBatch:
    columns: dict[str, list[object]] = {
        name: [getattr(row, name) for row in rows]
        for name in HISTORY_SCHEMA.names
        if name not in _MADE
    }
    columns["ensemble"] = [ensemble] * len(rows)
    columns["zxid_hex"] = [format_zxid(row.zxid) for row in rows]
    columns["session_hex"] = [f"{row.session_id & _MASK:#x}" for row in rows]
    columns["change"] = [_VALUES.get(row.change, row.change) for row in rows]
    columns["parent"] = [_parent(row.path) for row in rows]
    columns["depth"] = [_depth(row.path) for row in rows]
    columns["time"] = [
        row.time_ms * 1000 if 0 < row.time_ms <= _LAST_TIME_MS else None for row in rows
    ]
    columns["acl"] = [
        None
        if row.acl is None
        else [{"perms": perms, "scheme": who.scheme, "id": who.id} for perms, who in row.acl]
        for row in rows
    ]
    return pa.record_batch(
        [pa.array(columns[field.name], field.type) for field in HISTORY_SCHEMA],
        schema=HISTORY_SCHEMA,
    )
