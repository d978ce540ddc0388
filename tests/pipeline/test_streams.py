"""The stream readers by themselves: offsets, the ranges between them, and once each record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from keepfast.pipeline.engine.streams import LogStream, SnapshotStream
from tests.cases import CASES_DIR
from tests.pipeline.histories import log_of, random_entries

CASE = CASES_DIR / "healthy-elections-3.9.5"


class Follower:
    """What Spark does with a reader, without Spark; offsets pass through JSON as there."""

    def __init__(self, place: Path, max_bytes: int = 700) -> None:
        self.options = {"path": str(place), "maxBytes": str(max_bytes)}
        self.columns = ["server", "file", "offset", "zxid", "problem"]
        self.offset: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.batches = 0

    def run(self, limit: ReadLimit | None = None) -> None:
        """Batches until nothing is new; each with a reader of its own, as after a restart."""
        while True:
            reader = LogStream(self.options, self.columns)
            end = json.loads(
                json.dumps(reader.latestOffset(self.offset, limit or reader.getDefaultReadLimit()))
            )
            if end == self.offset:
                return
            for partition in reader.partitions(self.offset, end):
                for batch in reader.read(partition):
                    self.rows += batch.to_pylist()
            self.offset = end
            self.batches += 1

    def records(self) -> list[tuple[str, str, int]]:
        """The records that arrived, each by where it lies."""
        sound = [row for row in self.rows if row["zxid"] is not None]
        return sorted((row["server"], row["file"], row["offset"]) for row in sound)


def test_small_steps_and_one_large_step__give_the_same_records_once() -> None:
    small, large = Follower(CASE), Follower(CASE)
    small.run()
    large.run(ReadAllAvailable())
    assert small.records() == large.records()
    assert len(set(small.records())) == len(small.records()) > 100
    assert large.batches == 1
    # A step is at least a chunk of the reader: here a file.
    assert small.batches > 3


def test_growth_padding_torn_ends_rolls_and_purges(tmp_path: Path) -> None:
    entries = random_entries(3, 80)
    data = tmp_path / "1" / "version-2"
    data.mkdir(parents=True)
    follower = Follower(tmp_path)
    first = data / "log.100000001"
    for count, tail in ((5, bytes(500)), (9, log_of(entries[9:10])[16:50]), (20, bytes(9))):
        first.write_bytes(log_of(entries[:count]) + tail)
        follower.run()
        assert len(follower.records()) == count
    second = data / "log.200000001"
    second.write_bytes(log_of([])[:7])
    follower.run()
    second.write_bytes(log_of(entries[20:40]))
    first.write_bytes(log_of(entries[:22]))
    follower.run()
    # What the first file got before the second began is not lost.
    assert len(follower.records()) == 42
    (data / "log.300000001").write_bytes(log_of(entries[40:50]))
    follower.run()
    first.unlink()
    second.unlink()
    follower.run()
    assert len(follower.records()) == 52
    other = tmp_path / "2" / "version-2"
    other.mkdir(parents=True)
    (other / "log.100000001").write_bytes(log_of(entries[:3]))
    follower.run()
    assert len(follower.records()) == 55
    assert len(set(follower.records())) == 55


def test_snapshots__each_once_when_it_is_whole(tmp_path: Path) -> None:
    data = tmp_path / "1" / "version-2"
    data.mkdir(parents=True)
    found = sorted(
        (CASE / "1" / "version-2").glob("snapshot.*"), key=lambda p: int(p.suffix[1:], 16)
    )
    seen: list[str] = []
    offset: dict[str, str] = {}

    def run() -> None:
        nonlocal offset
        reader = SnapshotStream({"path": str(tmp_path)}, ["file", "problem"])
        end = reader.latestOffset(offset, ReadAllAvailable())
        for partition in reader.partitions(offset, end):
            rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
            assert not [row for row in rows if row["problem"]]
            seen.extend(sorted({Path(row["file"]).name for row in rows}))
        offset = end

    (data / "log.1").write_bytes(log_of([]))
    run()
    assert seen == []
    shutil.copy(found[0], data)
    run()
    assert seen == [found[0].name]
    whole = found[1].read_bytes()
    (data / found[1].name).write_bytes(whole[: len(whole) // 2])
    run()
    run()
    assert seen == [found[0].name]
    (data / found[1].name).write_bytes(whole)
    run()
    run()
    assert seen == [found[0].name, found[1].name]
