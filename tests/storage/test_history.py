"""A history: which zxids are in it, and that a peer never gets records over a hole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, remove_file, truncate_file
from keepfast.storage import History, LogRecord, Store
from keepfast.wire import CorruptLog, Zxid
from tests.storage.directories import short, zxid
from tests.storage.workload import ONE_PLACE, OPTIONS, Server


def store_with_three_segments() -> tuple[Store, MemoryDisk]:
    """Records 1.1-1.4 | 1.5, 1.6 | 2.1-2.3 (open); snapshots 0 and 1.6."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 300, 300, 20)
    server.store.roll()
    server.write(20, 20)
    server.snapshot()
    server.change_epoch()
    server.write(20, 20)
    server.write(20)
    return server.store, disk


def served(history: History, peer: str) -> list[str] | None:
    records = history.records_after(zxid(peer))
    return None if records is None else [short(record.zxid) for record in records]


def test_contains__records_and_where_they_begin() -> None:
    history = store_with_three_segments()[0].history
    inside = ["0.0", "1.1", "1.4", "1.5", "1.6", "2.1", "2.3"]
    outside = ["0.1", "1.0", "1.7", "2.0", "2.4", "3.1"]
    assert [short for short in (*inside, *outside) if history.contains(zxid(short))] == inside


def test_ranges__one_an_epoch() -> None:
    history = store_with_three_segments()[0].history
    found = [
        (short(first), short(last))
        for segment in history.manifest.segments
        for first, last in history.ranges(segment)
    ]
    assert found == [("1.1", "1.4"), ("1.5", "1.6"), ("2.1", "2.3")]


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("0.0", ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2.1", "2.2", "2.3"]),
        ("1.4", ["1.5", "1.6", "2.1", "2.2", "2.3"]),
        ("1.6", ["2.1", "2.2", "2.3"]),
        ("2.2", ["2.3"]),
        ("2.3", []),
        ("1.7", None),  # never committed here
        ("2.0", None),
        ("2.4", None),
        ("3.1", None),
    ],
)
def test_records_behind__to_the_head_or_nothing(peer: str, expected: list[str] | None) -> None:
    assert served(store_with_three_segments()[0].history, peer) == expected


def test_records_behind__same_bytes_as_were_appended() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 300, 0)
    records = server.store.history.records_after(Zxid(0))
    assert records is not None
    assert {record.zxid: record.entry for record in records} == server.ledger.entries


def until_error(records: Iterator[LogRecord] | None) -> list[str]:
    assert records is not None
    got: list[str] = []
    try:
        got.extend(short(record.zxid) for record in records)
    except CorruptLog:
        return got
    raise AssertionError(f"{got} and no error")


@pytest.mark.parametrize("offset", [100, 200, 600])
def test_segment_rots_while_the_server_runs__nothing_is_served_over_the_hole(offset: int) -> None:
    store, disk = store_with_three_segments()
    segment = store.manifest.segments[0]
    flip_bit(disk, ONE_PLACE.in_logs(segment.name), offset)
    first = ["1.1", "1.2", "1.3", "1.4"]
    got = until_error(store.history.records_after(zxid("0.0")))
    assert got == first[: len(got)]
    assert len(got) < 4


def test_segment_is_gone__nothing_is_served_over_the_hole() -> None:
    store, disk = store_with_three_segments()
    remove_file(disk, ONE_PLACE.in_logs(store.manifest.segments[1].name))
    assert until_error(store.history.records_after(zxid("1.3"))) == ["1.4"]
    truncated = ONE_PLACE.in_logs(store.manifest.segments[0].name)
    truncate_file(disk, truncated, 16)
    assert until_error(store.history.records_after(zxid("1.3"))) == []


def test_history_that_ends_early__is_not_the_end() -> None:
    store, disk = store_with_three_segments()
    flip_bit(disk, ONE_PLACE.in_logs(store.manifest.segments[-1].name), 300)
    records = store.history.records_after(zxid("1.6"))
    assert records is not None
    with pytest.raises(CorruptLog, match="cannot be read"):
        list(records)


def test_after_a_truncation__only_what_is_left() -> None:
    store, _ = store_with_three_segments()
    store.truncate(zxid("1.5"))
    assert store.options == OPTIONS
    assert served(store.history, "1.4") == ["1.5"]
    for peer in ("1.6", "2.1"):
        assert served(store.history, peer) is None


def test_bytes_behind__counts_records_and_not_the_zeros_ahead_of_them() -> None:
    history = store_with_three_segments()[0].history
    open_log = history.manifest.segments[-1]
    assert open_log.seal is None
    assert history.bytes_after(zxid("2.3")) == 0
    one, three = history.bytes_after(zxid("2.2")), history.bytes_after(zxid("1.6"))
    assert 0 < one <= three // 2
    assert three < history.disk.size(history.directory.in_logs(open_log.name))
    assert history.bytes_after(zxid("0.0")) > three
