"""What the manifest says about files that somebody else wrote."""

from __future__ import annotations

import zlib

from keepfast.storage import Join, Recovery, Seal, Standing, Store, recover
from tests.storage.directories import Place, line, log_bytes, short, zxid
from tests.storage.workload import OPTIONS


def recovered(place: Place) -> Recovery:
    found = recover(place.disk, place.directory)
    assert found.standing is Standing.WHOLE, found.problems
    return found


def reopened(place: Place) -> Recovery:
    """Take the directory over, close it, and read it by its manifest."""
    before = recovered(place)
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    store.close()
    after = recovered(place)
    assert not after.adopted
    assert after.tree is not None
    assert before.tree is not None
    assert (after.head, after.tree.state_digest) == (before.head, before.tree.state_digest)
    return after


def test_snapshot_at_the_head__exact() -> None:
    place = Place()
    tree = line("1.1-1.3").tree_at(zxid("1.3"))
    name = place.snapshot("1.3", tree)
    (entry,) = reopened(place).manifest.snapshots
    data = place.contents(name)
    assert (entry.name, entry.zxid, entry.exact) == (name, zxid("1.3"), True)
    assert (entry.digest, entry.state_digest) == (tree.digest, tree.state_digest)
    assert (entry.size, entry.crc32) == (len(data), zlib.crc32(data))


def test_snapshot_ahead_of_its_name__not_exact() -> None:
    place = Place()
    history = line("1.1-1.3")
    place.snapshot("1.2", history.tree_at(zxid("1.3")), ahead=zxid("1.3"))
    place.log("1.1-1.3", history)
    (entry,) = reopened(place).manifest.snapshots
    assert not entry.exact
    assert (entry.digest, entry.state_digest) == (None, None)


def test_two_epochs_in_one_log__one_segment_with_a_join() -> None:
    place = Place()
    history = line("1.1,1.2,2.1,2.2")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1,1.2,2.1,2.2", history, padding=700)
    (segment,) = reopened(place).manifest.segments
    data = place.contents("log.100000001")
    assert segment.joins == (Join(zxid("2.1"), zxid("1.2")),)
    assert (segment.first, segment.follows, segment.start) == (zxid("1.1"), zxid("1.0"), 16)
    digest = history.tree_at(zxid("2.2")).digest
    assert segment.seal == Seal(zxid("2.2"), len(data), zlib.crc32(data[16:]), digest)


def test_records_that_are_no_part_of_the_history__left_out() -> None:
    place = Place()
    history = line("1.1-1.9")
    place.snapshot("1.6", history.tree_at(zxid("1.6")))
    offsets = place.log("1.1,1.2,1.7-1.9", history)
    (segment,) = reopened(place).manifest.segments
    assert (segment.first, segment.follows) == (zxid("1.7"), zxid("1.6"))
    assert segment.start == offsets[zxid("1.7")]


def test_records_that_lie_in_a_log_twice__two_segments() -> None:
    place = Place()
    history = line("1.1-1.6")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    entries = [history.entry(zxid(at)) for at in ("1.1", "1.2", "1.3", "1.2", "1.3", "1.4")]
    place.put("log.100000001", log_bytes(entries))
    found = reopened(place)
    assert short(found.head) == "1.4"
    assert [short(segment.first) for segment in found.manifest.segments] == ["1.1", "1.2"]


def test_run_that_leads_to_the_base__served_to_peers() -> None:
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("1.5", history.tree_at(zxid("1.5")))
    place.log("1.3-1.5", history)
    reopened(place)
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    records = store.history.records_after(zxid("1.3"))
    assert records is not None
    assert [short(record.zxid) for record in records] == ["1.4", "1.5"]


def test_older_snapshot_with_a_path__stays_in_use() -> None:
    place = Place()
    history = line("1.1-1.5")
    for at in ("0.0", "1.2", "1.4"):
        place.snapshot(at, history.tree_at(zxid(at)))
    place.log("1.1-1.5", history)
    found = reopened(place)
    assert [short(entry.zxid) for entry in found.manifest.snapshots] == ["1.2", "1.4"]
    # It is good for what it is kept for: the newer one may rot.
    place.overwrite("snapshot.100000004", 40, b"rot")
    again = recovered(place)
    assert again.tree is not None
    assert again.tree.digest == history.tree_at(zxid("1.5")).digest


def test_older_snapshot_without_a_path__out_of_use() -> None:
    place = Place()
    history = line("1.1-1.5")
    for at in ("1.1", "1.4"):
        place.snapshot(at, history.tree_at(zxid(at)))
    place.log("1.5", history)
    assert [short(entry.zxid) for entry in reopened(place).manifest.snapshots] == ["1.4"]


def test_serials__each_is_given_once() -> None:
    place = Place()
    history = line("1.1-1.6")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    for log in ("1.1,1.2", "1.3,1.4", "1.5,1.6"):
        place.log(log, history)
    manifest = recovered(place).manifest
    serials = [segment.serial for segment in manifest.segments]
    assert len({*serials, manifest.serial}) == 4
    assert manifest.serial > max(serials)


def test_snapshot_that_apache_wrote_anew_in_place__still_in_use() -> None:
    place = Place()
    tree = line("1.1-1.3").tree_at(zxid("1.3"))
    name = place.snapshot("1.3", tree)
    reopened(place)
    # The same state in other bytes.
    place.snapshot("1.3", tree, sections=2)
    found = recovered(place)
    assert [problem.code for problem in found.problems] == ["snapshot-rewritten"]
    assert not found.degraded
    assert found.tree is not None
    assert found.tree.state_digest == tree.state_digest
    (entry,) = reopened(place).manifest.snapshots
    assert entry.crc32 == zlib.crc32(place.contents(name))
    assert recovered(place).problems == ()


def test_snapshot_replaced_by_one_of_another_state__refused() -> None:
    place = Place()
    history = line("1.1-1.3")
    place.snapshot("1.3", history.tree_at(zxid("1.3")))
    reopened(place)
    place.snapshot("1.3", history.but("1.1,1.3").tree_at(zxid("1.3")))
    found = recover(place.disk, place.directory)
    assert found.standing is Standing.DAMAGED
    assert [problem.code for problem in found.problems] == ["snapshot-damaged"]
