"""Requests that take several turns: a piece in each, and the answer is that of one moment."""

from __future__ import annotations

from random import Random

import pytest

from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    DeleteRequest,
    ErrorCode,
    EventType,
    GetChildrenRequest,
    GetChildrenResponse,
    GetDataRequest,
    OpCode,
    SetDataRequest,
    SetWatches2,
    Zxid,
    decode,
    encode,
    encode_frame,
)
from tests.replica.machine import Client, Machine

SLICE = 50
REPLY_HEADER = 16


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.replica.child_lists._SLICE", SLICE)
    monkeypatch.setattr("keepfast.replica.reads._WATCHES_AT_ONCE", SLICE)


class World:
    """A replica with two clients, and a znode with children."""

    def __init__(self, children: int) -> None:
        self.machine = Machine()
        self.asking, self.other = Client(self.machine), Client(self.machine)
        for client in (self.asking, self.other):
            client.connect()
        self.xid = 100
        self.create("/p")
        for number in range(children):
            self.create(f"/p/{number}")

    def write(self, op: OpCode, request: object) -> None:
        self.xid += 1
        self.other.send(self.xid, op, request)
        self.machine.settle()
        assert self.other.replies() == [(self.xid, 0)]

    def create(self, path: str) -> None:
        self.write(OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, 0))

    def delete(self, path: str) -> None:
        self.write(OpCode.DELETE, DeleteRequest(path, -1))

    def resume(self) -> None:
        """As the driver does it, when others had their turn."""
        assert self.asking.connection in self.machine.replica.service.take_unfinished()
        self.machine.replica.resume(self.asking.connection)

    def resume_until_answered(self) -> list[bytes]:
        for _ in range(1000):
            frames = self.asking.take()
            if frames:
                return frames
            self.resume()
        raise AssertionError("it was never answered")

    @property
    def names(self) -> list[str]:
        node = self.machine.replica.tree.find("/p")
        assert node is not None
        return sorted(path[len("/p/") :] for path in node.children or ())


def names_in(frame: bytes) -> list[str]:
    children = decode(GetChildrenResponse, frame[REPLY_HEADER:]).children or ()
    assert len(set(children)) == len(children)
    return sorted(children)


def test_long_list__takes_several_turns_in_which_others_are_answered() -> None:
    world = World(4 * SLICE)
    world.asking.send(1, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    world.asking.send(2, OpCode.GET_DATA, GetDataRequest("/p", False))
    turns = 0
    while not world.asking.connection.out:
        world.other.send(turns + 1, OpCode.GET_DATA, GetDataRequest("/p", False))
        assert world.other.replies() == [(turns + 1, 0)]
        world.resume()
        turns += 1
    assert turns == 4
    first, second = world.asking.take()
    assert names_in(first) == world.names
    assert second[:4] == (2).to_bytes(4, "big")


def test_long_list_again__is_kept_and_follows_what_comes_and_goes() -> None:
    world = World(4 * SLICE)
    world.asking.send(1, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    world.resume_until_answered()
    world.create("/p/new")
    world.delete("/p/7")
    world.delete("/p/12")
    world.create("/p/12")
    world.create("/p/brief")
    world.delete("/p/brief")
    world.asking.send(2, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    (frame,) = world.asking.take()
    assert names_in(frame) == world.names


def test_very_many_changes__the_list_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.tree.tree._MAX_LISTED_CHANGES", 10)
    world = World(4 * SLICE)
    world.asking.send(1, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    world.resume_until_answered()
    for number in range(20):
        world.delete(f"/p/{number}")
    world.asking.send(2, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    assert not world.asking.connection.out
    (frame,) = world.resume_until_answered()
    assert names_in(frame) == world.names


@pytest.mark.parametrize("seed", range(20))
def test_changes_between_pieces__the_list_is_that_of_the_moment_of_the_reply(seed: int) -> None:
    random = Random(seed)
    world = World(3 * SLICE)
    for xid in range(1, 12):
        world.asking.send(xid, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
        while not world.asking.connection.out:
            for _ in range(random.randrange(4)):
                name = str(random.randrange(4 * SLICE))
                act = world.delete if name in world.names else world.create
                act(f"/p/{name}")
            world.resume()
        (frame,) = world.asking.take()
        assert names_in(frame) == world.names
        for name in random.sample(world.names, random.choice((0, 1, 2, SLICE))):
            world.delete(f"/p/{name}")
        for number in range(2 * SLICE):
            if str(number) not in world.names:
                world.create(f"/p/{number}")


def test_watch_on_a_long_list__is_told_of_what_changes_after_the_reply() -> None:
    world = World(3 * SLICE)
    world.asking.send(1, OpCode.GET_CHILDREN, GetChildrenRequest("/p", True))
    world.create("/p/before-the-reply")
    (frame,) = world.resume_until_answered()
    assert "before-the-reply" in names_in(frame)
    world.create("/p/after-the-reply")
    assert world.asking.replies() == [(-1, EventType.NODE_CHILDREN_CHANGED)]


def test_long_list_behind_a_write__comes_behind_it() -> None:
    world = World(3 * SLICE)
    world.asking.send(1, OpCode.CREATE, CreateRequest("/p/own", b"", OPEN_ACL, 0))
    world.asking.send(2, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    world.asking.send(3, OpCode.GET_DATA, GetDataRequest("/p", False))
    world.machine.settle()
    assert world.asking.replies() == [(1, 0)]
    listed, _ = world.resume_until_answered()
    assert "own" in names_in(listed)


def test_client_gone_while_its_list_is_made__is_not_come_back_to() -> None:
    world = World(3 * SLICE)
    world.asking.send(1, OpCode.GET_CHILDREN, GetChildrenRequest("/p", False))
    world.machine.replica.lost(world.asking.connection)
    world.resume()
    assert not world.asking.connection.out
    assert not world.machine.replica.service.unfinished


def test_many_watches_set_again__some_in_each_turn() -> None:
    world = World(3 * SLICE)
    service = world.machine.replica.service
    since = Zxid(service.tree.last_zxid)
    world.write(OpCode.SET_DATA, SetDataRequest(f"/p/{2 * SLICE}", b"changed", -1))
    paths = tuple(f"/p/{number}" for number in range(3 * SLICE))
    request = SetWatches2(since, paths, (), ("/p",), ("/p",), ("/",))
    world.asking.send(1, OpCode.SET_WATCHES2, request)
    # They are read before the first is set.
    assert not service.watches
    while not service.watches:
        world.resume()
    assert service.watches.count < SLICE
    # One that was set already is told of a change; one that was not is told when its turn comes.
    world.write(OpCode.SET_DATA, SetDataRequest("/p/0", b"changed", -1))
    world.write(OpCode.SET_DATA, SetDataRequest(f"/p/{SLICE}", b"changed", -1))
    assert world.asking.replies() == [(-1, EventType.NODE_DATA_CHANGED)]
    told: list[tuple[int, int]] = []
    while not told or told[-1] != (1, 0):
        world.resume()
        told += world.asking.replies()
    assert told == [(-1, EventType.NODE_DATA_CHANGED)] * 2 + [(1, 0)]
    assert service.watches.count == 3 * SLICE - 3 + 3
    assert world.asking.connection.unfinished is None


def test_watches_set_again_of_which_the_last_cannot_be_read__none_is_set() -> None:
    world = World(0)
    service = world.machine.replica.service
    request = SetWatches2(Zxid(0), (), ("/missing",) * 3 * SLICE, (), (), ("/",))
    whole = encode(request)
    payload = (1).to_bytes(4, "big") + OpCode.SET_WATCHES2.to_bytes(4, "big") + whole[:-1]
    world.machine.replica.receive(world.asking.connection, encode_frame(payload))
    (frame,) = world.resume_until_answered()
    assert int.from_bytes(frame[12:16], "big", signed=True) == ErrorCode.MARSHALLING_ERROR
    assert not service.watches
    assert world.asking.connection.unfinished is None
