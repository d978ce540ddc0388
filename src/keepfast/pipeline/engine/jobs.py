"""A step of the audit on Spark: one job for all of its items, however many ensembles they are of.

A job is a function over bundles of items, one per task, and nothing else: no schema, no plan, no
generated code.  Where there are no RDDs (Spark Connect), the bundles go out inside a function over
a range and come back as a column; nothing there needs pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from keepfast.pipeline.engine.bundles import bundled, do_bundle, values_of
from keepfast.pipeline.engine.connect import context_of, session_of
from keepfast.pipeline.engine.stages import Item, Value
from keepfast.pipeline.keyed import Found, KeyedWork

if TYPE_CHECKING:
    from pyspark.sql import Column

    from keepfast.pipeline.engine.connect import Spark


class SparkRunner:
    """A runner whose every call is one Spark job."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def __call__(self, items: Sequence[Item]) -> list[Value]:
        """Do all items, packed into tasks."""
        if not items:
            return []
        bundles = bundled(items, parallelism(self._spark))
        context = context_of(self._spark)
        if context is not None:
            tasks = context.parallelize(bundles, len(bundles))
            return values_of(items, tasks.map(do_bundle).collect())
        # A plain range and a function: a Python data source would start three Python processes
        # more, to find it, to open it and to plan it.
        ids = session_of(self._spark).range(0, len(bundles), 1, len(bundles))
        rows = ids.select(_work(bundles)("id").alias("values")).collect()
        return values_of(items, [bytes(row["values"]) for row in rows])

    def sum_up(self, works: Sequence[KeyedWork]) -> list[Found]:
        """Do all works, beside each other, on all cores."""
        if not works:
            return []
        from keepfast.pipeline.engine.shuffles import keyed_jobs

        return keyed_jobs(self._spark, works, parallelism(self._spark))


def _work(bundles: Sequence[bytes]) -> Callable[..., Column]:
    """A function of the number of a bundle that does it."""
    from pyspark.sql.pandas.functions import arrow_udf

    packed = tuple(bundles)

    def run(numbers: pa.Array) -> pa.Array:
        return pa.array([do_bundle(packed[number]) for number in numbers.to_pylist()], pa.binary())

    made: Callable[..., Column] = arrow_udf(run, "binary")  # type: ignore[call-overload]
    return made


def tasks_of(spark: Spark) -> tuple[int, int]:
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


def parallelism(spark: Spark) -> int:
    """How many tasks the cluster runs at once, as Spark itself counts it."""
    context = context_of(spark)
    if context is not None:
        return max(1, context.defaultParallelism)
    from pyspark.sql import functions

    # A range is cut into as many parts.
    numbers = session_of(spark).range(1 << 12).select(functions.spark_partition_id().alias("part"))
    return max(1, numbers.distinct().count())
