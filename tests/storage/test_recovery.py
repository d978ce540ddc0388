"""Recovery: what makes a history less than whole, and that a restart does not forget it."""

from __future__ import annotations

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import remove_file, restore_file
from keepfast.storage import (
    Epochs,
    Recovery,
    Severity,
    Standing,
    Store,
    read_watermark,
    recover,
)
from keepfast.storage.locks import unlock_directory
from keepfast.tree import make_node
from keepfast.wire import (
    READ_ACL,
    LogEntry,
    OpCode,
    SetACLTxn,
    TxnDigest,
    TxnHeader,
    encode_entry,
)
from tests.storage.directories import SESSION, Place, line, log_bytes, short, zxid
from tests.storage.workload import ONE_PLACE, OPTIONS, Server, other_tree


def found_in(place: Place, full: bool = False) -> Recovery:
    return recover(place.disk, place.directory, full=full)


def verdict(place: Place, full: bool = False) -> tuple[Standing, str | None, set[str]]:
    return summary(found_in(place, full))


def summary(found: Recovery) -> tuple[Standing, str | None, set[str]]:
    head = None if found.tree is None else short(found.head)
    return found.standing, head, {problem.code for problem in found.problems}


# -- without a manifest --------------------------------------------------------------------------


def test_sound_snapshot_that_the_records_contradict__unproven() -> None:
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("0.0", history.tree_at(zxid("0.0")))
    place.log("1.1-1.5", history)
    place.snapshot("1.3", history.but("1.1,1.3").tree_at(zxid("1.3")))
    assert verdict(place) == (Standing.UNPROVEN, "1.5", {"snapshot-contradicted"})


def test_epoch_begun_with_a_rotten_snapshot__unproven_until_a_digest_proves_it() -> None:
    place = Place()
    history = line("1.1-1.3,2.1")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.3", history)
    place.snapshot("2.0", history.tree_at(zxid("2.0")), bad_seal=True)
    codes = {"snapshot-damaged", "unproven-start"}
    assert verdict(place) == (Standing.UNPROVEN, "1.3", codes)
    place.log("2.1", history)
    assert verdict(place) == (Standing.WHOLE, "2.1", {"snapshot-damaged"})


def test_snapshot_that_shows_records_that_are_gone__refused() -> None:
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.snapshot("1.3", history.tree_at(zxid("1.5")), ahead=zxid("1.5"))
    place.log("1.1-1.4", history)
    assert verdict(place)[:2] == (Standing.DAMAGED, None)


@pytest.mark.parametrize("records", ["1.1-1.3", "1.1-1.5"])
def test_snapshot_whose_digest_is_one_record_late__is_whole(records: str) -> None:
    """Apache notes the digest of a txn after it moved the zxid: a snapshot may begin in between."""
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("1.3", history.tree_at(zxid("1.3")), sections=2, ahead=zxid("1.2"))
    place.log(records, history)
    assert verdict(place, full=True) == (Standing.WHOLE, records[-3:], set())


def test_snapshot_without_the_record_of_its_name__refused() -> None:
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("1.3", history.tree_at(zxid("1.2")), sections=2)
    place.log("1.4,1.5", history)
    assert verdict(place)[:2] == (Standing.DAMAGED, None)


def test_snapshot_two_records_behind_its_name__is_another_files() -> None:
    place = Place()
    history = line("1.1-1.5")
    place.snapshot("1.4", history.tree_at(zxid("1.2")), sections=2)
    place.log("1.1-1.5", history)
    assert "snapshot-damaged" in verdict(place, full=True)[2]


def test_damage_below_the_base__reported_and_harmless() -> None:
    place = Place()
    history = line("1.1-1.6")
    place.snapshot("1.4", history.tree_at(zxid("1.4")))
    offsets = place.log("1.1,1.2", history)
    place.log("1.3-1.6", history)
    place.overwrite("log.100000001", offsets[zxid("1.1")] + 20, b"rot")
    assert verdict(place) == (Standing.WHOLE, "1.6", {"log-damaged"})


def test_damage_that_may_hide_records_behind_the_base__refused() -> None:
    place = Place()
    history = line("1.1-1.6,2.1")
    place.snapshot("1.2", history.tree_at(zxid("1.2")))
    offsets = place.log("1.1-1.4", history)
    place.log("2.1", history)
    place.overwrite("log.100000001", offsets[zxid("1.4")] + 20, b"rot")
    assert verdict(place) == (Standing.DAMAGED, None, {"log-damaged", "history-broken"})


def test_rotten_snapshot_that_nobody_needs__found_by_the_full_check() -> None:
    place = Place()
    history = line("1.1-1.5")
    for at in ("0.0", "1.2", "1.4"):
        place.snapshot(at, history.tree_at(zxid(at)), bad_seal=at == "0.0")
    place.log("1.1-1.5", history)
    assert verdict(place) == (Standing.WHOLE, "1.5", set())
    assert verdict(place, full=True) == (Standing.WHOLE, "1.5", {"snapshot-damaged"})


def test_same_zxid_with_other_bytes__refused() -> None:
    place = Place()
    history = line("1.1-1.3")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.3", history)
    place.log("1.3", history, has_digests=False)
    assert verdict(place) == (Standing.DAMAGED, None, {"history-broken"})


def test_epochs_that_cannot_be__nothing_is_taken_over() -> None:
    place = Place()
    history = line("1.1-1.3")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.3", history)
    place.epochs(1, 2)
    before = place.memory.fingerprint()
    assert verdict(place) == (Standing.DAMAGED, None, {"epoch-order"})
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    store.close()
    assert place.memory.fingerprint() == before


def test_epochs_that_cannot_be_read__are_not_those_of_a_server_alone() -> None:
    place = Place()
    place.snapshot("1.0", line("1.1").tree_at(zxid("1.0")))
    assert verdict(place)[0] is Standing.WHOLE
    place.put("acceptedEpoch", b"?")
    place.put("currentEpoch", b"")
    assert verdict(place) == (Standing.DAMAGED, None, {"epoch-unreadable"})


# -- ACLs that a fuzzy snapshot lacks ------------------------------------------------------------


def place_with_unknown_acl(has_record: bool) -> Place:
    """A znode of the snapshot at 1.1 already has the ACL that 1.2 gives it; the table has not."""
    history = line("1.1-1.3")
    place = Place()
    tree = history.tree_at(zxid("1.1"))
    header = TxnHeader(SESSION, 0, zxid("1.2"), 1_700_000_000_000, OpCode.SET_ACL)
    body = SetACLTxn("/1.3", READ_ACL, 1)
    tree.apply(header, body)
    entry = encode_entry(LogEntry(header, body, TxnDigest(2, tree.digest)))
    node = tree.find("/1.3")
    assert node is not None
    node.packed = make_node(node.data, 9, node.stat).packed
    place.snapshot("1.1", tree, ahead=zxid("1.2"))
    entries = [history.entry(zxid("1.1"))]
    place.put("log.100000001", log_bytes([*entries, *([entry] if has_record else [])]))
    return place


def test_acl_that_a_record_in_the_window_brings__whole() -> None:
    found = found_in(place_with_unknown_acl(has_record=True))
    assert summary(found)[:2] == (Standing.WHOLE, "1.2"), found.problems
    assert found.tree is not None
    assert not found.tree.acls.unknown_keys
    node = found.tree.find("/1.3")
    assert node is not None
    assert found.tree.acl_of(node) == READ_ACL


def test_acl_that_nothing_brings__refused() -> None:
    place = place_with_unknown_acl(has_record=False)
    assert verdict(place)[:2] == (Standing.DAMAGED, None)
    # Not even where the window is said to end before it.
    history = line("1.1-1.3")
    tree = history.tree_at(zxid("1.1"))
    node = tree.find("/1.3")
    assert node is not None
    node.packed = make_node(node.data, 9, node.stat).packed
    place = Place()
    place.snapshot("1.1", tree)
    place.log("1.1-1.3", history)
    found = found_in(place)
    assert summary(found)[:2] == (Standing.DAMAGED, None)
    assert any("ACLs" in problem.reason for problem in found.problems)


def test_acl_that_was_brought__stays_after_a_restart() -> None:
    place = place_with_unknown_acl(has_record=True)
    for _ in range(2):
        store, found = Store.open(place.disk, place.directory, OPTIONS)
        assert summary(found)[:2] == (Standing.WHOLE, "1.2"), found.problems
        store.close()


# -- with a manifest -----------------------------------------------------------------------------


def closed_server() -> tuple[Server, MemoryDisk]:
    """Records 1.1-1.3 | 2.1, 2.2; epochs 7 and 2."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20, 20)
    server.change_epoch()
    server.set_epochs(7, 2)
    server.write(20, 20)
    server.close()
    return server, disk


def found_on(disk: MemoryDisk) -> tuple[Standing, str | None, set[str]]:
    return summary(recover(disk, ONE_PLACE))


def test_manifest_gone_from_a_directory_of_ours__unproven_and_said() -> None:
    _, disk = closed_server()
    remove_file(disk, ONE_PLACE.manifest)
    found = recover(disk, ONE_PLACE)
    assert summary(found) == (Standing.UNPROVEN, "2.2", {"manifest-missing"})
    assert found.problems[0].severity is Severity.DAMAGE


def test_manifest_and_end_of_the_log_gone__the_watermark_says_that_records_are_lost() -> None:
    server, disk = closed_server()
    for name in (ONE_PLACE.manifest, ONE_PLACE.in_logs(server.store.manifest.segments[-1].name)):
        remove_file(disk, name)
    found = recover(disk, ONE_PLACE)
    assert summary(found) == (Standing.DAMAGED, None, {"manifest-missing", "records-gone"})
    assert "0x200000002" in found.problems[-1].reason
    # A server that starts all the same keeps the verdict: nothing here is taken over.
    store, _ = Store.open(disk, ONE_PLACE)
    store.close()
    assert recover(disk, ONE_PLACE).standing is Standing.DAMAGED


@pytest.mark.parametrize("is_full", [False, True])
def test_tail_that_the_watermark_did_not_know_of__it_does_behind_a_start(is_full: bool) -> None:
    """Its word is not durable with each group; what a start has read further, it vouches for."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    old = disk.contents(ONE_PLACE.watermark)
    server.write(20)
    disk = disk.clone()  # killed
    disk.put(ONE_PLACE.watermark, old)
    if is_full:
        disk.capacity = disk.used_bytes()
    store, found = Store.open(disk, ONE_PLACE, OPTIONS)
    assert found.standing is Standing.WHOLE
    told = read_watermark(disk, ONE_PLACE)
    assert told is not None
    assert told.zxid == found.head == server.store.head
    store.close()


def test_watermark_lost__the_next_start_has_one_that_says_as_much() -> None:
    _, disk = closed_server()
    said = read_watermark(disk, ONE_PLACE)
    remove_file(disk, ONE_PLACE.watermark)
    store, found = Store.open(disk, ONE_PLACE, OPTIONS)
    assert found.standing is Standing.WHOLE
    assert said is not None
    assert read_watermark(disk, ONE_PLACE) == said
    store.close()


def test_manifest_gone_and_restarted__still_unproven_and_not_older_than_the_watermark() -> None:
    _, disk = closed_server()
    remove_file(disk, ONE_PLACE.manifest)
    for _ in range(2):
        store, found = Store.open(disk, ONE_PLACE)
        assert found.standing is Standing.UNPROVEN
        store.close()


def test_nothing_left_but_the_watermark__lost_and_not_new() -> None:
    disk = MemoryDisk()
    disk.make_directory(ONE_PLACE.snapshots)
    disk.settle()
    assert found_on(disk) == (Standing.EMPTY, None, set())
    disk.put(ONE_PLACE.watermark, bytes(8192))
    assert found_on(disk) == (Standing.DAMAGED, None, {"manifest-missing"})


@pytest.mark.parametrize("content", [b"", b"2", bytes(4096)])
def test_open_segment_without_its_header__damaged(content: bytes) -> None:
    """No crash leaves that: the header is durable before the manifest lists the segment."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    disk.put(ONE_PLACE.in_logs("log.100000001"), content)
    disk.put(ONE_PLACE.watermark, bytes(8192))
    standing, _, codes = found_on(disk)
    assert standing is Standing.DAMAGED
    assert codes == {"history-broken"}


def test_watermark_gone_beside_an_open_segment__unproven_and_said() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    for data in (None, bytes(100), b"?" * 8192, bytes(8193)):
        if data is None:
            remove_file(disk, ONE_PLACE.watermark)
        else:
            disk.put(ONE_PLACE.watermark, data)
        assert found_on(disk) == (Standing.UNPROVEN, "1.2", {"witness-damaged"})
    server.close()
    # Sealed, a segment needs no watermark.
    remove_file(disk, ONE_PLACE.watermark)
    assert found_on(disk) == (Standing.WHOLE, "1.2", set())


def test_records_gone_beside_a_foreign_file__unproven() -> None:
    server, disk = closed_server()
    remove_file(disk, ONE_PLACE.in_logs(server.store.manifest.segments[-1].name))
    disk.put(ONE_PLACE.in_snapshots("snapshot.0.gz"), b"not ours")
    standing, head, codes = found_on(disk)
    assert (standing, head) == (Standing.UNPROVEN, "1.3")
    assert codes >= {"changed-by-another-program", "records-gone"}


def test_records_gone_beside_a_foreign_file_of_a_server_alone__damaged() -> None:
    """Nobody truncates the log of a server without peers."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20, 20)
    server.store.roll()
    server.write(20)
    server.close()
    remove_file(disk, ONE_PLACE.in_logs(server.store.manifest.segments[-1].name))
    disk.put(ONE_PLACE.in_snapshots("snapshot.0.gz"), b"not ours")
    standing, _, codes = found_on(disk)
    assert standing is Standing.DAMAGED
    assert codes >= {"changed-by-another-program", "records-gone"}


@pytest.mark.parametrize(("text", "standing"), [(b"2", Standing.WHOLE), (b"1", Standing.WHOLE)])
def test_current_epoch_not_ahead__whole(text: bytes, standing: Standing) -> None:
    _, disk = closed_server()
    disk.put(ONE_PLACE.in_snapshots("currentEpoch"), text)
    assert found_on(disk) == (standing, "2.2", set())
    assert recover(disk, ONE_PLACE).epochs == Epochs(7, 2)


@pytest.mark.parametrize("text", [b"3", b"6", b"7"])
def test_current_epoch_ahead_without_a_record_of_it__unproven(text: bytes) -> None:
    """It would win elections over servers with more of the history."""
    _, disk = closed_server()
    disk.put(ONE_PLACE.in_snapshots("currentEpoch"), text)
    assert found_on(disk) == (Standing.UNPROVEN, "2.2", {"epoch-ahead", "unproven-epoch"})


def test_current_epoch_ahead_with_records_of_it__whole() -> None:
    """Another program served in between, and all it wrote fits."""
    _, disk = closed_server()
    other_disk = disk.clone()
    other = Server(other_disk)
    other.open()
    other.epoch = 3
    other.write(20)
    path = ONE_PLACE.in_logs(other.store.manifest.segments[-1].name)
    disk.put(path, other_disk.contents(path))
    disk.put(ONE_PLACE.in_snapshots("currentEpoch"), b"3")
    standing, head, _ = found_on(disk)
    assert (standing, head) == (Standing.WHOLE, "3.1")


def test_old_manifest_without_the_newest_segment__refused() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20)
    old = disk.clone()
    server.store.roll()
    server.write(20)
    restore_file(disk, ONE_PLACE.manifest, old)
    remove_file(disk, ONE_PLACE.in_logs(server.store.manifest.segments[-1].name))
    found = recover(disk, ONE_PLACE)
    assert summary(found) == (Standing.DAMAGED, None, {"history-broken"})
    assert "old one" in found.problems[0].reason


# -- what is unproven stays so -------------------------------------------------------------------


def unproven_store() -> tuple[Store, Place]:
    place = Place()
    history = line("1.1,1.2,2.1,2.2")
    place.snapshot("1.1", history.tree_at(zxid("1.1")), sections=1)
    place.log("1.1,1.2", history, has_digests=False)
    place.log("2.1,2.2", history, has_digests=False)
    store, found = Store.open(place.disk, place.directory, OPTIONS)
    assert summary(found) == (Standing.UNPROVEN, "2.2", {"unproven-join", "unproven-base"})
    return store, place


def test_unproven__still_so_after_restarts_and_new_records() -> None:
    store, place = unproven_store()
    store.close()
    for _ in range(2):
        store, found = Store.open(place.disk, place.directory, OPTIONS)
        assert summary(found)[::2] == (Standing.UNPROVEN, {"unproven"})
        assert [problem.zxid for problem in found.problems] == [zxid("2.1"), zxid("2.2")]
        store.close()


def test_unproven_and_killed__still_so() -> None:
    _, place = unproven_store()
    unlock_directory(place.disk, place.directory)
    assert verdict(place)[::2] == (Standing.UNPROVEN, {"unproven"})


def test_unproven_then_truncated_to_before_it__whole() -> None:
    store, place = unproven_store()
    found = store.truncate(zxid("1.2"))
    assert summary(found)[:2] == (Standing.WHOLE, "1.2")
    following = line("1.1,1.2,3.1")
    store.append(zxid("3.1"), following.entry(zxid("3.1"), has_digest=False))
    store.close()
    assert verdict(place)[0] is Standing.WHOLE


def test_unproven_then_a_snapshot_from_a_leader__whole() -> None:
    store, place = unproven_store()
    store.install_snapshot(other_tree(3, (20, 20)))
    store.close()
    assert verdict(place) == (Standing.WHOLE, "3.2", set())


def test_unproven_then_purged__nothing_goes() -> None:
    store, _ = unproven_store()
    assert store.purge(1) == ()
