"""An ensemble without a driver: members on memory disks, packets and votes in queues.

Everything is delivered in order until nothing is left to do; then the clock may move. There is no
randomness: the simulator is the place for that.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

from keepfast.quorum import (
    Address,
    Dial,
    DiskOrder,
    Hangup,
    Link,
    Membership,
    MemberSpec,
    Note,
    Notify,
    QuorumOptions,
    RecordStream,
    TreeStream,
)
from keepfast.replica import Member, Replica, ReplicaOptions, Role, StoreFacts
from keepfast.storage import (
    DataDirectory,
    MemoryDisk,
    Store,
    StoreOptions,
    carry_out,
    fitting_snapshot,
    record_packets,
    tree_packets,
)
from keepfast.tree import PrepareOptions
from keepfast.wire import BrokenHistory, DiskFull, ServerId

START_MS = 1_000_000
OPTIONS = QuorumOptions(tick_ms=100)
STORE_OPTIONS = StoreOptions(grow_bytes=4096, segment_bytes=1 << 16, reserve_bytes=0)


def membership_of(count: int) -> Membership:
    """Members 1 to `count`, all of them voters."""
    return Membership(
        tuple(
            MemberSpec(
                ServerId(id),
                (Address("127.0.0.1", 2000 + id),),
                (Address("127.0.0.1", 3000 + id),),
            )
            for id in range(1, count + 1)
        )
    )


def _lose(link: Link, node: Node) -> None:
    node.member.link_lost(link)


def _deliver(link: Link, data: bytes, node: Node) -> None:
    node.member.receive_packets(link, data)


class Node:
    """One member and its disk."""

    def __init__(self, world: World, server_id: int, disk: MemoryDisk) -> None:
        self.world = world
        self.server_id = ServerId(server_id)
        self.disk = disk
        self.is_up = False
        self.notes: list[Note] = []
        self.ends: dict[Link, tuple[Node, Link]] = {}

    def start(self) -> None:
        """Start it on what its disk holds."""
        directory = DataDirectory("data/version-2", "data/version-2")
        store, recovery = Store.open(self.disk, directory, STORE_OPTIONS)
        self.store = store
        epochs = recovery.epochs
        facts = StoreFacts(
            recovery.standing,
            recovery.tree,
            recovery.head,
            epochs.accepted,
            epochs.current,
            store.manifest.ensemble,
            store.manifest.membership,
            lambda: store.history,
        )
        options = ReplicaOptions(
            server_id=self.server_id,
            tick_ms=100,
            min_session_timeout_ms=200,
            max_session_timeout_ms=60_000,
            prepare=PrepareOptions(is_acl_skipped=self.world.options.is_reconfig_enabled),
        )
        replica = Replica(None, options, self.world.now_ms, self.world.now_ms)
        identity = f"{self.server_id:032x}"
        self.member = Member(
            replica, self.world.membership, self.world.options, facts, lambda: identity
        )
        self.is_up = True
        for other in self.world.up():
            if other is not self:
                other.run(lambda node: node.member.on_peer_linked(self.server_id))
        self.run(lambda node: node.member.start())

    @property
    def is_serving(self) -> bool:
        return self.member.replica.is_serving

    def stop(self) -> None:
        """Cut its power: what was fsynced stays, of the rest some may."""
        self.is_up = False
        for link, (peer, far) in list(self.ends.items()):
            peer.ends.pop(far, None)
            self.world.later(peer, partial(_lose, far))
            self.ends.pop(link)
        self.disk = self.disk.crash(self.world.rng)

    def run(self, action: Callable[[Node], None]) -> None:
        """Give the member something, and do what it asks for."""
        self.member.tell_time(self.world.now_ms, self.world.now_ms)
        action(self)
        self.flush()

    def flush(self) -> None:
        member, world = self.member, self.world
        member.propose_new()
        records = member.take_appends()
        for record in records:
            self.store.append(*record)
        if records:
            world.later(self, lambda node: node.sync())
        effects = list(member.effects)
        member.effects.clear()
        for link in list(member.dirty_links):
            out, link.out = link.out, []
            for item in out:
                self.transmit(link, item)
        member.dirty_links.clear()
        for effect in effects:
            self.perform(effect)

    def perform(self, effect: object) -> None:
        world = self.world
        if isinstance(effect, Note):
            self.notes.append(effect)
        elif isinstance(effect, Notify):
            peer = world.nodes[effect.server_id]
            vote = effect.notification
            world.later(peer, lambda node: node.member.on_notification(self.server_id, vote))
        elif isinstance(effect, Dial):
            self.dial(world.nodes[effect.server_id])
        elif isinstance(effect, Hangup):
            self.hang_up(effect.link)
        elif isinstance(effect, DiskOrder):
            order = effect
            world.later(self, lambda node: node.carry_out(order))

    def sync(self) -> None:
        if self.store.durable != self.store.head:
            zxid = self.store.sync()
            self.member.log_durable(zxid)

    def carry_out(self, order: object) -> None:
        try:
            tree = carry_out(self.store, order)  # type: ignore[arg-type]
        except (BrokenHistory, DiskFull) as error:
            self.member.disk_refused(order, error)  # type: ignore[arg-type]
        else:
            self.member.disk_done(order, tree)  # type: ignore[arg-type]

    def dial(self, peer: Node) -> None:
        world = self.world
        if not peer.is_up or world.is_cut(self, peer):
            world.later(self, lambda node: node.member.dial_failed())
            return
        near, far = world.new_link(), world.new_link()
        self.ends[near] = (peer, far)
        peer.ends[far] = (self, near)
        world.later(peer, lambda node: node.member.link_accepted(far))
        world.later(self, lambda node: node.member.link_dialled(near))

    def hang_up(self, link: Link) -> None:
        end = self.ends.pop(link, None)
        if end is not None:
            peer, far = end
            peer.ends.pop(far, None)
            self.world.later(peer, lambda node: node.member.link_lost(far))

    def transmit(self, link: Link, item: bytes | RecordStream | TreeStream) -> None:
        end = self.ends.get(link)
        if end is None:
            return
        peer, far = end
        if isinstance(item, RecordStream):
            pieces = list(record_packets(self.store.history, item))
        elif isinstance(item, TreeStream):
            pieces = list(self.tree_packets(item))
        else:
            pieces = [item]
        for piece in pieces:
            self.world.later(peer, partial(_deliver, far, piece))

    def tree_packets(self, stream: TreeStream) -> list[bytes]:
        entry = fitting_snapshot(self.store.history, stream.up_to)
        if entry is None:
            tree = self.member.tree
            assert tree is not None
            writer = self.store.begin_snapshot(tree.freeze())
            while writer.step():
                pass
            entry = writer.complete()
            self.store.commit_snapshot(entry)
        return list(tree_packets(self.store.history, entry, stream))


class World:
    """A few nodes, one clock and one queue."""

    def __init__(self, count: int = 3, options: QuorumOptions = OPTIONS) -> None:
        self.options = options
        self.now_ms = START_MS
        self.membership = membership_of(count)
        self._queue: deque[tuple[Node, Member, Callable[[Node], None]]] = deque()
        self._links = 0
        self.rng = random.Random(1)
        self.cut: set[frozenset[ServerId]] = set()
        self.nodes = {ServerId(id): Node(self, id, MemoryDisk()) for id in range(1, count + 1)}

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    def is_cut(self, one: Node, other: Node) -> bool:
        return frozenset((one.server_id, other.server_id)) in self.cut

    def new_link(self) -> Link:
        self._links += 1
        return Link(self._links)

    def later(self, node: Node, action: Callable[[Node], None]) -> None:
        """Have something happen when its turn comes, unless the server died by then."""
        if node.is_up:
            self._queue.append((node, node.member, action))

    def drain(self) -> None:
        """Deliver everything that is under way."""
        for _ in range(200_000):
            if not self._queue:
                return
            node, member, action = self._queue.popleft()
            if node.is_up and node.member is member:
                node.run(action)
        raise AssertionError("it never comes to rest")

    def advance(self, ms: int = 50) -> None:
        """Let time pass, and deliver what that leads to."""
        self.now_ms += ms
        for node in self.up():
            node.run(lambda node: node.member.tick())
        self.drain()

    def until(self, condition: Callable[[], bool], why: str, limit_ms: int = 20_000) -> None:
        """Let time pass until something holds."""
        self.drain()
        stop = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < stop, f"never: {why}: {self.describe()}"
            self.advance()

    def describe(self) -> str:
        return "; ".join(
            f"{node.server_id} {node.member.role.value} {node.member.standing.value} "
            f"head {node.store.head:#x} notes {[str(n) for n in node.notes[-4:]]}"
            for node in self.up()
        )

    def leader(self) -> Node | None:
        """The one that serves as a leader."""
        found = [n for n in self.up() if n.member.role is Role.LEADING and n.is_serving]
        return found[0] if len(found) == 1 else None

    def all_serve(self) -> bool:
        """Whether every server that is up serves."""
        return all(node.is_serving for node in self.up())
