"""A simulated process that is a member of an ensemble: votes, links to peers, disk orders."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from keepfast.quorum import (
    Dial,
    DiskOrder,
    Hangup,
    InitialiseStore,
    InstallTree,
    Link,
    Note,
    Notify,
    PrepareTree,
    RecordStream,
    StoreEpochs,
    StoreMembership,
    TreeStream,
    TruncateLog,
    UseMembership,
)
from keepfast.replica import Member, Replica, Role, StoreFacts
from keepfast.sim.agenda import MS, Appointment
from keepfast.sim.network import Endpoint, Stream
from keepfast.sim.process import Process
from keepfast.storage import (
    Recovery,
    Store,
    carry_out,
    fitting_snapshot,
    record_packets,
    tree_packets,
)
from keepfast.tree import Tree
from keepfast.wire import (
    DiskFailed,
    PacketParser,
    PacketType,
    QuorumPacket,
    ServerId,
    StorageError,
    Zxid,
    make_zxid,
)

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.world import World

# Type and zxid of a packet without data and ids, which takes 8 more bytes.
_SHORT_PACKET: Final = Struct(">iq")


class PeerEnd:
    """One end of a connection between a learner and its leader."""

    __slots__ = ("link", "process", "side", "stream")

    def __init__(self, process: MemberProcess, stream: Stream, side: int, link: Link) -> None:
        self.process = process
        self.stream = stream
        self.side = side
        self.link = link

    @property
    def peer(self) -> ServerId:
        """Who is at the other end."""
        return ServerId(self.stream.places[1 - self.side])

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.member.receive_packets(self.link, data))

    def on_lost(self) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.link_lost(self))


class MemberProcess(Process):
    """See the module."""

    member: Member

    def __init__(self, host: Host, world: World, store: Store, recovery: Recovery) -> None:
        super().__init__(host, world, store, recovery)
        self.last_votes: dict[ServerId, bytes] = {}
        self._links: dict[Link, PeerEnd] = {}
        self._alarm: Appointment | None = None
        self._alarm_ms: int | None = None
        self._role = Role.SETTLING
        self._performers.update(
            {
                Notify: self._notify,
                Dial: self._dial,
                Hangup: self._hang_up,
                Note: self._note,
                UseMembership: self._use_membership,
                PrepareTree: self._prepare_tree,
                StoreEpochs: self._order,
                StoreMembership: self._order,
                TruncateLog: self._order,
                InstallTree: self._order,
                InitialiseStore: self._order,
            }
        )

    def make_member(self, recovery: Recovery) -> Member:
        """See Process."""
        world, host, store = self.world, self.host, self.store
        facts = StoreFacts(
            recovery.standing,
            recovery.tree,
            store.head,
            recovery.epochs.accepted,
            recovery.epochs.current,
            recovery.manifest.ensemble,
            recovery.manifest.membership,
            lambda: store.history,
        )
        replica = Replica(
            None, world.replica_options(self.server_id), world.agenda.now_ms, host.wall_ms
        )
        return Member(replica, world.membership, world.quorum_options, facts, self._new_ensemble)

    def _new_ensemble(self) -> str:
        return f"{self._rng.getrandbits(128):032x}"

    @property
    def is_serving(self) -> bool:
        """See Process."""
        replica = self.member.replica
        return replica.proposer is not None or replica.forwarder is not None

    # -- effects ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """See Process."""
        member = self.member
        member.propose_new()
        while not self.is_over:
            records = member.take_appends()
            for record in records:
                self._append(record)
            effects = list(member.effects)
            member.effects.clear()
            for effect in effects:
                if self.is_over:
                    return
                self._performers[type(effect)](effect)
            self._send_all()
            if not member.effects and not member.replica.appends:
                break
        if self.is_over:
            return
        if member.role is not self._role:
            self._role = member.role
            self.world.trace.add(self.who, "is %s", member.role.value)
        self._finish_flush()
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline_ms = self.member.deadline_ms
        if deadline_ms == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_ms = deadline_ms
        if deadline_ms is not None:
            self._alarm = self.world.agenda.at(deadline_ms * MS, lambda: self.run(self._alarmed))

    def _alarmed(self) -> None:
        self._alarm = self._alarm_ms = None
        self.member.tick()

    def _notify(self, effect: Notify) -> None:
        vote = effect.notification
        self.world.trace.add(
            self.who,
            "votes to s%d: state %d, leader %d, %#x, round %d, epoch %s",
            effect.server_id,
            vote.state,
            vote.leader,
            vote.zxid,
            vote.election_epoch,
            vote.peer_epoch,
        )
        self.world.election_links.send(self, effect.server_id, vote)

    def _note(self, effect: Note) -> None:
        notes = self.world.notes
        notes[effect.name] = notes.get(effect.name, 0) + 1
        self.world.trace.add(self.who, "notes %s", effect)

    def _use_membership(self, effect: UseMembership) -> None:
        current, proposed = effect.quorums.current, effect.quorums.next
        self.world.trace.add(self.who, "knows the members as of %#x", current.version)
        if proposed is not None:
            self.world.trace.add(self.who, "lets those of %#x decide as well", proposed.version)

    # -- the disk --------------------------------------------------------------------------------

    def _order(self, order: DiskOrder) -> None:
        self.world.trace.add(self.who, "orders %s", _words(order))
        if isinstance(order, StoreEpochs):
            shadow = self.world.checkers.ledger.shadow_of(self.server_id)
            shadow.agreeing = shadow.head
        self.disk.order(lambda: self._carry_out(order), lambda result: self._done(order, result))

    def _carry_out(self, order: DiskOrder) -> Tree | None:
        self.world.reached(f"disk {type(order).__name__}", self, None)
        checkers, server = self.world.checkers, self.server_id
        shadow = checkers.ledger.shadow_of(server)
        target: Zxid | None = None
        if isinstance(order, TruncateLog):
            target = order.zxid
        elif isinstance(order, InstallTree):
            target = order.tree.last_zxid
        if target is not None:
            # From here on a crash may leave either history: the old one is no longer vouched for.
            shadow.vouched = min(shadow.vouched, target)
        shadow.is_installing = isinstance(order, InstallTree)
        tree = carry_out(self.store, order)
        shadow.is_installing = False
        if isinstance(order, TruncateLog):
            shadow.cut(order.zxid)
            shadow.durable = order.zxid
        elif isinstance(order, InstallTree):
            checkers.given_tree(server, order.tree.last_zxid, order.lacks)
        elif isinstance(order, StoreEpochs):
            checkers.caught_up(server)
        elif isinstance(order, InitialiseStore):
            checkers.begun(server)
        return tree

    def _done(self, order: DiskOrder, result: Tree | StorageError | None) -> None:
        if isinstance(result, DiskFailed):
            raise result
        if isinstance(result, StorageError):
            self.world.trace.add(self.who, "cannot: %s", result)
            self.member.disk_refused(order, result)
            return
        self.world.trace.add(self.who, "has done %s", type(order).__name__)
        leader = self.member.leader
        if leader is not None and isinstance(order, StoreEpochs) and order.current == leader.epoch:
            self.world.vouched(self, make_zxid(order.current, 0))
        self.member.disk_done(order, result)

    def _vouch_for_log(self, zxid: Zxid) -> None:
        if self.member.leader is not None:
            self.world.vouched(self, zxid)

    # -- links -----------------------------------------------------------------------------------

    def _dial(self, effect: Dial) -> None:
        target = effect.server_id
        self.world.trace.add(self.who, "dials s%d", target)
        self.world.network.dial(
            self.server_id,
            target,
            lambda stream: self.world.accept_peer(target, stream),
            self._dialled,
        )

    def accept_peer(self, stream: Stream) -> Endpoint | None:
        """A learner has dialled."""
        if self.is_over:
            return None
        end = PeerEnd(self, stream, 1, Link(stream.number))
        self._links[end.link] = end
        # Not before the stream knows its end: it may be closed at once.
        self.world.agenda.after(0, lambda: self.run(lambda: self.member.link_accepted(end.link)))
        return end

    def _dialled(self, stream: Stream | None) -> Endpoint | None:
        if self.is_over:
            return None
        if stream is None:
            self.run(self.member.dial_failed)
            return None
        end = PeerEnd(self, stream, 0, Link(stream.number))
        self._links[end.link] = end
        # The stream has to know its end: what the member sends at once must not be lost.
        stream.ends[0] = end
        self.run(lambda: self.member.link_dialled(end.link))
        return stream.ends[0]

    def link_lost(self, end: PeerEnd) -> None:
        """A connection is gone."""
        if self._links.pop(end.link, None) is not None:
            self.world.trace.add(self.who, "lost its link with s%d", end.peer)
        self.member.link_lost(end.link)

    def _hang_up(self, effect: Hangup) -> None:
        end = self._links.pop(effect.link, None)
        if end is not None:
            self.world.trace.add(self.who, "hangs up on s%d: %s", end.peer, effect.reason)
            end.stream.close(end.side)

    def _send_all(self) -> None:
        dirty = self.member.dirty_links
        for link in sorted(dirty, key=lambda link: link.number):
            items = list(link.out)
            link.out.clear()
            end = self._links.get(link)
            if end is None:
                continue
            try:
                for item in items:
                    self._send(end, item)
            except DiskFailed:
                raise
            except StorageError as error:
                self.world.trace.add(self.who, "cannot serve s%d: %s", end.peer, error)
                self._links.pop(link, None)
                end.stream.close(end.side)
                self._lose_later(end)
            if self.is_over:
                return
        dirty.clear()

    def _lose_later(self, end: PeerEnd) -> None:
        """Tell the member of a link that was closed here; not while it is being asked."""
        self.world.agenda.after(0, lambda: self.run(lambda: self.member.link_lost(end.link)))

    def _send(self, end: PeerEnd, item: bytes | RecordStream | TreeStream) -> None:
        if isinstance(item, bytes):
            self._send_packets(end, item)
            return
        for piece in self._pieces(item):
            self.world.trace.add(self.who, "streams %d bytes to s%d", len(piece), end.peer)
            end.stream.send(end.side, piece)

    def _prepare_tree(self, _effect: PrepareTree) -> None:
        """Nothing: a learner whose tree is not there yet comes again."""

    def _pieces(self, item: RecordStream | TreeStream) -> Iterator[bytes]:
        history = self.store.history
        if isinstance(item, RecordStream):
            return record_packets(history, item)
        entry = fitting_snapshot(history, item.up_to)
        if entry is None:
            self.snapshots.begin(self.member.replica.tree)
            raise StorageError("no snapshot to send yet")
        return tree_packets(history, entry, item)

    def _send_packets(self, end: PeerEnd, data: bytes) -> None:
        world = self.world
        for packet in _packets(data):
            name = PacketType(packet.type).name
            if packet.type != PacketType.PING:
                world.trace.add(self.who, "sends %s %#x to s%d", name, packet.zxid, end.peer)
            world.reached(f"send {name}", self, end)
            if self.is_over:
                return
            if packet.type == PacketType.ACK and end.side == 0:
                world.vouched(self, packet.zxid)
        end.stream.send(end.side, data)


def _packets(data: bytes) -> list[QuorumPacket]:
    """The packets in what is sent at once; most are a type and a zxid."""
    if len(data) == _SHORT_PACKET.size + 8:
        return [QuorumPacket(*_SHORT_PACKET.unpack_from(data))]
    return PacketParser().feed(data)


def _words(order: DiskOrder) -> str:
    if isinstance(order, StoreEpochs):
        return f"epochs {order.accepted}, {order.current}"
    if isinstance(order, StoreMembership):
        return "the members"
    if isinstance(order, TruncateLog):
        return f"a cut behind {order.zxid:#x}"
    if isinstance(order, InstallTree):
        return f"the tree of {order.tree.last_zxid:#x}"
    return "a new history"


def role_of(process: Any) -> str:
    """What a process is doing, for people."""
    return "alone" if not isinstance(process, MemberProcess) else process.member.role.value
