"""The longest proven history: what recovery finds where it succeeds, never more elsewhere."""

from __future__ import annotations

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, swap_files
from keepfast.storage import RealDisk, Standing, data_directory, recover
from keepfast.storage.prefix import Prefix, prefix_of
from keepfast.wire import StorageError, Zxid
from tests.cases import case_names, load_case
from tests.storage.directories import Place, line, short, zxid
from tests.storage.workload import Server, point_of


def prefix(place: Place, until: str | None = None) -> Prefix:
    found = prefix_of(place.disk, place.directory, *([zxid(until)] if until else []))
    assert isinstance(found, Prefix), found
    return found


@pytest.mark.parametrize("name", case_names())
def test_case_that_recovers__prefix_is_all_of_it(name: str) -> None:
    disk = RealDisk()
    for server_id in load_case(name).server_ids:
        directory = data_directory(disk, str(load_case(name).server_dir(server_id)))
        recovery = recover(disk, directory)
        found = prefix_of(disk, directory)
        if recovery.tree is None:
            assert not isinstance(found, Prefix) or found.stop is not None
            continue
        assert isinstance(found, Prefix)
        assert (found.stop, point_of(found.tree)) == (None, point_of(recovery.tree))


@pytest.mark.parametrize("name", case_names("healthy"))
def test_every_zxid_behind_a_snapshot__same_tree_from_every_base(name: str) -> None:
    """A state replayed from one snapshot equals the one that a later snapshot leads to."""
    disk = RealDisk()
    directory = data_directory(disk, str(load_case(name).server_dir("0")))
    recovery = recover(disk, directory)
    assert recovery.tree is not None
    digests: dict[Zxid, int] = {}
    for step in range(20):
        found = prefix_of(disk, directory, Zxid(recovery.head - step))
        if isinstance(found, Prefix) and found.stop is None:
            assert found.head <= recovery.head - step
            digests.setdefault(found.head, found.tree.state_digest)
            assert digests[found.head] == found.tree.state_digest
    assert digests[recovery.head] == recovery.tree.state_digest


def test_until__ends_there_and_says_nothing_is_wrong() -> None:
    place = Place()
    history = line("1.1-1.9")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.snapshot("1.6", history.tree_at(zxid("1.6")))
    place.log("1.1-1.9", history)
    for at, base in (("1.4", "snapshot.100000000"), ("1.6", "snapshot.100000006")):
        found = prefix(place, at)
        assert (short(found.head), found.base_name, found.stop) == (at, base, None)
        assert found.tree.digest == history.tree_at(zxid(at)).digest


def test_snapshot_ahead_of_its_name__an_older_base_is_taken() -> None:
    place = Place()
    history = line("1.1-1.9")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.snapshot("1.3", history.tree_at(zxid("1.6")), ahead=zxid("1.6"))
    place.log("1.1-1.9", history)
    found = prefix(place, "1.4")
    assert (short(found.head), found.base_name) == ("1.4", "snapshot.100000000")
    assert found.tree.digest == history.tree_at(zxid("1.4")).digest


def test_hole_behind_a_join_without_digests__join_stays_unproven() -> None:
    place = Place()
    history = line("1.1-1.3,2.1-2.9")
    place.snapshot("1.0", history.tree_at(zxid("1.0")), sections=1)
    place.log("1.1-1.3", history, has_digests=False)
    place.log("2.1", history, has_digests=False)
    place.log("2.9", history, has_digests=False)
    found = prefix(place)
    assert short(found.head) == "2.1"
    assert [short(join.zxid) for join in found.replay.unproven] == ["2.1"]


def test_wrong_digest_behind_a_join__ends_in_front_of_the_join() -> None:
    place = Place()
    history = line("1.1-1.4,2.1,2.2")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.3", history)  # 1.4 is missing, and only the digests of epoch 2 show it
    place.log("2.1,2.2", history)
    found = prefix(place)
    assert (short(found.head), found.is_contradicted) == ("1.3", True)


def test_two_logs_with_different_records_under_one_zxid__ends_in_front_of_it() -> None:
    place = Place()
    history = line("1.1-1.6")
    place.snapshot("1.0", history.tree_at(zxid("1.0")))
    place.log("1.1-1.5", history)
    # The same txn 1.5 on another tree: its digest differs.
    place.log("1.4,1.5", history.but("1.1,1.2,1.4,1.5"))
    place.put("log.100000005", place.contents("log.100000004"))
    place.disk.remove(place.directory.in_logs("log.100000004"))
    found = prefix(place)
    assert isinstance(found.stop, StorageError)
    assert (short(found.head), short(found.stop.zxid or 0)) == ("1.3", "1.4")


def test_damage_hides_the_end_of_an_epoch__the_next_epoch_is_not_joined() -> None:
    place = Place()
    history = line("1.1-1.5,2.1")
    place.snapshot("1.0", history.tree_at(zxid("1.0")), sections=1)
    offsets = place.log("1.1-1.5", history, has_digests=False)
    place.overwrite("log.100000001", offsets[zxid("1.4")] + 50, b"\xff")
    place.log("2.1", history, has_digests=False)
    assert short(prefix(place).head) == "1.3"


def closed_server() -> Server:
    server = Server(MemoryDisk())
    server.start()
    server.write(20, 20, 20)
    server.store.roll()
    server.write(20, 20)
    server.store.roll()
    server.write(20)
    server.close()
    return server


def test_sealed_segment_with_other_sound_records__is_not_used() -> None:
    server = closed_server()
    disk, directory = server.memory_disk, server.directory
    names = [directory.in_logs(s.name) for s in server.store.manifest.segments]
    swap_files(disk, names[1], names[2])
    found = prefix_of(disk, directory)
    assert isinstance(found, Prefix)
    assert found.head == server.store.manifest.segments[0].seal.last  # type: ignore[union-attr]


def test_damaged_segment_of_keepfast__sound_records_in_front_are_kept() -> None:
    server = closed_server()
    disk, directory = server.memory_disk, server.directory
    middle = server.store.manifest.segments[1]
    assert middle.seal is not None
    flip_bit(disk, directory.in_logs(middle.name), middle.seal.end - 30)
    assert recover(disk, directory).standing is Standing.DAMAGED
    found = prefix_of(disk, directory)
    assert isinstance(found, Prefix)
    assert found.head == middle.first
    assert point_of(found.tree) == server.ledger.past[found.head]
