"""The data sources on Spark: the rows of the decoder, whatever the query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keepfast.pipeline.decode import FileOrigin, SnapshotReader, decode_log, open_file
from keepfast.pipeline.engine.table_reads import read_table
from keepfast.pipeline.schemas import TXN_SCHEMA, ZNODE_SCHEMA, spark_schema
from tests.cases import CASES_DIR
from tests.pipeline.histories import log_of, random_entries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CASE = CASES_DIR / "healthy-plain-3.9.5-gz"


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as Arrow gives them, in the order of files and bytes."""
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row.get("file") or "", row.get("offset") or 0))


def decoded(case: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(case.glob("*/version-2/log.*"), key=str):
        server = path.parent.parent.name
        with open_file(str(path)) as file:
            for batch in decode_log(file, FileOrigin(case.name, server, str(path))):
                rows += batch.to_pylist()
    return sorted(rows, key=lambda row: (row["file"], row["offset"]))


def test_txnlog__gives_what_the_decoder_gives(spark: SparkSession) -> None:
    frame = spark.read.format("zktxnlog").load(str(CASE))
    assert frame.schema == spark_schema(TXN_SCHEMA)
    assert plain(frame) == decoded(CASE)


def test_snapshot__gives_what_the_decoder_gives__gz_too(spark: SparkSession) -> None:
    frame = spark.read.format("zksnapshot").load(str(CASE / "1"))
    assert frame.schema == spark_schema(ZNODE_SCHEMA)
    expected = []
    for path in sorted((CASE / "1" / "version-2").glob("snapshot.*")):
        with open_file(str(path)) as file:
            for batch in SnapshotReader(file, FileOrigin(CASE.name, "1", str(path))).batches():
                expected += batch.to_pylist()
    assert expected
    assert plain(frame) == sorted(expected, key=lambda row: (row["file"], row["offset"]))


def test_given_schema__is_all_that_is_decoded(spark: SparkSession) -> None:
    frame = spark.read.format("zktxnlog").schema("zxid long, path string").load(str(CASE / "0"))
    rows = frame.toArrow().to_pylist()
    expected = [
        {"zxid": row["zxid"], "path": row["path"]} for row in decoded(CASE) if row["server"] == "0"
    ]
    assert sorted(map(str, rows)) == sorted(map(str, expected))


def test_filters__prune_files_and_keep_the_rows(spark: SparkSession) -> None:
    low, high = 0x1000000F0, 0x100000130
    frame = spark.read.format("zktxnlog").load(str(CASE))
    wanted = frame.where(f"server = '2' and zxid >= {low} and zxid < {high}")
    expected = [
        row
        for row in decoded(CASE)
        if row["server"] == "2" and row["zxid"] is not None and low <= row["zxid"] < high
    ]
    assert len(expected) == 0x40
    assert plain(wanted) == expected
    assert plain(frame.where("file like '%none'")) == []


def test_single_files_and_lists_of_places(spark: SparkSession) -> None:
    log = CASE / "0" / "version-2" / "log.200000001"
    whole = [row for row in decoded(CASE) if row["file"] == str(log)]
    rows = plain(spark.read.format("zktxnlog").load(str(log)))
    assert [row["zxid"] for row in rows] == [row["zxid"] for row in whole]
    paths = json.dumps([str(CASE / "0"), str(CASE / "1")])
    both = spark.read.format("zktxnlog").option("paths", paths).load()
    expected = [row for row in decoded(CASE) if row["server"] in "01"]
    assert plain(both) == expected


def test_damage_and_unreadable_files__become_rows(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "server"
    shutil.copytree(CASE / "0", place)
    data = place / "version-2"
    log = data / "log.100000025"
    changed = bytearray(log.read_bytes())
    changed[100] ^= 1
    log.write_bytes(changed)
    (data / "log.300000001").symlink_to(data)
    (data / "snapshot.200000025.gz").write_bytes(b"\x1f\x8b damaged")
    rows = plain(spark.read.format("zktxnlog").load(str(place)).where("problem is not null"))
    assert [Path(row["file"]).name for row in rows] == ["log.100000025"]
    assert "checksum" in rows[0]["problem"]
    znodes = spark.read.format("zksnapshot").load(str(place)).where("problem is not null")
    assert [Path(row["file"]).name for row in plain(znodes)] == ["snapshot.200000025.gz"]
    files = spark.read.format("zkfile").load(str(place)).where("problem is not null")
    assert len(plain(files)) == 2


def test_files_sessions_and_summaries(spark: SparkSession) -> None:
    root = str(CASE)
    records = spark.read.format("zkfile").load(root).where("kind = 'log'")
    counted = records.groupBy("server").sum("records").toArrow().to_pylist()
    txns = spark.read.format("zktxnlog").load(root).where("problem is null")
    expected = txns.groupBy("server").count().toArrow().to_pylist()
    by_server = {row["server"]: row["count"] for row in expected}
    assert {row["server"]: row["sum(records)"] for row in counted} == by_server
    summed = spark.read.format("zksummary").load(root).groupBy("server")
    runs = summed.agg({"records": "sum"}).toArrow().to_pylist()
    assert {row["server"]: row["sum(records)"] for row in runs} == by_server
    sessions = spark.read.format("zksession").load(root)
    assert sessions.where("problem is null").count() > 0


def test_read_table__lists_through_spark_what_python_cannot_list(spark: SparkSession) -> None:
    from keepfast.pipeline.files.listing import list_with_spark

    listed = list_with_spark(spark, f"file://{CASE}")
    assert set(listed.directories) == {"0", "1", "2"}
    frame = read_table(spark, "zktxnlog", [str(CASE)], ["server", "zxid"])
    assert frame.columns == ["server", "zxid"]
    assert frame.count() == len(decoded(CASE))


def test_a_column_that_is_not_there__is_named(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="no column zxids"):
        spark.read.format("zktxnlog").schema("zxids long").load(str(CASE)).count()


def test_txnlog_as_a_stream__every_record_once_over_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Growth, a roll, a second server, and a restart from the checkpoint; more in test_streams."""
    entries = random_entries(1, 90)
    one = tmp_path / "ensemble" / "1" / "version-2"
    two = tmp_path / "ensemble" / "2" / "version-2"
    one.mkdir(parents=True)
    two.mkdir(parents=True)
    (one / "log.100000001").write_bytes(log_of(entries[:20], padding=4096))
    (two / "log.100000001").write_bytes(log_of(entries[:5]))
    follow(spark, tmp_path)
    assert arrived(spark, tmp_path) == {"1": 20, "2": 5}
    (one / "log.100000001").write_bytes(log_of(entries[:40], padding=100))
    (one / "log.200000001").write_bytes(log_of(entries[40:60], padding=100))
    (two / "log.100000001").write_bytes(log_of(entries[:45]))
    (two / "log.300000001").write_bytes(log_of([])[:8])
    follow(spark, tmp_path)
    assert arrived(spark, tmp_path) == {"1": 60, "2": 45}


def follow(spark: SparkSession, place: Path, tries: int = 5) -> None:
    """Run the stream over what is there now, from where it stopped."""
    from pyspark.errors import StreamingQueryException

    stream = spark.readStream.format("zktxnlog").schema(
        "server string, zxid long, offset long, problem string"
    )
    query = (
        stream.load(str(place / "ensemble"))
        .writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        # Spark gives a Python process ten seconds to start, whatever the load of the machine. The
        # stream continues from its checkpoint, as it would after any other failure.
        if "failed to connect back" not in str(error) or not tries:
            raise
        follow(spark, place, tries - 1)
    finally:
        query.stop()


def arrived(spark: SparkSession, place: Path) -> dict[str, int]:
    """Records by server; each at most once."""
    rows = spark.read.parquet(str(place / "out")).where("zxid is not null").collect()
    assert len({(row.server, row.zxid, row.offset) for row in rows}) == len(rows)
    return {server: sum(row.server == server for row in rows) for server in ("1", "2")}
