"""One running server program of a simulated world: the server's own loop, and the world around it.

What runs is what runs in production: `driver.ServerLoop` with its core, its store and its disk
thread. A process here is that loop's `ServerWorld`: a clock, timers, threads and connections of the
simulation. It ends by being killed, by a power loss, or by itself when its disk fails (R7); its
host starts the next one.

Time.  An event takes no time, except that a disk call on the loop holds it up: what comes
meanwhile waits. A call on another thread is done at some moment between its start and its end, so
that a crash may find its effect on the disk before it was reported, or not at all; a crash *inside*
a call is a `PowerLoss` that the disk raises.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from keepfast.driver import Failure, ServerStatistics, store_facts
from keepfast.quorum import DiskOrder, Link, Note, Quorums, SharedSecret
from keepfast.replica import (
    Append,
    AuditRecord,
    CadenceOptions,
    Connection,
    Member,
    Replica,
    ServerCore,
    SnapshotCadence,
    StoreFacts,
)
from keepfast.sim import disk_faults
from keepfast.sim.agenda import MS, SECOND, Appointment
from keepfast.sim.invariants import Invariants
from keepfast.sim.ledger import Violation
from keepfast.sim.network import Endpoint, Stream
from keepfast.sim.peers import PeerLinks
from keepfast.sim.watched_loop import WatchedLoop
from keepfast.storage import Recovery, Standing, Store
from keepfast.tree import Tree
from keepfast.wire import DiskFull, Notification, ServerId, StorageError, Zxid, decode_header

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.simulated_world import World

_NS_OF_US: Final = 1000
_TURN_US: Final = MS
# The size of the file with the secret for session passwords.
_SECRET_BYTES: Final = 120
# Why a server closes the connection of a client that it has just heard.
_SESSION_ENDED: Final = "the session has ended"
_SESSION_MOVED: Final = "the session has moved to another server"


class ClientEnd:
    """A server's end of a client's stream."""

    __slots__ = ("connection", "is_full", "is_paused", "process", "stream", "unread")

    def __init__(self, process: Process, stream: Stream, connection: Connection) -> None:
        self.process = process
        self.stream = stream
        self.connection = connection
        # Whether the server does not read it now, and what waits in the socket, in order.
        self.is_paused = False
        self.unread: deque[bytes] = deque()
        # Whether too much waits for the client, until it has taken most of it.
        self.is_full = False
        stream.on_taken = self._on_taken

    def _on_taken(self) -> None:
        if self.is_full:
            self.process.run(lambda: self.process.client_took(self))

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.hear(self, data))

    def on_lost(self) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.client_lost(self))


class Process:
    """The world around one running server program: its disk, links, clients and timers."""

    def __init__(self, host: Host, world: World, store: Store, recovery: Recovery) -> None:
        self.host = host
        self.world = world
        self.server_id = host.server_id
        self.who = host.who
        self.store = store
        self.is_over = False
        self.is_paused = False
        # When its loop last did what is due every tick.
        self.ticked_us = world.agenda.now_us
        self.rng = random.Random(world.rng.getrandbits(64))
        # What came while it was stopped: what sockets and threads have for it, and its timers.
        self._backlog: deque[Callable[[], None]] = deque()
        self._late_timers: deque[Callable[[], None]] = deque()
        # When the loop is free again; how far its own clock is ahead within an event.
        self._ready_us = 0
        self._ahead_us = 0
        self._clients: dict[Connection, ClientEnd] = {}
        limits = world.options.replica
        self._buffer_bytes = min(limits.max_burst_bytes, limits.max_unsent_bytes)
        self.links = PeerLinks(self)
        self.last_votes: dict[ServerId, bytes] = {}
        self.seen = Zxid(-1)
        self.member = self._make_member(recovery) if world.options.servers > 1 else None
        self.replica = (
            self._make_alone(recovery) if self.member is None else self.member.state.replica
        )
        cadence = CadenceOptions(world.options.snapshot_every)
        core = ServerCore(
            self.replica,
            self.member,
            SnapshotCadence(cadence, self.rng.randrange),
            self.turn_time(),
        )
        self.loop = self._make_loop(core)
        self._invariants = Invariants(self.who, store, self.replica, self.member)

    def _make_loop(self, core: ServerCore) -> WatchedLoop:
        return WatchedLoop(core, self, ServerStatistics(), self.world.options.retain)

    def _make_alone(self, recovery: Recovery) -> Replica:
        store, world = self.store, self.world
        tree = recovery.tree
        if recovery.standing is Standing.EMPTY:
            tree = store.initialise()
            world.checkers.installed(self.server_id, Zxid(0))
        elif tree is None or recovery.standing is Standing.DAMAGED:
            raise StorageError("the data is damaged, and there is no peer to recover from")
        world.checkers.ledger.forget_after(store.durable)
        world.vouched(self, store.durable)
        return self._make_replica(tree)

    def _make_member(self, recovery: Recovery) -> Member:
        facts = store_facts(self.store, recovery)
        return self._member_of(msgspec.structs.replace(facts, secret=self.host.secret))

    def _member_of(self, facts: StoreFacts) -> Member:
        world = self.world
        return Member(
            self._make_replica(None),
            world.membership,
            world.quorum_options,
            facts,
            lambda: f"{self.rng.getrandbits(128):032x}",
        )

    def _make_replica(self, tree: Tree | None) -> Replica:
        options = self.world.replica_options(self.server_id)
        return Replica(tree, options, self.world.agenda.now_ms, self.host.wall_ms)

    @property
    def is_serving(self) -> bool:
        """Whether its tree is a committed one."""
        return self.replica.proposer is not None or self.replica.forwarder is not None

    @property
    def role(self) -> str:
        """What it is doing, for people."""
        return "alone" if self.member is None else self.member.state.role.value

    @property
    def is_held_up(self) -> bool:
        """Whether its loop has a reason to be late."""
        is_busy = self._ready_us > self.world.agenda.now_us
        return self.is_paused or is_busy or self.host.lag_us > 0

    def start(self) -> None:
        """Begin; called once."""
        self.run(self.loop.start)

    # -- events ----------------------------------------------------------------------------------

    def run(self, event: Callable[[], None]) -> None:
        """Let an event of the loop happen, now or when it can, if this process lives."""
        if self.is_over:
            return
        lag_us, agenda = self.host.lag_us, self.world.agenda
        if lag_us or self._ready_us >= agenda.now_us > 0:
            # After what waits already: a slow process does not change the order of things.
            self._ready_us = max(self._ready_us, agenda.now_us) + self.rng.randint(0, lag_us)
            agenda.at(self._ready_us, lambda: self._run(event))
        else:
            self._run(event)

    def _run(self, event: Callable[[], None]) -> None:
        if self.is_over:
            return
        if self.is_paused:
            self._backlog.append(event)
            return
        self._ahead_us = 0
        try:
            event()
        except disk_faults.PowerLoss:
            self.host.power_lost("inside a disk call")
        if not self.is_over:
            self._invariants.check()

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what came meanwhile is handled now."""
        self.is_paused = False
        self.ticked_us = self.world.agenda.now_us
        # An event loop may look at its sockets first, or at its clock.
        queues = [self._backlog, self._late_timers]
        if self.rng.random() < 0.3:
            queues.reverse()
        for queue in queues:
            while queue and not self.is_over and not self.is_paused:
                self._run(queue.popleft())

    def _time_out(self, action: Callable[[], None]) -> None:
        if self.is_paused:
            self._late_timers.append(action)
        else:
            self.run(action)

    def end(self) -> None:
        """The process is gone: nothing of it happens any more."""
        self.is_over = True
        self.loop.stop()

    def failed(self, error: Exception) -> None:
        """See ServerWorld. A bug is a finding of the run; a failed disk is a reason to restart."""
        failure = Failure(error)
        if isinstance(error, disk_faults.MishapError) and failure.is_disk:
            raise Violation("crash-only", f"a bug is called a failure of the disk: {failure}")
        if not failure.is_disk and not isinstance(error, disk_faults.MishapError):
            raise error
        self.host.ended(self, str(failure))

    # -- clock, timers, threads ------------------------------------------------------------------

    def turn_time(self) -> float:
        """See ServerWorld."""
        return (self.world.agenda.now_us + self._ahead_us) / SECOND

    def now_ns(self) -> int:
        """See ServerWorld."""
        return (self.world.agenda.now_us + self._ahead_us) * _NS_OF_US

    def wall_ms(self) -> int:
        """See ServerWorld."""
        return self.host.wall_ms

    def call_soon(self, action: Callable[[], None]) -> None:
        """See ServerWorld."""
        self.world.agenda.after(0, lambda: self.run(action))

    def call_after_others(self, action: Callable[[], None]) -> None:
        """See ServerWorld."""
        self.world.agenda.after(self.rng.randint(100, 3000), lambda: self.run(action))

    def call_later(self, seconds: float, action: Callable[[], None]) -> Appointment:
        """See ServerWorld."""
        return self.world.agenda.after(int(seconds * SECOND), lambda: self._time_out(action))

    def _latency_us(self) -> int:
        options, rng = self.world.options.disk, self.rng
        latency = rng.randint(options.min_latency_us, options.max_latency_us)
        if options.stall_chance and not self.world.is_calm and rng.random() < options.stall_chance:
            latency += options.stall_us
        return max(latency, self.host.disk_hangs_until_us - self.world.agenda.now_us)

    def call_disk(self, work: Callable[[], None]) -> float:
        """See ServerWorld. The loop is held up by it."""
        work()
        latency_us = self._latency_us()
        self._ahead_us += latency_us
        self._ready_us = max(self._ready_us, self.world.agenda.now_us + self._ahead_us)
        return latency_us / SECOND

    def on_disk_thread(self, work: Callable[[], None], done: Callable[[float], None]) -> None:
        """See ServerWorld."""
        latency_us = self._latency_us()
        self._elsewhere(latency_us, work, lambda: done(latency_us / SECOND))

    def aside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """See ServerWorld."""
        self._elsewhere(self._latency_us(), work, done)

    def _elsewhere(
        self, latency_us: int, work: Callable[[], None], done: Callable[[], None]
    ) -> None:
        """Do something on another thread, which takes this long, and then notify the loop."""
        work_us = self.rng.randint(0, latency_us)

        def work_and_report() -> None:
            work()
            self.world.agenda.after(latency_us - work_us, lambda: self.run(done))

        self.world.agenda.after(work_us, lambda: self._run(work_and_report))

    # -- clients ---------------------------------------------------------------------------------

    def accept_client(self, stream: Stream) -> Endpoint | None:
        """A client has dialled."""
        if self.is_over:
            return None
        connection = self.loop.connect("127.0.0.1", stream.number)
        if connection is None:
            self.world.trace.add(self.who, "turns client %d away", stream.places[0])
            return None
        end = ClientEnd(self, stream, connection)
        self._clients[connection] = end
        return end

    def hear(self, end: ClientEnd, data: bytes) -> None:
        """A client's bytes are read from its socket, or stay there."""
        end.unread.append(data)
        self._read(end)

    def _read(self, end: ClientEnd) -> None:
        # As sockets are read: in order, not while paused, and no more when it is closed.
        clients = self._clients
        while end.unread and not end.is_paused and clients.get(end.connection) is end:
            if self.is_over:
                return
            reply = self.loop.client_bytes(end.connection, end.unread.popleft())
            if reply is not None:
                end.stream.send(1, reply)

    def client_lost(self, end: ClientEnd) -> None:
        """A client's stream is gone."""
        self._clients.pop(end.connection, None)
        self.loop.client_lost(end.connection)

    def send_client(self, connection: Connection, data: bytes) -> None:
        """See ServerWorld."""
        end = self._clients.get(connection)
        if end is not None:
            self.check_leader()
            end.stream.send(1, data)
            if not end.is_full and end.stream.unsent_bytes(1) > self._buffer_bytes:
                end.is_full = True
                self.loop.client_full(connection)

    def check_leader(self) -> None:
        """Raise if this server leads, and leaders are not to serve clients."""
        is_leading = self.member is not None and self.replica.proposer is not None
        if is_leading and not self.world.options.replica.is_leader_serving:
            raise Violation("busy leader", f"{self.who} leads, and answers a client")

    def client_took(self, end: ClientEnd) -> None:
        """A client has taken some of what it was sent; from a quarter on it may ask again."""
        if end.is_full and end.stream.unsent_bytes(1) <= self._buffer_bytes // 4:
            end.is_full = False
            self.loop.client_drained(end.connection)

    def unsent_bytes(self, connection: Connection) -> int:
        """See ServerWorld."""
        end = self._clients.get(connection)
        return 0 if end is None else end.stream.unsent_bytes(1)

    def close_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        end = self._clients.get(connection)
        if end is not None:
            if connection.close_reason == _SESSION_ENDED and self.is_serving:
                proposer = self.replica.proposer
                if proposer is None or connection.session_id not in proposer.ending:
                    self.world.checkers.expired_sessions.on_hung_up(connection.session_id)
            client = end.stream.places[0]
            self.world.trace.add(self.who, "closes client %d: %s", client, connection.close_reason)
            if connection.close_reason == _SESSION_MOVED:
                self.world.refused_as_moved(client)
            self._hang_up_client(end)

    def release_client(self, connection: Connection) -> None:
        """See ServerWorld. A simulated stream ends on both sides at once."""

    def abort_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        end = self._clients.get(connection)
        if end is not None:
            client = end.stream.places[0]
            self.world.trace.add(self.who, "cuts client %d: %s", client, connection.close_reason)
            self._hang_up_client(end)

    def _hang_up_client(self, end: ClientEnd) -> None:
        del self._clients[end.connection]
        end.stream.close(1)
        self.call_soon(lambda: self.loop.client_lost(end.connection))

    def pause_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        end = self._clients.get(connection)
        if end is not None:
            end.is_paused = True

    def resume_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        end = self._clients.get(connection)
        if end is not None and end.is_paused:
            end.is_paused = False
            self.call_soon(lambda: self._read(end))

    # -- peers -----------------------------------------------------------------------------------

    def send_peer(self, link: Link, packets: bytes) -> bool:
        """See ServerWorld."""
        self.links.send(link, packets)
        return True

    def stream_peer(self, link: Link, piece: bytes) -> bool:
        """See ServerWorld."""
        self.links.stream(link, piece)
        network = self.world.options.network
        if not network.max_stall_us or self.world.is_calm:
            return True
        if self.rng.random() < 1 - network.stall_chance:
            return True
        self.world.agenda.after(
            self.rng.randint(1, network.max_stall_us),
            lambda: self.run(lambda: self.loop.link_drained(link)),
        )
        return False

    def pause_peer(self, link: Link) -> None:
        """See ServerWorld."""
        self.links.pause(link)

    def resume_peer(self, link: Link) -> None:
        """See ServerWorld."""
        self.links.resume(link)

    def hang_up(self, link: Link, reason: str) -> None:
        """See ServerWorld."""
        self.links.hang_up(link, reason)

    def dial(self, server_id: ServerId) -> None:
        """See ServerWorld."""
        self.links.dial(server_id)

    def notify(self, server_id: ServerId, vote: Notification) -> None:
        """See ServerWorld."""
        self.world.trace.add(
            self.who,
            "votes to s%d: state %d, leader %d, %#x, round %d, epoch %s",
            server_id,
            vote.state,
            vote.leader,
            vote.zxid,
            vote.election_epoch,
            vote.peer_epoch,
        )
        self.world.election_links.send(self, server_id, vote)

    def use_members(self, quorums: Quorums) -> None:
        """See ServerWorld."""
        current, proposed = quorums.current, quorums.next
        self.world.trace.add(self.who, "knows the members as of %#x", current.version)
        if proposed is not None:
            self.world.trace.add(self.who, "lets those of %#x decide as well", proposed.version)

    # -- what others are notified of ------------------------------------------------------------

    def logging(self, records: list[Append]) -> None:
        """See ServerWorld."""
        checkers, leader = self.world.checkers, self.world.apache
        if leader is not None and not self.loop.note_leader():
            leader = None
        for record in records:
            header = decode_header(record.entry)
            self.world.trace.add(self.who, "logs %#x (type %d)", record.zxid, header.type)
            self.world.reached("log", self, None)
            if self.is_over:
                return
            if leader is not None:
                checkers.ledger.led_by_apache(self.server_id, record.zxid, leader.apache.log)
            checkers.logged(self.server_id, record.zxid, record.entry)

    def store_secret(self, secret: SharedSecret) -> None:
        """See ServerWorld."""
        if self.host.disk.volume.free_bytes() < _SECRET_BYTES:
            raise DiskFull("no space left", "the session secret")
        self.host.secret = secret

    def order_done(self, order: DiskOrder) -> None:
        """See ServerWorld."""
        self.world.trace.add(self.who, "has done %s", type(order).__name__)

    def note(self, note: Note) -> None:
        """See ServerWorld."""
        notes = self.world.notes
        notes[note.name] = notes.get(note.name, 0) + 1
        self.world.trace.add(self.who, "notes %s", note)
        self.world.noted(self, note)

    def audit(self, records: list[AuditRecord]) -> None:
        """See ServerWorld. Nobody reads it."""
