"""What one client may take of a turn of the loop: others are heard before the rest of it."""

from __future__ import annotations

from keepfast.replica import ReplicaOptions
from keepfast.replica.backpressure import TURN_REQUESTS
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    CreateRequest,
    ExistsRequest,
    GetAllChildrenNumberRequest,
    GetDataRequest,
    Id,
    OpCode,
    SetDataRequest,
    encode,
    encode_frame,
    encode_int,
)
from tests.costs import calls_of
from tests.replica.machine import Client, Machine


def request(xid: int, op: OpCode, body: tuple[object, ...]) -> bytes:
    return encode_frame(encode_int(xid) + encode_int(op.value) + encode(body))


def finish(machine: Machine, client: Client, count: int) -> tuple[list[int], int]:
    """The xids of all replies, and how many turns they took."""
    xids: list[int] = []
    turns = 0
    while len(xids) < count:
        turns += 1
        xids += [xid for xid, _ in client.replies()]
        if client.connection.is_stalled:
            machine.replica.resume(client.connection)
    return xids, turns


def test_many_requests_at_once__are_handled_in_several_turns_and_in_order() -> None:
    machine = Machine()
    client = Client(machine)
    client.connect()
    count = 5 * TURN_REQUESTS + 7
    data = b"".join(
        request(xid, OpCode.EXISTS, ExistsRequest("/", False)) for xid in range(1, count + 1)
    )
    machine.replica.receive(client.connection, data)
    assert len(client.connection.out) == TURN_REQUESTS
    xids, turns = finish(machine, client, count)
    assert xids == list(range(1, count + 1))
    assert turns == 6
    assert not client.connection.is_stalled


def test_many_reads_behind_a_write__are_answered_in_several_turns_and_in_order() -> None:
    machine = Machine()
    client = Client(machine)
    client.connect()
    count = 3 * TURN_REQUESTS
    write = request(1, OpCode.SET_DATA, SetDataRequest("/", b"new", -1))
    reads = b"".join(
        request(xid, OpCode.GET_DATA, GetDataRequest("/", False)) for xid in range(2, count + 2)
    )
    machine.replica.receive(client.connection, write + reads)
    assert not client.connection.out
    machine.settle()
    assert len(client.connection.out) <= TURN_REQUESTS + 1
    xids, turns = finish(machine, client, count + 1)
    assert xids == list(range(1, count + 2))
    assert turns >= 3


def test_checks_of_many_ids__count_as_work_of_a_turn() -> None:
    options = ReplicaOptions(max_burst_bytes=100_000)
    machine = Machine(options)
    owner = Client(machine)
    owner.connect()
    acl = (ACL(31, Id("digest", "nobody:x")),)
    owner.send(1, OpCode.CREATE, CreateRequest("/closed", b"", acl, 0))
    machine.settle()
    client = Client(machine)
    client.connect()
    for number in range(1000):
        client.connection.add_id(Id("digest", f"user{number}:x"))
    data = b"".join(
        request(xid, OpCode.GET_DATA, GetDataRequest("/closed", False)) for xid in range(1, 101)
    )
    machine.replica.receive(client.connection, data)
    # 20,000 bytes' worth of work each.
    assert 1 <= len(client.connection.out) <= 7
    xids, turns = finish(machine, client, 100)
    assert xids == list(range(1, 101))
    assert turns > 10


def test_count_of_a_large_tree__costs_no_walk_over_it() -> None:
    machine = Machine()
    client = Client(machine)
    client.connect()
    for number in range(500):
        client.send(number, OpCode.CREATE, CreateRequest(f"/{number}", b"", OPEN_ACL, 0))
    machine.settle()

    def count() -> None:
        client.send(1, OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/"))

    # The first one also compiles what reads such a request.
    count()
    client.replies()
    cost = calls_of(count)
    assert client.replies() == [(1, 0)]
    assert cost < 100
