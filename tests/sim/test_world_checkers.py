"""Checkers that look at a whole world fire as well: on servers, tools and timers that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from keepfast.quorum import Chain, InstallTree, encode_packet, note
from keepfast.quorum.hello import EpochAck, LearnerHello, encode_epoch_ack, encode_learner_hello
from keepfast.sim import MemoryDisk, SeedOutcome, Simulation, Violation, schedules
from keepfast.sim.apache_links import plain
from keepfast.sim.checkers import Checkers
from keepfast.sim.invariants import check_leader, check_manifest, check_member, check_replica
from keepfast.sim.options import FaultOptions, SimOptions, WorkloadOptions
from keepfast.sim.process import Process
from keepfast.sim.script import Script, quiet_options
from keepfast.sim.simulated_members import initial_membership
from keepfast.storage import Epochs, Manifest, Recovery, RescueKind, RescuePlan, Standing
from keepfast.tree import Tree
from keepfast.wire import DiskFull, PacketParser, PacketType, ServerId, Zxid, make_zxid

_ONE = ServerId(1)


def run(*weights: tuple[str, int], ticks: int = 60, think_ms: int = 60) -> SeedOutcome:
    """Clients work, and only this goes wrong."""
    options = quiet_options(servers=3, clients=2)
    options = replace(
        options,
        busy_ticks=ticks,
        workload=WorkloadOptions(clients=2, think_ms=think_ms, session_timeout_ms=2000),
        replica=replace(options.replica, max_session_timeout_ms=4000),
        faults=FaultOptions(every_ms=400, weights=weights),
    )
    return Simulation(7, options).run()


def started() -> Script:
    script = Script()
    script.start(1, 2, 3)
    return script


def process_of(script: Script, server: int) -> Process:
    process = script.world.hosts[ServerId(server)].process
    assert process is not None
    return process


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(Violation) as caught:
        action()
    return caught.value.checker


def test_server_with_data_that_does_not_start_on_a_full_disk__is_reported() -> None:
    script = started()
    host = script.world.hosts[_ONE]
    error = DiskFull("no space left", "/data")
    assert complaint(lambda: script.world.start_failed(host, error)) == "full disk"


def test_disk_that_hangs_while_nobody_writes__is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(("hang", 5), ticks=200, think_ms=10**6).is_well
    monkeypatch.setattr(schedules.Schedules, "_probe", lambda *_: None)
    assert run(("hang", 5), ticks=200, think_ms=10**6).checker == "stalled disk"


def test_look_at_files_that_changes_them__is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def recover(disk: MemoryDisk, directory: object, *, full: bool) -> Recovery:
        disk.put("/data/version-2/note", b"was here")
        return Recovery(Standing.WHOLE)

    monkeypatch.setattr(schedules, "recover", recover)
    assert run(("verify", 5)).checker == "tools"


def test_server_that_leaves_its_role_again_and_again__is_reported() -> None:
    script = started()
    process = process_of(script, 1)

    def leave() -> None:
        for _ in range(40):
            script.world.noted(process, note("role-ended"))

    assert complaint(leave) == "livelock"


def test_timer_that_stopped_in_silence__is_reported() -> None:
    script = started()
    script.world.watch_clocks()
    script.pass_ticks(20)
    process_of(script, 2).loop.guard.is_over = True
    assert complaint(lambda: script.pass_ticks(20)) == "crash-only"


def test_client_that_is_sent_away_from_where_it_is__is_reported_once_nothing_fails() -> None:
    world = started().world
    for _ in range(9):
        world.refused_as_moved(101)
    world.calm_down()
    world.refused_as_moved(101)
    world.refused_as_moved(101)
    assert complaint(lambda: world.refused_as_moved(101)) == "session moved"


def test_client_hung_up_on_while_its_session_lives__is_reported() -> None:
    checkers = Checkers(initial_membership(SimOptions(servers=3)))
    assert complaint(lambda: checkers.expired_sessions.on_hung_up(0x51)) == "expired"


def test_server_alone_that_serves_less_than_it_acknowledged__is_reported() -> None:
    checkers = Checkers(initial_membership(SimOptions(servers=1)))
    checkers.ledger.shadow_of(_ONE).vouched = Zxid(5)
    checkers.ledger.shadow_of(_ONE).is_damaged = True
    short = Recovery(Standing.UNPROVEN, tree=Tree(), head=Zxid(3))
    assert complaint(lambda: checkers.opened(_ONE, short)) == "durability"
    checkers.opened(_ONE, Recovery(Standing.DAMAGED))


@pytest.mark.parametrize(
    "found",
    [
        Recovery(Standing.UNPROVEN, head=Zxid(3)),
        Recovery(Standing.WHOLE, head=Zxid(2)),
        Recovery(Standing.WHOLE, head=Zxid(3), epochs=Epochs(4, 4)),
    ],
    ids=["not whole", "another end", "a later epoch"],
)
def test_rescue_that_leaves_something_else__is_reported(found: Recovery) -> None:
    checkers = Checkers(initial_membership(SimOptions(servers=3)))
    plan = RescuePlan(RescueKind.CUT, Recovery(Standing.DAMAGED), Zxid(3), None)
    assert complaint(lambda: checkers.rescued(_ONE, plan, found)) == "tools"
    checkers.rescued(_ONE, plan, Recovery(Standing.WHOLE, head=Zxid(3), epochs=Epochs(4, 0)))


def test_trees_that_differ_at_the_end__are_reported() -> None:
    script = started()
    script.connect(1)
    script.create("/a", b"1")
    script.check_equal()
    process_of(script, 2).replica.tree.sessions[0x77] = 4000
    assert complaint(script.check_equal) == "convergence"


def test_world_that_does_not_get_well__is_reported() -> None:
    simulation = Simulation(7, quiet_options())
    simulation.world.is_settled = lambda **_: False  # type: ignore[method-assign]
    assert simulation.run().checker == "progress"


# -- machines ------------------------------------------------------------------------------------


def test_invariants__hold_in_an_honest_ensemble_and_a_broken_one_is_reported() -> None:
    script = started()
    process = process_of(script, script.leader)
    member = process.member
    assert member is not None
    leader = member.leader
    assert leader is not None
    check_member("s", member)
    check_leader("s", leader)
    check_replica("s", process.replica)
    leader.last_committed = Zxid(leader.last_proposed + 1)
    assert complaint(lambda: check_leader("s", leader)) == "invariants"
    member.state.current_epoch = member.state.accepted_epoch + 1
    assert complaint(lambda: check_member("s", member)) == "invariants"
    process.replica.service.is_read_only = True
    assert complaint(lambda: check_replica("s", process.replica)) == "invariants"
    ahead = Manifest(accepted_epoch=1, current_epoch=2)
    assert complaint(lambda: check_manifest("s", ahead)) == "invariants"


def test_invariants__are_looked_at_behind_every_event() -> None:
    script = started()
    member = process_of(script, script.leader).member
    assert member is not None
    member.state.current_epoch = member.state.accepted_epoch + 1
    assert complaint(lambda: script.pass_ticks(2)) == "invariants"


# -- a server of Apache's ------------------------------------------------------------------------


def with_apache() -> Script:
    script = Script(replace(quiet_options(), apache=3))
    script.start(1, 2, 3)
    return script


def test_apache_server__says_and_hears_nothing_of_ours() -> None:
    script = with_apache()
    assert script.leader == 3
    for server in (1, 2):
        member = process_of(script, server).member
        assert member is not None
        assert member.following is not None
        assert not member.following.learner.is_leader_keepfast
    leader = process_of(script, 3).member
    assert leader is not None
    assert leader.leader is not None
    assert not any(one.is_keepfast for one in leader.leader.learners.values())


def test_apache_server_sent_a_tree_that_its_log_is_beyond__is_reported() -> None:
    script = with_apache()
    process = process_of(script, 3)
    assert process.member is not None
    process.host.apache.log[make_zxid(9, 1)] = b""
    order = InstallTree(Tree(), is_exact=True, promised=1, lacks=False)
    assert complaint(lambda: process.loop.carry_out(order)) == "apache peer"


def test_apache_server_without_a_history_that_counts__is_an_empty_one() -> None:
    """One of Apache's never says that its history does not count, as our store does."""
    script = with_apache()
    script.stop(3)
    host = script.world.hosts[ServerId(3)]
    script.wait(lambda: script.leader in (1, 2), "another leader")
    host.disk = MemoryDisk()
    script.world.checkers.damaged(ServerId(3))
    host.start()
    host.apache.log[make_zxid(9, 1)] = b""
    script.wait(lambda: script.are_current([3]), "it is filled")
    assert host.apache.last < make_zxid(9, 1)


def test_packets_without_what_is_ours__keep_all_else() -> None:
    hello = encode_learner_hello(LearnerHello(_ONE, True, 4, Zxid(7), "ab" * 16))
    ack = encode_epoch_ack(EpochAck(3, Zxid(9), Chain(Zxid(9))))
    found = PacketParser().feed(plain(encode_packet(hello) + encode_packet(ack)))
    assert [packet.type for packet in found] == [
        PacketType.FOLLOWERINFO.value,
        PacketType.ACKEPOCH.value,
    ]
    assert [len(packet.data or b"") for packet in found] == [20, 4]
