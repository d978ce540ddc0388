"""To which ensemble data belong: sure only once a leader that named it was established."""

from __future__ import annotations

from keepfast.quorum import Chain
from keepfast.quorum.chains import Run
from keepfast.sim.host import Host
from keepfast.sim.world import World
from keepfast.storage import load_manifest
from keepfast.storage.manifest import store_manifest
from keepfast.wire import Zxid, make_zxid
from tests.replica.simulated import Ensemble, member_of, process_of, started

OTHER = "ff" * 16


def ensemble_with_a_stopped_follower() -> tuple[Ensemble, Host]:
    """An ensemble in its first epoch, with a record, one follower of which is down."""
    ensemble = started()
    ensemble.write("/a")
    stopped = ensemble.followers()[0]
    stopped.stop()
    return ensemble, stopped


def change_manifest(world: World, host: Host, **changes: object) -> None:
    manifest = load_manifest(host.disk, host.directory)
    assert manifest is not None
    store_manifest(host.disk, host.directory, manifest.next(**changes))
    epoch = str(changes["current_epoch"]).encode()
    host.disk.put(host.directory.in_snapshots("currentEpoch"), epoch)
    world.checkers.damaged(host.server_id, is_backward=True)


def test_records_came_and_a_crash_before_their_identity__it_joins() -> None:
    """What it has stored is the name that a leader of epoch 0 gave, which nobody followed."""
    ensemble, host = ensemble_with_a_stopped_follower()
    change_manifest(ensemble.world, host, ensemble=OTHER, ensemble_since=0, current_epoch=0)
    host.start()
    ensemble.wait_all("it has joined")
    assert len({member_of(each).state.ensemble for each in ensemble.up()}) == 1
    manifest = load_manifest(host.disk, host.directory)
    assert manifest is not None
    assert manifest.ensemble == member_of(host).state.ensemble != OTHER


def test_identity_of_an_established_leader__keeps_it_away_from_another_ensemble() -> None:
    ensemble, host = ensemble_with_a_stopped_follower()
    change_manifest(ensemble.world, host, ensemble=OTHER, ensemble_since=1, current_epoch=1)
    host.start()
    ensemble.pass_ticks(30)
    assert not process_of(host).is_serving
    assert any("notes" in line and "ensemble" in line for line in ensemble.world.trace.lines())


def test_epochs_of_a_chain__are_those_of_its_records() -> None:
    assert Chain(Zxid(-1)).epochs() == set()
    assert Chain(Zxid(0)).epochs() == set()
    assert Chain(make_zxid(2, 0)).epochs() == set()
    runs = (Run(make_zxid(3, 1), make_zxid(3, 4)), Run(make_zxid(5, 1), make_zxid(5, 1)))
    assert Chain(make_zxid(2, 7), runs).epochs() == {2, 3, 5}
