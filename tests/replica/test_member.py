"""Members of an ensemble: from the first election to catching up, on memory disks."""

from __future__ import annotations

from keepfast.quorum import Standing
from keepfast.replica import Role
from keepfast.wire import OPEN_ACL, CreateMode, CreateRequest, OpCode, SetDataRequest
from tests.replica.ensemble import Node, World
from tests.replica.machine import Client


def started(count: int = 3) -> World:
    """An ensemble whose servers all serve."""
    world = World(count)
    for node in world.nodes.values():
        node.start()
    world.until(world.all_serve, "all serve")
    return world


class NodeClient(Client):
    """A client of one node."""

    def __init__(self, node: Node, **options: object) -> None:
        self.node = node

        class Machine:
            replica = node.member.replica

        node.member.tell_time(node.world.now_ms, node.world.now_ms)
        super().__init__(Machine(), **options)  # type: ignore[arg-type]
        self.settle()

    def settle(self) -> None:
        self.node.run(lambda node: node.member.after_clients())
        self.node.world.drain()

    def ask(self, xid: int, op: int, request: object) -> list[tuple[int, int]]:
        self.node.member.tell_time(self.node.world.now_ms, self.node.world.now_ms)
        self.send(xid, op, request)
        self.settle()
        return self.replies()


def create(path: str, data: bytes = b"") -> CreateRequest:
    return CreateRequest(path, data, OPEN_ACL, CreateMode.PERSISTENT.value)


def digests(world: World) -> set[tuple[int, int, int]]:
    return {
        (n.member.tree.last_zxid, n.member.tree.digest, n.member.tree.state_digest)
        for n in world.up()
        if n.member.tree is not None
    }


def test_new_ensemble__elects_a_leader_and_all_serve() -> None:
    world = started()
    roles = sorted(node.member.role.value for node in world.up())
    assert roles == ["following", "following", "leading"]
    assert world.leader().member.ensemble is not None  # type: ignore[union-attr]


def test_write_through_every_server__all_trees_are_equal() -> None:
    world = started()
    for number, node in enumerate(world.up()):
        client = NodeClient(node)
        client.take()
        assert client.ask(1, OpCode.CREATE, create(f"/a{number}", b"x")) == [(1, 0)]
        assert client.ask(2, OpCode.SET_DATA, SetDataRequest(f"/a{number}", b"y", -1)) == [(2, 0)]
    assert len(digests(world)) == 1


def test_leader_dies__the_others_go_on_and_it_comes_back_by_diff() -> None:
    world = started()
    old = world.leader()
    assert old is not None
    client = NodeClient(old)
    client.take()
    client.ask(1, OpCode.CREATE, create("/a"))
    old.stop()
    world.until(lambda: world.leader() is not None and world.all_serve(), "a new leader")
    other = NodeClient(world.up()[0])
    other.take()
    assert other.ask(1, OpCode.CREATE, create("/b")) == [(1, 0)]
    old.start()
    world.until(world.all_serve, "it is back")
    assert len(digests(world)) == 1
    assert old.member.role is Role.FOLLOWING


def test_wiped_follower__learns_without_a_voice_and_is_whole_again() -> None:
    world = started()
    leader = world.leader()
    assert leader is not None
    client = NodeClient(leader)
    client.take()
    for number in range(20):
        client.ask(number, OpCode.CREATE, create(f"/a{number}"))
    wiped = next(node for node in world.up() if node is not leader)
    wiped.stop()
    wiped.disk = type(wiped.disk)()
    wiped.start()
    assert wiped.member.standing is Standing.EMPTY
    world.until(world.all_serve, "it is back")
    assert len(digests(world)) == 1
    assert "whole-again" in {note.name for note in wiped.notes}


def test_minority_of_a_wiped_majority__never_serves() -> None:
    world = started()
    leader = world.leader()
    assert leader is not None
    for node in world.up():
        node.stop()
        if node is not leader:
            node.disk = type(node.disk)()
    for node in world.nodes.values():
        node.start()
    world.drain()
    for _ in range(400):
        world.advance()
    assert not any(node.is_serving for node in world.up())
