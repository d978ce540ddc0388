"""Who is told that a session has expired, and when (R15)."""

from __future__ import annotations

import pytest

from keepfast.replica import Role
from keepfast.sim.host import Host
from keepfast.sim.script import quiet_options
from keepfast.wire import (
    ConnectResponse,
    CreateMode,
    ExistsRequest,
    OpCode,
    SessionId,
    codec_of,
)
from tests.replica.machine import Client, Machine
from tests.replica.simulated import (
    PlainClient,
    create,
    local_sessions,
    member_of,
    process_of,
    run,
    started,
    tree_of,
)


def test_end_that_is_not_durable_yet__is_told_to_nobody() -> None:
    machine = Machine()
    client = Client(machine, timeout_ms=2000)
    session = client.connect()
    client.replica.lost(client.connection)
    machine.advance(10_000)
    machine.tick()
    again = Client(machine, session=session)
    # Until the end is committed a crash takes it back.
    assert again.take() == []
    machine.settle()
    assert codec_of(ConnectResponse).decode(again.take()[0]).session_id == 0


def test_end_that_is_not_committed_yet__is_told_to_nobody_at_a_follower() -> None:
    ensemble = started()
    leader, follower = ensemble.leading(), ensemble.followers()[0]
    client = PlainClient(ensemble, follower, timeout_ms=1000)
    session = client.greeting
    assert session is not None
    client.leave()
    ensemble.pass_ms(10)
    ensemble.hang_disks(*ensemble.hosts, ms=100)
    run(leader, lambda member: member.state.replica.expire(session.session_id))
    again = PlainClient(ensemble, follower, session=session)
    assert again.is_open
    assert again.greeting is None
    ensemble.wait(lambda: not again.is_open, "it is told")
    assert again.greeting is not None
    assert again.greeting.session_id == 0


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_leader_that_hung_for_longer_than_a_timeout__ends_no_session_of_a_live_client(
    place: str,
) -> None:
    ensemble = started()
    leader, follower = ensemble.leading(), ensemble.followers()[0]
    host = leader if place == "leader" else follower
    client = PlainClient(ensemble, host, timeout_ms=200)
    ephemeral = create("/e", mode=CreateMode.EPHEMERAL)
    assert client.ask(1, OpCode.CREATE, ephemeral) == [(1, 0)]
    exists = ExistsRequest("/e", False)
    process_of(leader).pause()
    for xid in range(2, 10):
        ensemble.pass_ms(50)
        client.send(xid, OpCode.EXISTS, exists)
    process_of(leader).resume()
    ensemble.pass_ms(20)
    assert client.replies() == [(xid, 0) for xid in range(2, 10)]
    for xid in range(10, 50):
        assert client.ask(xid, OpCode.EXISTS, exists) == [(xid, 0)]
        ensemble.pass_ms(50)
    # A silent one loses its session as ever.
    client.leave()
    ensemble.pass_ms(500)
    assert not any(tree_of(each).sessions for each in ensemble.up())


def test_silent_local_session__ends_at_a_follower_too() -> None:
    ensemble = started(options=local_sessions(quiet_options()))
    follower = ensemble.followers()[0]
    client = PlainClient(ensemble, follower, timeout_ms=200)
    assert client.is_open
    ensemble.pass_ms(500)
    assert not client.is_open
    assert not process_of(follower).replica.handshake.local


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_leader_that_was_deposed_without_knowing__tells_nobody_that_a_session_has_ended(
    place: str,
) -> None:
    ensemble = started(5)
    old = ensemble.leading()
    behind, *rest = ensemble.followers()
    ensemble.part_unnoticed(old, behind)

    def leads() -> list[Host]:
        return [host for host in rest if process_of(host).replica.proposer is not None]

    ensemble.wait(lambda: bool(leads()), "the others have a leader")
    session = PlainClient(ensemble, leads()[0]).greeting
    assert session is not None
    # It has seen no zxid yet that would tell the old leader that it is one.
    again = PlainClient(ensemble, old if place == "leader" else behind, session=session)
    assert member_of(old).state.role is Role.LEADING
    assert again.greeting is None
    # Nor when the old leader's time is over: it is hung up on, and looks for another server.
    ensemble.wait(lambda: not again.is_open, "the old leader gives up")
    assert again.greeting is None


def unknown_to(host: Host) -> ConnectResponse:
    """A session that never was, with the password that it would have."""
    session_id = SessionId(0x777)
    password = process_of(host).replica.options.passwords.of(session_id)
    return ConnectResponse(0, 10_000, session_id, password, None)


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_unknown_session__has_ended(place: str) -> None:
    ensemble = started()
    host = ensemble.leading() if place == "leader" else ensemble.followers()[0]
    client = PlainClient(ensemble, host, session=unknown_to(host))
    assert client.greeting is not None
    assert client.greeting.session_id == 0


def test_unknown_session__has_ended_once_a_quorum_says_who_leads() -> None:
    ensemble = started()
    leader = ensemble.leading()
    network = ensemble.world.network
    for one in ensemble.followers():
        network.block(one.place, leader.place)
    client = PlainClient(ensemble, leader, session=unknown_to(leader))
    assert client.is_open
    assert client.greeting is None
    network.heal()
    ensemble.wait(lambda: client.greeting is not None, "it is told")
    assert client.greeting is not None
    assert client.greeting.session_id == 0
