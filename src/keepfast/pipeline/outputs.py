"""What `keepfast audit --out DIR` leaves: findings.json, report.html and the Parquet tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from keepfast.pipeline.findings import AuditResult
from keepfast.pipeline.layout import PlaceError, discover, is_remote, local_path, split_place
from keepfast.pipeline.report import ReportFacts, write_report
from keepfast.pipeline.schemas import FINDING_SCHEMA
from keepfast.pipeline.sources import read_table
from keepfast.pipeline.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDINGS_NAME = "findings.json"
REPORT_NAME = "report.html"
# Table in DIR/tables -> the data source that its rows come from.
TABLES = {
    "files": "zkfile",
    "transactions": "zktxnlog",
    "znodes": "zksnapshot",
    "sessions": "zksession",
}


def check_out(out: str, places: Sequence[str]) -> None:
    """Refuse a target inside what is audited, by whatever name: nothing is ever written there."""
    for place in places:
        for part in split_place(place):
            if part is not None and not is_remote(part) and _lies_in(out, local_path(part)):
                raise PlaceError(out, f"lies in {part}, which is audited; name a directory outside")
    for ensemble in discover([place for place in places if not is_remote(place)] or []):
        for server in ensemble.servers:
            for directory in (server.snapshots_dir, server.logs_dir):
                if _lies_in(out, directory):
                    raise PlaceError(out, f"lies in {directory}, which is audited")


def _lies_in(out: str, directory: str) -> bool:
    # Links lead there as well as names do.
    target, place = os.path.realpath(local_path(out)), os.path.realpath(directory)
    return os.path.commonpath([target, place]) == place


def write_documents(result: AuditResult, out: str, facts: ReportFacts | None = None) -> None:
    """Write findings.json and report.html; each is complete, or not there."""
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, FINDINGS_NAME)
    with open(f"{path}.tmp", "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(result.to_json(), file, indent=2)
        file.write("\n")
    os.replace(f"{path}.tmp", path)
    write_report(result, os.path.join(out, REPORT_NAME), facts)


def write_tables(spark: SparkSession, places: Sequence[str], out: str, result: AuditResult) -> None:
    """Write everything that was decoded as Parquet, one directory a table."""
    staging = Staging(spark)
    for name, source in TABLES.items():
        frame = read_table(spark, source, list(places), staging=staging)
        target = "file://" + os.path.join(local_path(out), "tables", name)
        frame.write.mode("overwrite").parquet(target)
    directory = os.path.join(local_path(out), "tables", "findings")
    os.makedirs(directory, exist_ok=True)
    parquet.write_table(findings_table(result), os.path.join(directory, "findings.parquet"))


def findings_table(result: AuditResult) -> pa.Table:
    """The findings as rows of FINDING_SCHEMA."""
    rows = [
        {
            **{name: getattr(finding, name) for name in FINDING_SCHEMA.names if name != "paths"},
            "severity": finding.severity.value,
            "paths": list(finding.paths),
        }
        for ensemble in result.ensembles
        for finding in ensemble.findings
    ]
    return pa.Table.from_pylist(rows, schema=FINDING_SCHEMA)
