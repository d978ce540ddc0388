"""The tables for daily use: appended audit by audit, each record once; and docs/questions.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from keepfast.pipeline import add_to_delta
from keepfast.pipeline.engine.auditing import audit_places
from keepfast.pipeline.feeds.feed import write_history
from keepfast.pipeline.findings.document import AuditResult
from keepfast.pipeline.report.outputs import AuditStamp, write_tables
from tests.cases import CASES_DIR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PAGE = (Path(__file__).parent.parent.parent / "docs" / "questions.md").read_text()
QUESTIONS = re.findall(r"^## (\d+)\. .*?```sql\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
NAMES = ("healthy-plain-3.9.5", "diff-over-gap-3.9.5")


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, AuditResult, list[AuditStamp]]:
    """Two audits of the same directories, and the feed of one of them."""
    out = tmp_path_factory.mktemp("daily")
    places = [str(CASES_DIR / name) for name in NAMES]
    root = out / "root"
    root.mkdir()
    for name in NAMES:
        (root / name).symlink_to(CASES_DIR / name)
    result = audit_places(spark, [str(root)])
    stamps = []
    for _ in range(2):
        stamps.append(write_tables(spark, [str(root)], str(out), result))
        add_to_delta(str(out), stamps[-1])
    write_history(spark, places[:1], str(out / "feed"))
    return out, result, stamps


def test_ten_questions__are_answered(
    spark: SparkSession, written: tuple[Path, AuditResult, list[AuditStamp]]
) -> None:
    out, _, _ = written
    for table in ("transactions", "znodes", "sessions", "files", "findings"):
        spark.read.parquet(f"{out}/tables/{table}").createOrReplaceTempView(table)
    spark.read.parquet(f"{out}/feed/changes").createOrReplaceTempView("changes")
    assert [int(number) for number, _ in QUESTIONS] == list(range(1, 11))
    answers = {int(number): spark.sql(text).collect() for number, text in QUESTIONS}
    assert answers.pop(2) == []  # the second audit found nothing new
    assert all(answers.values()), {number for number, rows in answers.items() if not rows}
    assert {row["kind"] for row in answers[1]} == {"gap-served-as-diff", "lacks-committed"}
    assert {row["standing"] for row in answers[9]} == {"agreed"}
    assert len(answers[9]) >= 1502
    assert {row["change"] for row in answers[3]} <= {"created", "set_data", "deleted", "set_acl"}


def test_record__is_there_once_with_all_servers(
    written: tuple[Path, AuditResult, list[AuditStamp]],
) -> None:
    out, result, stamps = written
    for ensemble in result.ensembles:
        place = f"audit={stamps[0].audit}/ensemble={ensemble.name}"
        rows = pq.read_table(out / "tables" / "transactions" / place).to_pylist()
        held = sum(len(row["servers"]) for row in rows)
        numbered = {(row["zxid"], row["checksum"]) for row in rows}
        assert held == ensemble.records
        assert len(numbered) == len(rows) < ensemble.records
        one = next(row for row in rows if row["path"] not in (None, "/"))
        assert one["zxid_hex"] == f"0x{one['zxid']:x}"
        assert one["parent"] == (one["path"].rpartition("/")[0] or "/")
        assert one["depth"] == one["path"].count("/")


def test_audits__lie_beside_each_other_with_plain_times(
    written: tuple[Path, AuditResult, list[AuditStamp]],
) -> None:
    out, _, stamps = written
    for table in (out / "tables").iterdir():
        names = {one.name for one in table.iterdir() if one.name.startswith("audit=")}
        assert names == {f"audit={stamp.audit}" for stamp in stamps}
        for file in table.rglob("*.parquet"):
            if "_delta_log" not in file.parts:
                schema = pq.read_schema(file)
                times = [field for field in schema if pa.types.is_timestamp(field.type)]
                assert times
                physical = pq.ParquetFile(file).schema
                kinds = {
                    physical.column(index).physical_type
                    for index in range(len(physical))
                    if physical.column(index).name in {field.name for field in times}
                }
                assert kinds == {"INT64"}


def test_delta_tables__hold_the_same_rows_and_a_commit_per_audit(
    spark: SparkSession, written: tuple[Path, AuditResult, list[AuditStamp]]
) -> None:
    out, _, stamps = written
    for name in ("transactions", "findings", "files"):
        table = DeltaTable(str(out / "tables" / name))
        assert table.version() == 1
        rows = table.to_pyarrow_table(columns=["audit", "ensemble"])
        assert rows.num_rows == spark.read.parquet(f"{out}/tables/{name}").count()
        assert set(rows.column("audit").to_pylist()) == {stamp.audit for stamp in stamps}
        assert set(rows.column("ensemble").to_pylist()) == set(NAMES)
