"""The change feed, states and the API on Spark; and the notebook, cell by cell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from keepfast.pipeline import audit, change_feed, state_at, transactions
from keepfast.pipeline.feeds.feed import (
    FeedRefused,
    FeedSummary,
    FollowOptions,
    follow_history,
    write_history,
)
from keepfast.pipeline.findings.document import Verdict
from keepfast.pipeline.replay.history import EnsembleHistory
from keepfast.pipeline.replay.state import ensemble_state, one_ensemble, read_only_disk
from keepfast.wire import format_zxid, make_zxid
from tests.cases import CASES_DIR
from tests.cli.runs import fingerprint
from tests.pipeline.test_history import append, created, three, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PROJECT = Path(__file__).parent.parent.parent
HEALTHY = CASES_DIR / "healthy-plain-3.9.5"
NOTEBOOK = PROJECT / "examples" / "pipeline.ipynb"
DISK = read_only_disk()


def written(out: Path) -> list[dict[str, Any]]:
    """The rows of a feed, by any reader of Parquet: not by the one that knows what Spark meant."""
    rows = pq.read_table(out / "changes").to_pylist()
    return sorted(rows, key=lambda row: (row["ensemble"], row["zxid"], row["operation"]))


def test_batch__every_row_of_every_ensemble(spark: SparkSession, tmp_path: Path) -> None:
    places = [str(HEALTHY), str(CASES_DIR / "diff-over-gap-3.9.5")]
    before = fingerprint(HEALTHY)
    found = {one.ensemble: one for one in write_history(spark, places, str(tmp_path / "out"))}
    assert found["healthy-plain-3.9.5"].transactions == 495
    assert found["healthy-plain-3.9.5"].end_kind == "end"
    rows = written(tmp_path / "out")
    for place in places:
        history = EnsembleHistory(DISK, one_ensemble([place]))
        expected = [row for transaction in history.read() for row in transaction]
        got = [row for row in rows if row["ensemble"] == Path(place).name]
        for ours, theirs in zip(expected, got, strict=True):
            for name in ("zxid", "operation", "op", "path", "old_data", "new_data"):
                assert getattr(ours, name) == theirs[name]
            words = {"data set": "set_data", "ACL set": "set_acl"}
            assert theirs["change"] == words.get(ours.change, ours.change.replace(" ", "_"))
            assert theirs["zxid_hex"] == format_zxid(ours.zxid)
            assert theirs["depth"] == (ours.path and ours.path.rstrip("/").count("/"))
            assert theirs["session_id"] == ours.session_id
            assert round(theirs["time"].timestamp() * 1000) == ours.time_ms
    assert fingerprint(HEALTHY) == before
    with pytest.raises(FeedRefused, match="holds a feed already"):
        write_history(spark, places, str(tmp_path / "out"))


def test_batch_of_servers_that_part__ends_there_and_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(CASES_DIR / "snap-keeps-stale-log-3.4.14")
    (found,) = write_history(spark, [place], str(tmp_path / "out"))
    assert (found.transactions, found.end_kind) == (9, "conflict")
    assert "0x300000001 on 1" in found.end


class Follower:
    """A feed that is followed, for a `with` block."""

    def __init__(self, spark: SparkSession, place: Path, out: Path, limit: int = 100) -> None:
        self.batches: list[tuple[int, list[FeedSummary]]] = []
        options = FollowOptions(interval_s=0.1, limit=limit)
        self._feed = follow_history(
            spark,
            [str(place)],
            str(out),
            options,
            lambda number, found: self.batches.append((number, found)),
        )

    def wait_for(self, zxid: int) -> None:
        """Until everything up to a zxid was written; the test's own timeout is the limit."""
        while not any(one.last_zxid == zxid for _, found in self.batches for one in found):
            self._feed.wait(1)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._feed.stop()


def test_followed__rolls_restarts_and_a_server_away__everything_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = three(tmp_path, 30, 30, 30)
    with Follower(spark, tmp_path / "e", tmp_path / "out", limit=8) as follower:
        follower.wait_for(make_zxid(1, 30))
        assert len(follower.batches) >= 4  # of eight transactions at most
        for log in logs[:2]:  # the third server is down
            append(log, created(31))
        for number in (0, 1):
            write_log(tmp_path / "e" / str(number), [created(32), created(33)])
        follower.wait_for(make_zxid(1, 33))
    # Nobody follows for a while; there is an election, and the third server comes back.
    append(logs[2], created(31))
    for number in range(3):
        write_log(tmp_path / "e" / str(number), [created(1, epoch=2, total=34)])
    with Follower(spark, tmp_path / "e", tmp_path / "out") as follower:
        follower.wait_for(make_zxid(2, 1))
    rows = written(tmp_path / "out")
    expected = [make_zxid(1, c) for c in range(1, 34)] + [make_zxid(2, 1)]
    assert [row["zxid"] for row in rows] == expected


def test_followed_by_other_servers__is_refused(spark: SparkSession, tmp_path: Path) -> None:
    three(tmp_path, 3, 3, 3)
    with Follower(spark, tmp_path / "e", tmp_path / "out") as follower:
        follower.wait_for(make_zxid(1, 3))
    with (
        pytest.raises(FeedRefused, match="other servers"),
        Follower(spark, tmp_path / "e" / "0", tmp_path / "out"),
    ):
        pass


def test_batch_that_was_cut_short__is_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    """Power was lost between the rows and Spark's note that they are there."""
    three(tmp_path, 5, 5, 5)
    with Follower(spark, tmp_path / "e", tmp_path / "out") as follower:
        follower.wait_for(make_zxid(1, 5))
    (last,) = [number for number, found in follower.batches if found]
    commits = tmp_path / "out" / "_checkpoint" / "commits"
    # Not there, if the feed was stopped right behind the rows.
    (commits / str(last)).unlink(missing_ok=True)
    (commits / f".{last}.crc").unlink(missing_ok=True)
    with Follower(spark, tmp_path / "e", tmp_path / "out") as follower:
        follower.wait_for(make_zxid(1, 5))
    assert [row["zxid"] for row in written(tmp_path / "out")] == [
        make_zxid(1, c) for c in range(1, 6)
    ]


def test_state_at__by_files_and_by_the_feed(spark: SparkSession) -> None:
    feed = change_feed(str(HEALTHY), spark=spark)
    for at in (make_zxid(2, 0x20), "0x1000001a0", None):
        by_files = state_at(str(HEALTHY), at, spark)
        by_feed = state_at(feed, at)
        columns = ["path", "data", "kind", "session_id", "czxid", "mzxid", "version"]
        told = "path NOT IN ('/', '/zookeeper', '/zookeeper/quota', '/zookeeper/config')"
        # The counts of quotas are no transactions.
        told += " AND path NOT LIKE '%zookeeper_stats'"
        left = by_files.where(told).select(columns)
        right = by_feed.where(told).select(columns)
        assert left.count() > 50
        assert left.exceptAll(right).collect() == []
        assert right.exceptAll(left).collect() == []


def test_state_of_an_ensemble_that_proves_none__is_a_row_that_says_so(spark: SparkSession) -> None:
    rows = state_at(str(CASES_DIR / "disk-full-3.9.5-gz" / "0"), None, spark).collect()
    assert len(rows) == 1
    assert "cut short" in rows[0]["problem"]


def test_state_is_that_of_the_server(spark: SparkSession) -> None:
    state = ensemble_state(DISK, one_ensemble([str(HEALTHY)]))
    rows = {row["path"]: row for row in state_at(str(HEALTHY), None, spark).collect()}
    assert set(rows) == set(state.tree.paths())
    assert rows["/c/lock/member-0000000000"]["kind"] == "ephemeral"
    assert {row["zxid"] for row in rows.values()} == {state.head}


def test_places_in_a_dataframe(spark: SparkSession) -> None:
    places = spark.createDataFrame(
        [(1, str(HEALTHY / "0")), (2, str(HEALTHY / "1"))], "n int, d string"
    )
    found = {
        row["server"]: row["count"]
        for row in transactions(places, ["server"], spark).groupBy("server").count().collect()
    }
    assert set(found) == {"0", "1"}


def test_audit__verdict_and_findings(spark: SparkSession, tmp_path: Path) -> None:
    found = audit(str(CASES_DIR / "diff-over-gap-3.9.5"), spark)
    assert found.verdict is Verdict.DIVERGED
    kinds = {row["kind"] for row in found.findings.collect()}
    assert "gap-served-as-diff" in kinds
    assert "diverged" in found._repr_html_()
    found.write(str(tmp_path / "out"))
    assert (tmp_path / "out" / "report.html").exists()
    assert pq.read_table(tmp_path / "out" / "tables" / "transactions").num_rows > 1000


def cells() -> Iterator[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            yield "".join(cell["source"])


def test_notebook__runs_and_finds_what_it_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(PROJECT)
    namespace: dict[str, Any] = {}
    for source in cells():
        exec(compile(source, str(NOTEBOOK), "exec"), namespace)
    printed = capsys.readouterr().out
    assert printed.startswith("diverged\n")
    assert "gap-served-as-diff" in printed
    assert "1502 records are missing somewhere, from 0x200000003 to 0x2000005e0" in printed
    assert "0 of them different in the feed" in printed
    assert "/between" in printed
