"""Changes of the membership: what is agreed on, what may be, and what a restart knows of it."""

from __future__ import annotations

from dataclasses import replace

from keepfast.storage import load_manifest
from keepfast.wire import OpCode, ReconfigRequest, ServerId
from tests.replica.ensemble import OPTIONS, Node, World
from tests.replica.test_member import NodeClient, create, digests

DYNAMIC = replace(OPTIONS, is_reconfig_enabled=True)


def started(count: int = 4) -> World:
    """An ensemble whose members may be changed, and whose servers all serve."""
    world = World(count, DYNAMIC)
    for node in world.nodes.values():
        node.start()
    world.until(world.all_serve, "all serve")
    return world


def lead(world: World) -> Node:
    leader = world.leader()
    assert leader is not None
    return leader


def ask_to_leave(client: NodeClient, server_id: int) -> list[tuple[int, int]]:
    return client.ask(9, OpCode.RECONFIG, ReconfigRequest(None, str(server_id), None, -1))


def members_of(node: Node) -> set[int]:
    return {spec.server_id for spec in node.member.quorums.current.members}


def test_change_that_is_agreed_on__survives_the_restart_of_all_with_the_old_file() -> None:
    world = started()
    leader = lead(world)
    gone = next(node for node in world.up() if node is not leader)
    client = NodeClient(leader)
    client.take()
    assert ask_to_leave(client, gone.server_id) == [(9, 0)]
    gone.stop()
    others = world.up()
    version = leader.member.quorums.current.version
    assert version > 0
    for node in others:
        node.stop()
    for node in others:
        node.start()
        assert node.member.quorums.current.version == version
        assert node.member.quorums.next is None
        assert gone.server_id not in members_of(node)
    world.until(world.all_serve, "all serve")
    assert len(digests(world)) == 1


def test_change_that_nobody_heard_of__decides_nothing_and_is_taken_back() -> None:
    world = started()
    leader = lead(world)
    others = [node for node in world.up() if node is not leader]
    client = NodeClient(leader)
    client.take()
    assert client.ask(1, OpCode.CREATE, create("/a")) == [(1, 0)]
    before = leader.member.quorums.current
    for node in others:
        node.stop()
    assert ask_to_leave(client, others[0].server_id) == []
    head = leader.store.head
    leader.stop()
    # It has the change in its log, and tells the others only what it knows to be agreed on.
    leader.start()
    assert leader.store.head == head
    assert leader.member.quorums.current.version == before.version
    pending = leader.member.quorums.next
    assert pending is not None
    assert pending.version == head
    leader.stop()
    for node in others:
        node.start()
    world.until(lambda: world.leader() is not None and world.all_serve(), "the others go on")
    other = NodeClient(lead(world))
    other.take()
    assert other.ask(1, OpCode.CREATE, create("/b")) == [(1, 0)]
    leader.start()
    world.until(world.all_serve, "it follows")
    for node in world.up():
        assert members_of(node) == {1, 2, 3, 4}
        assert node.member.quorums.next is None
    assert len(digests(world)) == 1


def test_change_in_the_log_of_a_leader__needs_the_server_that_is_to_vote() -> None:
    """With three of four voters wanted, two and the one that came as an observer are enough."""
    world = started(4)
    leader = lead(world)
    client = NodeClient(leader)
    client.take()
    joining = next(node for node in world.up() if node is not leader)
    line = leader.member.quorums.current.find(joining.server_id)
    assert line is not None
    assert ask_to_leave(client, joining.server_id) == [(9, 0)]
    world.until(world.all_serve, "it observes")
    text = f"server.{joining.server_id}={line.text()};0.0.0.0:2181"
    observer = client.ask(
        10,
        OpCode.RECONFIG,
        ReconfigRequest(text.replace("participant", "observer"), None, None, -1),
    )
    assert observer == [(10, 0)]
    world.until(world.all_serve, "it is a member again")
    voters = [node for node in world.up() if node is not joining]
    absent = next(node for node in voters if node is not leader)
    follower = next(node for node in voters if node not in (leader, absent))
    # Both hear of the change, one of them dies with it, and nobody is told that it is agreed on.
    client.send(11, OpCode.RECONFIG, ReconfigRequest(text, None, None, -1))
    leader.run(lambda node: node.member.propose_new())
    leader.store.sync()
    leader.stop()
    absent.stop()
    joining.stop()
    leader.start()
    joining.start()
    assert leader.member.quorums.next is not None
    assert joining.member.quorums.next is None
    world.until(lambda: world.leader() is not None and world.all_serve(), "two and the new one")
    assert ServerId(joining.server_id) in lead(world).member.quorums.current.voters
    assert {node.server_id for node in world.up()} == {
        leader.server_id,
        follower.server_id,
        joining.server_id,
    }


def test_manifest__knows_what_was_agreed_on() -> None:
    world = started()
    leader = lead(world)
    manifest = load_manifest(leader.disk, leader.store.directory)
    assert manifest is not None
    assert manifest.membership == leader.member.quorums.current.text()
