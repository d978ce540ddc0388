"""Items of work on Spark: one job for all of them, however many ensembles they belong to.

The items go to the executors inside a function, their values come back as its result, so nothing
needs pandas, RDDs or a JVM of our own.  Items are packed by weight: a task costs its start anyhow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.pandas.functions import arrow_udf

from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.engine.connect import context_of
from keepfast.pipeline.engine.shuffles import keyed_jobs
from keepfast.pipeline.engine.stages import (
    CompareItem,
    EnsembleItem,
    EvidenceItem,
    FactsItem,
    FileFacts,
    Item,
    ReplayItem,
    Value,
    run_item,
)
from keepfast.pipeline.findings.document import EnsembleResult
from keepfast.pipeline.findings.evidence import Evidence
from keepfast.pipeline.keyed import Found, KeyedWork
from keepfast.pipeline.replay.plan import ReplayOutcome
from keepfast.pipeline.scan.summaries import ScanSummary

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_TASKS_A_CORE = 4
# What an item costs beside its bytes, told in bytes.
_ITEM_WEIGHT = 64 << 10
_RECORD_WEIGHT = 2 << 10
_LEAST_TASK_WEIGHT = 8 << 20
# Smaller tasks than this only if cores would be left without one: a task finds what it has read
# already in the logs of other servers (decode/known.py), but not what others read.
_GOOD_TASK_WEIGHT = 96 << 20

# Kind of an item -> its type and that of its value.
_KINDS: dict[str, tuple[type[Any], Any]] = {
    "facts": (FactsItem, FileFacts),
    "compare": (CompareItem, Compared),
    "replay": (ReplayItem, ReplayOutcome),
    "evidence": (EvidenceItem, Evidence),
    "ensemble": (EnsembleItem, EnsembleResult),
}
_KIND_OF = {item: kind for kind, (item, _) in _KINDS.items()}


class SparkRunner:
    """A runner whose every call is one Spark job."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, items: Sequence[Item]) -> list[Value]:
        """Do all items, packed into tasks."""
        if not items:
            return []
        bundles = _bundles(items, parallelism(self._spark))
        # A plain range and a function: a Python data source would start three Python processes
        # more, to find it, to open it and to plan it.
        tasks = self._spark.range(0, len(bundles), 1, len(bundles))
        rows = tasks.select(_work(bundles)("id").alias("values")).collect()
        values: dict[int, bytes] = {}
        for row in rows:
            values.update(msgspec.msgpack.decode(bytes(row["values"]), type=dict[int, bytes]))
        return [
            msgspec.json.decode(values[number], type=_KINDS[_KIND_OF[type(item)]][1])
            for number, item in enumerate(items)
        ]

    def sum_up(self, works: Sequence[KeyedWork]) -> list[Found]:
        """Do all works, beside each other, on all cores."""
        return keyed_jobs(self._spark, works, parallelism(self._spark)) if works else []


def _work(bundles: Sequence[bytes]) -> Callable[..., Column]:
    """A function of the number of a bundle that does it."""
    packed = tuple(bundles)

    def run(numbers: pa.Array) -> pa.Array:
        return pa.array([do_bundle(packed[number]) for number in numbers.to_pylist()], pa.binary())

    made: Callable[..., Column] = arrow_udf(run, "binary")  # type: ignore[call-overload]
    return made


def do_bundle(bundle: bytes) -> bytes:
    """Do the items of a bundle, in the process of a task; gives their values by number."""
    known: Known[ScanSummary] = Known()
    values: dict[int, bytes] = {}
    for number, kind, body in msgspec.msgpack.decode(bundle, type=list[tuple[int, str, bytes]]):
        item = msgspec.json.decode(body, type=_KINDS[kind][0])
        values[number] = msgspec.json.encode(run_item(item, known))
    return msgspec.msgpack.encode(values)


def tasks_of(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the running jobs are done, and of how many; for a progress bar.

    Spark Connect does not say; then there are none.
    """
    context = context_of(spark)
    if context is None:
        return 0, 0
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once, as Spark itself counts it."""
    context = context_of(spark)
    if context is not None:
        return max(1, context.defaultParallelism)
    # A range is cut into as many parts.
    numbers = spark.range(1 << 12).select(functions.spark_partition_id().alias("part"))
    return max(1, numbers.distinct().count())


def weight_of(item: Item) -> int:
    """About what an item costs, in bytes to read."""
    if isinstance(item, FactsItem):
        return item.part.weight + _ITEM_WEIGHT
    if isinstance(item, CompareItem):
        return sum(one.end - one.start for one in item.sources) + _ITEM_WEIGHT
    if isinstance(item, ReplayItem):
        is_summed = item.proofs is not None and not any(one.trouble for one in item.proofs)
        return (0 if is_summed else item.plan.records * _RECORD_WEIGHT) + _ITEM_WEIGHT
    if isinstance(item, EvidenceItem):
        ranges = [*item.plan.records, *(p for one in item.plan.lacked for p in one.pieces)]
        return sum(piece.end - piece.start for piece in ranges) + _ITEM_WEIGHT
    files = [entry for server in item.files.servers for entry in server.files]
    # Mostly padding: a small log takes 64 MB on a disk that knows holes, and a few KB to read.
    return sum(min(entry.size, _ITEM_WEIGHT) for entry in files) + _ITEM_WEIGHT


def _bundles(items: Sequence[Item], cores: int) -> list[bytes]:
    """The items in bundles, one per task: about equally heavy, in the order of the items."""
    weights = [weight_of(item) for item in items]
    # So that no core is left over in the last round.
    rounds = min(_TASKS_A_CORE, max(1, sum(weights) // (cores * _GOOD_TASK_WEIGHT)))
    target = max(_LEAST_TASK_WEIGHT, sum(weights) // (cores * rounds))
    bundles: list[list[tuple[int, str, bytes]]] = [[]]
    weight = 0
    for number, item in enumerate(items):
        if bundles[-1] and weight + weights[number] > target:
            bundles.append([])
            weight = 0
        bundles[-1].append((number, _KIND_OF[type(item)], msgspec.json.encode(item)))
        weight += weights[number]
    return [msgspec.msgpack.encode(bundle) for bundle in bundles]
