"""The Parquet tables that `keepfast audit --out DIR` leaves, each audit beside those before.

    DIR/tables/<table>/audit=<id>/ensemble=<name>/part-*.parquet

An audit adds its directory when all of it is written: it is written under a name that readers pass
over, and renamed.  Object stores cannot rename; there the file `_SUCCESS` comes last.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from keepfast.pipeline.engine.object_writer import FORMAT as OBJECT_FORMAT
from keepfast.pipeline.engine.object_writer import ObjectSink
from keepfast.pipeline.engine.record_source import RecordPart, parts_of_source, records_frame
from keepfast.pipeline.engine.table_reads import read_table
from keepfast.pipeline.files.access import is_of_arrow
from keepfast.pipeline.files.layout import discover, is_remote, local_path
from keepfast.pipeline.files.staging import Staging
from keepfast.pipeline.findings.document import AuditResult
from keepfast.pipeline.findings.records_named import RecordNote, time_text
from keepfast.pipeline.report.daily import for_daily_use
from keepfast.pipeline.schemas import FINDING_SCHEMA, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# File systems of Hadoop's own: Spark writes there whether or not Arrow finds its library.
_HADOOP = ("hdfs://", "viewfs://")
# Table in DIR/tables -> the data source that its rows come from.
TABLES = {
    "files": "zkfile",
    "znodes": "zksnapshot",
    "sessions": "zksession",
}
_TIMES = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True, slots=True)
class AuditStamp:
    """Which audit rows belong to."""

    audit: str  # sorts by time
    time: datetime

    @classmethod
    def now(cls) -> AuditStamp:
        """That of an audit that ends now."""
        moment = datetime.now(UTC).replace(microsecond=0)
        return cls(f"{moment:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}", moment)


def write_tables(
    spark: SparkSession,
    places: Sequence[str],
    out: str,
    result: AuditResult,
    stamp: AuditStamp | None = None,
) -> AuditStamp:
    """Add the rows of an audit to the tables at `out`; returns what marks them."""
    stamp = stamp or AuditStamp.now()
    staging = Staging(spark)
    frames = {
        name: read_table(spark, source, list(places), staging=staging)
        for name, source in TABLES.items()
    }
    records = records_frame(spark, _record_parts(places, result, staging))
    frames["transactions"] = staging.named_rows(records)
    schema = spark_schema(FINDING_SCHEMA)
    rows = findings_table(result).to_pylist()
    frames["findings"] = spark.createDataFrame(rows, schema).coalesce(1)
    with _plain_times(spark):
        for name, frame in frames.items():
            _add(spark, for_daily_use(frame, stamp.time), _target(out, name), stamp)
    return stamp


@contextmanager
def _plain_times(spark: SparkSession) -> Iterator[None]:
    """Times as INT64: Spark's default is a form that other readers have given up."""
    before = spark.conf.get(_TIMES)
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMES, before or "INT96")


def _target(out: str, name: str) -> str:
    base = out.rstrip("/") if is_remote(out) else f"file://{local_path(out)}"
    return f"{base}/tables/{name}"


def _add(spark: SparkSession, frame: DataFrame, target: str, stamp: AuditStamp) -> None:
    """Add an audit to a table: through Arrow where it knows the file system, else by Hadoop."""
    final = f"{target}/audit={stamp.audit}"
    if is_of_arrow(target) and not target.startswith(_HADOOP):
        spark.dataSource.register(ObjectSink)
        frame.write.format(OBJECT_FORMAT).mode("overwrite").save(final)
        return
    if not target.startswith("file://"):
        frame.write.mode("overwrite").partitionBy("ensemble").parquet(final)
        return
    pending = f"{target}/_audit={stamp.audit}"
    frame.write.mode("overwrite").partitionBy("ensemble").parquet(pending)
    os.rename(pending.removeprefix("file://"), final.removeprefix("file://"))


# -- rows ------------------------------------------------------------------------------------------


def _record_parts(places: Sequence[str], result: AuditResult, staging: Staging) -> list[RecordPart]:
    """The records of all ensembles, each once."""
    # What was copied here for the audit is copied once more, if it is gone.
    discover(list(places), staging.list_any)
    return [
        part
        for ensemble in result.ensembles
        for one in ensemble.sources
        for part in parts_of_source(ensemble.name, replace(one, file=staging.read_at(one.file)))
    ]


def _time(note: RecordNote | None) -> datetime | None:
    text = None if note is None else time_text(note.time_ms)
    return None if text is None else datetime.fromisoformat(text)


def findings_table(result: AuditResult) -> pa.Table:
    """The findings as rows of FINDING_SCHEMA."""
    rows = [
        {
            **{name: getattr(finding, name, None) for name in FINDING_SCHEMA.names},
            "severity": finding.severity.value,
            "paths": list(finding.paths),
            "first_time": _time(finding.first),
            "last_time": _time(finding.last),
            "op": finding.first and finding.first.op,
            "session_id": finding.first and finding.first.session_id,
            "user": finding.first and finding.first.user,
            "address": finding.first and finding.first.address,
        }
        for ensemble in result.ensembles
        for finding in ensemble.findings
    ]
    return pa.Table.from_pylist(rows, schema=FINDING_SCHEMA)
