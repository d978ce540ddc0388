"""Digests that differ fence a learner, whoever of the two is wrong, and what follows from that."""

from __future__ import annotations

from dataclasses import replace

from keepfast.replica import Member
from keepfast.sim.script import quiet_options
from keepfast.storage import RescueKind, Standing, apply_rescue, plan_rescue, recover
from keepfast.wire import OpCode, ServerId, SetDataRequest
from tests.replica.simulated import (
    PlainClient,
    create,
    member_of,
    process_of,
    run,
    started,
    tree_of,
)

APACHE = ServerId(3)


def test_fence_under_an_earlier_leader__excuses_no_digest_of_this_one() -> None:
    ensemble = started(3, replace(quiet_options(3), apache=APACHE))
    assert ensemble.leading().server_id == APACHE
    host = ensemble.followers()[0]
    following = member_of(host).following
    assert following is not None

    def go_wrong(member: Member) -> None:
        member.state.fenced_epoch = following.learner.epoch - 1
        tree_of(host).digest ^= 1

    run(host, go_wrong)
    ensemble.write("/a")
    ensemble.wait(lambda: ensemble.world.notes["fenced"] == 1, "it is fenced")
    assert member_of(host).state.fenced_epoch == following.learner.epoch
    ensemble.wait_all("it was sent a tree")
    assert len(ensemble.digests()) == 1


def test_fenced_server__deletes_nothing_until_it_is_sent_a_tree() -> None:
    ensemble = started(3)
    host = ensemble.followers()[0]
    process = process_of(host)
    for path in ("/a", "/b"):
        ensemble.write(path)
        process.run(lambda: process.loop.snapshots.begin(process.replica.tree))
        ensemble.wait(lambda: not process.loop.snapshots.is_busy, "a snapshot")

    def go_wrong(member: Member) -> None:
        tree_of(host).digest ^= 1

    run(host, go_wrong)
    ensemble.write("/c")
    ensemble.wait(lambda: ensemble.world.notes["fenced"] == 1, "it is fenced")
    ensemble.part_unnoticed(host)
    files = host.disk.files()
    process.run(lambda: process.loop.ask_for_purge(1))
    ensemble.pass_ms(100)
    assert host.disk.files() == files

    ensemble.world.network.heal()
    ensemble.wait_all("it was sent a tree")
    process.run(lambda: process.loop.ask_for_purge(1))
    ensemble.pass_ms(100)
    assert sum("snapshot" in path for path in host.disk.files()) == 1


def test_leader_with_a_wrong_bit_in_memory__nobody_follows_and_a_rescue_keeps_all_before() -> None:
    """Which of them is wrong, nobody can tell: the service stops, and no wrong value spreads."""
    ensemble = started(3, replace(quiet_options(3), crash_check_chance=0.0))
    checkers = ensemble.world.checkers
    # They would object to the leader's tree at once: that it is wrong is what is played here.
    checkers.all = [each for each in checkers.all if each.name not in ("state", "reads")]
    leader = ensemble.leading()
    client = PlainClient(ensemble, leader)
    client.ask(1, OpCode.CREATE, create("/a", b"old"))
    before = checkers.ledger.last
    node = tree_of(leader).find("/a")
    assert node is not None
    node.packed = bytes((node.packed[0] ^ 1,)) + node.packed[1:]
    assert {tree_of(host).digest for host in ensemble.hosts} == {checkers.ledger.tree.digest}

    client.send(2, OpCode.SET_DATA, SetDataRequest("/a", b"new", -1))
    ensemble.wait(lambda: ensemble.world.notes.get("fenced") == 2, "both followers leave it")
    ensemble.wait(lambda: ensemble.world.leading_host() is None, "it leads nobody")
    ensemble.pass_ms(20_000)
    assert not any(process_of(host).is_serving for host in ensemble.hosts)

    # Every log has the record with the wrong digest. Without it, all is as it was before.
    ensemble.stop(1, 2, 3)
    for host in ensemble.hosts:
        assert recover(host.disk, host.directory).standing is Standing.DAMAGED
        plan = plan_rescue(host.disk, host.directory)
        assert plan.kind is RescueKind.CUT
        after = apply_rescue(host.disk, host.directory, plan, "2026-01-01T00:00:00Z")
        assert after.head == before
        assert after.tree is not None
        node = after.tree.find("/a")
        assert node is not None
        assert node.data == b"old"
