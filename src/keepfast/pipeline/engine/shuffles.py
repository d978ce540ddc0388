"""Keyed work on Spark: all of it in one job, however many ensembles it belongs to.

    keepfast_keyed       one row for each part and key of `map`: job, key, blob
    groupBy(job, key)    `reduce`, each bucket by a task of its own
    groupBy(job, key)    `finish`

Blobs go through the shuffle, not rows.  What is collected is small.  The functions of the groups
take and give Arrow; nothing here needs pandas.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.functions import arrow_udf

from keepfast.pipeline.keyed import Found, Keyed, KeyedWork
from keepfast.pipeline.replay.relational import ChainPlan
from keepfast.pipeline.scan.split_snapshots import SnapshotSplit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SOURCE_NAME = "keepfast_keyed"
# All works; for each task the number of its work and parts of it; and whether these are preludes.
_Tasks = tuple[list[bytes], list[tuple[int, list[int]]], bool]
_ROW = pa.schema([("job", pa.int32()), ("key", pa.int32()), ("blob", pa.binary())])
_ROW_TYPE = "job int, key int, blob binary"
_KEYED = pa.list_(pa.struct([("key", pa.int32()), ("blob", pa.binary())]))
_KEYED_TYPE = "array<struct<key:int,blob:binary>>"
_TASKS_PER_CORE = 4
# Kind of work -> its type.
_KINDS: dict[str, type[Any]] = {"chain": ChainPlan, "snapshot": SnapshotSplit}
_KIND_OF = {type_: kind for kind, type_ in _KINDS.items()}


def encoded(work: KeyedWork) -> bytes:
    """Work as bytes."""
    return msgspec.msgpack.encode((_KIND_OF[type(work)], msgspec.msgpack.encode(work)))


@lru_cache(maxsize=8)
def decoded(raw: bytes) -> KeyedWork:
    """The work again; tasks of one process are mostly about the same one."""
    kind, body = msgspec.msgpack.decode(raw, type=tuple[str, bytes])
    found: KeyedWork = msgspec.msgpack.decode(body, type=_KINDS[kind])
    return found


class KeyedPartition(InputPartition):
    """What one task maps: some parts of one job."""

    def __init__(self, job: int, work: bytes, indexes: list[int], is_prelude: bool) -> None:
        super().__init__(job)
        self.job = job
        self.work = work
        self.indexes = indexes
        self.is_prelude = is_prelude


class KeyedSource(DataSource):
    """The source ``keepfast_keyed``; only `keyed_jobs` makes its options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return SOURCE_NAME

    def schema(self) -> str:
        """The number of a job, a key of its work, and a blob."""
        return _ROW_TYPE

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return KeyedReader(self.options["tasks"])


class KeyedReader(DataSourceReader):
    """Maps parts."""

    def __init__(self, tasks: str) -> None:
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        """One partition per task."""
        packed = zlib.decompress(base64.b64decode(self._tasks))
        raws, tasks, is_prelude = msgspec.msgpack.decode(packed, type=_Tasks)
        return [KeyedPartition(job, raws[job], indexes, is_prelude) for job, indexes in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The blobs of some parts."""
        if not isinstance(partition, KeyedPartition):
            return
        work = decoded(partition.work)
        for index in partition.indexes:
            found = work.prelude(index) if partition.is_prelude else work.map(index)
            for key, blob in found:
                columns = [
                    pa.array([partition.job], pa.int32()),
                    pa.array([key], pa.int32()),
                    pa.array([blob], pa.binary()),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=_ROW)


def keyed_jobs(spark: SparkSession, works: Sequence[KeyedWork], cores: int) -> list[Found]:
    """Do all works at once; returns what each finished."""
    spark.dataSource.register(KeyedSource)
    raws = tuple(map(encoded, works))
    blobs = _mapped(spark, works, raws, cores, is_prelude=False)
    if any(work.has_prelude for work in works):
        known = _placed(_mapped(spark, works, raws, cores, is_prelude=True), works)
        resolve = _grouped(raws, lambda work, _, blobs: work.resolve(blobs))
        found = known.groupBy("place", "job", "key").agg(resolve("job", "key", "blob").alias("out"))
        blobs = blobs.unionByName(_exploded(found))
    reduce = _grouped(raws, lambda work, key, blobs: work.reduce(key, blobs))
    grouped = _placed(blobs, works).groupBy("place", "job", "key")
    reduced = _exploded(grouped.agg(reduce("job", "key", "blob").alias("out")))
    finished = reduced.groupBy("job", "key").agg(
        _finishing(raws)("job", "key", "blob").alias("out")
    )
    results: list[Found] = [{} for _ in works]
    for row in finished.collect():
        results[row.job][row.key] = [bytes(blob) for blob in row.out]
    return results


def _mapped(
    spark: SparkSession,
    works: Sequence[KeyedWork],
    raws: Sequence[bytes],
    cores: int,
    *,
    is_prelude: bool,
) -> DataFrame:
    total = sum(len(work.indexes) for work in works)
    # Neighbours together: tasks cost their start, and a few for each core are enough.
    size = max(1, total // (_TASKS_PER_CORE * cores))
    tasks = []
    for job, work in enumerate(works):
        indexes = list(work.indexes)
        if not is_prelude or work.has_prelude:
            tasks += [(job, indexes[at : at + size]) for at in range(0, len(indexes), size)]
    packed = zlib.compress(msgspec.msgpack.encode((raws, tasks, is_prelude)), 1)
    text = base64.b64encode(packed).decode("ascii")
    return spark.read.format(SOURCE_NAME).option("tasks", text).load()


def _placed(blobs: DataFrame, works: Sequence[KeyedWork]) -> DataFrame:
    """The blobs by tasks: each bucket has its own, where hashing would give some tasks several.

    No task is asked for its keys first, which a division by ranges does by doing all work twice.
    """
    firsts = [0]
    for work in works:
        # One more for what is no bucket.
        firsts.append(firsts[-1] + work.buckets + 1)
    first = functions.array(*map(functions.lit, firsts[:-1]))[functions.col("job")]
    own = functions.greatest(functions.col("key"), functions.lit(-1)) + functions.lit(1)
    placed = blobs.withColumn("place", (first + own).cast("int"))
    return placed.repartitionById(firsts[-1], "place")


def _exploded(frame: DataFrame) -> DataFrame:
    found = frame.select("job", functions.explode("out").alias("one"))
    return found.select(
        "job", functions.col("one.key").alias("key"), functions.col("one.blob").alias("blob")
    )


Grouped = Callable[[KeyedWork, int, list[bytes]], Iterator[Keyed]]


# The hints make Spark take these for functions of a whole group.
def _grouped(raws: tuple[bytes, ...], do: Grouped) -> Callable[..., Column]:
    """A function of a group: blobs in, blobs with keys out."""

    def run(job: pa.Array, key: pa.Array, blobs: pa.Array) -> pa.Scalar:
        found = do(decoded(raws[job[0].as_py()]), key[0].as_py(), blobs.to_pylist())
        return pa.scalar([{"key": one, "blob": blob} for one, blob in found], _KEYED)

    made: Callable[..., Column] = arrow_udf(run, _KEYED_TYPE)  # type: ignore[call-overload]
    return made


def _finishing(raws: tuple[bytes, ...]) -> Callable[..., Column]:
    def run(job: pa.Array, key: pa.Array, blobs: pa.Array) -> pa.Scalar:
        work = decoded(raws[job[0].as_py()])
        return pa.scalar(work.finish(key[0].as_py(), blobs.to_pylist()), pa.list_(pa.binary()))

    made: Callable[..., Column] = arrow_udf(run, "array<binary>")  # type: ignore[call-overload]
    return made
