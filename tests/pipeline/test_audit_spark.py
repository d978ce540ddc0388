"""The audit on Spark: the same result as without it, few jobs, and the command line."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyarrow import parquet

from keepfast.pipeline.engine import auditing
from keepfast.pipeline.engine.auditing import audit_files, audit_places
from keepfast.pipeline.engine.bundles import do_bundle
from keepfast.pipeline.engine.jobs import SparkRunner
from keepfast.pipeline.engine.stages import AuditOptions, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.findings.document import Verdict
from tests.cases import CASES_DIR
from tests.cli.runs import call
from tests.pipeline.audit_campaign import run_campaign
from tests.pipeline.test_history import created, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_all_cases_in_one_run__the_same_as_without_spark(spark: SparkSession) -> None:
    spark.sparkContext.setJobGroup("cases", "all cases")
    result = audit_places(spark, [str(CASES_DIR)])
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("cases")) == 1
    alone = audit_files(run_here, discover([str(CASES_DIR)]), AuditOptions())
    assert json.dumps(result.to_json()) == json.dumps(alone.to_json())


def test_large_ensembles__are_read_in_steps_with_the_same_result(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("snap-stale-log-served-3.9.5", "healthy-elections-3.9.5", "trunc-misses-record-3.4.14")
    ensembles = [files for name in names for files in discover([str(CASES_DIR / name)])]
    alone = audit_files(run_here, ensembles, AuditOptions())
    monkeypatch.setattr(auditing, "_SMALL_BYTES", 0)
    spark.sparkContext.setJobGroup("large", "in steps")
    result = audit_files(SparkRunner(spark), ensembles, AuditOptions())
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("large")) == 4
    assert json.dumps(result.to_json()) == json.dumps(alone.to_json())


def test_a_thousand_small_ensembles__are_one_job(spark: SparkSession, tmp_path: Path) -> None:
    for server in "12":
        write_log(tmp_path / "one" / server, [created(1), created(2)])
    root = tmp_path / "root"
    root.mkdir()
    for number in range(1000):
        (root / f"e{number}").symlink_to(tmp_path / "one")
    spark.sparkContext.setJobGroup("thousand", "a thousand ensembles")
    result = audit_places(spark, [str(root)])
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("thousand")) == 1
    assert len(result.ensembles) == 1000
    assert {(one.verdict, one.records) for one in result.ensembles} == {(Verdict.CONSISTENT, 4)}
    assert [one.name for one in result.ensembles] == [f"e{number}" for number in range(1000)]


def test_worker__does_not_go_through_what_is_imported_after_each_task(spark: SparkSession) -> None:
    def exempt(bundle: bytes) -> int:
        do_bundle(bundle)
        return gc.get_freeze_count()

    empty = msgspec.msgpack.encode([])
    (objects,) = spark.sparkContext.parallelize([empty], 1).map(exempt).collect()
    assert objects > 10_000


def test_sample_of_the_campaign(
    spark: SparkSession, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    tally = run_campaign(spark, tmp_path, range(9000, 9030), range(9000, 9042))
    for line in tally.lines():
        tell(line)
    assert (tally.alarms, tally.missed) == ([], [])
    assert tally.jobs == [1, 1]


@pytest.mark.usefixtures("spark")
def test_command__json_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "audit", CASES_DIR / "diff-over-gap-3.6.3", "--json")
    assert result.code == 1
    document = result.document
    assert (document["verdict"], document["exit_code"]) == ("diverged", 1)
    (ensemble,) = document["ensembles"]
    assert set(ensemble) >= {"name", "verdict", "servers", "coverage", "findings"}
    finding = ensemble["findings"][0]
    assert set(finding) >= {
        *("check", "kind", "severity", "server", "file", "offset", "first_zxid", "last_zxid"),
        *("paths", "evidence", "advice"),
    }
    assert (finding["kind"], finding["first_zxid"]) == ("gap-served-as-diff", "0x200000003")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("healthy-latent-3.9.5", 0, ("consistent", "held by a majority", "was never committed")),
        ("disk-full-3.9.5-gz", 1, ("at risk", "no-valid-snapshot on server 0", "do:")),
        ("healthy-plain-3.9.5/1", 3, ("consistent", "not checked", "only one with data")),
    ],
)
def test_command__for_people(
    capsys: pytest.CaptureFixture[str], name: str, code: int, words: tuple[str, ...]
) -> None:
    result = call(capsys, "audit", CASES_DIR / name)
    assert (result.code, result.err) == (code, "")
    for word in words:
        assert word in result.out


@pytest.mark.usefixtures("spark")
def test_command__out_has_documents_and_tables(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = call(capsys, "audit", CASES_DIR / "trunc-misses-record-3.4.14", "--out", out)
    assert result.code == 1
    document = json.loads((out / "findings.json").read_text())
    assert document["verdict"] == "diverged"
    assert "stale-record-after-trunc" in (out / "report.html").read_text()
    tables = {
        name: parquet.read_table(out / "tables" / name)
        for name in ("files", "transactions", "znodes", "sessions", "findings")
    }
    findings = sum(len(one["findings"]) for one in document["ensembles"])
    assert tables["findings"].num_rows == findings
    # A record is there once, with all that hold it.
    held = sum(map(len, tables["transactions"]["servers"].to_pylist()))
    assert held == sum(one["records"] for one in document["ensembles"])
    assert tables["transactions"].num_rows < held
    assert min(tables["files"].num_rows, tables["znodes"].num_rows) > 0


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: root, ("is empty",)),
        (lambda root: root / "none", ("no such directory",)),
    ],
    ids=["empty", "missing"],
)
def test_command__bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    make: Callable[[Path], Path],
    words: tuple[str, ...],
) -> None:
    result = call(capsys, "audit", make(tmp_path))
    assert result.code == 2
    result.check_sentence(*words)
