"""The pipeline for programs and notebooks: places or DataFrames in, DataFrames out.

    from keepfast.pipeline import audit, change_feed, state_at, transactions

    transactions(["zk1", "zk2", "zk3"]).groupBy("op").count().show()
    state_at(["zk1", "zk2", "zk3"], "0x500000003").where("path = '/config'").show()
    audit(["zk1", "zk2", "zk3"]).findings.show()

Without a session, the running one is used, or an embedded one is started that lasts as long as the
program. Places may be given as a DataFrame too: its first column of text names them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from keepfast.pipeline.engine.auditing import audit_places
from keepfast.pipeline.engine.session import open_session
from keepfast.pipeline.engine.sources import register as register_files
from keepfast.pipeline.engine.stages import AuditOptions
from keepfast.pipeline.engine.table_reads import read_table
from keepfast.pipeline.feeds.feed import absolute_place, history_frame, seen_by_tasks
from keepfast.pipeline.feeds.history_source import HistorySource
from keepfast.pipeline.feeds.state_source import FORMAT, StateSource
from keepfast.pipeline.findings.document import AuditResult, Verdict
from keepfast.pipeline.replay.state import moment_of
from keepfast.pipeline.report.documents import write_documents
from keepfast.pipeline.report.outputs import findings_table, write_tables
from keepfast.pipeline.report.targets import check_out
from keepfast.pipeline.report.words import summary_of
from keepfast.pipeline.schemas import FINDING_SCHEMA, spark_schema
from keepfast.wire import format_zxid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Places = str | Sequence[str] | DataFrame


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found."""

    result: AuditResult
    places: tuple[str, ...]
    spark: SparkSession

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict of all ensembles."""
        return self.result.verdict

    @property
    def findings(self) -> DataFrame:
        """One row per finding."""
        schema = spark_schema(FINDING_SCHEMA)
        rows = findings_table(self.result).to_pylist()
        return self.spark.createDataFrame(rows, schema)

    def write(self, out: str) -> None:
        """Write findings.json, report.html and the tables, as `keepfast audit --out` does."""
        check_out(out, self.places)
        write_documents(self.result, out, spark=self.spark)
        write_tables(self.spark, self.places, out, self.result)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        verdict = escape(self.verdict.value)
        return f"<p><b>{verdict}</b>: {escape(summary_of(self.result))}</p>"


def register(spark: SparkSession) -> None:
    """Make every data source known to a session of your own: `spark.read.format("zktxnlog")` ..."""
    register_files(spark)
    for source in (HistorySource, StateSource):
        spark.dataSource.register(source)


def audit(
    places: Places, spark: SparkSession | None = None, options: AuditOptions | None = None
) -> Audit:
    """Prove that the servers at `places` agree, or find where they parted."""
    spark = spark or open_session()
    named = _named(places)
    return Audit(audit_places(spark, named, options), tuple(named), spark)


def transactions(
    places: Places, columns: Sequence[str] | None = None, spark: SparkSession | None = None
) -> DataFrame:
    """Every record of every server's logs, as each has it (docs/data-dictionary.md).

    With `columns`, only these are decoded.
    """
    wanted = None if columns is None else list(columns)
    return read_table(spark or open_session(), "zktxnlog", _named(places), wanted)


def change_feed(
    places: Places, quorum: int | None = None, spark: SparkSession | None = None
) -> DataFrame:
    """What each ensemble committed: each transaction once, a row for each znode it changed."""
    return history_frame(spark or open_session(), _named(places), quorum)


def state_at(
    source: Places,
    at: int | str | datetime | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The trees as they were: at a zxid (a number, or hex), at a time, or at the head.

    `source` names places, or is a change feed (`change_feed`, or one read back from Parquet): then
    the tree is made of its rows, by Spark alone, and holds what the feed has: znodes that were
    there before it began are not in it, and `at` is a zxid.
    """
    from pyspark.sql import DataFrame

    if isinstance(source, DataFrame) and "old_data" in source.columns:
        return _replayed(source, at)
    spark = spark or open_session()
    spark.dataSource.register(StateSource)
    places = [absolute_place(place) for place in seen_by_tasks(spark, _named(source))]
    reader = spark.read.format(FORMAT).option("paths", json.dumps(places))
    moment = moment_of(at)
    if moment.zxid is not None:
        reader = reader.option("at", format_zxid(moment.zxid))
    elif moment.time_ms is not None:
        reader = reader.option("at", str(moment))
    return reader.load()


def _replayed(feed: DataFrame, at: int | str | datetime | None) -> DataFrame:
    """The last change of each path: one pass, and a shuffle of one row per path and partition."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    moment = moment_of(at)
    if moment.time_ms is not None:
        raise ValueError("a change feed is cut at a zxid; its column `time` shows which")
    rows = feed.where("path IS NOT NULL")
    if moment.zxid is not None:
        rows = rows.where(F.col("zxid") <= moment.zxid)
    order = F.struct("zxid", "operation")
    writes = F.col("change").isin("created", "set_data")
    last = rows.groupBy("ensemble", "path").agg(
        F.max_by("change", order).alias("_change"),
        F.max_by("new_data", order).alias("data"),
        F.max_by("acl", order).alias("acl"),
        F.max_by("kind", order).alias("kind"),
        F.max_by("session_id", F.when(F.col("change") == "created", order)).alias("_session_id"),
        F.max(F.when(F.col("change") == "created", F.col("zxid"))).alias("czxid"),
        F.max(F.when(writes, F.col("zxid"))).alias("mzxid"),
        F.max_by("new_version", F.when(writes, order)).alias("version"),
    )
    owner = F.when(F.col("kind") == "ephemeral", F.col("_session_id"))
    return (
        last.where(F.col("_change") != "deleted")
        .withColumn("session_id", owner)
        .drop("_change", "_session_id")
    )


def _named(places: Places) -> list[str]:
    """The places as text."""
    if isinstance(places, str):
        return [places]
    if isinstance(places, Sequence):
        return list(places)
    column = next(name for name, kind in places.dtypes if kind == "string")
    return [row[0] for row in places.select(column).distinct().orderBy(column).collect()]
