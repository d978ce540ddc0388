"""Sessions of one server alone, and those that become global ones."""

from __future__ import annotations

import pytest

from keepfast.sim.host import Host
from keepfast.sim.script import quiet_options
from keepfast.wire import CreateMode, ErrorCode, ExistsRequest, OpCode
from tests.replica.simulated import (
    Ensemble,
    PlainClient,
    create,
    local_sessions,
    process_of,
    started,
    tree_of,
)

EPHEMERAL = create("/e", mode=CreateMode.EPHEMERAL)
EXISTS = ExistsRequest("/e", False)
PLACES = ["leader", "follower"]
_STALL_MS = 100


def ensemble_with(place: str) -> tuple[Ensemble, Host]:
    ensemble = started(options=local_sessions(quiet_options()))
    return ensemble, ensemble.leading() if place == "leader" else ensemble.followers()[0]


def stall(ensemble: Ensemble) -> None:
    """Have nothing committed for a while."""
    ensemble.hang_disks(*ensemble.hosts, ms=_STALL_MS)


@pytest.mark.parametrize("place", PLACES)
def test_ephemeral_of_a_local_session__the_client_notices_nothing(place: str) -> None:
    ensemble, host = ensemble_with(place)
    client = PlainClient(ensemble, host)
    stall(ensemble)
    assert client.ask(1, OpCode.CREATE, EPHEMERAL) == []
    # Its session is neither a local one any more nor known as a global one yet.
    assert client.ask(2, OpCode.EXISTS, EXISTS) == []
    assert client.is_open
    ensemble.pass_ms(2 * _STALL_MS)
    assert client.replies() == [(1, 0), (2, 0)]
    assert client.ask(3, OpCode.CREATE, EPHEMERAL._replace(path="/f")) == [(3, 0)]


@pytest.mark.parametrize("place", PLACES)
def test_upgraded_session__lives_as_long_as_its_client_does(place: str) -> None:
    ensemble, host = ensemble_with(place)
    client = PlainClient(ensemble, host, timeout_ms=400)
    assert client.ask(1, OpCode.CREATE, EPHEMERAL) == [(1, 0)]
    for xid in range(2, 22):
        ensemble.pass_ms(100)
        assert client.ask(xid, OpCode.EXISTS, EXISTS) == [(xid, 0)]
    client.leave()
    ensemble.wait(lambda: tree_of(host).find("/e") is None, "its end")


@pytest.mark.parametrize("place", PLACES)
def test_client_that_comes_back_during_the_upgrade__has_its_session(place: str) -> None:
    ensemble, host = ensemble_with(place)
    client = PlainClient(ensemble, host)
    session = client.greeting
    assert session is not None
    stall(ensemble)
    assert client.ask(1, OpCode.CREATE, EPHEMERAL) == []
    client.leave()
    again = PlainClient(ensemble, host, session=session)
    assert again.ask(1, OpCode.CREATE, EPHEMERAL._replace(path="/f")) == []
    ensemble.pass_ms(2 * _STALL_MS)
    assert again.replies() == [(1, 0)]
    assert again.ask(2, OpCode.EXISTS, EXISTS) == [(2, 0)]
    assert sorted(tree_of(host).ephemerals[session.session_id]) == ["/e", "/f"]


def test_client_that_comes_to_the_leader_during_the_upgrade__is_served_there() -> None:
    """Its session is proposed and not committed: that is no reason to hang up on it."""
    ensemble, host = ensemble_with("follower")
    leader, network = ensemble.leading(), ensemble.world.network
    proposals = process_of(leader).replica.service.proposals
    client = PlainClient(ensemble, host)
    client.send(1, OpCode.CREATE, EPHEMERAL)
    ensemble.wait(lambda: bool(proposals), "its session to be proposed")
    for follower in ensemble.followers():
        network.block(follower.place, leader.place)
    moved = PlainClient(ensemble, leader, session=client.greeting)
    assert moved.ask(1, OpCode.EXISTS, EXISTS) == [(1, ErrorCode.NO_NODE)]
    network.heal()
    ensemble.pass_ms(_STALL_MS)
    assert moved.ask(2, OpCode.EXISTS, EXISTS) == [(2, 0)]
