"""Places that only Hadoop can read: the bytes come through its FileSystem, not by Python.

Hadoop's ViewFs stands for all of them: it is in PySpark's jars, has a scheme of its own, and names
under which there is nothing that Python could open.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from keepfast.pipeline.auditing import audit_places
from keepfast.pipeline.layout import PlaceError
from keepfast.pipeline.listing import list_place
from keepfast.pipeline.outputs import write_tables
from keepfast.pipeline.sources import read_table
from keepfast.pipeline.staging import Staging
from tests.cases import CASES_DIR
from tests.pipeline.test_audit_cases import audited, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BROKEN = CASES_DIR / "diff-over-gap-3.9.5"
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


def test_place_that_is_not_there__one_sentence(spark: SparkSession) -> None:
    place = mounted(spark, BROKEN)
    with pytest.raises(PlaceError, match="no such directory"):
        audit_places(spark, [f"{place}/elsewhere"])
    with pytest.raises(PlaceError, match='No FileSystem for scheme "nosuch"'):
        audit_places(spark, ["nosuch://host/x"])


def test_copies__are_made_once_for_one_staging(spark: SparkSession) -> None:
    place = mounted(spark, BROKEN)
    staging = Staging(spark)
    assert staging.list_any(place).path == staging.list_any(place + "/").path
