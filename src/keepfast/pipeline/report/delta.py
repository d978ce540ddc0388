"""The tables as Delta tables, over the same files: what an audit added becomes one commit.

Delta's log is written by `deltalake`, without a JVM; nothing of the data is read or written again.
"""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import parquet

from keepfast.pipeline.report.outputs import AuditStamp

_PARTITIONS = ("audit", "ensemble")


def add_to_delta(out: str, stamp: AuditStamp) -> list[str]:
    """Make the rows of an audit a commit of each table at `out`, a local directory; names them."""
    done = []
    for root in sorted((Path(out) / "tables").iterdir()):
        files = sorted(root.glob(f"audit={stamp.audit}/ensemble=*/*.parquet"))
        if files:
            _commit(root, files, stamp)
            done.append(root.name)
    return done


def _commit(root: Path, files: list[Path], stamp: AuditStamp) -> None:
    fields = [pa.field(name, pa.string()) for name in _PARTITIONS]
    found = parquet.read_schema(str(files[0])).remove_metadata()
    schema = Schema.from_arrow(pa.schema([*found, *fields]))
    actions = [_action(root, file, stamp) for file in files]
    if DeltaTable.is_deltatable(str(root)):
        table = DeltaTable(str(root))
        table.create_write_transaction([*actions], "append", schema, list(_PARTITIONS))
    else:
        create_table_with_add_actions(
            str(root), schema, actions, mode="error", partition_by=list(_PARTITIONS)
        )


def _action(root: Path, file: Path, stamp: AuditStamp) -> AddAction:
    ensemble = urllib.parse.unquote(file.parent.name.removeprefix("ensemble="))
    # Names are percent-encoded once more in Delta's log.
    path = urllib.parse.quote(str(file.relative_to(root)), safe="/=")
    about = file.stat()
    return AddAction(
        path=path,
        size=about.st_size,
        partition_values={"audit": stamp.audit, "ensemble": ensemble},
        modification_time=int(about.st_mtime * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": parquet.read_metadata(str(file)).num_rows}),
    )
