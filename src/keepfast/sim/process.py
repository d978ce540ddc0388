"""One running server program of a simulated world: a state machine, its store, its connections.

A driver, as `server` is one: it holds no decisions about the protocol. It passes bytes, times and
durability in, takes effects out, and tells the checkers what it sees. It ends by being killed, by a
loss of power, or by itself when its disk fails (R7); its host starts the next one.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keepfast.replica import Append, Connection, Replica
from keepfast.sim.alone import Alone
from keepfast.sim.disk_thread import DiskThread
from keepfast.sim.network import Endpoint, Stream
from keepfast.sim.snapshots import SnapshotTaker
from keepfast.storage import Recovery, Standing, Store, disk_faults, recover
from keepfast.tree import Tree
from keepfast.wire import DiskFailed, StorageError, Zxid, decode_header, format_zxid

if TYPE_CHECKING:
    from keepfast.sim.host import Host
    from keepfast.sim.world import World


class ClientEnd:
    """A server's end of a client's stream."""

    __slots__ = ("connection", "process", "stream")

    def __init__(self, process: Process, stream: Stream, connection: Connection) -> None:
        self.process = process
        self.stream = stream
        self.connection = connection

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.member.replica.receive(self.connection, data))

    def on_lost(self) -> None:
        """See Endpoint."""
        self.process.run(lambda: self.process.client_lost(self))


class Process:
    """See the module."""

    def __init__(self, host: Host, world: World, store: Store, recovery: Recovery) -> None:
        self.host = host
        self.world = world
        self.server_id = host.server_id
        self.who = host.who
        self.store = store
        self.is_over = False
        self.is_paused = False
        self._rng = random.Random(world.rng.getrandbits(64))
        self._backlog: deque[Callable[[], None]] = deque()
        self._ready_us = 0
        self._clients: dict[Connection, ClientEnd] = {}
        self._tree: Tree | None = None
        self.seen = Zxid(-1)
        options = world.options
        self.disk = DiskThread(
            store, world.agenda, self._rng, options.disk, self.run, self._on_durable
        )
        self.disk.may_stall = not world.is_calm
        self.snapshots = SnapshotTaker(
            self.disk,
            world.agenda,
            self._rng,
            options.snapshot_every,
            options.retain,
            self.run,
            lambda text, *values: world.trace.add(self.who, text, *values),
        )
        self.member: Any = self.make_member(recovery)
        self._performers: dict[type, Callable[[Any], None]] = {Append: self._append}
        self._tick_us = world.tick_us // 2

    def make_member(self, recovery: Recovery) -> Any:
        """The state machine: here a server without peers."""
        store, world = self.store, self.world
        tree = recovery.tree
        if recovery.standing is Standing.EMPTY:
            tree = store.initialise()
            world.checkers.installed(self.server_id, Zxid(0))
        world.checkers.ledger.forget_behind(store.durable)
        world.vouched(self, store.durable)
        options = world.replica_options(self.server_id)
        return Alone(Replica(tree, options, world.agenda.now_ms, self.host.wall_ms))

    @property
    def is_serving(self) -> bool:
        """Whether its tree is an agreed one."""
        return True

    def start(self) -> None:
        """Begin; called once."""
        self.run(self.member.start)
        self._tick()

    # -- events ----------------------------------------------------------------------------------

    def run(self, action: Callable[[], None]) -> None:
        """Have the state machine handle an event, now or when it can, if this process lives."""
        if self.is_over:
            return
        lag_us, agenda = self.host.lag_us, self.world.agenda
        if lag_us or self._ready_us >= agenda.now_us > 0:
            # Behind what waits already: a slow process does not change the order of things.
            self._ready_us = max(self._ready_us, agenda.now_us) + self._rng.randint(0, lag_us)
            agenda.at(self._ready_us, lambda: self._run(action))
        else:
            self._run(action)

    def _run(self, action: Callable[[], None]) -> None:
        if self.is_over:
            return
        if self.is_paused:
            self._backlog.append(action)
            return
        try:
            self.member.tell_time(self.world.agenda.now_ms, self.host.wall_ms)
            action()
            self.flush()
        except disk_faults.PowerLoss:
            self.host.power_lost("inside a disk call")
        except StorageError as error:
            self.end(f"its disk fails: {error}")

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what came meanwhile is handled now."""
        self.is_paused = False
        while self._backlog and not self.is_over and not self.is_paused:
            self._run(self._backlog.popleft())

    def end(self, reason: str) -> None:
        """The process ends by itself; its host starts it again."""
        self.host.ended(self, reason)

    def _tick(self) -> None:
        if self.is_over:
            return
        self.world.agenda.after(self._tick_us, self._tick)
        if self.is_paused:
            return
        self.run(self._ticked)

    def _ticked(self) -> None:
        self.disk.look_for_space()
        self.member.replica.is_writable = self.disk.has_space
        self.member.tick()

    # -- effects ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Do what the machine asks for, then look at what it has done."""
        effects = self.member.effects
        while effects and not self.is_over:
            batch = list(effects)
            effects.clear()
            for effect in batch:
                self._performers[type(effect)](effect)
            effects = self.member.effects
        if not self.is_over:
            self._finish_flush()

    def _finish_flush(self) -> None:
        if self.is_serving:
            self._observe()
        self._answer_clients()

    def _append(self, record: Append) -> None:
        header = decode_header(record.entry)
        self.world.trace.add(self.who, "logs %#x (type %d)", record.zxid, header.type)
        self.world.reached("log", self, None)
        if self.is_over:
            return
        self.world.checkers.logged(self.server_id, record.zxid, record.entry)
        self.disk.append(record.zxid, record.entry, record.digest)

    def _on_durable(self, zxid: Zxid) -> None:
        self.world.trace.add(self.who, "has %s durable", format_zxid(zxid))
        self.world.checkers.ledger.shadow_of(self.server_id).durable = zxid
        self._vouch_for_log(zxid)
        self.member.log_durable(zxid)

    def _vouch_for_log(self, zxid: Zxid) -> None:
        """Alone, what is durable is agreed on."""
        self.world.vouched(self, zxid)

    def _observe(self) -> None:
        tree: Tree = self.member.replica.tree
        if tree is self._tree and tree.last_zxid == self.seen:
            return
        moved = tree is self._tree
        self._tree, self.seen = tree, tree.last_zxid
        self.world.trace.add(self.who, "is at %#x", tree.last_zxid)
        self.world.checkers.applied(self.server_id, tree)
        if moved:
            self.snapshots.count(tree)

    def purge(self, retain: int) -> None:
        """Delete what no kept recovery path needs."""
        self.disk.order(lambda: self._purge(retain), self._purged)

    def _purge(self, retain: int) -> tuple[str, ...]:
        removed = self.store.purge(retain)
        if removed and self.store.standing is Standing.WHOLE:
            disk = self.host.disk.clone()
            self.world.checkers.purged(self.server_id, recover(disk, self.host.directory))
        return removed

    def _purged(self, result: tuple[str, ...] | StorageError) -> None:
        if isinstance(result, DiskFailed):
            raise result

    # -- clients ---------------------------------------------------------------------------------

    def accept_client(self, stream: Stream) -> Endpoint | None:
        """A client has dialled."""
        if self.is_over:
            return None
        connection = self.member.replica.connect("127.0.0.1", stream.number)
        end = ClientEnd(self, stream, connection)
        self._clients[connection] = end
        return end

    def client_lost(self, end: ClientEnd) -> None:
        """A client's stream is gone."""
        self._clients.pop(end.connection, None)
        self.member.replica.lost(end.connection)

    def _answer_clients(self) -> None:
        replica = self.member.replica
        if replica.dirty:
            # In the order of their numbers: a set has none that is the same in every run.
            for connection in sorted(replica.dirty, key=lambda c: c.number):
                end = self._clients.get(connection)
                if end is not None and connection.out:
                    end.stream.send(1, b"".join(connection.out))
                connection.out.clear()
            replica.dirty.clear()
        if replica.closing:
            for connection in sorted(replica.closing, key=lambda c: c.number):
                end = self._clients.pop(connection, None)
                if end is not None:
                    self.world.trace.add(
                        self.who,
                        "closes client %d: %s",
                        end.stream.places[0],
                        connection.close_reason,
                    )
                    end.stream.close(1)
            replica.closing.clear()
