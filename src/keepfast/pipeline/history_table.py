"""The change feed as a table: its columns, and rows as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from keepfast.pipeline.changes import ZnodeChange
from keepfast.pipeline.schemas import ACL_LIST, TIME

# The columns are described in docs/data-dictionary.md.
HISTORY_SCHEMA = pa.schema(
    [
        ("ensemble", pa.string()),
        ("zxid", pa.int64()),
        ("operation", pa.int32()),
        ("time", TIME),
        ("session_id", pa.int64()),
        ("cxid", pa.int32()),
        ("op", pa.string()),
        ("change", pa.string()),
        ("path", pa.string()),
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
_BATCH_ROWS = 10_000
_BATCH_BYTES = 16 << 20
# The end of the year 9999: what lies behind it is no clock's time, and some readers refuse it.
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


def _batch(ensemble: str, rows: list[ZnodeChange]) -> pa.RecordBatch:
    columns: dict[str, list[object]] = {
        name: [getattr(row, name) for row in rows]
        for name in HISTORY_SCHEMA.names
        if name not in ("ensemble", "time", "acl")
    }
    columns["ensemble"] = [ensemble] * len(rows)
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
