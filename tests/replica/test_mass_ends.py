"""Very many sessions and containers that end at one time: some in each turn."""

from __future__ import annotations

from keepfast.replica import ReplicaOptions
from keepfast.replica.sessions import MAX_EXPIRED, SessionTracker
from keepfast.tree import PrepareOptions
from keepfast.wire import OPEN_ACL, CreateMode, CreateRequest, DeleteRequest, ExistsRequest, OpCode
from tests.replica.machine import Client, Machine

SIZE = 5
COUNT = 40
OPTIONS = ReplicaOptions(
    tick_ms=1000,
    min_session_timeout_ms=2000,
    max_session_timeout_ms=60_000,
    container_check_ms=2000,
    prepare=PrepareOptions(slice_size=SIZE),
)
# The ends of sessions wait in line with writes, of which this many are made in a turn.
IN_A_TURN = 100


def appended_in_turns(machine: Machine, neighbour: Client) -> list[int]:
    """How many records each turn leads to; the neighbour is answered in each of them."""
    appends = machine.replica.service.appends
    counts = [len(appends)]
    while machine.replica.service.has_more_work:
        neighbour.send(7, OpCode.EXISTS, ExistsRequest("/", False))
        assert neighbour.replies() == [(7, 0)]
        before = len(appends)
        machine.continue_work()
        counts.append(len(appends) - before)
    return counts


def test_sessions_that_expire_together__are_ended_in_turns() -> None:
    machine = Machine(OPTIONS)
    neighbour = Client(machine, timeout_ms=60_000)
    neighbour.connect()
    for _ in range(3 * IN_A_TURN):
        client = Client(machine, timeout_ms=2000)
        client.connect()
        machine.replica.lost(client.connection)
    machine.advance(10_000)
    machine.tick()
    counts = appended_in_turns(machine, neighbour)
    assert counts[0] == SIZE
    assert max(counts) <= IN_A_TURN
    assert sum(counts) == 3 * IN_A_TURN
    machine.settle()
    assert len(machine.replica.tree.sessions) == 1
    assert not machine.replica.service.is_busy


def test_write_behind_their_ends__is_done_after_them() -> None:
    machine = Machine(OPTIONS)
    writer = Client(machine, timeout_ms=60_000)
    writer.connect()
    for _ in range(COUNT):
        client = Client(machine, timeout_ms=2000)
        client.connect()
        machine.replica.lost(client.connection)
    machine.advance(10_000)
    machine.tick()
    writer.send(1, OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
    machine.settle()
    assert writer.replies() == [(1, 0)]
    assert len(machine.replica.tree.sessions) == 1


def test_more_than_end_in_one_tick__end_in_the_next_ones() -> None:
    tracker = SessionTracker(1000)
    for session_id in range(MAX_EXPIRED + 7):
        tracker.track(session_id, 2000, 0)
    assert tracker.expired(1000, MAX_EXPIRED) == []
    assert tracker.expired(9000, MAX_EXPIRED) == list(range(MAX_EXPIRED))
    assert tracker.expired(9000, MAX_EXPIRED) == list(range(MAX_EXPIRED, MAX_EXPIRED + 7))
    assert len(tracker) == 0


def test_containers_that_are_empty_together__are_deleted_in_turns() -> None:
    machine = Machine(OPTIONS)
    client = Client(machine, timeout_ms=60_000)
    client.connect()
    for number in range(COUNT):
        path, mode = f"/c{number:02}", CreateMode.CONTAINER.value
        client.send(1, OpCode.CREATE_CONTAINER, CreateRequest(path, b"", OPEN_ACL, mode))
        client.send(2, OpCode.CREATE, CreateRequest(f"{path}/x", b"", OPEN_ACL, 0))
        client.send(3, OpCode.DELETE, DeleteRequest(f"{path}/x", -1))
    machine.settle()
    assert {error for _, error in client.replies()} == {0}
    machine.advance(2500)
    machine.tick()
    counts = appended_in_turns(machine, client)
    assert max(counts) <= SIZE
    assert sum(counts) == COUNT
    machine.settle()
    assert not machine.replica.tree.containers
    # And the next time.
    client.send(1, OpCode.CREATE_CONTAINER, CreateRequest("/c", b"", OPEN_ACL, mode))
    client.send(2, OpCode.CREATE, CreateRequest("/c/x", b"", OPEN_ACL, 0))
    client.send(3, OpCode.DELETE, DeleteRequest("/c/x", -1))
    machine.settle()
    machine.advance(2500)
    machine.tick()
    machine.settle()
    assert not machine.replica.tree.containers
