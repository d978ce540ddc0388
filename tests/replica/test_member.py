"""Members of an ensemble: how they elect, hand over, hold out and come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.quorum import Standing
from keepfast.replica import Role
from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import flip_bit
from keepfast.sim.options import DiskOptions
from keepfast.sim.script import quiet_options
from keepfast.storage import load_manifest
from keepfast.wire import OpCode, SetDataRequest
from tests.replica.simulated import (
    PlainClient,
    create,
    member_of,
    process_of,
    run,
    started,
    tree_of,
)


def test_new_ensemble__elects_a_leader_and_all_serve() -> None:
    ensemble = started()
    roles = sorted(member_of(host).state.role.value for host in ensemble.up())
    assert roles == ["following", "following", "leading"]
    assert member_of(ensemble.leading()).state.ensemble is not None


def test_write_through_every_server__all_trees_are_equal() -> None:
    ensemble = started()
    for number, host in enumerate(ensemble.up()):
        client = PlainClient(ensemble, host)
        assert client.ask(1, OpCode.CREATE, create(f"/a{number}", b"x")) == [(1, 0)]
        assert client.ask(2, OpCode.SET_DATA, SetDataRequest(f"/a{number}", b"y", -1)) == [(2, 0)]
    ensemble.pass_ms(20)
    ensemble.check_equal()


def test_leader_dies__the_others_go_on_and_it_comes_back_by_diff() -> None:
    ensemble = started()
    old = ensemble.leading()
    ensemble.write("/a")
    old.cut_power()
    ensemble.wait_all("a new leader")
    ensemble.write("/b")
    old.start()
    ensemble.wait_all("it is back")
    ensemble.check_equal()
    assert member_of(old).state.role is Role.FOLLOWING
    report = member_of(old).state.catch_up
    assert report is not None
    assert report.kind == "diff"


def test_wiped_follower__learns_without_a_voice_and_is_whole_again() -> None:
    ensemble = started()
    for number in range(20):
        ensemble.write(f"/a{number}")
    wiped = ensemble.followers()[0]
    wiped.kill()
    wiped.disk = MemoryDisk()
    ensemble.world.checkers.damaged(wiped.server_id)
    wiped.start()
    assert member_of(wiped).state.standing is Standing.EMPTY
    ensemble.wait_all("it is back")
    ensemble.check_equal()
    assert ensemble.world.notes["whole-again"] == 1


def test_wiped_follower_that_has_a_tree_and_not_all_after_it__has_no_vote() -> None:
    """Nor does it gain one by a restart at that moment (R8)."""
    ensemble = started()
    ensemble.write("/a")
    wiped = ensemble.followers()[0]
    wiped.kill()
    wiped.disk = MemoryDisk()
    ensemble.world.checkers.damaged(wiped.server_id)
    wiped.start()
    state = member_of(wiped).state
    ensemble.wait(lambda: state.standing is not Standing.EMPTY, "it has a tree")
    assert state.standing is Standing.CATCHING_UP
    wiped.kill()
    wiped.start()
    assert member_of(wiped).state.standing is Standing.CATCHING_UP
    ensemble.wait_all("it is back")
    assert member_of(wiped).state.standing is Standing.WHOLE


def test_minority_of_a_wiped_majority__never_serves() -> None:
    ensemble = started()
    wiped = ensemble.followers()
    for host in ensemble.hosts:
        host.kill()
    for host in wiped:
        host.disk = MemoryDisk()
        ensemble.world.checkers.damaged(host.server_id)
    for host in ensemble.hosts:
        host.start()
    ensemble.pass_ticks(200)
    assert not any(process_of(host).is_serving for host in ensemble.up())


def test_leader_hands_over__the_successor_leads_and_nothing_is_lost() -> None:
    ensemble = started()
    old = ensemble.leading()
    ensemble.write("/a")
    chosen: list[object] = []
    run(old, lambda member: chosen.append(member.hand_over()))
    ensemble.wait_all("a new leader")
    assert [ensemble.leading().server_id] == chosen != [old.server_id]
    ensemble.check_equal()


def test_leader_hands_over_under_load__when_the_successor_has_everything() -> None:
    ensemble = started()
    old = ensemble.leading()
    client = PlainClient(ensemble, old)
    client.send(1, OpCode.CREATE, create("/a"))
    leader = member_of(old).leader
    assert leader is not None
    ensemble.wait(lambda: leader.last_proposed > leader.last_committed, "it is proposed")
    # Acknowledged by nobody: the successor could not win against us.
    chosen: list[object] = []
    run(old, lambda member: chosen.append(member.hand_over()))
    assert member_of(old).state.role is Role.LEADING

    ensemble.wait(lambda: ensemble.world.leading_host() not in (None, old), "another leads")
    ensemble.wait_all("all serve")
    assert [ensemble.leading().server_id] == chosen
    assert all(tree_of(host).find("/a") is not None for host in ensemble.hosts)
    ensemble.check_equal()


def test_leader_without_space__lets_another_lead() -> None:
    ensemble = started()
    old = ensemble.leading()
    client = PlainClient(ensemble, old)
    old.disk.capacity = old.disk.used_bytes()
    client.send(1, OpCode.CREATE, create("/a", bytes(2000)))
    ensemble.wait(lambda: ensemble.world.leading_host() not in (None, old), "another leads")
    old.disk.capacity = None
    ensemble.wait_all("all serve")
    assert member_of(old).state.role is Role.FOLLOWING


def test_report_of_the_disk_that_comes_late__takes_nothing_back() -> None:
    ensemble = started()
    leader = ensemble.leading()
    ensemble.write("/a")
    late = process_of(leader).store.durable
    ensemble.write("/b")
    run(leader, lambda member: member.log_durable(late))
    ensemble.write("/c")
    run(leader, lambda member: member.log_durable(late))
    # It would wait forever for records that it believes not to be durable.
    run(leader, lambda member: member.hand_over())
    ensemble.wait_all("all serve again")


def test_follower_without_space_for_an_epoch__tries_less_and_less_often() -> None:
    ensemble = started(5)
    old = ensemble.leading()
    full = ensemble.followers()[0]
    full.disk.capacity = full.disk.used_bytes()
    old.kill()
    ensemble.wait(lambda: ensemble.world.leading_host() not in (None, old), "a new leader")
    before = len(ensemble.world.trace.steps)
    ensemble.pass_ticks(100)
    lines = map(str, ensemble.world.trace.steps[before:])
    terms = [line for line in lines if full.who in line and "notes role-ended" in line]
    # Ten seconds: two at once, then pauses of up to the half second that a silent peer is given.
    assert 10 <= len(terms) <= 30
    full.disk.capacity = None
    ensemble.wait_all("it has space again")


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("thread", ["loop", "disk-thread"])
def test_leader_whose_disk_hangs__another_one_leads_within_sync_limit(
    count: int, thread: str
) -> None:
    """A disk that was quick until then holds up the loop itself: the others depose it."""
    latency_us = 100 if thread == "loop" else 2000
    disk = DiskOptions(min_latency_us=latency_us, max_latency_us=latency_us)
    ensemble = started(options=replace(quiet_options(count), disk=disk))
    old = ensemble.leading()
    for number in range(10):  # how long the disk takes is learned from what it took
        ensemble.write(f"/n{number}")
    client = PlainClient(ensemble, old)
    ensemble.hang_disks(old, ms=5000)
    assert client.ask(1, OpCode.CREATE, create("/a")) == []
    ensemble.pass_ms(ensemble.world.quorum_options.sync_ms)
    if thread == "disk-thread":
        assert member_of(old).state.role is not Role.LEADING
    others = [host for host in ensemble.up() if host is not old]

    def do_others_lead() -> bool:
        return any(process_of(host).replica.proposer is not None for host in others)

    ensemble.wait(do_others_lead, "one of the others leads")
    assert ensemble.world.agenda.now_us < old.disk_hangs_until_us
    ensemble.wait(lambda: all(process_of(host).is_serving for host in others), "the others serve")
    other = PlainClient(ensemble, others[0])
    assert other.ask(1, OpCode.CREATE, create("/b")) == [(1, 0)]
    ensemble.wait_all("its disk works again")
    ensemble.check_equal()


def test_follower_whose_disk_hangs__does_not_stop_the_others() -> None:
    ensemble = started()
    leader = ensemble.leading()
    ensemble.hang_disks(ensemble.followers()[0], ms=5000)
    client = PlainClient(ensemble, leader)
    for xid in range(1, 20):
        assert client.ask(xid, OpCode.CREATE, create(f"/a{xid}")) == [(xid, 0)]
        ensemble.pass_ms(50)
    assert member_of(leader).state.role is Role.LEADING


@pytest.mark.parametrize("loss", ["damaged", "wiped"])
def test_voter_that_lost_its_data__is_not_made_whole_by_a_leader_that_was_deposed(
    loss: str,
) -> None:
    """Otherwise it could vote without what it acknowledged under the next leader.

    It follows only whom a quorum of others follows at that moment. One of them has promised the
    later epoch that its acknowledgement belongs to, and says so.
    """
    ensemble = started(5)
    old = ensemble.leading()
    behind, *rest = ensemble.followers()
    lost = rest[0]
    ensemble.part_unnoticed(old, behind)
    others = [host for host in rest if host is not lost]

    def leads() -> bool:
        return any(process_of(host).replica.proposer is not None for host in others)

    ensemble.wait(leads, "another leads")
    new = next(host for host in others if process_of(host).replica.proposer is not None)
    client = PlainClient(ensemble, new)
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, 0)]
    lost.kill()
    if loss == "wiped":
        lost.disk = MemoryDisk()
    else:
        manifest = load_manifest(lost.disk, lost.directory)
        assert manifest is not None
        flip_bit(lost.disk, lost.directory.in_logs(manifest.segments[-1].name), 30)
    ensemble.world.checkers.damaged(lost.server_id)
    # From now on it reaches the old leader's side alone.
    network = ensemble.world.network
    network.heal()
    network.part(
        {old.place, behind.place, lost.place}, {host.place for host in rest if host is not lost}
    )
    lost.start()
    assert not member_of(lost).state.standing.may_vote
    assert member_of(old).state.role is Role.LEADING
    ensemble.pass_ticks(30)
    assert not member_of(lost).state.standing.may_vote
    network.heal()
    ensemble.wait_all("all serve")
    assert tree_of(lost).find("/a") is not None
