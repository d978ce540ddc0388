"""The one loop of a server, in the real world and in a simulated one.

    event of the world  ->  core (decides)  ->  end_turn: one ordered batch  ->  perform, in order

Events come from clients, peers, the disk and the timer. Those of clients are gathered: the clock is
read once per turn of the world's own loop, and the resulting effects are performed at its end, so
that a client that waits for several replies is woken once, and the writes of all clients share an
fsync. All other events end their turn immediately.

Performing decides nothing: the outcome of an effect (a durable record, a link, a finished disk
order) comes back as a separate event. An exception anywhere ends the server (guard.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from keepfast.driver.disk_worker import DiskWorker
from keepfast.driver.guard import Guard
from keepfast.driver.learner_reader import LearnerReader
from keepfast.driver.peer_streams import PeerSender, StreamSource
from keepfast.driver.server_statistics import ServerStatistics
from keepfast.driver.server_world import ServerWorld, Timer
from keepfast.driver.snapshot_taker import SnapshotTaker
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
    StoreEpochs,
    StoreMembership,
    StoreSecret,
    TruncateLog,
    UseMembership,
    note,
)
from keepfast.replica import (
    AbortClients,
    AppendTxns,
    CheckProofs,
    CloseClients,
    Connection,
    ContinueRequests,
    ContinueWork,
    Group,
    Member,
    PauseReads,
    Proof,
    ResumeReads,
    SendToClients,
    SendToPeers,
    ServerCore,
    TakeSnapshot,
    TurnEffect,
    WriteAudit,
    answer_single,
)
from keepfast.storage import Store, carry_out
from keepfast.tree import Tree
from keepfast.wire import Notification, ServerId, StorageError, Zxid

_ORDERS: Final = (
    StoreEpochs,
    StoreMembership,
    StoreSecret,
    TruncateLog,
    InstallTree,
    InitialiseStore,
)
_NEVER: Final = -1.0
_NS_OF_MS: Final = 1_000_000
# A deadline that has passed is not waited for, but others run before it is looked at again.
_MIN_DELAY_SECONDS: Final = 0.001
# Clients that are forgotten in one turn, about a millisecond.
_LOST_AT_ONCE: Final = 100


class ServerLoop:
    """Passes events to a core and performs its effects; all calls come from the world."""

    def __init__(
        self,
        core: ServerCore,
        store: Store,
        world: ServerWorld,
        statistics: ServerStatistics,
        retain_snapshots: int = 0,
    ) -> None:
        """`retain_snapshots`: how many a purge keeps; 0: nothing is ever purged."""
        self.core = core
        self.guard = Guard(world, statistics.turns)
        self.disk = DiskWorker(store, world, self.guard, self._log_durable, statistics)
        self._retain = retain_snapshots
        self.snapshots = SnapshotTaker(
            self.disk, world, self.guard, statistics, self.purge if retain_snapshots else None
        )
        self._world = world
        self._replica = core.replica
        self._service = core.replica.service
        self._service.is_writable = self.disk.has_space
        self._is_full_noted = False
        self._source = StreamSource(store, self.snapshots)
        self._senders: dict[Link, PeerSender] = {}
        self._readers: dict[Link, LearnerReader] = {}
        self._timer: Timer | None = None
        self._wakes_at = 0.0
        # The turn in which clients are heard: whether its end is still to come, when it began.
        self._is_in_turn = False
        self._turn_time = _NEVER
        self._turn_ns = 0
        self._turn_reads = 0
        # Clients that are gone and not forgotten yet.
        self._lost: deque[Connection] = deque()
        # Clients whose requests continue when others have had their turn.
        self._continuing: set[Connection] = set()
        self._is_forgetting = False
        self._look = world.turn_time
        self._performers: dict[type, Callable[[Any], None]] = {
            Note: world.note,
            Notify: lambda e: world.notify(e.server_id, e.notification),
            Dial: lambda e: world.dial(e.server_id),
            Hangup: self._hang_up,
            UseMembership: lambda e: world.use_members(e.quorums),
            PrepareTree: lambda e: self._source.prepare(core.tree, e),
            SendToPeers: self._send_to_peers,
            AppendTxns: self._append,
            SendToClients: self._send_to_clients,
            AbortClients: self._abort_clients,
            CloseClients: self._close_clients,
            PauseReads: self._pause_reads,
            ResumeReads: self._resume_reads,
            ContinueRequests: self._continue_requests,
            ContinueWork: lambda _: self.guard.after_others(self._continue_work),
            CheckProofs: self._check_proofs,
            TakeSnapshot: lambda e: self.snapshots.begin(e.tree),
            WriteAudit: lambda e: world.audit(e.records),
        }
        self._performers.update((order, self.order) for order in _ORDERS)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; called once."""
        self.run(self.core.start)
        self.run(self._tick)
        self._arm()

    def stop(self) -> None:
        """Handle nothing more; the disk may still be in a call."""
        self.guard.is_over = True
        self.core.replica.finish_audit()
        if self._service.audits:
            self._world.audit(self._service.take_audits())
        self._turn_time = _NEVER
        if self._timer is not None:
            self._timer.cancel()
        for sender in self._senders.values():
            sender.close()

    def run(self, event: Callable[[], object]) -> None:
        """Pass an event in and perform the resulting effects."""
        self.guard.run(lambda: self._pass_in(event))

    def _pass_in(self, event: Callable[[], object]) -> None:
        self.core.set_clock(self._look(), self._world.wall_ms())
        event()
        self.end_turn()

    def end_turn(self) -> None:
        """Perform what the events since the last turn lead to."""
        batch = self.core.end_turn()
        if batch:
            self.perform(batch)
        if self.core.deadline < self._wakes_at:
            self._arm()

    def _arm(self) -> None:
        """Be woken when the core wants to."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._look()
        delay = max(self.core.deadline - now, _MIN_DELAY_SECONDS)
        self._wakes_at = now + delay
        self._timer = self.guard.later(delay, self._wake)

    def _wake(self) -> None:
        self.run(self._on_time)
        if not self.guard.is_over:
            self._arm()

    def _on_time(self) -> None:
        if self.core.is_tick_due:
            self._tick()

    def _tick(self) -> None:
        self.look_for_space()
        self.core.tick()
        self.disk.confirm()

    def look_for_space(self) -> None:
        """Ask the disk whether writes are taken."""
        self.disk.look_for_space()
        self._service.is_writable = self.disk.has_space
        if self._is_full_noted == self.disk.has_space:
            self._is_full_noted = not self.disk.has_space
            self._world.note(note("disk-full" if self._is_full_noted else "disk-has-space"))

    # -- clients ---------------------------------------------------------------------------------

    def connect(self, address: str, port: int, subject: str | None = None) -> Connection | None:
        """A client has connected, maybe with a certificate for this subject; None: turn it away."""
        self.core.set_clock(self._look(), self._world.wall_ms())
        return self._replica.connect(address, port, subject)

    def client_bytes(self, connection: Connection, data: bytes) -> bytes | None:
        """Bytes of a client; returns a reply to be sent to it at once, where there is one."""
        try:
            # Most clients wait for each reply: one that asks in the same millisecond as the last
            # turn began is answered without a turn of its own.
            if self._turn_time == self._look() and not connection.out:
                reply = answer_single(self._service, connection, data)
                if reply is not None:
                    size = len(reply)
                    statistics = self._service.statistics
                    statistics.bytes_sent += size
                    if size != statistics.last_group_bytes:
                        statistics.note_frames([reply], size)
                    return reply
            if not self._is_in_turn:
                self._begin_client_turn()
            if not self.guard.is_over:
                self.core.receive(connection, data)
        except Exception as error:  # noqa: BLE001 - the outermost loop
            self.guard.fail(error)
        return None

    def client_full(self, connection: Connection) -> None:
        """What was sent to a client waits; it has to take some of it before it gets more."""
        self._in_client_turn(lambda: self.core.client_full(connection))

    def client_drained(self, connection: Connection) -> None:
        """A client has taken what waited for it."""
        self.run(lambda: self.core.client_drained(connection))

    def client_lost(self, connection: Connection) -> None:
        """A client's connection is gone."""
        if not self._is_in_turn:
            self._begin_client_turn()
        self._lost.append(connection)

    def _in_client_turn(self, event: Callable[[], None]) -> None:
        if not self._is_in_turn:
            self._begin_client_turn()
        self.guard.run(event)

    def _begin_client_turn(self) -> None:
        if self.guard.is_over:
            return
        self._is_in_turn = True
        self._turn_time = self._look()
        self._turn_ns = self._world.now_ns()
        self._turn_reads = self._service.statistics.reads
        self.core.set_clock(self._turn_time, self._world.wall_ms())
        # Comes when all that the sockets had was read.
        self.guard.soon(self._end_client_turn)

    def _end_client_turn(self) -> None:
        self._is_in_turn = False
        self.guard.began(self._turn_ns)
        statistics = self._service.statistics
        spent_ns = self._world.now_ns() - self._turn_ns
        reads = statistics.reads - self._turn_reads
        if spent_ns > _NS_OF_MS and reads > 0:
            statistics.note_slow_turn(reads, spent_ns // _NS_OF_MS)
        self.core.now = self._look()
        self._forget_lost()
        self.end_turn()

    def _forget_lost(self) -> None:
        """Clean up after clients that are gone; thousands of them may go at once."""
        lost = self._lost
        for _ in range(min(len(lost), _LOST_AT_ONCE)):
            connection = lost.popleft()
            self.core.client_lost(connection)
            self._world.release_client(connection)
        if lost and not self._is_forgetting:
            self._is_forgetting = True
            self.guard.after_others(self._forget_more)

    def _forget_more(self) -> None:
        self._is_forgetting = False
        self._pass_in(self._forget_lost)

    # -- peers -----------------------------------------------------------------------------------

    def notification(self, sender: ServerId, vote: Notification) -> None:
        """A vote of a peer."""
        member = self.core.member
        if member is not None:
            self.run(lambda: member.on_notification(sender, vote))

    def peer_linked(self, peer: ServerId) -> None:
        """A new election connection with a peer is there."""
        member = self.core.member
        if member is not None:
            self.run(lambda: member.on_peer_linked(peer))

    def link_accepted(self, link: Link) -> None:
        """A learner has connected to our quorum port."""
        member = self.core.member
        if member is not None:
            self._new_sender(link, member)
            turn_bytes = member.state.options.learner_turn_bytes
            self._readers[link] = LearnerReader(
                link, self._world, self.guard, self._receive_packets, turn_bytes
            )
            self.run(lambda: member.link_accepted(link))

    def link_dialled(self, link: Link) -> None:
        """The leader's quorum port was reached."""
        member = self.core.member
        if member is not None:
            self._new_sender(link, member)
            self.run(lambda: member.link_dialled(link))

    def dial_failed(self) -> None:
        """The leader's quorum port was not reached."""
        if self.core.member is not None:
            self.run(self.core.member.dial_failed)

    def link_bytes(self, link: Link, data: bytes) -> None:
        """Bytes of a peer; those of a learner are handled a piece in each turn."""
        reader = self._readers.get(link)
        if reader is None or reader.is_small(data):
            self._receive_packets(link, data)
        else:
            self.guard.run(lambda: reader.take(data))

    def _receive_packets(self, link: Link, data: bytes) -> None:
        member = self.core.member
        if member is not None:
            self.run(lambda: member.receive_packets(link, data))

    def link_drained(self, link: Link) -> None:
        """A peer has taken most of what was sent to it."""
        sender = self._senders.get(link)
        if sender is not None:
            self.guard.run(sender.drained)

    def link_lost(self, link: Link) -> None:
        """A link is gone."""
        sender = self._end_link(link)
        member = self.core.member
        if sender is not None and member is not None:
            self.run(lambda: member.link_lost(link))

    def _end_link(self, link: Link) -> PeerSender | None:
        """Neither read from a link nor send to it any more."""
        sender, reader = self._senders.pop(link, None), self._readers.pop(link, None)
        if sender is not None:
            sender.close()
        if reader is not None:
            reader.close()
        return sender

    def _new_sender(self, link: Link, member: Member) -> None:
        max_unsent_bytes = member.state.options.max_unsent_bytes
        self._senders[link] = PeerSender(
            link, self._world, self.guard, self._source, self._stream_failed, max_unsent_bytes
        )

    def _stream_failed(self, link: Link, reason: object) -> None:
        """A peer cannot be sent what it was to be sent."""
        self._world.note(note("stream-failed", link=link.number, reason=reason))
        self._world.hang_up(link, "it cannot be sent what it was to be sent")
        self.guard.soon(lambda: self.link_lost(link))

    # -- the disk --------------------------------------------------------------------------------

    def _log_durable(self, zxid: Zxid, group: Group, fsync_seconds: float) -> None:
        self.run(lambda: self.log_durable(zxid, group, fsync_seconds))

    def log_durable(self, zxid: Zxid, group: Group, fsync_seconds: float) -> None:
        """Records up to `zxid` are on disk."""
        self.core.log_durable(zxid, group, fsync_seconds)

    def carry_out(self, order: DiskOrder) -> Tree | None:
        """Have the store carry out an order; called on the disk thread."""
        if isinstance(order, StoreSecret):
            self._world.store_secret(order.secret)
            return None
        return carry_out(self.disk.store, order)

    def purge(self) -> tuple[str, ...]:
        """Delete what no kept recovery path needs; called on the disk thread."""
        return self.purge_to(self._retain)

    def purge_to(self, retain: int) -> tuple[str, ...]:
        """As `purge`, and keep this many snapshots."""
        # Not when the snapshot was begun: the server may have been fenced since.
        return self.disk.store.purge(retain) if self.core.may_purge else ()

    def order(self, order: DiskOrder) -> None:
        """Have the disk thread carry out an order after all records before it."""
        self.disk.order(
            lambda: self.carry_out(order), lambda result: self.order_ended(order, result)
        )

    def order_ended(self, order: DiskOrder, result: Tree | StorageError | None) -> None:
        """An order was carried out, or the disk could not and left everything as it was."""
        member = self.core.member
        if member is None:
            return
        if isinstance(result, StorageError):
            refusal = result
            self.run(lambda: member.disk_refused(order, refusal))
        else:
            tree = result
            self._world.order_done(order)
            self.run(lambda: member.disk_done(order, tree))

    # -- effects ---------------------------------------------------------------------------------

    def perform(self, batch: list[TurnEffect]) -> None:
        """Perform effects, in their order."""
        performers, guard = self._performers, self.guard
        for effect in batch:
            if guard.is_over:
                return
            performers[type(effect)](effect)

    def _send_to_peers(self, effect: SendToPeers) -> None:
        for link in effect.links:
            out, link.out = link.out, []
            sender = self._senders.get(link)
            if sender is not None:
                sender.send(out)

    def _hang_up(self, effect: Hangup) -> None:
        self._end_link(effect.link)
        self._world.hang_up(effect.link, effect.reason)

    def _append(self, effect: AppendTxns) -> None:
        self._world.logging(effect.records)
        if not self.guard.is_over:
            self.disk.append(effect.records, effect.group)

    def _send_to_clients(self, effect: SendToClients) -> None:
        statistics, send = self._service.statistics, self._world.send_client
        for connection in effect.connections:
            out = connection.out
            if not out:
                continue
            data = out[0] if len(out) == 1 else b"".join(out)
            send(connection, data)
            if connection.is_full:
                self._report_unsent(connection, max(map(len, out)))
            elif connection.is_stalled:
                # The network is faster than the requests; others have their turn first.
                self._continue_later(connection)
            size = len(data)
            statistics.bytes_sent += size
            if size != statistics.last_group_bytes:
                statistics.note_frames(out, size)
            out.clear()

    def _continue_later(self, connection: Connection) -> None:
        # Once: a request that takes several turns and has something to be sent comes here twice in
        # each of them, and would soon leave no turn to others.
        if connection not in self._continuing:
            self._continuing.add(connection)
            self._world.call_soon(partial(self._continue, connection))

    def _continue(self, connection: Connection) -> None:
        self._continuing.discard(connection)
        if not connection.is_full:
            self.client_drained(connection)

    def _report_unsent(self, connection: Connection, largest_reply: int) -> None:
        waiting_bytes = self._world.unsent_bytes(connection)
        self._in_client_turn(
            lambda: self.core.client_unsent(connection, waiting_bytes, largest_reply)
        )

    def _abort_clients(self, effect: AbortClients) -> None:
        for connection in effect.connections:
            self._world.abort_client(connection)

    def _close_clients(self, effect: CloseClients) -> None:
        for connection in effect.connections:
            self._world.close_client(connection)

    def _continue_requests(self, effect: ContinueRequests) -> None:
        for connection in effect.connections:
            self._continue_later(connection)

    def _continue_work(self) -> None:
        self._pass_in(self.core.continue_work)

    def _check_proofs(self, effect: CheckProofs) -> None:
        for proof in effect.proofs:
            self._world.aside(proof.check, partial(self._proved, proof))

    def _proved(self, proof: Proof) -> None:
        self.run(lambda: self.core.proved(proof))

    def _pause_reads(self, effect: PauseReads) -> None:
        for connection in effect.connections:
            self._world.pause_client(connection)

    def _resume_reads(self, effect: ResumeReads) -> None:
        for connection in effect.connections:
            self._world.resume_client(connection)
