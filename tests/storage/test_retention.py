"""Retention: a snapshot counts if it was read and records lead from it to the head."""

from __future__ import annotations

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit
from keepfast.storage import (
    Join,
    Manifest,
    Seal,
    SegmentEntry,
    SnapshotEntry,
    Standing,
    Store,
    has_path,
    plan_retention,
    recover,
)
from keepfast.wire import InvariantViolation, Zxid
from tests.storage.directories import short, zxid
from tests.storage.workload import ONE_PLACE, OPTIONS, Server


def snapshot(at: str) -> SnapshotEntry:
    return SnapshotEntry(f"snapshot.{zxid(at):x}", zxid(at), True, 0, 0, 1, 0)


def segment(first: str, follows: str, last: str | None, *joins: tuple[str, str]) -> SegmentEntry:
    seal = None if last is None else Seal(zxid(last), 100, 0, None)
    return SegmentEntry(
        *(f"log.{zxid(first):x}", zxid(first), zxid(follows), None, 1),
        joins=tuple(Join(zxid(one), zxid(other)) for one, other in joins),
        seal=seal,
    )


def manifest(snapshots: str, *segments: SegmentEntry) -> Manifest:
    return Manifest(snapshots=tuple(snapshot(at) for at in snapshots.split(",")), segments=segments)


HEAD = zxid("2.4")
SOUND = manifest(
    "0.0,1.2,1.5,2.1",
    segment("1.1", "0.0", "1.3"),
    segment("1.4", "1.3", "1.5"),
    segment("2.1", "1.5", None),
)


@pytest.mark.parametrize("at", ["0.0", "1.1", "1.2", "1.3", "1.5", "2.1", "2.4"])
def test_contiguous_segments__path(at: str) -> None:
    assert has_path(SOUND, snapshot(at), HEAD)


def test_no_record_behind_the_snapshot__path_if_it_is_the_head() -> None:
    assert has_path(manifest("1.5"), snapshot("1.5"), zxid("1.5"))
    assert not has_path(manifest("1.5"), snapshot("1.5"), HEAD)


@pytest.mark.parametrize(
    ("at", "segments"),
    [
        ("1.2", (segment("1.4", "1.3", "1.5"), segment("2.1", "1.5", None))),
        ("1.2", (segment("1.1", "0.0", "1.3"), segment("2.1", "1.5", None))),
        # The segment follows another record than the snapshot's, in the same epoch or before.
        ("1.9", (segment("1.1", "0.0", "1.5"), segment("2.1", "1.5", None))),
        ("1.4", (segment("2.1", "1.5", None),)),
        ("1.6", (segment("2.1", "1.5", None),)),
        # One segment over two epochs, and the snapshot between them is in neither.
        ("1.7", (segment("1.1", "0.0", "2.4", ("2.1", "1.5")),)),
    ],
)
def test_hole_between_snapshot_and_head__no_path(
    at: str, segments: tuple[SegmentEntry, ...]
) -> None:
    assert not has_path(manifest(at, *segments), snapshot(at), HEAD)


def plan(retain: int, *proven: str) -> tuple[list[str], list[str], list[str]]:
    names = frozenset(snapshot(at).name for at in proven)
    found = plan_retention(SOUND, HEAD, retain, names)
    return (
        [entry.name for entry in found.snapshots],
        [entry.name for entry in found.segments],
        [entry.name for entry in found.deleted],
    )


def test_proven_snapshots__newest_stay_with_the_records_behind_them() -> None:
    kept, segments, deleted = plan(2, "0.0", "1.2", "1.5", "2.1")
    assert kept == ["snapshot.100000005", "snapshot.200000001"]
    assert segments == ["log.200000001"]
    assert deleted == [*("log.100000001", "log.100000004", "snapshot.0", "snapshot.100000002")]


def test_newer_snapshots_are_not_proven__the_proven_one_stays_and_counts() -> None:
    kept, segments, _ = plan(3, "1.2")
    assert kept == ["snapshot.100000002"]
    assert segments == ["log.100000001", "log.100000004", "log.200000001"]


def test_nothing_is_proven__nothing_goes() -> None:
    kept, _, deleted = plan(1)
    assert len(kept) == 4
    assert deleted == []


def test_proven_but_without_a_path__does_not_count() -> None:
    broken = manifest("0.0,1.2", segment("1.4", "1.3", "1.5"))
    names = frozenset(entry.name for entry in broken.snapshots)
    assert plan_retention(broken, Zxid(zxid("1.5")), 1, names).deleted == ()


def restarted(rotten: tuple[str, ...] = ()) -> tuple[Store, MemoryDisk]:
    """A store with snapshots at 0, 1.1, 1.2, 1.3 and 1.4, opened again."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    for _ in range(4):
        server.write(20)
        server.snapshot()
    server.close()
    for at in rotten:
        flip_bit(disk, ONE_PLACE.in_snapshots(snapshot(at).name), 50)
    return Store.open(disk, ONE_PLACE, OPTIONS)[0], disk


def left(store: Store) -> list[str]:
    return [short(entry.zxid) for entry in store.manifest.snapshots]


def test_purge_after_a_restart__as_many_stay_as_were_asked_for() -> None:
    store, _ = restarted()
    store.purge(3)
    assert left(store) == ["1.2", "1.3", "1.4"]


def test_purge_with_a_rotten_snapshot__it_does_not_count() -> None:
    store, disk = restarted(("1.2",))
    store.purge(3)
    assert left(store) == ["1.1", "1.3", "1.4"]
    # Those that are left are what they are left for.
    for at in ("1.3", "1.4"):
        flip_bit(disk, ONE_PLACE.in_snapshots(snapshot(at).name), 50)
    store.close()
    found = recover(disk, ONE_PLACE)
    assert (found.standing, short(found.head)) == (Standing.WHOLE, "1.4")


def test_purge_with_the_newest_rotten__nothing_goes() -> None:
    store, _ = restarted(("1.4",))
    assert store.degraded
    assert store.purge(1) == ()


def test_rotten_snapshot_that_nothing_rests_on__goes_aside_and_the_next_start_is_whole() -> None:
    store, disk = restarted(("1.3", "1.4"))
    assert left(store) == ["0.0", "1.1", "1.2"]
    for at in ("1.3", "1.4"):
        name = snapshot(at).name
        assert not disk.exists(ONE_PLACE.in_snapshots(name))
        assert disk.exists(ONE_PLACE.aside_of(name, store.manifest.generation))
    store.close()
    found = recover(disk, ONE_PLACE)
    assert (found.standing, short(found.head), found.degraded) == (Standing.WHOLE, "1.4", False)
    assert found.problems == ()


def test_retain_none__our_own_bug() -> None:
    with pytest.raises(InvariantViolation):
        plan(0, "1.2")
