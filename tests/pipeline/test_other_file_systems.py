"""Places that only Hadoop can read: the bytes come through its FileSystem, not by Python.

Hadoop's ViewFs stands for all of them: it is in PySpark's jars, has a scheme of its own, and names
under which there is nothing that Python could open.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepfast.pipeline.api import change_feed, state_at
from keepfast.pipeline.engine.auditing import audit_places
from keepfast.pipeline.engine.table_reads import read_table
from keepfast.pipeline.feeds.feed import FollowOptions, follow_history, write_history
from keepfast.pipeline.files import staging
from keepfast.pipeline.files.layout import PlaceError, list_local
from keepfast.pipeline.files.listing import list_place
from keepfast.pipeline.files.staging import Staging, as_named
from keepfast.pipeline.replay.state import ensemble_state, one_ensemble, read_only_disk
from keepfast.pipeline.report.outputs import write_tables
from tests.cases import CASES_DIR
from tests.pipeline.test_audit_cases import audited, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BROKEN = CASES_DIR / "diff-over-gap-3.9.5"
HEALTHY = CASES_DIR / "healthy-elections-3.9.5"
DISK = read_only_disk()
_numbers = count()


def mounted(spark: SparkSession, directory: Path) -> str:
    """The address of a local directory on a file system of Hadoop's that nobody else knows."""
    # One each: Hadoop keeps a file system, with its mounts, for as long as the process lives.
    name = f"other{next(_numbers)}"
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{name}.link./mnt", f"file://{directory}")
    return f"viewfs://{name}/mnt"


def test_audit__is_the_same_as_of_local_files_and_names_them_where_they_lie(
    spark: SparkSession,
) -> None:
    place = mounted(spark, BROKEN.parent) + "/" + BROKEN.name
    with pytest.raises(PlaceError, match="cannot be listed"):
        list_place(place)
    before = fingerprint(BROKEN)
    (result,) = audit_places(spark, [place]).ensembles
    local = audited(BROKEN)
    assert (result.name, result.servers, result.verdict) == (
        *(local.name, local.servers, local.verdict),
    )
    assert len(result.findings) == len(local.findings)
    for ours, theirs in zip(result.findings, local.findings, strict=True):
        assert ours.file == (theirs.file and theirs.file.replace(str(BROKEN), place))
        assert ours.first_zxid == theirs.first_zxid
        assert ours.paths == theirs.paths
        assert ours.evidence == theirs.evidence.replace(str(BROKEN), place)
    assert fingerprint(BROKEN) == before


def test_tables__have_all_rows_and_the_names_of_the_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = mounted(spark, BROKEN)
    columns = ["server", "zxid", "file"]
    rows = read_table(spark, "zktxnlog", [place], columns).collect()
    local = read_table(spark, "zktxnlog", [str(BROKEN)], columns).collect()
    assert {(row.server, row.zxid, row.file) for row in rows} == {
        (row.server, row.zxid, row.file.replace(str(BROKEN), place)) for row in local
    }
    write_tables(spark, [place], str(tmp_path), audit_places(spark, [place]))
    files = spark.read.parquet(f"file://{tmp_path}/tables/files")
    assert files.where(f"not startswith(file, '{place}/')").count() == 0
    assert files.count() > 0
    records = spark.read.parquet(f"file://{tmp_path}/tables/transactions")
    assert records.where(f"not startswith(file, '{place}/')").count() == 0
    assert records.select("zxid").distinct().count() == len({row.zxid for row in local})


def test_state_and_history__are_the_same_as_of_local_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = mounted(spark, HEALTHY)
    before = fingerprint(HEALTHY)
    state, local = (ensemble_state(DISK, one_ensemble([str(one)])) for one in (place, HEALTHY))
    assert (state.head, state.agreeing) == (local.head, local.agreeing)
    assert state.tree.state_digest == local.tree.state_digest
    assert change_feed(place, spark=spark).count() == change_feed(str(HEALTHY), spark=spark).count()
    assert state_at(place, spark=spark).count() == local.tree.node_count
    (written,) = write_history(spark, [place], str(tmp_path / "feed"))
    assert (written.last_zxid, written.end_kind) == (local.head, "end")
    with pytest.raises(PlaceError, match="cannot be followed"):
        follow_history(spark, [place], str(tmp_path / "f"), FollowOptions(), lambda *_: None)
    assert fingerprint(HEALTHY) == before


def test_sentence_about_a_copy__has_the_name_where_it_lies(spark: SparkSession) -> None:
    place = mounted(spark, BROKEN)
    ensemble = one_ensemble([f"{place}/0"])
    (server,) = ensemble.servers
    assert server.server == "0"
    assert as_named(server.logs[0].path).startswith(f"{place}/0/version-2/log.")


def test_files_that_python_reads_itself__are_copied_with_their_times(tmp_path: Path) -> None:
    staging._fetch(list_local(str(HEALTHY)), str(tmp_path / "copy"))
    wanted = sorted(path for path in HEALTHY.rglob("*") if staging._is_wanted(path.name))
    copies = [tmp_path / "copy" / path.relative_to(HEALTHY) for path in wanted if path.is_file()]
    assert copies
    for path, copy in zip([one for one in wanted if one.is_file()], copies, strict=True):
        assert copy.read_bytes() == path.read_bytes()
        assert copy.stat().st_mtime == pytest.approx(path.stat().st_mtime, abs=0.001)


def test_place_that_is_not_there__one_sentence(spark: SparkSession) -> None:
    place = mounted(spark, BROKEN)
    with pytest.raises(PlaceError, match="no such directory"):
        audit_places(spark, [f"{place}/elsewhere"])
    with pytest.raises(PlaceError, match='No FileSystem for scheme "nosuch"'):
        audit_places(spark, ["nosuch://host/x"])


def test_copies__are_made_once_for_one_staging(spark: SparkSession) -> None:
    place = mounted(spark, BROKEN)
    once = Staging(spark)
    assert once.list_any(place).path == once.list_any(place + "/").path
    assert once.here(place) == once.here(place + "/")
