"""A repair keeps what is proven, loses no evidence, and survives a power loss at any moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, remove_file
from keepfast.sim.disk_faults import DiskCall
from keepfast.storage import Epochs, Problem, Recovery, Severity, Standing, Store, recover
from keepfast.storage.locks import is_locked
from keepfast.storage.repair import (
    RepairPlan,
    RepairRefused,
    apply_repair,
    hold,
    plan_repair,
)
from keepfast.wire import CorruptManifest, format_zxid
from tests.storage.directories import Place, line, short, zxid
from tests.storage.fixture_table import FIXTURES
from tests.storage.workload import ONE_PLACE, OPTIONS, TWO_PLACES, Server, other_tree, point_of

# What a repair makes of each damaged fixture: standing and head, or None if it is refused.
REPAIRED: dict[str, tuple[Standing, str] | None] = {
    "FX4": (Standing.WHOLE, "1.10"),
    "FX5": (Standing.WHOLE, "1.12"),
    "FX6": (Standing.WHOLE, "1.12"),
    "FX7": (Standing.WHOLE, "1.1"),
    "FX8": (Standing.WHOLE, "1.1"),
    "FX9": (Standing.WHOLE, "1.5"),
    "FX12": (Standing.WHOLE, "1.0"),
    "FX12-with-log": (Standing.WHOLE, "1.9"),
    "FX13": (Standing.WHOLE, "1.12"),
    "FX14": (Standing.WHOLE, "1.2"),
    "FX14-open": (Standing.WHOLE, "0.0"),
    "FX16": None,
    "FX16-both": None,
    "FX17": (Standing.WHOLE, "1.2"),
    "FX18": None,
    "FX18-digest-alone": None,
}


def place_of(name: str) -> Place:
    place = Place()
    FIXTURES[name].write(place)
    return place


def plan_of(place: Place) -> RepairPlan:
    plan = plan_repair(place.disk, place.directory)
    assert isinstance(plan, RepairPlan)
    return plan


def damage_in(recovery: Recovery) -> list[Problem]:
    return [p for p in recovery.problems if p.severity is Severity.DAMAGE]


def evidence(disk: MemoryDisk) -> set[bytes]:
    """The bytes of every log and snapshot, wherever it lies; zeros at the end do not count."""
    return {
        data.rstrip(b"\0")
        for path, data in disk.files().items()
        if path.rpartition("/")[2].startswith(("log.", "snapshot."))
    }


@pytest.mark.parametrize("name", REPAIRED)
def test_repair_of_a_fixture__verdict(name: str) -> None:
    place = place_of(name)
    before, old_files = place.memory.fingerprint(), evidence(place.memory)
    expected = REPAIRED[name]
    if expected is None:
        with pytest.raises(RepairRefused):
            plan_repair(place.disk, place.directory)
        assert place.memory.fingerprint() == before
        return
    plan = plan_of(place)
    assert place.memory.fingerprint() == before
    with hold(place.disk, place.directory):
        found = apply_repair(place.disk, place.directory, plan)
    assert (found.standing, short(found.head)) == expected
    assert not damage_in(found)
    assert old_files <= evidence(place.memory)
    # A server starts on it and comes to the same verdict.
    store, again = Store.open(place.disk, place.directory, OPTIONS)
    assert (again.standing, again.head) == (found.standing, found.head)
    store.close()


@pytest.mark.parametrize("name", [name for name in FIXTURES if name not in REPAIRED])
def test_fixture_without_damage__nothing_to_repair(name: str) -> None:
    place = place_of(name)
    found = plan_repair(place.disk, place.directory)
    assert isinstance(found, Recovery)
    assert found.standing is FIXTURES[name].standing


def test_logs_without_digests__repaired_history_stays_unproven() -> None:
    place = Place()
    history = line("1.1-1.5,2.1-2.9")
    place.snapshot("1.0", history.tree_at(zxid("1.0")), sections=1)
    place.log("1.1-1.5", history, has_digests=False)
    place.log("2.1,2.2", history, has_digests=False)
    place.log("2.8,2.9", history, has_digests=False)
    plan = plan_of(place)
    with hold(place.disk, place.directory):
        found = apply_repair(place.disk, place.directory, plan)
    assert (found.standing, short(found.head)) == (Standing.UNPROVEN, "2.2")
    store, again = Store.open(place.disk, place.directory, OPTIONS)
    assert again.standing is Standing.UNPROVEN
    store.close()


@pytest.mark.parametrize(
    ("has_digests", "standing"), [(True, Standing.WHOLE), (False, Standing.UNPROVEN)]
)
def test_damage_below_the_base__no_record_is_lost(has_digests: bool, standing: Standing) -> None:
    place = Place()
    history = line("1.1-1.9")
    place.snapshot("1.5", history.tree_at(zxid("1.5")), sections=3 if has_digests else 1)
    offsets = place.log("1.1-1.9", history, has_digests=has_digests)
    place.overwrite("log.100000001", offsets[zxid("1.2")] + 40, b"\xff")
    plan = plan_of(place)
    assert (short(plan.after.head), plan.lost) == ("1.9", ())
    with hold(place.disk, place.directory):
        found = apply_repair(place.disk, place.directory, plan)
    assert (found.standing, short(found.head)) == (standing, "1.9")


def test_damaged_manifest__files_are_verified_anew_and_the_old_one_is_kept() -> None:
    server = Server(MemoryDisk(), TWO_PLACES)
    server.start()
    server.write(20, 20)
    server.snapshot()
    server.change_epoch()
    server.write(20)
    server.close()
    disk, directory = server.memory_disk, server.directory
    flip_bit(disk, directory.manifest, 100)
    old = disk.contents(directory.manifest)
    plan = plan_repair(disk, directory)
    assert isinstance(plan, RepairPlan)
    with hold(disk, directory):
        found = apply_repair(disk, directory, plan)
    assert (found.standing, point_of(found.tree)) == (Standing.WHOLE, point_of(server.tree))
    assert disk.contents(directory.aside_of("keepfast.manifest", plan.generation)) == old


@pytest.mark.parametrize("sign", ["epochs", "myid"])
def test_member_of_an_ensemble__has_no_vote_until_a_leader_has_filled_it(sign: str) -> None:
    place = place_of("FX7")
    if sign == "epochs":
        place.memory.put(place.directory.in_snapshots("acceptedEpoch"), b"9")
        place.memory.put(place.directory.in_snapshots("currentEpoch"), b"9")
    else:
        place.memory.put(place.directory.snapshots.removesuffix("version-2") + "myid", b"1")
    with hold(place.disk, place.directory):
        found = apply_repair(place.disk, place.directory, plan_of(place))
    assert (found.standing, found.may_vote) == (Standing.CATCHING_UP, False)
    assert "repaired" in {problem.code for problem in found.problems}
    # It stays so, however often it starts, and there is nothing more to repair.
    for _ in range(2):
        store, again = Store.open(place.disk, place.directory, OPTIONS)
        assert (again.standing, again.head) == (Standing.CATCHING_UP, found.head)
        store.close()
    assert isinstance(plan_repair(place.disk, place.directory), Recovery)
    store, _ = Store.open(place.disk, place.directory, OPTIONS)
    store.install_snapshot(other_tree(9, [0, 200]), promised=9, lacks=True)
    store.set_epochs(Epochs(9, 9))
    store.close()
    healed = recover(place.disk, place.directory)
    assert (healed.standing, healed.manifest.repaired_at) == (Standing.WHOLE, None)


def test_member_that_lost_a_snapshot_only__keeps_its_vote() -> None:
    """Its history is proven to the end: nothing that was acknowledged can be missing."""
    server = Server(MemoryDisk())
    server.start()
    server.write(20, 20)
    server.snapshot()
    server.write(20)
    server.set_epochs(1, 1)
    server.close()
    disk, directory = server.memory_disk, server.directory
    flip_bit(disk, directory.in_snapshots("snapshot.0"), 30)
    with hold(disk, directory):
        plan = plan_repair(disk, directory)
        assert isinstance(plan, RepairPlan)
        found = apply_repair(disk, directory, plan)
    assert (found.standing, found.manifest.repaired_at) == (Standing.WHOLE, None)


def test_second_repair__does_not_overwrite_what_the_first_put_aside() -> None:
    place = place_of("FX7")
    with hold(place.disk, place.directory):
        apply_repair(place.disk, place.directory, plan_of(place))
    flip_bit(place.memory, place.directory.manifest, 100)
    flip_bit(place.memory, place.directory.in_logs("log.100000001"), 60)
    kept = evidence(place.memory)
    with hold(place.disk, place.directory):
        apply_repair(place.disk, place.directory, plan_of(place))
    assert kept <= evidence(place.memory)


def test_server_holds_the_directory__refused() -> None:
    server = Server(MemoryDisk())
    server.start()
    assert is_locked(server.disk, server.directory)
    with pytest.raises(RepairRefused, match="running"), hold(server.disk, server.directory):
        pass
    server.close()
    assert not is_locked(server.disk, server.directory)


def test_disk_full_while_copying__refused_and_nothing_changed() -> None:
    place = place_of("FX7")
    plan = plan_of(place)
    before = recover(place.disk, place.directory)
    place.memory.capacity = place.memory.used_bytes() + 100
    with hold(place.disk, place.directory), pytest.raises(RepairRefused, match="space"):
        apply_repair(place.disk, place.directory, plan)
    after = recover(place.disk, place.directory)
    assert (after.standing, after.problems) == (before.standing, before.problems)


@pytest.mark.parametrize("name", ["FX5", "FX7", "FX12", "FX14", "FX17"])
def test_power_lost_at_every_call_of_a_repair__old_or_repaired(
    name: str, tell: Callable[[str], None]
) -> None:
    place = place_of(name)
    place.memory.settle()
    before = recover(place.disk, place.directory)
    plan = plan_of(place)
    expected = {(before.standing, before.head), (plan.after.standing, plan.after.head)}
    old_files, seen = evidence(place.memory), set()

    def on_call(_: DiskCall) -> None:
        for state in place.memory.crash_states():
            fingerprint = state.fingerprint()
            if fingerprint in seen:
                continue
            seen.add(fingerprint)
            found = recover(state, place.directory)
            assert (found.standing, found.head) in expected, found.problems
            assert old_files <= evidence(state)
            if found.tree is not None:
                store, opened = Store.open(state, place.directory, OPTIONS)
                assert opened.head == plan.after.head
                store.close()

    place.memory.on_call = on_call
    apply_repair(place.disk, place.directory, plan)
    place.memory.on_call = None
    tell(f"{len(seen)} states of the disk")
    assert len(seen) > 5


def keepfast_directory() -> Server:
    """Three segments, two epochs, two snapshots, closed."""
    server = Server(MemoryDisk(), ONE_PLACE)
    server.start()
    server.write(20, 0, 30)
    server.snapshot()
    server.write(10, 40)
    server.change_epoch()
    server.write(20, 20)
    server.snapshot()
    server.store.roll()
    server.write(0, 25)
    server.close()
    return server


def check_repaired(server: Server, damaged: MemoryDisk) -> str:
    """Repair a damaged copy: it must come to a state that this server had, or be refused."""
    try:
        plan = plan_repair(damaged, server.directory)
    except RepairRefused:
        return "refused"
    if isinstance(plan, Recovery):
        assert point_of(plan.tree) == point_of(server.tree)
        return "nothing to repair"
    with hold(damaged, server.directory):
        found = apply_repair(damaged, server.directory, plan)
    # An epoch's start names no record, so the ledger has no point for it.
    assert found.tree is not None
    assert point_of(found.tree) == server.ledger.past[found.head], format_zxid(found.head)
    assert not damage_in(found)
    return "all kept" if found.head == server.tree.last_zxid else "cut"


@pytest.mark.slow
def test_every_byte_flipped__repaired_to_a_state_that_existed(tell: Callable[[str], None]) -> None:
    server = keepfast_directory()
    counts: dict[str, int] = {}
    for path, data in server.memory_disk.files().items():
        # Every second byte; of the watermark, which is mostly zeros, far fewer.
        for offset in range(0, len(data), 2 if len(data) < 4096 else 61):
            damaged = server.memory_disk.clone()
            flip_bit(damaged, path, offset, offset % 8)
            outcome = check_repaired(server, damaged)
            counts[outcome] = counts.get(outcome, 0) + 1
    tell(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    assert {"all kept", "cut", "nothing to repair"} <= counts.keys()


def test_every_file_removed__repaired_to_a_state_that_existed() -> None:
    server = keepfast_directory()
    outcomes = set()
    for path in server.memory_disk.files():
        damaged = server.memory_disk.clone()
        remove_file(damaged, path)
        outcomes.add(check_repaired(server, damaged))
    assert {"cut", "nothing to repair"} <= outcomes


def test_manifest_that_the_disk_does_not_read__is_no_damaged_manifest() -> None:
    server = keepfast_directory()
    disk = server.memory_disk.clone()
    disk.inject("read_at", "*keepfast.manifest", times=None)
    with pytest.raises(Exception, match="cannot be read") as caught:
        plan_repair(disk, server.directory)
    assert not isinstance(caught.value, CorruptManifest)
