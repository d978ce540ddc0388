"""Txns of very many changes take many turns: nobody sees half of one, and order is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.replica.child_lists import ChildLists
from keepfast.sim.options import SimOptions
from keepfast.sim.script import quiet_options
from keepfast.tree import PrepareOptions
from keepfast.wire import (
    OPEN_ACL,
    AddWatchRequest,
    CreateRequest,
    DeleteRequest,
    ExistsRequest,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    MultiOp,
    OpCode,
    SetDataRequest,
    SyncRequest,
    decode,
    decode_header,
    encode_multi_request,
)
from tests.replica.machine import Client, Machine
from tests.replica.simulated import (
    Ensemble,
    PlainClient,
    create,
    member_of,
    started,
    tree_of,
)

SIZE = 5
COUNT = 40
REPLY_HEADER = 16
PREPARE = PrepareOptions(slice_size=SIZE)


def creates(count: int = COUNT, flags: int = 0) -> tuple[MultiOp, ...]:
    return tuple(
        MultiOp(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN_ACL, flags))
        for number in range(count)
    )


def multi(xid: int, ops: tuple[MultiOp, ...]) -> bytes:
    header = xid.to_bytes(4, "big") + OpCode.MULTI.value.to_bytes(4, "big")
    return header + encode_multi_request(ops)


class World:
    """One server with three clients."""

    def __init__(self) -> None:
        options = ReplicaOptions(
            tick_ms=1000,
            min_session_timeout_ms=2000,
            max_session_timeout_ms=60_000,
            prepare=PREPARE,
        )
        self.machine = Machine(options)
        self.service = self.machine.replica.service
        self.one, self.two, self.three = (Client(self.machine) for _ in range(3))
        for client in (self.one, self.two, self.three):
            client.connect()

    def children(self, client: Client) -> list[str]:
        client.send(77, OpCode.GET_CHILDREN, GetChildrenRequest("/", False))
        frame = client.take()[-1]
        names = decode(GetChildrenResponse, frame[REPLY_HEADER:]).children or ()
        return sorted(name for name in names if name != "zookeeper")

    def make(self) -> int:
        """Have all txns made that were begun; gives how many turns it took."""
        turns = 0
        while self.service.has_more_work:
            self.machine.continue_work()
            turns += 1
        return turns


def test_long_multi__takes_turns_and_is_seen_whole_or_not_at_all() -> None:
    world = World()
    world.one.send_raw(multi(1, creates()))
    assert not world.service.appends
    turns = 0
    while world.service.has_more_work:
        assert world.children(world.two) == []
        world.machine.continue_work()
        turns += 1
    # Decoded, prepared and gathered, each this many at a time.
    assert turns >= 3 * COUNT // SIZE
    assert world.children(world.two) == []
    assert world.one.replies() == []
    world.machine.settle()
    assert len(world.children(world.two)) == COUNT
    assert world.one.replies() == [(1, 0)]


def test_each_turn__makes_no_more_steps_than_a_slice() -> None:
    """Counted by the changes that are pending after each turn, so that it holds on any machine."""
    world = World()
    pending = world.machine.replica.proposer._preparer._pending  # type: ignore[union-attr]

    def steps_of_turns() -> list[int]:
        counts = [len(pending)]
        while world.service.has_more_work:
            world.machine.continue_work()
            counts.append(len(pending))
        return [after - before for before, after in pairwise(counts)]

    world.one.send_raw(multi(1, creates(flags=1)))
    made = steps_of_turns()
    assert (max(made), sum(made)) == (SIZE, COUNT)
    world.machine.settle()
    assert len(pending) == 0
    world.one.send(2, OpCode.CLOSE_SESSION)
    ended = steps_of_turns()
    assert (max(ended), sum(ended)) == (SIZE, COUNT)


def test_writes_and_syncs_behind_it__wait_in_order() -> None:
    world = World()
    world.one.send_raw(multi(1, creates()))
    world.two.send(2, OpCode.SET_DATA, SetDataRequest("/n0", b"behind", -1))
    world.two.send(3, OpCode.SYNC, SyncRequest("/"))
    world.one.send(4, OpCode.DELETE, DeleteRequest("/n1", 0))
    world.one.send(5, OpCode.GET_DATA, GetDataRequest("/n0", False))
    world.three.send(6, OpCode.CREATE, CreateRequest("/n2", b"", OPEN_ACL, 0))
    world.three.send(7, OpCode.CREATE, CreateRequest("/other", b"", OPEN_ACL, 0))
    assert world.machine.replica.outstanding > 0
    world.make()
    zxids = [record.zxid for record in world.service.appends]
    assert len(zxids) == 5
    assert zxids == sorted(zxids)
    world.machine.settle()
    assert world.one.replies() == [(1, 0), (4, 0), (5, 0)]
    assert world.two.replies() == [(2, 0), (3, 0)]
    assert world.three.replies() == [(6, -110), (7, 0)]
    node = world.machine.replica.tree.find("/n0")
    assert node is not None
    assert node.data == b"behind"
    assert not world.service.is_busy


def test_sync_behind_a_write_that_waits__shows_no_earlier_zxid() -> None:
    world = World()
    world.one.send_raw(multi(1, creates()))
    world.two.send(2, OpCode.CREATE, CreateRequest("/two", b"", OPEN_ACL, 0))
    world.two.send(3, OpCode.SYNC, SyncRequest("/"))
    world.machine.settle()
    zxids = [int.from_bytes(frame[4:12], "big") for frame in world.two.take()]
    assert len(zxids) == 2
    assert zxids == sorted(zxids)


def test_plain_write_behind_it__comes_behind_it() -> None:
    """Also one that goes the quick way otherwise."""
    world = World()
    world.two.send(1, OpCode.CREATE, CreateRequest("/q", b"", OPEN_ACL, 0))
    world.machine.settle()
    ops = (*creates(), MultiOp(OpCode.SET_DATA, SetDataRequest("/q", b"first", 0)))
    world.one.send_raw(multi(1, ops))
    world.two.send(2, OpCode.SET_DATA, SetDataRequest("/q", b"second", -1))
    world.machine.settle()
    assert world.one.replies() == [(1, 0)]
    assert world.two.replies() == [(1, 0), (2, 0)]
    node = world.machine.replica.tree.find("/q")
    assert node is not None
    assert node.data == b"second"


def test_many_long_ones__each_in_its_turn_and_reads_go_on() -> None:
    world = World()
    for number, client in enumerate((world.one, world.two)):
        ops = tuple(
            MultiOp(OpCode.CREATE, CreateRequest(f"/c{number}-{each}", b"", OPEN_ACL, 0))
            for each in range(COUNT)
        )
        client.send_raw(multi(1, ops))
    world.three.send(1, OpCode.CREATE, CreateRequest("/last", b"", OPEN_ACL, 0))
    while world.service.has_more_work:
        world.three.send(9, OpCode.PING)
        world.machine.continue_work()
    world.machine.settle()
    assert world.one.replies() == world.two.replies() == [(1, 0)]
    answers = world.three.replies()
    assert answers[0] == (1, 0)
    assert len(world.children(world.three)) == 2 * COUNT + 1


def test_many_writes_behind_two_long_ones__keep_their_order() -> None:
    """More than are made in one turn."""
    world = World()
    world.one.send_raw(multi(1, creates()))
    world.two.send_raw(multi(1, (*creates(), *creates(1))))
    xids = range(1, 251)
    for xid in xids:
        world.three.send(xid, OpCode.CREATE, CreateRequest(f"/w{xid}", b"", OPEN_ACL, 0))
    world.make()
    records = [decode_header(record.entry) for record in world.service.appends]
    assert [header.cxid for header in records] == [1, 1, *xids]
    assert [header.zxid for header in records] == [record.zxid for record in world.service.appends]


def test_long_list_of_children__has_what_a_long_txn_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list that is kept, and one that takes several turns to make."""
    monkeypatch.setattr("keepfast.replica.child_lists._SLICE", 10)
    world = World()

    def children() -> list[str]:
        world.two.send(77, OpCode.GET_CHILDREN, GetChildrenRequest("/", False))
        while not (frames := world.two.take()):
            world.service.take_unfinished()
            world.machine.replica.resume(world.two.connection)
        names = decode(GetChildrenResponse, frames[-1][REPLY_HEADER:]).children or ()
        return sorted(name for name in names if name != "zookeeper")

    world.one.send_raw(multi(1, creates()))
    world.machine.settle()
    there = {f"n{number}" for number in range(COUNT)}
    assert children() == sorted(there)
    changes = tuple(MultiOp(OpCode.DELETE, DeleteRequest(f"/n{n}", -1)) for n in range(7))
    more = tuple(
        MultiOp(OpCode.CREATE, CreateRequest(f"/m{n}", b"", OPEN_ACL, 0)) for n in range(9)
    )
    world.one.send_raw(multi(2, (*changes, *more)))
    world.machine.settle()
    there = {f"n{number}" for number in range(7, COUNT)} | {f"m{n}" for n in range(9)}
    assert children() == sorted(there)
    # One is begun, and then the children are others.
    world.service.child_lists = ChildLists()
    world.two.send(78, OpCode.GET_CHILDREN, GetChildrenRequest("/", False))
    assert not world.two.take()
    deletes = tuple(MultiOp(OpCode.DELETE, DeleteRequest(f"/m{n}", -1)) for n in range(9))
    world.one.send_raw(multi(3, deletes))
    world.machine.settle()
    assert children() == sorted(name for name in there if name.startswith("n"))


def test_client_that_is_gone_meanwhile__its_write_is_done_all_the_same() -> None:
    world = World()
    world.one.send_raw(multi(1, creates()))
    world.two.send(2, OpCode.CREATE, CreateRequest("/two", b"", OPEN_ACL, 0))
    for client in (world.one, world.two):
        world.machine.replica.lost(client.connection)
    world.machine.settle()
    assert len(world.children(world.three)) == COUNT + 1


@pytest.mark.parametrize("last", [DeleteRequest("/none", -1), DeleteRequest("bad", -1)])
def test_long_multi_that_fails__changes_nothing_and_answers_each(last: DeleteRequest) -> None:
    world = World()
    world.one.send_raw(multi(1, (*creates(), MultiOp(OpCode.DELETE, last))))
    world.machine.settle()
    assert world.one.replies() == [(1, 0)]
    assert world.children(world.two) == []
    world.one.send_raw(multi(2, creates()))
    world.machine.settle()
    assert len(world.children(world.two)) == COUNT


def test_multi_that_cannot_be_decoded_to_its_end__is_refused_by_a_txn() -> None:
    world = World()
    world.one.send_raw(multi(1, creates())[:-20])
    world.machine.settle()
    assert world.one.replies() == [(1, -5)]
    assert world.children(world.two) == []


def test_end_of_a_session_with_many_ephemerals__all_go_at_once() -> None:
    world = World()
    world.one.send_raw(multi(1, creates(flags=1)))
    world.machine.settle()
    world.two.send(1, OpCode.EXISTS, ExistsRequest("/n7", True))
    world.two.take()
    world.one.take()
    world.one.send(2, OpCode.CLOSE_SESSION)
    turns = 0
    while world.service.has_more_work:
        assert len(world.children(world.two)) == COUNT
        world.machine.continue_work()
        turns += 1
    assert turns >= COUNT // SIZE
    world.machine.settle()
    assert world.one.replies() == [(2, 0)]
    assert (-1, 2) in world.two.replies()
    assert world.children(world.two) == []


def test_role_that_ends_meanwhile__nothing_is_left_of_it() -> None:
    world = World()
    world.one.send_raw(multi(1, creates()))
    world.two.send(2, OpCode.CREATE, CreateRequest("/two", b"", OPEN_ACL, 0))
    world.machine.continue_work()
    tree = world.machine.replica.tree
    world.machine.replica.lead(tree)
    assert not world.service.postponed
    assert not world.service.is_busy
    client = Client(world.machine)
    client.connect()
    client.send(1, OpCode.CREATE, CreateRequest("/n0", b"", OPEN_ACL, 0))
    world.machine.settle()
    assert client.replies() == [(1, 0)]
    assert world.children(client) == ["n0"]


# -- ensembles -------------------------------------------------------------------------------------


def small_slices(options: SimOptions) -> SimOptions:
    return replace(options, replica=replace(options.replica, prepare=PREPARE))


def long_ensemble() -> Ensemble:
    return started(3, small_slices(quiet_options(3)))


def wait_within(ensemble: Ensemble, is_begun: Callable[[], bool], events: int) -> None:
    """Let time pass until something has begun, and this many events more."""
    left = events

    def is_done() -> bool:
        nonlocal left
        left -= is_begun()
        return left < 0

    ensemble.wait(is_done, "it has begun")


@pytest.mark.parametrize("is_leader", [True, False])
def test_ensemble__applies_it_whole_on_all_servers(is_leader: bool) -> None:
    ensemble = long_ensemble()
    host = ensemble.leading() if is_leader else ensemble.followers()[0]
    client = PlainClient(ensemble, host)
    seen: set[int] = set()
    trees = [tree_of(each) for each in ensemble.up()]

    def is_done() -> bool:
        seen.update(tree.node_count for tree in trees)
        return all(tree.find("/n0") is not None for tree in trees)

    before = trees[0].node_count
    client.send_raw(multi(1, creates()))
    ensemble.wait(is_done, "all servers have it")
    assert seen == {before, before + COUNT}
    ensemble.pass_ms(20)
    assert client.replies() == [(1, 0)]
    assert len(ensemble.digests()) == 1


@pytest.mark.parametrize("turns", [3, 10, 20])
def test_learner_whose_leader_goes_while_it_works_one_out__has_it_whole(turns: int) -> None:
    ensemble = long_ensemble()
    leader, follower = ensemble.leading(), ensemble.followers()[0]
    client = PlainClient(ensemble, leader)
    reader = member_of(follower).state.replica.long_reader
    client.send_raw(multi(1, creates()))
    wait_within(ensemble, lambda: reader._ready is not None, turns)
    assert reader._ready is not None
    assert tree_of(follower).find("/n0") is None
    ensemble.kill(leader.server_id)
    ensemble.wait_all("there is a leader again")
    ensemble.start(leader.server_id)
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1
    found = [tree_of(host).find(f"/n{number}") for host in ensemble.up() for number in range(COUNT)]
    assert all(node is not None for node in found)


@pytest.mark.parametrize("turns", [1, 5, 12])
def test_leader_that_goes_while_it_makes_one__nothing_of_it_is_left(turns: int) -> None:
    ensemble = long_ensemble()
    leader = ensemble.leading()
    client = PlainClient(ensemble, leader)
    service = member_of(leader).state.replica.service
    client.send_raw(multi(1, creates()))
    wait_within(ensemble, lambda: service.is_busy, turns)
    assert service.is_busy
    ensemble.kill(leader.server_id)
    ensemble.wait_all("there is a leader again")
    ensemble.start(leader.server_id)
    ensemble.wait_all("all serve")
    assert len(ensemble.digests()) == 1
    assert all(tree_of(host).find("/n0") is None for host in ensemble.up())


def test_plain_write_of_a_followers_client_behind_it__comes_behind_it() -> None:
    """Also one that goes the quick way otherwise."""
    ensemble = long_ensemble()
    leader, follower = ensemble.leading(), ensemble.followers()[0]
    one, two = PlainClient(ensemble, leader), PlainClient(ensemble, follower)
    assert two.ask(1, OpCode.CREATE, create("/q")) == [(1, 0)]
    assert two.ask(2, OpCode.SET_DATA, SetDataRequest("/q", b"first", -1)) == [(2, 0)]
    service = member_of(leader).state.replica.service
    one.send_raw(multi(1, creates(10 * COUNT)))
    wait_within(ensemble, lambda: service.is_busy, 0)
    two.send(3, OpCode.SET_DATA, SetDataRequest("/q", b"second", -1))
    ensemble.wait(lambda: service.outstanding > 0, "it waits")
    assert service.is_busy
    ensemble.wait(lambda: tree_of(follower).find("/q").data == b"second", "it is done")  # type: ignore[union-attr]
    assert tree_of(follower).find("/n0") is not None
    ensemble.pass_ms(20)
    assert (one.replies(), two.replies()) == ([(1, 0)], [(3, 0)])
    assert len(ensemble.digests()) == 1


def test_events_at_a_learner__those_of_the_next_txn_come_after_all_of_a_long_one() -> None:
    ensemble = long_ensemble()
    client = PlainClient(ensemble, ensemble.leading())
    watcher = PlainClient(ensemble, ensemble.followers()[0])
    assert watcher.ask(1, OpCode.ADD_WATCH, AddWatchRequest("/", 1)) == [(1, 0)]
    client.send_raw(multi(1, creates()))
    client.send(2, OpCode.CREATE, create("/later"))
    ensemble.wait(lambda: (2, 0) in client.replies(), "both are done")
    ensemble.pass_ms(200)
    zxids = [int.from_bytes(frame[4:12], "big") for frame in watcher.take()]
    assert len(zxids) == COUNT + 1
    assert zxids == sorted(zxids)
