"""To which ensemble data belong: sure only once a leader that named it was established."""

from __future__ import annotations

from keepfast.quorum import (
    Chain,
    DiskOrder,
    Learner,
    LearnerFacts,
    Link,
    QuorumOptions,
    StoreEpochs,
)
from keepfast.quorum.admission import latest_identity
from keepfast.quorum.chains import Run
from keepfast.quorum.hello import (
    LeaderHello,
    LearnerHello,
    StoredIdentity,
    decode_learner_hello,
    encode_leader_hello,
    encode_learner_hello,
)
from keepfast.quorum.learner_link import LearnerLink
from keepfast.sim.disk_damage import remove_file
from keepfast.sim.host import Host
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.simulated_world import World
from keepfast.storage import Epochs, Store, StoreOptions, data_directory, load_manifest
from keepfast.storage.manifest import store_manifest
from keepfast.wire import PacketType, QuorumPacket, ServerId, Zxid, make_zxid
from tests.replica.simulated import Ensemble, PlainClient, member_of, process_of, started

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


def test_current_epoch_that_nothing_proves__does_not_prove_the_identity_either() -> None:
    """Somebody swapped the files of the two epochs: it has agreed to the first one only."""
    ensemble, host = ensemble_with_a_stopped_follower()
    change_manifest(ensemble.world, host, ensemble=OTHER, ensemble_since=0, current_epoch=0)
    for name in ("acceptedEpoch", "currentEpoch"):
        host.disk.put(host.directory.in_snapshots(name), b"2")
    host.start()
    ensemble.wait_all("it has joined")
    assert member_of(host).state.ensemble != OTHER


def test_identity_of_an_established_leader__keeps_it_away_from_another_ensemble() -> None:
    ensemble, host = ensemble_with_a_stopped_follower()
    change_manifest(ensemble.world, host, ensemble=OTHER, ensemble_since=1, current_epoch=1)
    host.start()
    ensemble.pass_ticks(30)
    assert not process_of(host).is_serving
    assert any("notes" in line and "ensemble" in line for line in ensemble.world.trace.lines())


def test_leader_that_lost_its_manifest__takes_the_identity_that_its_quorum_has_stored() -> None:
    """No record proves it to them. A server that has one would be locked out (seed 7011147)."""
    ensemble = started(3)
    leader = ensemble.leading()
    identity = member_of(leader).state.ensemble
    ensemble.part_unnoticed(leader)
    PlainClient(ensemble, leader)
    ensemble.pass_ms(20)
    assert process_of(leader).store.durable == make_zxid(1, 1)
    ensemble.kill(1, 2, 3)
    ensemble.world.network.heal()
    damaged = ensemble.world.hosts[ServerId(2)]
    remove_file(damaged.disk, damaged.directory.manifest)
    ensemble.world.checkers.damaged(damaged.server_id)
    ensemble.lead(2, 1)
    ensemble.write("/a")
    ensemble.start(3)
    assert {member_of(each).state.ensemble for each in ensemble.up()} == {identity}


def test_identities_that_are_stored_and_not_proven__the_one_of_the_latest_epoch_counts() -> None:
    voters = []
    for number, stored in enumerate((None, StoredIdentity("a", 2), StoredIdentity("b", 3))):
        voter = LearnerLink(Link(number), 0)
        voter.hello = LearnerHello(ServerId(number), True, 3, Zxid(0), "", stored)
        voters.append(voter)
    assert latest_identity(voters) == latest_identity(reversed(voters)) == "b"
    assert latest_identity(voters[:1]) is None


def test_hello__has_the_identity_that_is_stored_and_not_proven() -> None:
    hello = LearnerHello(ServerId(2), True, 4, Zxid(0), "", StoredIdentity(OTHER, 3))
    assert decode_learner_hello(encode_learner_hello(hello)) == hello
    # Without: as servers before this say it.
    plain = hello._replace(unproven=None)
    assert decode_learner_hello(encode_learner_hello(plain)) == plain


def test_epochs_of_a_chain__are_those_of_its_records() -> None:
    assert Chain(Zxid(-1)).epochs() == set()
    assert Chain(Zxid(0)).epochs() == set()
    assert Chain(make_zxid(2, 0)).epochs() == set()
    runs = (Run(make_zxid(3, 1), make_zxid(3, 4)), Run(make_zxid(5, 1), make_zxid(5, 1)))
    assert Chain(make_zxid(2, 7), runs).epochs() == {2, 3, 5}


def test_leader_that_knows_no_identity__one_that_is_not_proven_is_forgotten_on_disk() -> None:
    """Its records would prove it otherwise, and lock a healthy server out (seed 500000046)."""
    facts = LearnerFacts(ServerId(2), 4, 4, Chain(Zxid(0)), None, Zxid(0), True, True)
    orders: list[DiskOrder] = []
    learner = Learner(facts, QuorumOptions(), lambda *_: None, orders.append, 0)
    learner.on_connected(lambda _: None, 0)
    learner.on_packet(encode_leader_hello(LeaderHello(5, None)), 0)
    learner.on_order_done(orders[0], None)
    learner.on_packet(QuorumPacket(PacketType.DIFF.value, Zxid(0)), 0)
    learner.on_packet(QuorumPacket(PacketType.NEWLEADER.value, make_zxid(5, 0)), 0)
    learner.finish()
    assert orders == [StoreEpochs(5, 4, None), StoreEpochs(5, 5, "")]

    disk = MemoryDisk()
    store, _ = Store.open(disk, data_directory(disk, "/data", None), StoreOptions())
    store.initialise()
    store.set_epochs(Epochs(4, 4), OTHER)
    assert (store.manifest.ensemble, store.manifest.ensemble_since) == (OTHER, 4)
    store.set_epochs(Epochs(5, 4))
    assert store.manifest.ensemble == OTHER
    store.set_epochs(Epochs(5, 5), "")
    after = store.manifest
    assert (after.ensemble, after.ensemble_since) == (None, 5)
