"""The tree as it was, as a Spark data source, "zkstate": one row per znode, one task per ensemble.

    spark.read.format("zkstate").option("at", "0x500000003").load("/var/lib/zookeeper")

`at` is a zxid in hex, or a time (ISO 8601); without it, the head. An ensemble whose files prove no
state then has one row, with the reason in `problem`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from keepfast.pipeline.files.layout import EnsembleFiles, discover
from keepfast.pipeline.replay.state import (
    EnsembleState,
    Moment,
    StateUnknown,
    ensemble_state,
    moment_of,
    read_only_disk,
)
from keepfast.pipeline.schemas import ACL_LIST, STAT, spark_schema
from keepfast.tree import Kind, Node, Tree, kind_of, persisted, ttl_of

FORMAT = "zkstate"
STATE_SCHEMA = pa.schema(
    [
        ("ensemble", pa.string()),
        ("zxid", pa.int64()),
        ("path", pa.string()),
        ("data", pa.binary()),
        ("acl", ACL_LIST),
        ("kind", pa.string()),
        ("session_id", pa.int64()),
        ("ttl_ms", pa.int64()),
        *STAT,
        ("children", pa.int32()),
        ("problem", pa.string()),
    ]
)
_BATCH_ROWS = 10_000
_LAST_TIME_MS = 253_402_300_799_999


class StatePartition(InputPartition):
    """One ensemble at one moment."""

    def __init__(self, ensemble: EnsembleFiles, moment: Moment) -> None:
        super().__init__(ensemble.name)
        self.ensemble = ensemble
        self.moment = moment


class StateSource(DataSource):
    """`format("zkstate")`: the znodes as they were at a zxid or a time."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns; see docs/data-dictionary.md."""
        return spark_schema(STATE_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The states of all ensembles at the places."""
        return StateReader(self.options)


class StateReader(DataSourceReader):
    """Replays one ensemble per task."""

    def __init__(self, options: Any) -> None:
        places = json.loads(options.get("paths") or json.dumps([options.get("path", "")]))
        moment = moment_of(options.get("at") or None)
        self._partitions = [StatePartition(ensemble, moment) for ensemble in discover(places)]

    def partitions(self) -> list[InputPartition]:
        """One an ensemble."""
        return list(self._partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The znodes of one ensemble, by path."""
        if isinstance(partition, StatePartition):
            yield from state_batches(partition.ensemble, partition.moment)


def state_batches(ensemble: EnsembleFiles, moment: Moment) -> Iterator[pa.RecordBatch]:
    """The znodes of an ensemble at a moment, by path; or one row that says why there are none."""
    try:
        state = ensemble_state(read_only_disk(), ensemble, moment)
    except StateUnknown as error:
        yield _batch([{"ensemble": ensemble.name, "problem": str(error)}])
        return
    problem = _problem(state)
    rows: list[dict[str, Any]] = []
    for path in sorted(state.tree.paths()):
        node = state.tree.find(path)
        if node is not None:
            row = {"ensemble": ensemble.name, "zxid": state.head, "problem": problem}
            rows.append(row | _row(state.tree, path, node))
        if len(rows) >= _BATCH_ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _problem(state: EnsembleState) -> str | None:
    """What has to be said about every row: not the moment that was asked for, or not sure."""
    if state.is_contradicted:
        return f"server {', '.join(state.differing)} has another state"
    if not state.chosen.reaches or not state.chosen.is_proven:
        return state.chosen.note
    return None


def _row(tree: Tree, path: str, node: Node) -> dict[str, Any]:
    stat, kind = persisted(node), kind_of(node.stat)
    return {
        "path": path,
        "data": node.data,
        "acl": [
            {"perms": perms, "scheme": who.scheme, "id": who.id} for perms, who in tree.acl_of(node)
        ],
        "kind": kind.name.lower(),
        "session_id": stat.ephemeral_owner if kind is Kind.EPHEMERAL else None,
        "ttl_ms": ttl_of(node.stat) if kind is Kind.TTL else None,
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime": _time(stat.ctime),
        "mtime": _time(stat.mtime),
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "children": len(node.children or ()),
    }


def _time(time_ms: int) -> int | None:
    return time_ms * 1000 if 0 <= time_ms <= _LAST_TIME_MS else None


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([row.get(field.name) for row in rows], field.type) for field in STATE_SCHEMA],
        schema=STATE_SCHEMA,
    )
