"""A sync is answered by a leader that a quorum still follows, and by no other (R15)."""

from __future__ import annotations

import pytest

from keepfast.replica import Role
from keepfast.sim.host import Host
from keepfast.wire import (
    GetDataRequest,
    GetDataResponse,
    OpCode,
    ReplyHeader,
    SetDataRequest,
    SyncRequest,
    codec_of,
)
from tests.replica.simulated import Ensemble, PlainClient, create, member_of, process_of, started

SYNC = SyncRequest("/a")
GET = GetDataRequest("/a", False)


def with_znode(count: int) -> tuple[Ensemble, Host, PlainClient]:
    ensemble = started(count)
    leader = ensemble.leading()
    client = PlainClient(ensemble, leader, timeout_ms=60_000)
    assert client.ask(1, OpCode.CREATE, create("/a", b"1")) == [(1, 0)]
    return ensemble, leader, client


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_leader_that_was_deposed_without_knowing__answers_no_sync(place: str) -> None:
    ensemble, old, client = with_znode(5)
    behind, *rest = ensemble.followers()
    if place == "follower":
        client = PlainClient(ensemble, behind, timeout_ms=60_000)
    ensemble.part_unnoticed(old, behind)

    def leads() -> list[Host]:
        return [host for host in rest if process_of(host).replica.proposer is not None]

    ensemble.wait(lambda: bool(leads()), "the others have a leader")
    other = PlainClient(ensemble, leads()[0])
    assert other.ask(1, OpCode.SET_DATA, SetDataRequest("/a", b"2", -1)) == [(1, 0)]
    assert member_of(old).state.role is Role.LEADING
    assert client.ask(2, OpCode.SYNC, SYNC) == []
    assert client.ask(3, OpCode.GET_DATA, GET) == []
    assert member_of(old).state.role is Role.LEADING


@pytest.mark.parametrize("place", ["leader", "follower"])
def test_requests_around_a_sync__are_done_in_their_order(place: str) -> None:
    ensemble, _, client = with_znode(3)
    if place == "follower":
        client = PlainClient(ensemble, ensemble.followers()[0])
    for first in range(1, 40, 4):
        data = str(first).encode()
        client.send(first, OpCode.SYNC, SYNC)
        client.send(first + 1, OpCode.GET_DATA, GET)
        client.send(first + 2, OpCode.SET_DATA, SetDataRequest("/a", data, -1))
        client.send(first + 3, OpCode.GET_DATA, GET)
        ensemble.pass_ms(20)
        replies = client.take()
        headers = [codec_of(ReplyHeader).decode(reply) for reply in replies]
        assert [header.xid for header in headers] == list(range(first, first + 4))
        assert [h.zxid for h in headers] == sorted(h.zxid for h in headers)
        found = [codec_of(GetDataResponse).decode(replies[n], 16).data for n in (1, 3)]
        assert found == [b"1" if first == 1 else str(first - 4).encode(), data]


def test_syncs_that_come_together__share_a_question() -> None:
    ensemble, host, client = with_znode(3)
    leader = member_of(host).leader
    assert leader is not None
    before = leader.confirmations.last
    for xid in range(2, 12):
        client.send(xid, OpCode.SYNC, SYNC)
    ensemble.pass_ms(20)
    assert client.replies() == [(xid, 0) for xid in range(2, 12)]
    assert leader.confirmations.last == before + 1


def test_follower_that_comes_later__confirms_a_sync_that_waits() -> None:
    ensemble, leader, client = with_znode(3)
    late, deaf = ensemble.followers()
    late.kill()
    network = ensemble.world.network
    network.block(leader.place, deaf.place)
    assert client.ask(2, OpCode.SYNC, SYNC) == []
    late.start()
    ensemble.wait(lambda: client.replies() == [(2, 0)], "the sync is answered")
    assert member_of(leader).state.role is Role.LEADING
    assert network.is_blocked(leader.place, deaf.place)
