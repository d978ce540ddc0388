"""Events and audit lines of txns of very many changes: some in each turn, and always in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.replica import ReplicaOptions, answer_single
from keepfast.tree import PrepareOptions
from keepfast.wire import (
    OPEN_ACL,
    AddWatchRequest,
    AuthPacket,
    CreateRequest,
    EventType,
    ExistsRequest,
    GetDataRequest,
    MultiOp,
    OpCode,
    SetDataRequest,
    SyncRequest,
    Zxid,
    encode_frame,
)
from tests.replica.machine import Client, Machine
from tests.replica.plain_frames import request_of
from tests.replica.test_long_txns import multi

SIZE = 5
COUNT = 40
CREATED = (-1, EventType.NODE_CREATED)
OPTIONS = ReplicaOptions(
    tick_ms=1000,
    min_session_timeout_ms=2000,
    max_session_timeout_ms=60_000,
    prepare=PrepareOptions(slice_size=SIZE),
)


class World:
    """One server, one client that writes, one that watches, and one that does neither."""

    def __init__(self, options: ReplicaOptions = OPTIONS) -> None:
        self.machine = Machine(options)
        self.replica = self.machine.replica
        self.service = self.replica.service
        self.writer, self.watcher, self.other = (Client(self.machine) for _ in range(3))
        for client in (self.writer, self.watcher, self.other):
            client.connect()

    def watch(self, client: Client, path: str, *, recursive: bool = False) -> None:
        if recursive:
            client.send(90, OpCode.ADD_WATCH, AddWatchRequest(path, 1))
        else:
            client.send(90, OpCode.EXISTS, ExistsRequest(path, True))
        assert len(client.take()) == 1

    def ask(self, client: Client, xid: int, path: str = "/n0") -> None:
        client.send(xid, OpCode.EXISTS, ExistsRequest(path, False))

    def create_many(self, flags: int = 0, *, more: str = "") -> None:
        """One txn that creates many znodes is applied; its events are still to be sent."""
        paths = [f"/n{number}" for number in range(COUNT)] + ([more] if more else [])
        ops = tuple(
            MultiOp(OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, flags)) for path in paths
        )
        self.writer.send_raw(multi(1, ops))
        while not self.service.appends:
            self.turn()
        self.durable()

    def durable(self) -> None:
        last = self.service.appends[-1].zxid
        self.service.appends.clear()
        self.service.spent = 0
        self.replica.log_durable(Zxid(last))

    def turn(self) -> None:
        """One more turn of the loop: work continues, and so do those who were put off."""
        self.machine.continue_work()
        for connection in self.service.take_unfinished():
            self.replica.resume(connection)

    def finish(self) -> None:
        while self.service.has_more_work or self.service.appends:
            if self.service.appends:
                self.durable()
            self.turn()


def test_events__go_out_in_slices_and_others_are_answered_meanwhile() -> None:
    world = World()
    for number in range(COUNT):
        world.watch(world.watcher, f"/n{number}")
    world.create_many()
    assert world.watcher.replies() == []
    assert world.writer.replies() == [(1, 0)]
    counts = []
    while world.service.gate is not None:
        world.ask(world.other, 2)
        assert world.other.replies() == [(2, 0)]
        world.turn()
        counts.append(len(world.watcher.replies()))
    assert sum(counts) == COUNT
    # Each znode is looked at, and each event is sent.
    assert max(counts) <= SIZE // 2 + 1


def test_client_that_watches__is_answered_after_the_last_event() -> None:
    world = World()
    world.watch(world.watcher, "/n0")
    world.watch(world.watcher, f"/n{COUNT - 1}")
    world.create_many()
    world.ask(world.watcher, 2)
    world.watcher.send(-2, OpCode.PING)
    assert world.watcher.connection.is_stalled
    while world.service.gate is not None:
        assert {xid for xid, _ in world.watcher.replies()} <= {-1}
        world.turn()
    world.finish()
    replies = world.watcher.replies()
    assert replies[-2:] == [(2, 0), (-2, 0)]
    assert not world.watcher.connection.is_stalled


def test_single_read_of_a_client_that_watches__waits_too() -> None:
    world = World()
    world.watch(world.watcher, f"/n{COUNT - 1}")
    world.create_many()
    frame = encode_frame(request_of(3, OpCode.GET_DATA, GetDataRequest("/n0", False)))
    assert answer_single(world.service, world.watcher.connection, frame) is None
    world.replica.receive(world.watcher.connection, frame)
    world.finish()
    assert world.watcher.replies() == [CREATED, (3, 0)]


def test_sync_before_the_txn__is_answered_after_its_events() -> None:
    """Its reply shows the last zxid: a client that lost the connection then would miss events."""
    world = World()
    world.watch(world.watcher, f"/n{COUNT - 1}")
    ops = tuple(
        MultiOp(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN_ACL, 0))
        for number in range(COUNT)
    )
    world.writer.send_raw(multi(1, ops))
    while not world.service.appends:
        world.turn()
    world.watcher.send(4, OpCode.SYNC, SyncRequest("/"))
    world.durable()
    assert world.watcher.replies() == []
    world.finish()
    assert world.watcher.replies() == [CREATED, (4, 0)]


def test_reply_of_the_txn_itself__comes_after_events_of_its_client() -> None:
    world = World()
    world.watch(world.writer, f"/n{COUNT - 1}")
    world.create_many()
    assert world.writer.replies() == []
    world.finish()
    assert world.writer.replies() == [CREATED, (1, 0)]


def test_recursive_watch_elsewhere__does_not_wait_for_all_events() -> None:
    world = World()
    world.watch(world.watcher, "/n0", recursive=True)
    world.watch(world.other, "/elsewhere", recursive=True)
    world.create_many()
    world.ask(world.other, 2)
    world.ask(world.watcher, 2)
    while not (replies := world.other.replies()):
        assert world.service.gate is not None
        world.turn()
    assert replies == [(2, 0)]
    assert world.service.gate is not None
    world.finish()
    assert world.watcher.replies() == [CREATED, (2, 0)]


def test_recursive_watch_above_the_changes__waits_until_the_last_event() -> None:
    world = World()
    world.watch(world.watcher, "/", recursive=True)
    world.watch(world.other, "/elsewhere", recursive=True)
    world.create_many()
    world.ask(world.other, 2)
    while not world.other.replies():
        world.turn()
    assert world.service.gate is not None
    world.ask(world.watcher, 2)
    world.finish()
    assert world.watcher.replies() == [*[CREATED] * COUNT, (2, 0)]


def test_watch_set_meanwhile__hears_of_what_is_later() -> None:
    world = World()
    last = f"/n{COUNT - 1}"
    world.watch(world.watcher, last)
    world.watch(world.watcher, "/", recursive=True)
    world.create_many()
    world.watch(world.other, last)
    world.watch(world.other, "/", recursive=True)
    world.finish()
    assert world.other.replies() == []
    assert world.service.watches.count == 3
    world.writer.send(5, OpCode.SET_DATA, SetDataRequest(last, b"x", -1))
    world.finish()
    assert world.other.replies() == [(-1, EventType.NODE_DATA_CHANGED)]


def test_next_txn__waits_until_all_events_are_sent() -> None:
    world = World()
    world.watch(world.watcher, "/", recursive=True)
    world.create_many()
    world.other.send(2, OpCode.CREATE, CreateRequest("/later", b"", OPEN_ACL, 0))
    world.durable()
    while world.service.gate is not None:
        assert world.replica.tree.find("/later") is None
        world.turn()
    world.finish()
    zxids = [int.from_bytes(frame[4:12], "big") for frame in world.watcher.take()]
    assert len(zxids) == COUNT + 1
    assert zxids == sorted(zxids)
    assert world.other.replies() == [(2, 0)]


def test_txns_in_the_same_group__come_after_its_events() -> None:
    """The record of the end of a session is short, and does not look like much work."""
    world = World()
    world.create_many(flags=1)
    world.finish()
    world.watch(world.watcher, "/", recursive=True)
    world.writer.send(2, OpCode.CLOSE_SESSION)
    while not world.service.appends:
        world.turn()
    world.other.send(2, OpCode.CREATE, CreateRequest("/later", b"", OPEN_ACL, 0))
    world.finish()
    deleted = (-1, EventType.NODE_DELETED)
    assert world.watcher.replies() == [*[deleted] * COUNT, CREATED]


def test_reads_between_writes_of_a_client_that_waits__show_nothing_later() -> None:
    world = World()
    world.watch(world.watcher, f"/n{COUNT - 1}")
    ops = tuple(
        MultiOp(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN_ACL, 0))
        for number in range(COUNT)
    )
    world.writer.send_raw(multi(1, ops))
    while not world.service.appends:
        world.turn()
    world.watcher.send(2, OpCode.SET_DATA, SetDataRequest("/n0", b"first", -1))
    world.watcher.send(3, OpCode.GET_DATA, GetDataRequest("/n0", False))
    world.watcher.send(4, OpCode.SET_DATA, SetDataRequest("/n0", b"second", -1))
    world.durable()
    world.watcher.send(-2, OpCode.PING)
    assert world.watcher.connection.is_stalled
    world.finish()
    frames = world.watcher.take()
    xids = [int.from_bytes(frame[:4], "big", signed=True) for frame in frames]
    assert xids == [-1, 2, 3, 4, -2]
    assert b"first" in frames[2]


def test_single_read_behind_requests_that_waited__is_answered_after_them() -> None:
    world = World()
    world.watch(world.watcher, f"/n{COUNT - 1}")
    world.create_many()
    world.ask(world.watcher, 2)
    while world.service.gate is not None:
        world.machine.continue_work()
    frame = encode_frame(request_of(3, OpCode.GET_DATA, GetDataRequest("/n0", False)))
    assert answer_single(world.service, world.watcher.connection, frame) is None


def test_client_that_closes_its_session__hears_the_end_of_its_ephemerals_first() -> None:
    world = World()
    world.create_many(flags=1)
    world.finish()
    world.writer.take()
    for number in range(COUNT):
        world.watch(world.writer, f"/n{number}")
    world.writer.send(2, OpCode.CLOSE_SESSION)
    world.finish()
    replies = world.writer.replies()
    assert replies == [(-1, EventType.NODE_DELETED)] * COUNT + [(2, 0)]
    assert world.writer.connection in world.service.take_closing()


@pytest.mark.parametrize("turns", [0, 3])
def test_client_that_is_gone_meanwhile__is_sent_nothing_more(turns: int) -> None:
    world = World()
    for client in (world.watcher, world.other):
        world.watch(client, "/", recursive=True)
    world.create_many()
    for _ in range(turns):
        world.turn()
    world.replica.lost(world.watcher.connection)
    world.watcher.take()
    world.finish()
    assert world.watcher.take() == []
    assert world.other.replies() == [CREATED] * COUNT
    assert not world.service.stalled


def test_role_that_ends_meanwhile__leaves_nothing_behind() -> None:
    world = World()
    world.watch(world.watcher, "/", recursive=True)
    world.create_many()
    world.turn()
    world.replica.lead(world.replica.tree)
    assert world.service.gate is None
    assert not world.watcher.connection.is_open
    client = Client(world.machine)
    client.connect()
    client.send(1, OpCode.CREATE, CreateRequest("/more", b"", OPEN_ACL, 0))
    world.finish()
    assert client.replies() == [(1, 0)]


# -- the audit log ---------------------------------------------------------------------------------


def audited_world() -> World:
    world = World(replace(OPTIONS, is_audited=True))
    world.service.take_audits()
    return world


def test_audit_lines__are_made_in_slices_before_those_of_the_next_txn() -> None:
    world = audited_world()
    world.create_many()
    # It says who has asked, and not who the client has become meanwhile.
    world.writer.send(-4, OpCode.AUTH, AuthPacket(0, "digest", b"later:x"))
    world.other.send(2, OpCode.CREATE, CreateRequest("/later", b"", OPEN_ACL, 0))
    world.durable()
    lines, most = [], 0
    while world.service.has_more_work or world.service.appends:
        some = world.service.take_audits()
        lines += some
        most = max(most, len(some))
        world.turn()
    lines += world.service.take_audits()
    assert most <= SIZE
    assert [line.path for line in lines] == [*(f"/n{n}" for n in range(COUNT)), "/later"]
    assert {line.users for line in lines} == {"127.0.0.1"}


def test_role_that_ends_meanwhile__the_audit_log_is_whole() -> None:
    world = audited_world()
    world.create_many()
    world.turn()
    world.replica.stand_down("the role is over")
    lines = world.service.take_audits()
    assert [line.path for line in lines] == [f"/n{number}" for number in range(COUNT)]
