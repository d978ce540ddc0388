"""Items of work on Spark: one job for all of them, however many ensembles they belong to.

A small data source carries the items to the executors and their values back, so nothing needs
pandas, RDDs or a JVM of our own.  Items are packed by weight: a task costs its start anyhow.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from keepfast.pipeline.checks.plan import ReplayOutcome
from keepfast.pipeline.columns.known import Known
from keepfast.pipeline.facts import RecordFacts
from keepfast.pipeline.findings import EnsembleResult
from keepfast.pipeline.scan import Summary
from keepfast.pipeline.stages import (
    EnsembleItem,
    FactsItem,
    FileFacts,
    Item,
    RecordsItem,
    ReplayItem,
    Runner,
    Value,
    run_item,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SOURCE_NAME = "keepfast_work"
_ROW = pa.schema([("number", pa.int64()), ("value", pa.binary())])
_TASKS_A_CORE = 4
# What an item costs beside its bytes, told in bytes.
_ITEM_WEIGHT = 64 << 10
_RECORD_WEIGHT = 2 << 10
_LEAST_TASK_WEIGHT = 8 << 20
# Smaller tasks than this only if cores would be left without one: a task finds what it has read
# already in the logs of other servers (columns/known.py), but not what others read.
_GOOD_TASK_WEIGHT = 96 << 20

# Kind of an item -> its type and that of its value.
_KINDS: dict[str, tuple[type[Any], Any]] = {
    "facts": (FactsItem, FileFacts),
    "records": (RecordsItem, tuple[RecordFacts, ...]),
    "replay": (ReplayItem, ReplayOutcome),
    "ensemble": (EnsembleItem, EnsembleResult),
}
_KIND_OF = {item: kind for kind, (item, _) in _KINDS.items()}


class WorkPartition(InputPartition):
    """What one task does: the numbers of its items, their kinds, and the items as JSON."""

    def __init__(self, items: list[tuple[int, str, str]]) -> None:
        super().__init__(len(items))
        self.items = items


class WorkSource(DataSource):
    """The source ``keepfast_work``; only `spark_runner` makes its option."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE_NAME

    def schema(self) -> str:
        """The number of an item and its value, encoded."""
        return "number bigint, value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return WorkReader(self.options["work"])


class WorkReader(DataSourceReader):
    """Does the items of a partition."""

    def __init__(self, work: str) -> None:
        self._work = work

    def partitions(self) -> list[InputPartition]:
        """One partition a bundle."""
        bundles = json.loads(zlib.decompress(base64.b64decode(self._work)))
        return [WorkPartition([(n, k, b) for n, k, b in bundle]) for bundle in bundles]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The values of one bundle."""
        if not isinstance(partition, WorkPartition):
            return
        known: Known[Summary] = Known()
        for number, kind, body in partition.items:
            item = msgspec.json.decode(body, type=_KINDS[kind][0])
            value = msgspec.json.encode(run_item(item, known))
            arrays = [pa.array([number], pa.int64()), pa.array([value], pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ROW)


def spark_runner(spark: SparkSession) -> Runner:
    """A runner whose every call is one Spark job."""
    spark.dataSource.register(WorkSource)
    cores = _cores(spark)

    def run(items: Sequence[Item]) -> list[Value]:
        if not items:
            return []
        bundles = _bundles(items, cores)
        text = json.dumps(bundles, separators=(",", ":")).encode()
        work = base64.b64encode(zlib.compress(text, 1)).decode("ascii")
        rows = spark.read.format(SOURCE_NAME).option("work", work).load().collect()
        values: dict[int, bytes] = {row.number: bytes(row.value) for row in rows}
        return [
            msgspec.json.decode(values[number], type=_KINDS[_KIND_OF[type(item)]][1])
            for number, item in enumerate(items)
        ]

    return run


def tasks_of(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the running jobs are done, and of how many; for a progress bar."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def _cores(spark: SparkSession) -> int:
    found = spark.conf.get("spark.default.parallelism", "")
    return int(found) if found else os.cpu_count() or 1


def weight_of(item: Item) -> int:
    """About what an item costs, in bytes to read."""
    if isinstance(item, FactsItem):
        return item.part.weight + _ITEM_WEIGHT
    if isinstance(item, RecordsItem):
        return sum(end - start for _, _, start, end in item.ranges) + _ITEM_WEIGHT
    if isinstance(item, ReplayItem):
        return item.plan.records * _RECORD_WEIGHT + _ITEM_WEIGHT
    files = [entry for server in item.files.servers for entry in server.files]
    # Mostly padding: a small log takes 64 MB on a disk that knows holes, and a few KB to read.
    return sum(min(entry.size, _ITEM_WEIGHT) for entry in files) + _ITEM_WEIGHT


def _bundles(items: Sequence[Item], cores: int) -> list[list[tuple[int, str, str]]]:
    """The items in bundles, one a task: about equally heavy, in the order of the items."""
    weights = [weight_of(item) for item in items]
    # So that no core is left over in the last round.
    rounds = min(_TASKS_A_CORE, max(1, sum(weights) // (cores * _GOOD_TASK_WEIGHT)))
    target = max(_LEAST_TASK_WEIGHT, sum(weights) // (cores * rounds))
    bundles: list[list[tuple[int, str, str]]] = [[]]
    weight = 0
    for number, item in enumerate(items):
        if bundles[-1] and weight + weights[number] > target:
            bundles.append([])
            weight = 0
        body = msgspec.json.encode(item).decode()
        bundles[-1].append((number, _KIND_OF[type(item)], body))
        weight += weights[number]
    return bundles
