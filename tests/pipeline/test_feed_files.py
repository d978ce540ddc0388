"""The files of a followed feed: batches appear whole, and many small ones become few."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keepfast.pipeline.feeds.feed_files import FeedFiles


def put(files: FeedFiles, number: int, *values: int) -> None:
    """What Spark does for one micro-batch."""
    pending = Path(files.pending(number))
    pending.mkdir()
    pq.write_table(pa.table({"value": pa.array(values, pa.int64())}), pending / "part-0.parquet")
    files.publish(number)


def values(out: Path) -> list[int]:
    found = pq.read_table(out / "changes")
    return sorted(found.column("value").to_pylist())


@pytest.fixture
def files(tmp_path: Path) -> FeedFiles:
    files = FeedFiles(str(tmp_path), max_small=4)
    files.open()
    return files


def test_batch_that_is_being_written__is_not_seen(files: FeedFiles, tmp_path: Path) -> None:
    put(files, 0, 1, 2)
    pending = Path(files.pending(1))
    pending.mkdir()
    pq.write_table(pa.table({"value": [3]}), pending / "part-0.parquet")
    assert values(tmp_path) == [1, 2]
    files.publish(1)
    assert values(tmp_path) == [1, 2, 3]


def test_batch_that_is_run_again__replaces_itself(files: FeedFiles, tmp_path: Path) -> None:
    put(files, 0, 1)
    put(files, 1, 2)
    put(files, 1, 2)
    assert values(tmp_path) == [1, 2]


def test_many_small_batches__become_one_file(files: FeedFiles, tmp_path: Path) -> None:
    for number in range(20):
        files.compact(number)
        put(files, number, number)
        assert values(tmp_path) == list(range(number + 1))
    assert len(list((tmp_path / "changes").glob("batch=*"))) <= 5
    # The current generation, and the one that somebody may be reading.
    assert len(list((tmp_path / "_generations").iterdir())) == 2


def test_reader_that_listed_before__finds_its_files(files: FeedFiles, tmp_path: Path) -> None:
    for number in range(4):
        put(files, number, number)
    real = os.path.realpath(tmp_path / "changes")
    listed = [str(one) for one in Path(real).rglob("*.parquet")]
    files.compact(4)
    assert os.path.realpath(tmp_path / "changes") != real
    assert sum(pq.read_table(one).num_rows for one in listed) == 4


def test_last_batch__is_never_merged_since_it_may_be_run_again(
    files: FeedFiles, tmp_path: Path
) -> None:
    for number in range(6):
        put(files, number, number)
    # Power was lost before Spark noted batch 5: it comes again.
    files.compact(5)
    put(files, 5, 5)
    assert values(tmp_path) == list(range(6))


def test_compaction_that_was_cut_short__is_cleared_away(files: FeedFiles, tmp_path: Path) -> None:
    put(files, 0, 1)
    left = tmp_path / "_generations" / "1"
    left.mkdir()
    (left / "batch=0").mkdir()
    files.open()
    assert not left.exists()
    assert values(tmp_path) == [1]


def test_feed_of_an_older_version__goes_on(tmp_path: Path) -> None:
    old = tmp_path / "changes" / "batch=0"
    old.mkdir(parents=True)
    pq.write_table(pa.table({"value": [1]}), old / "part-0.parquet")
    files = FeedFiles(str(tmp_path), max_small=4)
    files.open()
    put(files, 1, 2)
    assert values(tmp_path) == [1, 2]
