"""Keyed work on Spark: all of it in one job, however many ensembles it belongs to.

    map      to blobs with the number of the task that reduces them
    reduce   each bucket of paths by a task of its own
    finish

Blobs go through the shuffle, not rows.  What is collected is small.  Where there are no RDDs (Spark
Connect), the same functions are run in columns of Arrow; nothing there needs pandas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from keepfast.pipeline.engine.connect import context_of, session_of
from keepfast.pipeline.engine.keyed_tasks import (
    KeyedTasks,
    MapTask,
    Placed,
    map_tasks,
    tasks_for,
)
from keepfast.pipeline.keyed import Found, KeyedWork

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import Column, DataFrame, SparkSession

    from keepfast.pipeline.engine.connect import Spark

_PLACED = pa.list_(
    pa.struct(
        [("place", pa.int32()), ("job", pa.int32()), ("key", pa.int32()), ("blob", pa.binary())]
    )
)
_PLACED_TYPE = "array<struct<place:int,job:int,key:int,blob:binary>>"


def keyed_jobs(spark: Spark, works: Sequence[KeyedWork], cores: int) -> list[Found]:
    """Do all works at once; returns what each finished."""
    tasks = tasks_for(works, cores)
    context = context_of(spark)
    if context is None:
        finished = finished_in_columns(session_of(spark), works, tasks)
    else:
        finished = _finished_by_rdds(context, works, tasks)
    results: list[Found] = [{} for _ in works]
    for job, key, blobs in finished:
        results[job][key] = blobs
    return results


_Finished = Iterable[tuple[int, int, list[bytes]]]


def _finished_by_rdds(
    context: SparkContext, works: Sequence[KeyedWork], tasks: KeyedTasks
) -> _Finished:
    def mapped(*, is_prelude: bool) -> RDD[Placed]:
        parts = map_tasks(works, tasks.cores, is_prelude=is_prelude)
        rows = context.parallelize(parts, len(parts))
        return rows.mapPartitions(partial(tasks.map, is_prelude=is_prelude))

    blobs = mapped(is_prelude=False)
    if any(work.has_prelude for work in works):
        known = mapped(is_prelude=True).partitionBy(tasks.reducers, int)
        blobs = blobs.union(known.mapPartitions(tasks.resolve))
    reduced = blobs.partitionBy(tasks.reducers, int).mapPartitions(tasks.reduce)
    return reduced.partitionBy(tasks.finishers, int).mapPartitions(tasks.finish).collect()


# -- without RDDs ----------------------------------------------------------------------------------


def finished_in_columns(
    spark: SparkSession, works: Sequence[KeyedWork], tasks: KeyedTasks
) -> _Finished:
    """The same as queries; for Spark Connect."""

    def mapped(*, is_prelude: bool) -> DataFrame:
        parts = map_tasks(works, tasks.cores, is_prelude=is_prelude)
        numbers = spark.range(0, len(parts), 1, len(parts))
        return _exploded(numbers.select(_mapping(tasks, parts, is_prelude)("id").alias("out")))

    blobs = mapped(is_prelude=False)
    if any(work.has_prelude for work in works):
        known = mapped(is_prelude=True).repartitionById(tasks.reducers, "place")
        blobs = blobs.unionByName(_grouped(known, tasks.resolve))
    reduced = _grouped(blobs.repartitionById(tasks.reducers, "place"), tasks.reduce)
    finished = reduced.groupBy("job", "key").agg(
        _finishing(tasks)("job", "key", "blob").alias("out")
    )
    for row in finished.collect():
        yield row.job, row.key, [bytes(blob) for blob in row.out]


def _exploded(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions

    return frame.select(functions.explode("out").alias("one")).select("one.*")


def _grouped(frame: DataFrame, do: Callable[[Iterable[Placed]], Iterator[Placed]]) -> DataFrame:
    grouped = frame.groupBy("place", "job", "key")
    return _exploded(grouped.agg(_of_group(do)("job", "key", "blob").alias("out")))


def _as_rows(found: Iterable[Placed]) -> list[dict[str, object]]:
    return [
        {"place": place, "job": job, "key": key, "blob": blob} for place, (job, key, blob) in found
    ]


# The hints make Spark take these for functions of a column, and of a whole group.
def _mapping(tasks: KeyedTasks, parts: list[MapTask], is_prelude: bool) -> Callable[..., Column]:
    from pyspark.sql.pandas.functions import arrow_udf

    def run(numbers: pa.Array) -> pa.Array:
        rows = [
            _as_rows(tasks.map([parts[number]], is_prelude=is_prelude))
            for number in numbers.to_pylist()
        ]
        return pa.array(rows, _PLACED)

    made: Callable[..., Column] = arrow_udf(run, _PLACED_TYPE)  # type: ignore[call-overload]
    return made


def _of_group(do: Callable[[Iterable[Placed]], Iterator[Placed]]) -> Callable[..., Column]:
    from pyspark.sql.pandas.functions import arrow_udf

    def run(job: pa.Array, key: pa.Array, blobs: pa.Array) -> pa.Scalar:
        return pa.scalar(_as_rows(do(_as_placed(job, key, blobs))), _PLACED)

    made: Callable[..., Column] = arrow_udf(run, _PLACED_TYPE)  # type: ignore[call-overload]
    return made


def _finishing(tasks: KeyedTasks) -> Callable[..., Column]:
    from pyspark.sql.pandas.functions import arrow_udf

    def run(job: pa.Array, key: pa.Array, blobs: pa.Array) -> pa.Scalar:
        ((_, _, found),) = tasks.finish(_as_placed(job, key, blobs))
        return pa.scalar(found, pa.list_(pa.binary()))

    made: Callable[..., Column] = arrow_udf(run, "array<binary>")  # type: ignore[call-overload]
    return made


def _as_placed(job: pa.Array, key: pa.Array, blobs: pa.Array) -> Iterator[Placed]:
    return ((0, (job[0].as_py(), key[0].as_py(), blob)) for blob in blobs.to_pylist())
