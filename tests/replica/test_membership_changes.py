"""Changes of the membership: what is committed, what may be, and what a restart knows of it."""

from __future__ import annotations

from dataclasses import replace

from keepfast.sim.host import Host
from keepfast.sim.script import quiet_options
from keepfast.storage import load_manifest
from keepfast.tree import PrepareOptions
from keepfast.wire import OpCode, ReconfigRequest
from tests.replica import simulated
from tests.replica.simulated import Ensemble, PlainClient, create, member_of, process_of


def started(count: int = 4) -> Ensemble:
    """An ensemble whose members may be changed, by anybody."""
    options = quiet_options(count)
    replica = replace(options.replica, prepare=PrepareOptions(is_acl_skipped=True))
    return simulated.started(options=replace(options, is_reconfig_enabled=True, replica=replica))


def ask_to_leave(client: PlainClient, host: Host) -> list[tuple[int, int]]:
    return client.ask(9, OpCode.RECONFIG, ReconfigRequest(None, str(host.server_id), None, -1))


def members_of(host: Host) -> set[int]:
    return {spec.server_id for spec in member_of(host).state.quorums.current.members}


def test_change_that_is_agreed_on__survives_the_restart_of_all_with_the_old_file() -> None:
    ensemble = started()
    leader = ensemble.leading()
    gone, *rest = ensemble.followers()
    client = PlainClient(ensemble, leader)
    assert ask_to_leave(client, gone) == [(9, 0)]
    ensemble.pass_ms(20)
    gone.kill()
    version = member_of(leader).state.quorums.current.version
    assert version > 0
    for host in (leader, *rest):
        host.kill()
    for host in (leader, *rest):
        host.start()
        assert member_of(host).state.quorums.current.version == version
        assert member_of(host).state.quorums.next is None
        assert gone.server_id not in members_of(host)
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1


def test_change_that_nobody_heard_of__decides_nothing_and_is_taken_back() -> None:
    ensemble = started()
    leader, others = ensemble.leading(), ensemble.followers()
    client = PlainClient(ensemble, leader)
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, 0)]
    before = member_of(leader).state.quorums.current
    for host in others:
        host.cut_power()
    assert ask_to_leave(client, others[0]) == []
    head = process_of(leader).store.head
    leader.kill()
    # It has the change in its log, and tells the others only what it knows to be committed.
    leader.start()
    assert process_of(leader).store.head == head
    assert member_of(leader).state.quorums.current.version == before.version
    pending = member_of(leader).state.quorums.next
    assert pending is not None
    assert pending.version == head
    leader.kill()
    for host in others:
        host.start()
    ensemble.wait_all("the others continue")
    ensemble.write("/b")
    leader.start()
    ensemble.wait_all("it follows")
    for host in ensemble.up():
        assert members_of(host) == {1, 2, 3, 4}
        assert member_of(host).state.quorums.next is None
    ensemble.check_equal()


def test_change_in_the_log_of_a_leader__needs_the_server_that_is_to_vote() -> None:
    """With three of four voters wanted, two and the one that came as an observer are enough."""
    ensemble = started()
    leader = ensemble.leading()
    joining, absent, follower = ensemble.followers()
    client = PlainClient(ensemble, leader)
    line = member_of(leader).state.quorums.current.find(joining.server_id)
    assert line is not None
    text = f"server.{joining.server_id}={line.text()}"
    assert ask_to_leave(client, joining) == [(9, 0)]
    observer = ReconfigRequest(text.replace("participant", "observer"), None, None, -1)
    assert client.ask(10, OpCode.RECONFIG, observer) == [(10, 0)]
    ensemble.wait_all("it is a member again")
    ensemble.pass_ms(50)
    # It is in the leader's log, and nobody is told that it is committed.
    for host in (absent, joining, follower):
        process_of(host).pause()
    assert client.ask(11, OpCode.RECONFIG, ReconfigRequest(text, None, None, -1)) == []
    for host in (leader, absent, joining, follower):
        host.kill()
    for host in (leader, joining, follower):
        host.start()
    assert member_of(leader).state.quorums.next is not None
    assert member_of(joining).state.quorums.next is None
    ensemble.wait_all("two and the new one")
    assert joining.server_id in member_of(ensemble.leading()).state.quorums.current.voters


def test_manifest__knows_what_was_agreed_on() -> None:
    ensemble = started()
    leader = ensemble.leading()
    ensemble.pass_ms(20)
    manifest = load_manifest(leader.disk, leader.directory)
    assert manifest is not None
    assert manifest.membership == member_of(leader).state.quorums.current.text()
