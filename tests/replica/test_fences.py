"""A learner of an Apache leader is fenced by a wrong digest, whatever an earlier leader did."""

from __future__ import annotations

from dataclasses import replace

from keepfast.replica import Member
from keepfast.sim.script import quiet_options
from keepfast.wire import ServerId
from tests.replica.simulated import member_of, process_of, run, started, tree_of

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
