"""Members of an ensemble: from the first election to catching up, on memory disks."""

from __future__ import annotations

from dataclasses import replace

from keepfast.quorum import Standing
from keepfast.replica import Role
from keepfast.wire import (
    OPEN_ACL,
    ConnectResponse,
    CreateMode,
    CreateRequest,
    ErrorCode,
    ExistsRequest,
    OpCode,
    ServerId,
    SetDataRequest,
    codec_of,
)
from tests.replica.ensemble import OPTIONS, Node, World
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
        self.node.run(lambda node: node.member.propose_new())
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


def test_leader_hands_over__the_successor_leads_and_nothing_is_lost() -> None:
    world = started()
    old = world.leader()
    assert old is not None
    client = NodeClient(old)
    client.take()
    client.ask(1, OpCode.CREATE, create("/a"))
    chosen: list[object] = []
    old.run(lambda node: chosen.append(node.member.hand_over()))
    world.until(lambda: world.leader() is not None and world.all_serve(), "a new leader")
    new = world.leader()
    assert new is not None
    assert new is not old
    assert [new.server_id] == chosen
    assert len(digests(world)) == 1


def test_leader_hands_over_under_load__when_the_successor_has_everything() -> None:
    world = started()
    old = world.leader()
    assert old is not None
    client = NodeClient(old)
    client.take()
    client.send(1, OpCode.CREATE, create("/a"))
    # Proposed, and acknowledged by nobody: the successor could not win against us.
    old.run(lambda node: node.member.propose_new())
    chosen: list[object] = []
    old.run(lambda node: chosen.append(node.member.hand_over()))
    assert old.member.role is Role.LEADING

    world.until(lambda: world.leader() not in (None, old) and world.all_serve(), "another leads")
    new = world.leader()
    assert new is not None
    assert [new.server_id] == chosen
    for node in world.nodes.values():
        assert node.member.replica.tree.find("/a") is not None
    assert len(digests(world)) == 1


def test_leader_without_space__lets_another_lead() -> None:
    world = started()
    old = world.leader()
    assert old is not None
    old.member.replica.is_writable = False
    world.until(lambda: world.leader() not in (None, old), "another leads")
    world.until(world.all_serve, "all serve")
    assert old.member.role is Role.FOLLOWING


def test_member_without_a_leader__serves_read_only_clients_if_that_is_on() -> None:
    world = World(3, replace(OPTIONS, is_read_only_enabled=True))
    for node in world.nodes.values():
        node.start()
    world.until(world.all_serve, "all serve")
    alone = world.nodes[ServerId(1)]
    for node in world.up():
        if node is not alone:
            node.stop()
    world.until(lambda: alone.member.replica.is_read_only, "it is read-only")
    refused = NodeClient(alone)
    assert not refused.connection.is_open
    client = NodeClient(alone, read_only=True)
    assert codec_of(ConnectResponse).decode(client.take()[0]).read_only
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, ErrorCode.NOT_READ_ONLY)]
    assert client.ask(2, OpCode.EXISTS, ExistsRequest("/", False)) == [(2, 0)]
