"""The change feed on disk: written once, or followed while servers write.

    OUT/changes/part-*.parquet              batch
    OUT/changes/batch=<n>/part-*.parquet    followed: one directory per micro-batch (`feed_files`)
    OUT/_checkpoint/                        where it stands, Spark's and ours

Exactly once: Spark notes the offsets of a micro-batch before it runs and runs it again, with the
same offsets, if it was cut short. The same offsets give the same rows (history_source), and they
go into the directory of that micro-batch, instead of what an attempt before left there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from keepfast.pipeline.engine.connect import is_embedded
from keepfast.pipeline.feeds.feed_files import CHANGES as _CHANGES
from keepfast.pipeline.feeds.feed_files import FeedFiles
from keepfast.pipeline.feeds.history_source import FORMAT, HistorySource, electorate_for
from keepfast.pipeline.files.layout import (
    EnsembleFiles,
    PlaceError,
    discover,
    is_remote,
    local_path,
    split_place,
)
from keepfast.pipeline.files.staging import local_places
from keepfast.pipeline.replay.history import BROKEN, GAP, EnsembleHistory, HistoryGone
from keepfast.pipeline.replay.state import read_only_disk
from keepfast.pipeline.report.targets import check_out
from keepfast.wire import KeepfastError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CHECKPOINT = "_checkpoint"
_OURS = "keepfast.json"
_MAX_FAILURES = 5
# How a failure of ours looks in what Spark makes of it.
_OUR_FAILURE = re.compile(r"keepfast\.pipeline\.\w+\.(?:HistoryGone|HistoryBroken): (.+)")


class FeedRefused(KeepfastError):  # noqa: N818 - it says what is the case
    """The feed cannot be written there, or not continue; `str()` is one sentence."""


@dataclass(frozen=True, slots=True)
class FeedSummary:
    """What was written of one ensemble."""

    ensemble: str
    transactions: int
    rows: int
    first_zxid: int | None
    last_zxid: int | None
    gaps: tuple[str, ...] = ()
    broken: str = ""
    # Why it ends there: "end", "minority", "conflict" or "hole" (agreement.Stop), and in words.
    end_kind: str = "end"
    end: str = ""
    caution: str = ""  # who was not asked, if those who were are not a quorum


def history_frame(
    spark: SparkSession, places: Sequence[str], quorum: int | None = None
) -> DataFrame:
    """The change feed of all that is there now, as a DataFrame."""
    spark.dataSource.register(HistorySource)
    options = _options(seen_by_tasks(spark, places), quorum)
    return spark.read.format(FORMAT).options(**options).load()


def seen_by_tasks(spark: SparkSession, places: Sequence[str]) -> list[str]:
    """The places as directories that tasks can read; raises PlaceError if there is no way."""
    for place in places:
        if is_remote(place) and not is_embedded(spark):
            raise PlaceError(
                place,
                "is brought to this machine, and tasks run elsewhere; leave --master out, or copy "
                "the directories to a place that all of them see",
            )
    return local_places(places, spark)


def _options(places: Sequence[str], quorum: int | None) -> dict[str, str]:
    # Executors do not share the working directory of the driver.
    options = {"paths": json.dumps([absolute_place(place) for place in places])}
    return options if quorum is None else {**options, "quorum": str(quorum)}


def absolute_place(place: str) -> str:
    """A place under its full name."""
    data, logs = split_place(place)
    return local_path(data) if logs is None else f"{local_path(data)}:{local_path(logs)}"


# -- at rest ---------------------------------------------------------------------------------------


def write_history(
    spark: SparkSession, places: Sequence[str], out: str, quorum: int | None = None
) -> list[FeedSummary]:
    """Write the feed to `out`, which must not hold one; returns what was written."""
    check_out(out, places)
    places = seen_by_tasks(spark, places)
    ensembles = discover(places)
    target = os.path.join(out, _CHANGES)
    if os.path.lexists(target) or os.path.lexists(os.path.join(out, _CHECKPOINT)):
        raise FeedRefused(f"{out} holds a feed already; name another directory, or remove it")
    pending = os.path.join(out, f"_{_CHANGES}")
    history_frame(spark, places, quorum).write.mode("overwrite").parquet(pending)
    os.rename(pending, target)
    written = {one.ensemble: one for one in _summaries(spark.read.parquet(target))}
    return [_ended(ensemble, written.get(ensemble.name), quorum) for ensemble in ensembles]


def _summaries(changes: DataFrame) -> list[FeedSummary]:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    is_said = F.col("change").isin(GAP, BROKEN)
    rows = (
        changes.groupBy("ensemble")
        .agg(
            F.count_distinct(F.when(~is_said, F.col("zxid"))).alias("transactions"),
            F.count(F.when(~is_said, 1)).alias("rows"),
            F.min(F.when(~is_said, F.col("zxid"))).alias("first"),
            F.max("zxid").alias("last"),
            F.sort_array(F.collect_list(F.when(F.col("change") == GAP, F.col("new_data")))).alias(
                "gaps"
            ),
            F.max(F.when(F.col("change") == BROKEN, F.col("new_data"))).alias("broken"),
        )
        .collect()
    )
    return [
        FeedSummary(
            row["ensemble"],
            row["transactions"],
            row["rows"],
            row["first"],
            row["last"],
            tuple(bytes(text).decode() for text in row["gaps"]),
            bytes(row["broken"] or b"").decode(),
        )
        for row in rows
    ]


def _ended(ensemble: EnsembleFiles, found: FeedSummary | None, quorum: int | None) -> FeedSummary:
    """The summary, with why the feed ends where it does."""
    found = found or FeedSummary(ensemble.name, 0, 0, None, None)
    if found.broken:
        return found
    electorate = electorate_for(ensemble, quorum)
    found = replace(found, caution=electorate.caution)
    try:
        walk = EnsembleHistory(
            *(read_only_disk(), ensemble),
            electorate=electorate,
            after=found.last_zxid,
            with_values=False,
        )
        for _ in walk.read():
            continue  # written since
    except HistoryGone as error:
        return replace(found, end_kind="hole", end=str(error))
    return replace(found, end_kind=walk.stop.kind, end=walk.stop.text)


# -- followed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a feed is followed."""

    quorum: int | None = None
    # Between two looks at the files, in seconds. Less: rows come sooner; more: fewer, larger files.
    interval_s: float = 1.0
    # Transactions a micro-batch at most.
    limit: int = 100_000


class FollowedFeed:
    """A feed that continues until it is stopped; see `follow_history`.

    A query that Spark ends for reasons of its own (a worker that a busy machine starts too slowly,
    an executor that is gone) is started again: its checkpoint says where.
    """

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        """Use `follow_history`."""
        self._start = start
        self._query = start()
        self.failures = 0  # in a row, without a micro-batch in between

    def wait(self, seconds: float) -> None:
        """Let it run for a while; raises what ended it for good."""
        from pyspark.errors import StreamingQueryException

        try:
            self._query.awaitTermination(max(1, round(seconds)))
        except StreamingQueryException as error:
            self.failures += 1
            if our_failure(error) is not None or self.failures > _MAX_FAILURES:
                raise
            self._query = self._start()

    def stop(self) -> None:
        """End it; what it has begun to write is written again, the same, when it continues."""
        self._query.stop()


def follow_history(
    spark: SparkSession,
    places: Sequence[str],
    out: str,
    options: FollowOptions,
    on_batch: Callable[[int, list[FeedSummary]], None],
) -> FollowedFeed:
    """Start to follow; a feed that `out` holds continues where it ended.

    `on_batch` is called with each complete micro-batch, on another thread.
    """
    for place in places:
        if is_remote(place):
            raise PlaceError(place, "cannot be followed: only local directories can")
    check_out(out, places)
    _check_same_servers(discover(places), out, options.quorum)
    spark.dataSource.register(HistorySource)
    feeds: list[FollowedFeed] = []

    files = FeedFiles(out)
    files.open()

    def write(batch: DataFrame, number: int) -> None:
        # All batches before this one are noted by Spark as done.
        files.compact(number)
        batch.write.mode("overwrite").parquet(files.pending(number))
        target = files.publish(number)
        for feed in feeds:
            feed.failures = 0
        on_batch(number, _summaries(batch.sparkSession.read.parquet(target)))

    def start() -> StreamingQuery:
        source = spark.readStream.format(FORMAT).options(**_options(places, options.quorum))
        return (
            source.option("maxTransactions", str(options.limit))
            .load()
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", os.path.join(out, _CHECKPOINT))
            .trigger(processingTime=f"{max(1, round(options.interval_s * 1000))} milliseconds")
            .start()
        )

    feeds.append(FollowedFeed(start))
    return feeds[0]


def _check_same_servers(ensembles: list[EnsembleFiles], out: str, quorum: int | None) -> None:
    """A feed continues with the servers that it began with: a majority of others proves nothing."""
    ours = {
        "servers": [
            [ensemble.name, server.server, server.snapshots_dir, server.logs_dir]
            for ensemble in ensembles
            for server in ensemble.servers
        ],
        "quorum": quorum,
    }
    path = os.path.join(out, _CHECKPOINT, _OURS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if json.load(file) != ours:
                raise FeedRefused(
                    f"{out} was begun with other servers or another --quorum; name the same ones, "
                    "or another directory"
                )
        return
    if os.path.lexists(os.path.join(out, _CHANGES)):
        raise FeedRefused(f"{out} holds a feed that was not followed; name another directory")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(ours, file)
    os.replace(path + ".tmp", path)


def our_failure(error: BaseException) -> str | None:
    """The sentence of a failure that a task of ours raised, out of what Spark makes of it."""
    match = _OUR_FAILURE.search(str(error))
    return None if match is None else match[1]
