"""A majority that was restored from a backup meets a server that knows later epochs."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from keepfast.quorum import Chain, Learner, LearnerFacts, QuorumOptions, Standing
from keepfast.quorum.hello import LeaderHello, encode_leader_hello
from keepfast.sim.checkers import Checkers
from keepfast.sim.disk_damage import flip_bit
from keepfast.sim.host import Host
from keepfast.sim.script import quiet_options
from keepfast.storage import load_manifest, recover
from keepfast.wire import ServerId, Zxid, make_zxid
from tests.replica.simulated import Ensemble, member_of, process_of, started, tree_of


def restored(observers: int = 0, later: int = 3) -> tuple[Ensemble, Host]:
    """Voters that serve what they had in epoch 1; the last server, down, lived on for epochs."""
    ensemble = started(options=replace(quiet_options(), observers=observers))
    ensemble.write("/before")
    hosts, world = ensemble.hosts, ensemble.world
    ensemble.stop(*world.hosts)
    backups = {host: host.disk.clone() for host in hosts}
    agreed, shadows = world.checkers.ledger.last, copy.deepcopy(world.checkers.ledger.shadows)
    for number in range(later):
        ensemble.start(*world.hosts)
        ensemble.write(f"/after{number}")
        ensemble.stop(*world.hosts)
    *others, last = hosts
    # The checkers, too, forget what was committed since, but not what the third has.
    known, world.checkers = world.checkers.ledger, Checkers(world.membership)
    ledger = world.checkers.ledger
    ledger.entries = {zxid: known.entries[zxid] for zxid in known.entries if zxid <= agreed}
    ledger.proposers = {zxid: known.proposers[zxid] for zxid in ledger.entries}
    ledger.shadows = {**shadows, last.server_id: known.shadow_of(last.server_id)}
    ledger.applied(others[0].server_id, agreed)
    for host in others:
        host.disk = backups[host]
    ensemble.start(*(host.server_id for host in others))
    return ensemble, last


def test_third_is_whole__what_it_knows_comes_back() -> None:
    ensemble, last = restored()
    last.start()
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1
    assert "/after2" in set(tree_of(last).paths())


def test_third_is_damaged__it_is_filled_again_and_its_epochs_follow_its_history() -> None:
    ensemble, last = restored()
    manifest = load_manifest(last.disk, last.directory)
    assert manifest is not None
    promised = manifest.accepted_epoch
    assert promised == 4
    flip_bit(last.disk, last.directory.in_logs(manifest.segments[-1].name), 30, 0)
    ensemble.world.checkers.damaged(last.server_id)
    last.start()
    assert member_of(last).state.standing is Standing.DAMAGED
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1
    epochs = process_of(last).store.epochs
    assert epochs.accepted is not None
    assert epochs.accepted >= promised
    assert epochs.current == member_of(last).state.current_epoch
    ensemble.write("/now")


@pytest.mark.parametrize("more", [0, 1], ids=["as far", "further"])
def test_observer_with_other_txns_under_the_same_zxids__is_filled_again(more: int) -> None:
    ensemble, observer = restored(observers=1, later=1)
    for number in range(1 + more):
        ensemble.write(f"/now{number}")
    leader = ensemble.leading()
    stale = recover(observer.disk.clone(), observer.directory)
    assert stale.tree is not None
    assert member_of(leader).state.history().chain().holds(stale.head)
    assert (stale.head == tree_of(leader).last_zxid) is not bool(more)
    ensemble.world.checkers.ledger.shadow_of(observer.server_id).is_stale = True
    observer.start()
    # The simulator's checkers look at all that it serves.
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1
    assert "/after0" not in set(tree_of(observer).paths())
    assert ensemble.world.notes["fenced"] == 1


def test_whole_observer_with_a_later_epoch__is_not_cut_back() -> None:
    """A cut would destroy what only it has: a tree fills it, and its files move aside."""
    head = make_zxid(7, 3)
    facts = LearnerFacts(
        ServerId(4), 7, 7, Chain(head), None, Zxid(0), has_voice=False, is_whole=True
    )
    orders: list[object] = []
    learner = Learner(facts, QuorumOptions(), lambda *_: None, orders.append, 0)
    learner.on_connected(lambda _: None, 0)
    learner.on_packet(encode_leader_hello(LeaderHello(4, None)), 0)
    assert learner.end is not None
    assert learner.end.is_unfit
    assert "below 7" in learner.end.reason
    assert orders == []
