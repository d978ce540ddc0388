"""A rescue keeps what is proven, claims no later epoch than that, and says so forever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit, remove_file
from keepfast.storage import (
    Epochs,
    RescueKind,
    Standing,
    Store,
    apply_rescue,
    load_manifest,
    plan_rescue,
    recover,
)
from keepfast.storage.repair import RepairRefused
from keepfast.wire import StorageError, Zxid
from tests.storage.directories import Place, zxid
from tests.storage.fixture_table import FIXTURES
from tests.storage.workload import ONE_PLACE, OPTIONS, Server, other_tree, point_of

AT = "2026-11-15T12:00:00Z"


def closed_server() -> MemoryDisk:
    """Records 1.1, 1.2 | 2.1, 2.2 in epochs 3 (promised) and 2 (agreed to); closed in order."""
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.set_epochs(1, 1)
    server.write(20, 20)
    server.change_epoch()
    server.set_epochs(3, 2)
    server.write(20, 20)
    server.close()
    return disk


def test_whole_directory__nothing_to_rescue() -> None:
    plan = plan_rescue(closed_server(), ONE_PLACE)
    assert (plan.kind, plan.head) == (RescueKind.NOTHING, zxid("2.2"))


def test_no_directory_at_all__an_empty_history_that_may_vote() -> None:
    disk = MemoryDisk()
    plan = plan_rescue(disk, ONE_PLACE)
    assert (plan.kind, plan.head, plan.lost) == (RescueKind.EMPTY, Zxid(0), None)
    after = apply_rescue(disk, ONE_PLACE, plan, AT)
    assert (after.standing, after.head) == (Standing.WHOLE, Zxid(0))
    manifest = load_manifest(disk, ONE_PLACE)
    assert manifest is not None
    (entry,) = manifest.rescues
    assert (entry.at, entry.was, entry.kind, entry.head) == (AT, "empty", "empty", Zxid(0))


def test_damaged_log__ends_behind_its_last_proven_record_and_claims_its_epoch_only() -> None:
    disk = closed_server()
    log = ONE_PLACE.in_logs("log.200000001")
    flip_bit(disk, log, 40)
    plan = plan_rescue(disk, ONE_PLACE)
    assert (plan.kind, plan.head) == (RescueKind.CUT, zxid("1.2"))
    assert plan.lost == zxid("2.2")
    after = apply_rescue(disk, ONE_PLACE, plan, AT)
    assert (after.standing, after.head) == (Standing.WHOLE, zxid("1.2"))
    # The promise stays; who claims a later epoch wins elections.
    assert after.epochs == Epochs(3, 1)
    assert plan_rescue(disk, ONE_PLACE).kind is RescueKind.NOTHING


def test_tree_of_a_leader_that_died__is_kept_and_votes_again() -> None:
    disk = closed_server()
    store, _ = Store.open(disk, ONE_PLACE, OPTIONS)
    tree = other_tree(1, [20])
    store.install_snapshot(tree, promised=4, lacks=True)
    store.close()
    plan = plan_rescue(disk, ONE_PLACE)
    assert plan.before.standing is Standing.CATCHING_UP
    assert (plan.kind, plan.head) == (RescueKind.TREE, tree.last_zxid)
    after = apply_rescue(disk, ONE_PLACE, plan, AT)
    assert (after.standing, after.head) == (Standing.WHOLE, tree.last_zxid)
    assert plan_rescue(disk, ONE_PLACE).kind is RescueKind.NOTHING


def test_nothing_proven__everything_is_put_aside_and_the_tree_is_empty() -> None:
    disk = closed_server()
    for name in disk.list(ONE_PLACE.snapshots):
        if name.startswith("snapshot."):
            remove_file(disk, ONE_PLACE.in_snapshots(name))
    plan = plan_rescue(disk, ONE_PLACE)
    assert plan.kind is RescueKind.EMPTY
    after = apply_rescue(disk, ONE_PLACE, plan, AT)
    assert (after.standing, after.head) == (Standing.WHOLE, Zxid(0))
    assert after.epochs == Epochs(3, 0)
    aside = [path for path in disk.files() if "keepfast.aside" in path]
    assert any(path.endswith("log.100000001") for path in aside)


def test_epoch_lost__history_stays_with_the_epoch_of_its_last_record() -> None:
    disk = closed_server()
    manifest = load_manifest(disk, ONE_PLACE)
    assert manifest is not None
    _lost_epochs(disk)
    plan = plan_rescue(disk, ONE_PLACE)
    assert (plan.kind, plan.head) == (RescueKind.EPOCHS, zxid("2.2"))
    after = apply_rescue(disk, ONE_PLACE, plan, AT)
    assert (after.standing, after.epochs) == (Standing.WHOLE, Epochs(2, 2))


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_every_fixture__is_whole_afterwards_and_a_server_starts_on_it(name: str) -> None:
    place = Place()
    FIXTURES[name].write(place)
    disk, directory = place.disk, place.directory
    plan = plan_rescue(disk, directory)
    if plan.kind is not RescueKind.NOTHING:
        after = apply_rescue(disk, directory, plan, AT)
        assert after.standing is Standing.WHOLE
        assert after.head == plan.head
    again = recover(disk, directory, full=True)
    assert again.standing is Standing.WHOLE
    store, recovery = Store.open(disk, directory, OPTIONS)
    assert point_of(recovery.tree) == point_of(again.tree)
    store.close()


def test_server_runs__refused() -> None:
    disk = MemoryDisk()
    server = Server(disk)
    server.start()
    server.write(20)
    plan = plan_rescue(MemoryDisk(), ONE_PLACE)
    with pytest.raises(RepairRefused, match="running"):
        apply_rescue(disk, ONE_PLACE, plan, AT)


def _damaged_log(disk: MemoryDisk) -> None:
    flip_bit(disk, ONE_PLACE.in_logs("log.200000001"), 40)


def _lost_epochs(disk: MemoryDisk) -> None:
    for name in ("keepfast.manifest", "keepfast.witness", "acceptedEpoch"):
        remove_file(disk, ONE_PLACE.in_snapshots(name))


def _unfinished_tree(disk: MemoryDisk) -> None:
    store, _ = Store.open(disk, ONE_PLACE, OPTIONS)
    store.install_snapshot(other_tree(1, [20]), promised=4, lacks=True)
    store.close()


@pytest.mark.parametrize("harm", [_damaged_log, _lost_epochs, _unfinished_tree])
def test_any_lack_of_space__is_said_and_the_rescue_succeeds_once_there_is_some(
    harm: Callable[[MemoryDisk], None],
) -> None:
    harmed = closed_server()
    harm(harmed)
    refused = 0
    for spare in range(0, 4000, 50):
        disk = harmed.clone()
        disk.capacity = disk.used_bytes() + spare
        try:
            apply_rescue(disk, ONE_PLACE, plan_rescue(disk, ONE_PLACE), AT)
        except StorageError:
            refused += 1
        disk.capacity = None
        again = plan_rescue(disk, ONE_PLACE)
        if again.kind is not RescueKind.NOTHING:
            apply_rescue(disk, ONE_PLACE, again, AT)
        assert recover(disk, ONE_PLACE).standing is Standing.WHOLE
    assert refused
