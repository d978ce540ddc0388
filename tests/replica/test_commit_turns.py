"""What is committed is applied in several turns if it is much, in order, and others continue."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.sim.script import quiet_options
from keepfast.tree import PrepareOptions, Tree
from keepfast.wire import (
    OPEN_ACL,
    AddWatchRequest,
    AuthPacket,
    CreateRequest,
    ErrorCode,
    EventType,
    ExistsRequest,
    GetEphemeralsRequest,
    Id,
    MultiOp,
    OpCode,
    SetDataRequest,
    SetWatches,
    SyncRequest,
    Xid,
    Zxid,
    encode_frame,
    encode_multi_request,
)
from tests.replica.machine import Client, Machine
from tests.replica.plain_frames import request_of
from tests.replica.simulated import PlainClient, create, member_of, started

SLICE = 2
# Of small writes; commit_turns.py has the number of slices.
A_TURN = 8 * SLICE
OPTIONS = ReplicaOptions(
    tick_ms=1000,
    min_session_timeout_ms=2000,
    max_session_timeout_ms=60_000,
    prepare=PrepareOptions(slice_size=SLICE),
)


def machine_with(count: int, options: ReplicaOptions = OPTIONS) -> tuple[Machine, list[Client]]:
    machine = Machine(options)
    clients = [Client(machine) for _ in range(count)]
    for client in clients:
        client.connect()
    return machine, clients


def durable(machine: Machine) -> None:
    """All that was made so far is on disk, and this turn is over."""
    last = machine.replica.service.appends[-1].zxid
    machine.replica.service.appends.clear()
    machine.replica.service.spent = 0
    machine.replica.log_durable(Zxid(last))


def test_many_writes__some_are_applied_in_each_turn_and_in_order() -> None:
    machine, (one, two) = machine_with(2)
    for xid in range(1, 101):
        one.send(xid, OpCode.CREATE, CreateRequest(f"/n{xid}", b"", OPEN_ACL, 0))
    two.send(7, OpCode.SYNC, SyncRequest("/"))
    durable(machine)
    answers = one.replies()
    turns = 1
    assert two.replies() == []
    while machine.replica.service.has_more_work:
        machine.continue_work()
        more = one.replies()
        assert len(more) <= A_TURN + 1
        answers += more
        turns += 1
        # Reads continue, and show what is applied.
        two.send(turns, OpCode.EXISTS, ExistsRequest(f"/n{len(answers)}", False))
    assert turns >= 100 // A_TURN
    assert answers == [(xid, 0) for xid in range(1, 101)]
    assert two.replies()[0] == (7, 0)


def test_what_comes_meanwhile__comes_behind_it() -> None:
    machine, (one, two) = machine_with(2)
    for xid in range(1, 41):
        one.send(xid, OpCode.CREATE, CreateRequest(f"/n{xid}", b"", OPEN_ACL, 0))
    durable(machine)
    two.send(1, OpCode.CREATE, CreateRequest("/n40", b"", OPEN_ACL, 0))
    two.send(2, OpCode.SYNC, SyncRequest("/"))
    machine.settle()
    assert two.replies() == [(1, ErrorCode.NODE_EXISTS), (2, 0)]
    assert machine.replica.service.tree.find("/n40") is not None
    assert not machine.replica.service.proposals


@pytest.mark.parametrize("kind", ["events", "multis", "long records"])
def test_costly_txns__are_fewer_in_a_turn(kind: str) -> None:
    options = replace(OPTIONS, prepare=PrepareOptions(slice_size=20))
    machine, (one, *watchers) = machine_with(11, options)
    one.send(1, OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
    machine.settle()
    one.take()
    for watcher in watchers if kind == "events" else ():
        watcher.send(1, OpCode.ADD_WATCH, AddWatchRequest("/", 1))
    ops = [MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"", -1))] * 15
    data = b"x" * 5000 if kind == "long records" else b""
    for xid in range(1, 161):
        if kind == "multis":
            head = struct.pack(">ii", xid, OpCode.MULTI)
            one.send_raw(head + encode_multi_request(tuple(ops)))
        else:
            one.send(xid, OpCode.SET_DATA, SetDataRequest("/a", data, -1))
    while machine.replica.service.has_more_work:
        machine.continue_work()
    durable(machine)
    # As small writes that nobody watches they would all be done.
    assert 0 < len(one.take()) < 40
    machine.settle()
    assert one.take()
    assert not machine.replica.service.proposals


@pytest.mark.parametrize("is_leader", [True, False])
def test_ensemble__applies_them_in_turns_on_all_servers(is_leader: bool) -> None:
    options = quiet_options(3)
    small = replace(options.replica, prepare=PrepareOptions(slice_size=SLICE))
    ensemble = started(3, replace(options, replica=small))
    host = ensemble.leading() if is_leader else ensemble.followers()[0]
    client = PlainClient(ensemble, host)
    steps: dict[int, int] = {}
    trees: list[Tree] = [member_of(each).state.replica.tree for each in ensemble.up()]
    last = [tree.last_zxid for tree in trees]

    def is_done() -> bool:
        for number, tree in enumerate(trees):
            steps[number] = max(steps.get(number, 0), tree.last_zxid - last[number])
            last[number] = tree.last_zxid
        return all(tree.find("/n199") is not None for tree in trees)

    for number in range(200):
        client.send(1 + number, OpCode.CREATE, create(f"/n{number}"))
    ensemble.wait(is_done, "all servers have them")
    # A learner's event may be the end of one turn and all of the next.
    assert max(steps.values()) <= 2 * A_TURN
    ensemble.pass_ms(20)
    assert client.replies() == [(1 + n, 0) for n in range(200)]
    assert len(ensemble.digests()) == 1


# -- what is asked for by few bytes, again and again ---------------------------------------------


def test_lists_of_ephemerals_and_ids__are_counted_as_work() -> None:
    machine, (one, two) = machine_with(2, replace(OPTIONS, max_burst_bytes=100_000))
    for number in range(300):
        one.send(number, OpCode.CREATE, CreateRequest(f"/e{number}", b"", OPEN_ACL, 1))
    machine.settle()
    one.take()
    asked = [request_of(n, OpCode.GET_EPHEMERALS, GetEphemeralsRequest("/x")) for n in range(100)]
    one.replica.receive(one.connection, b"".join(map(encode_frame, asked)))
    assert len(one.take()) < 10
    for number in range(300):
        two.send(Xid.AUTH, OpCode.AUTH, AuthPacket(0, "digest", b"u%d:pwd" % number))
    two.take()
    asked = [request_of(n, OpCode.WHO_AM_I) for n in range(100)]
    two.replica.receive(two.connection, b"".join(map(encode_frame, asked)))
    assert len(two.take()) < 10


def test_watches_beyond_the_bound__are_refused_and_the_rest_stays() -> None:
    machine, (one, two) = machine_with(2, replace(OPTIONS, max_watch_bytes=10_000))
    for number in range(4):
        one.send(number, OpCode.EXISTS, ExistsRequest(f"/{'x' * 2500}{number}", True))
    no_node, refused = ErrorCode.NO_NODE.value, ErrorCode.QUOTA_EXCEEDED.value
    assert one.replies() == [(0, no_node), (1, no_node), (2, no_node), (3, refused)]
    again = SetWatches(Zxid(0), (), tuple(f"/{'y' * 2500}{n}" for n in range(4)), ())
    two.send(Xid.SET_WATCHES, OpCode.SET_WATCHES, again)
    machine.settle()
    while two.connection.is_stalled:
        two.replica.resume(two.connection)
    assert two.replies() == [(Xid.SET_WATCHES, refused)]
    one.send(9, OpCode.CREATE, CreateRequest(f"/{'x' * 2500}0", b"", OPEN_ACL, 0))
    machine.settle()
    assert one.replies() == [(-1, EventType.NODE_CREATED), (9, 0)]


def test_large_txns_sent_together__are_made_in_several_turns() -> None:
    """A short request may become a long txn: an ACL of all that the client may be."""
    machine, (one, two) = machine_with(2, replace(OPTIONS, prepare=PrepareOptions(slice_size=20)))
    service = machine.replica.service
    for number in range(500):
        one.send(-4, OpCode.AUTH, AuthPacket(0, "digest", b"id%d:x" % number))
        while one.connection.is_stalled:
            one.replica.resume(one.connection)
    assert len(one.take()) == 500
    acl = (OPEN_ACL[0]._replace(id=Id("auth", "")),)
    frames = b"".join(
        encode_frame(request_of(xid, OpCode.CREATE, CreateRequest(f"/n{xid}", b"", acl, 0)))
        for xid in range(1, 41)
    )
    one.replica.receive(one.connection, frames)
    turns = 1
    assert 0 < len(service.appends) <= 2
    # Others are heard before the rest.
    two.send(1, OpCode.EXISTS, ExistsRequest("/n40", False))
    assert two.replies() == [(1, ErrorCode.NO_NODE)]
    while service.unfinished:
        before = len(service.appends)
        service.made = 0
        for connection in service.take_unfinished():
            one.replica.resume(connection)
        assert len(service.appends) - before <= 2
        turns += 1
    assert turns >= 20
    machine.settle()
    assert one.replies() == [(xid, 0) for xid in range(1, 41)]
