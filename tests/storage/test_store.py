"""What a caller of the store may rely on, apart from crashes (test_crash_consistency.py)."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_fields

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, remove_file
from keepfast.storage import (
    DataDirectory,
    Epochs,
    History,
    RealDisk,
    SegmentEntry,
    Standing,
    Store,
    list_directory,
    recover,
)
from keepfast.storage.epochs import write_epoch_files
from keepfast.wire import (
    BrokenHistory,
    DiskFailed,
    DiskFull,
    InvariantViolation,
    StorageError,
    Zxid,
    make_zxid,
)
from tests.storage.scenarios import apache_disk, with_history
from tests.storage.workload import ONE_PLACE, OPTIONS, Server, other_tree, point_of


@pytest.fixture
def server() -> Server:
    """Two snapshots, three segments, two epochs, and the third segment open."""
    server = Server(MemoryDisk())
    with_history(server)
    return server


def reopen(server: Server) -> Server:
    again = Server(server.memory_disk.clone(), server.directory)
    again.open()
    return again


@pytest.fixture
def _switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_switching_often")
def test_append_while_another_thread_syncs__no_record_is_lost(server: Server) -> None:
    entry = server.ledger.entries[server.tree.last_zxid]
    first, count = Zxid(server.store.head + 1), 20_000
    is_done = threading.Event()
    failures: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not is_done.is_set():
                server.store.sync()
        except (RuntimeError, StorageError) as error:
            failures.append(error)

    server.store.options = replace(OPTIONS, grow_bytes=1 << 20, segment_bytes=1 << 30)
    thread = threading.Thread(target=keep_syncing)
    thread.start()
    try:
        for zxid in range(first, first + count):
            server.store.append(Zxid(zxid), entry)
    finally:
        is_done.set()
        thread.join()
    assert not failures
    assert server.store.sync() == first + count - 1


def test_large_group_beyond_the_zeros__reserved_blocks_and_one_datasync(server: Server) -> None:
    server.store.options = replace(OPTIONS, grow_bytes=4096, segment_bytes=1 << 20)
    server.store.roll()
    server.write(5000)
    calls: list[str] = []
    server.memory_disk.on_call = lambda call: (
        calls.append(call.operation) if "log" in call.path and not call.is_after else None
    )
    server.write(1500)
    assert calls == ["allocate", "write_at", "datasync"]
    calls.clear()
    server.write(20)
    assert calls == ["write_at", "datasync", "write_at", "datasync"]  # zeros are ahead of it again
    server.memory_disk.on_call = None
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_large_group_on_a_full_disk__written_once_there_is_space(server: Server) -> None:
    server.store.options = replace(OPTIONS, segment_bytes=1 << 20)
    server.write(1500)
    disk = server.memory_disk
    disk.capacity = disk.used_bytes() + 1000
    server.append(3000)
    with pytest.raises(DiskFull):
        server.store.sync()
    assert point_of(reopen(server).tree) == server.ledger.acknowledged
    disk.capacity = None
    server.sync()
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_install_is_refused_on_a_full_disk__waiting_records_still_wait(server: Server) -> None:
    disk = server.memory_disk
    server.append(20, 30)
    disk.capacity = disk.used_bytes() + 50
    with pytest.raises(DiskFull):
        server.store.install_snapshot(other_tree(3, [0, 200]))
    disk.capacity = None
    server.append(40)
    server.sync()
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_truncate_to_a_zxid_that_is_not_there__waiting_records_still_wait(server: Server) -> None:
    server.append(20, 30)
    with pytest.raises(BrokenHistory):
        server.store.truncate(Zxid(0x1_0000_0099))
    server.append(40)
    server.sync()
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_snapshot_begun_before_a_received_one__is_refused_and_harms_nothing(
    server: Server,
) -> None:
    under_way = server.begin_snapshot()
    while under_way.step():
        pass
    server.set_epochs(3, 2)
    server.install(other_tree(3, [0, 20]))
    with pytest.raises(BrokenHistory, match="no longer"):
        under_way.complete()
    server.write(10)
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_snapshot_completed_before_a_truncation__is_refused_and_harms_nothing(
    server: Server,
) -> None:
    entry = server.complete(server.begin_snapshot())
    server.truncate(Zxid(0x2_0000_0002))
    server.change_epoch()
    # The new history reaches beyond the zxid of the snapshot, which is of the old one.
    server.write(20)
    with pytest.raises(BrokenHistory, match="no longer"):
        server.store.publish_snapshot(entry)
    server.snapshot()
    assert point_of(reopen(server).tree) == server.ledger.acknowledged


def test_closed_store__accepts_nothing(server: Server) -> None:
    server.close()
    before = server.memory_disk.fingerprint()
    with pytest.raises(StorageError, match="closed"):
        server.store.append(Zxid(server.store.head + 1), bytes(40))
    with pytest.raises(StorageError, match="closed"):
        server.store.sync()
    with pytest.raises(StorageError, match="closed"):
        server.store.set_epochs(Epochs(9, 9))
    server.store.close()
    assert server.memory_disk.fingerprint() == before


@pytest.mark.parametrize("is_killed", [True, False])
def test_start_on_a_full_disk__reads_go_on_and_it_recovers_by_itself(
    server: Server, is_killed: bool
) -> None:
    if not is_killed:
        server.close()
    disk = server.memory_disk.clone()
    disk.capacity = disk.used_bytes()
    before = disk.fingerprint()
    for _ in range(2):
        again = Server(disk, server.directory)
        again.open()
        assert point_of(again.tree) == server.ledger.acknowledged
        assert again.store.history.chain().head == server.ledger.acknowledged.zxid
        with pytest.raises(DiskFull):
            again.store.append(Zxid(again.store.head + 1), bytes(40))
        with pytest.raises(DiskFull):
            again.store.set_epochs(Epochs(9, 9))
        again.store.confirm()
        again.store.close()
        assert disk.fingerprint() == before
    again = Server(disk, server.directory)
    again.open()
    again.store.has_space()  # it looks at the reserve, of which these options have none
    again.append(20)
    with pytest.raises(DiskFull):
        again.sync()
    disk.capacity = None
    assert again.store.has_space()
    again.append(30)
    again.sync()
    assert point_of(reopen(again).tree) == again.ledger.acknowledged


def test_start_on_a_full_disk_of_apache__reads_go_on_and_it_is_taken_over_later() -> None:
    disk = apache_disk("healthy-elections-3.9.5", "0")
    expected = recover(disk, ONE_PLACE)
    disk.capacity = disk.used_bytes()
    store, recovery = Store.open(disk, ONE_PLACE, OPTIONS)
    assert point_of(recovery.tree) == point_of(expected.tree)
    assert not disk.exists(ONE_PLACE.manifest)
    disk.capacity = None
    store.set_epochs(Epochs(99, 99))
    assert disk.exists(ONE_PLACE.manifest)
    store.close()
    assert point_of(recover(disk, ONE_PLACE).tree) == point_of(expected.tree)


def test_log_cut_while_a_snapshot_is_taken__the_snapshot_is_given_up(server: Server) -> None:
    """It is of a history that is no longer this one: an ordinary refusal, not a bug."""
    server.append(20)
    server.sync()
    writer = server.store.begin_snapshot(server.tree.freeze())
    while writer.step():
        pass
    entry = writer.complete()
    server.store.truncate(Zxid(entry.zxid - 1))
    with pytest.raises(BrokenHistory, match="no longer this one"):
        server.store.publish_snapshot(entry)


def test_disk_that_does_not_tell_its_space__has_failed(tmp_path: Path) -> None:
    directory = DataDirectory(f"{tmp_path}/gone/version-2", f"{tmp_path}/gone/version-2")
    store, _ = Store.open(RealDisk(), directory, OPTIONS)
    store.initialise()
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(DiskFailed):
        store.has_space()
    with pytest.raises(DiskFailed):
        store.sync()


def test_history_while_a_segment_is_begun__claims_no_record_that_is_not_there() -> None:
    """The manifest lists a segment before its first record is durable."""
    server = Server(MemoryDisk())
    with_history(server)
    history = server.store.history
    begun = SegmentEntry("log.900000001", make_zxid(9, 1), history.head, None, 99)
    manifest = replace_fields(history.manifest, segments=(*history.manifest.segments, begun))
    looking = History(history.disk, history.directory, manifest, history.head)
    assert looking.chain() == history.chain()
    assert not looking.contains(make_zxid(9, 1))
    assert looking.chain().before_epoch(make_zxid(9, 0)) is None


def test_second_store_on_a_directory__is_refused(server: Server) -> None:
    with pytest.raises(StorageError, match="another server is running"):
        Store.open(server.disk, ONE_PLACE, OPTIONS)


@pytest.mark.parametrize("damage", ["log", "epochs"])
def test_damaged_directory__is_left_as_it_is_and_takes_no_record(
    server: Server, damage: str
) -> None:
    server.close()
    disk = server.memory_disk
    if damage == "log":
        flip_bit(disk, server.directory.in_logs("log.100000004"), 60)
    else:
        disk = apache_disk("healthy-elections-3.9.5", "0")
        write_epoch_files(disk, ONE_PLACE, Epochs(3, 3))
        disk.settle()
    before = disk.fingerprint()
    store, recovery = Store.open(disk, ONE_PLACE, OPTIONS)
    assert recovery.standing is Standing.DAMAGED
    with pytest.raises(InvariantViolation):
        store.append(Zxid(recovery.head + 1), bytes(40))
    assert disk.fingerprint() == before


def truncations_of_a_fuzzy_base(disk: MemoryDisk) -> tuple[int, list[Zxid], list[Zxid]]:
    """Truncate to each of the records after an Apache snapshot: its zxid, the refused, the cut."""
    store, recovery = Store.open(disk, ONE_PLACE, OPTIONS)
    assert recovery.base is not None
    assert not recovery.base.exact
    before = disk.fingerprint()
    records = store.history.records_after(recovery.base.zxid)
    assert records is not None
    refused, cut = [], []
    for zxid in [record.zxid for record in records][:40]:
        clone = disk.clone()
        again, _ = Store.open(clone, ONE_PLACE, OPTIONS)
        opened = clone.fingerprint()
        try:
            left = again.truncate(zxid)
        except BrokenHistory:
            refused.append(zxid)
            assert clone.fingerprint() == opened
        else:
            cut.append(zxid)
            assert (left.standing, left.head) == (recovery.standing, zxid)
            assert not left.degraded
    assert disk.fingerprint() == before
    return recovery.base.zxid, refused, cut


def test_truncate_into_the_window_of_the_only_snapshot__is_refused_with_nothing_changed() -> None:
    disk = apache_disk("diff-over-gap-3.9.5", "0")
    for name in list_directory(disk, ONE_PLACE).snapshots[:-1]:
        remove_file(disk, ONE_PLACE.in_snapshots(name))
    base, refused, cut = truncations_of_a_fuzzy_base(disk)
    # The snapshot shows effects of these: without them its state never existed.
    assert refused == list(range(base + 1, base + 1 + len(refused)))
    assert refused
    assert cut


def test_truncate_into_the_window_of_a_fuzzy_snapshot__an_older_one_takes_over() -> None:
    _, refused, cut = truncations_of_a_fuzzy_base(apache_disk("diff-over-gap-3.9.5", "0"))
    assert refused == []
    assert cut


def test_record_without_a_digest__leaves_the_digest_of_what_follows_unknown(
    server: Server,
) -> None:
    server.store.append(Zxid(server.store.head + 1), server.ledger.entries[server.store.head], None)
    server.store.sync()
    server.store.roll()
    server.store.append(
        Zxid(server.store.head + 1), server.ledger.entries[server.store.head - 1], 7
    )
    server.store.sync()
    assert server.store.manifest.segments[-1].follows_digest is None


def test_epochs__are_stored_together_and_never_fall(server: Server) -> None:
    for epochs in (Epochs(1, 1), Epochs(None, 3), Epochs(3, None)):
        with pytest.raises(InvariantViolation):
            server.store.set_epochs(epochs)
    assert recover(server.memory_disk.clone(), ONE_PLACE).epochs == Epochs(2, 2)


def test_received_snapshot__puts_the_old_files_aside_until_a_purge(server: Server) -> None:
    server.set_epochs(3, 2)
    server.install(other_tree(3, [0, 20]))
    listing = list_directory(server.disk, server.directory)
    assert (listing.snapshots, listing.logs) == (("snapshot.300000002",), ())
    aside = [path for path in server.memory_disk.files() if "/keepfast.aside/" in path]
    assert len(aside) == 5
    assert set(server.store.purge(1)) == set(aside)
    assert not [path for path in server.memory_disk.files() if "/keepfast.aside/" in path]
