"""One server of the real world: sockets, clocks and the disk around a replica.

A driver holds no decisions about the protocol: it passes bytes, times and durability in, and takes
bytes, records and closed connections out.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import random
import secrets
import socket
import time
from typing import TYPE_CHECKING

from keepfast.replica import Connection, Phase, Replica, go_on
from keepfast.server.audit_log import AuditLog
from keepfast.server.client_port import ClientProtocol
from keepfast.server.client_turn import ClientTurn
from keepfast.server.ensemble_report import reason_of
from keepfast.server.java_text import java_hex
from keepfast.server.listeners import Listeners
from keepfast.server.log_syncer import LogSyncer
from keepfast.server.logs import EventLog
from keepfast.server.server_options import ServerOptions
from keepfast.server.snapshots import SnapshotTaker
from keepfast.server.statistics import ServerStatistics
from keepfast.server.words import answer
from keepfast.server.write_groups import WriteGroups
from keepfast.storage import (
    Disk,
    ReadFile,
    RealDisk,
    Recovery,
    SnapshotEntry,
    Standing,
    Store,
    data_directory,
)
from keepfast.tree import Tree
from keepfast.wire import StorageError, Zxid, epoch_of, format_zxid

if TYPE_CHECKING:
    from keepfast.server.admin import AdminServer
    from keepfast.server.member_driver import MemberDriver

# Apache's mask of what is traced. It is kept and shown; nothing is traced here.
_TRACE_MASK = 306


class NotWholeError(Exception):
    """The data directory has no history that may be served; the recovery says why."""

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(recovery)
        self.recovery = recovery


class Server:
    """A server, alone or a member of an ensemble."""

    def __init__(self, options: ServerOptions, disk: Disk | None = None) -> None:
        self.options = options
        self.port: int = options.port or 0
        self._disk = disk or RealDisk()
        self.log = EventLog(self._log_context, "keepfast.server")
        self.statistics = ServerStatistics(options.slow_fsync_ms)
        self.admin: AdminServer | None = None
        self.secure_port: int | None = None
        self.trace_mask: int = _TRACE_MASK
        # The data was read; clients are let in; the disk's failure that ended it all.
        self.is_loaded = False
        self._is_up = False
        self.failure: StorageError | None = None
        self.member: MemberDriver | None = None
        self._audit = AuditLog() if options.replica.is_audited else None
        self._connections: dict[Connection, ClientProtocol] = {}
        self._per_address: dict[str, int] = {}
        self._paused: set[ClientProtocol] = set()
        self._is_paused = False
        self._delay_seconds = 0.0
        # Why nobody is served: as it was at the last tick, and as it was last logged.
        self._waiting_seen = self._waiting_told = ""

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data, then listen.

        Raises ConfigError (key stores), NotWholeError, StorageError or OSError.
        """
        loop = asyncio.get_running_loop()
        self._listeners = Listeners(self)
        self._failed: asyncio.Future[StorageError] = loop.create_future()
        options = self.options
        self._started_ms = _times()[0]
        await self._start_admin()
        try:
            await self._start(loop, options)
        except BaseException:
            if self.admin is not None:
                await self.admin.stop()
            raise

    async def _start_admin(self) -> None:
        options = self.options.admin
        if options is None:
            return
        # Not before: HTTP and all the commands are a good part of what a start imports.
        from keepfast.server.admin import AdminServer

        admin = AdminServer(self, options)
        try:
            await admin.start()
        except OSError as error:
            if options.is_required or error.errno != errno.EADDRINUSE:
                raise OSError(error.errno, f"admin server: {error.strerror or error}") from error
            advice = "set admin.serverPort, or admin.enableServer=false"
            self.log.warning("no-admin-server", port=options.port, reason=error, advice=advice)
            return
        self.admin = admin
        self.log.info("admin-server", url=admin.url)

    async def _start(self, loop: asyncio.AbstractEventLoop, options: ServerOptions) -> None:
        self.directory = data_directory(self._disk, options.data_dir, options.log_dir)
        # On a thread: meanwhile probes are told that the data is being read.
        store, recovery = await loop.run_in_executor(
            None, Store.open, self._disk, self.directory, options.store
        )
        self.recovery = recovery
        self.statistics.recovery.add(_times()[0] - self._started_ms)
        self.statistics.records_replayed.add(recovery.records)
        tree = self._tree_of(store, recovery)
        for problem in recovery.problems:
            self.log.warning("data", problem=problem)
        # What was loaded stays: the collector need not walk over it ever again.
        gc.collect()
        gc.freeze()
        self.replica = Replica(tree, options.replica, *_times(), make_nonce=_nonce)
        self.turn = ClientTurn(loop, self.replica, self.flush)
        self._groups = groups = WriteGroups(loop, self.replica, self._group_due)
        self.syncer = LogSyncer(
            store, loop, self._on_durable, self.disk_failed, groups.synced, self.statistics
        )
        self.snapshots = SnapshotTaker(self, random.Random())
        try:
            await self._listeners.open()
            if options.ensemble is not None:
                # Here, as a server alone starts sooner without it.
                from keepfast.server.member_driver import MemberDriver

                self.member = MemberDriver(self, options.ensemble, recovery, options.security)
                await self.member.start()
        except OSError:
            await self._listeners.close()
            self.syncer.close()
            raise
        self.port = self._listeners.port or 0
        self.secure_port = self._listeners.secure_port
        self._ticker = loop.create_task(self._tick())
        self.is_loaded = self._is_up = True
        self.flush()
        zxid = format_zxid(self.replica.tree.last_zxid)
        self.log.info("serving", address=options.host, port=self.port, zxid=zxid)
        if self._audit is not None:
            self._audit.server_started()

    def _tree_of(self, store: Store, recovery: Recovery) -> Tree | None:
        """What is served at once; None: that is for the ensemble to decide."""
        if self.options.ensemble is not None:
            return None
        if recovery.standing is Standing.EMPTY and recovery.epochs.current is None:
            return store.initialise()
        if recovery.tree is None or recovery.standing is Standing.DAMAGED:
            store.close()
            raise NotWholeError(recovery)
        return recovery.tree

    @property
    def is_serving(self) -> bool:
        """Whether clients are let in."""
        return self._is_up and self.replica.is_serving

    async def wait_failed(self) -> StorageError:
        """Wait until the disk fails; the server must be stopped then."""
        return await self._failed

    async def stop(self) -> None:
        """Close all connections, make everything durable, release the directory."""
        self._is_up = False
        if self._audit is not None:
            self._audit.server_stops()
        await self._listeners.close()
        if self.member is not None:
            await self.member.stop()
        self._ticker.cancel()
        for protocol in list(self._connections.values()):
            protocol.close()
        await self.snapshots.stop()
        for protocol in list(self._connections.values()):
            if protocol.is_secure:
                # Told that it is over; its answer to that is not waited for.
                protocol.abort()
        if self.admin is not None:
            await self.admin.stop()
        await self._listeners.wait_closed()
        self.syncer.close()
        self.log.info("stopped", zxid=format_zxid(self.replica.tree.last_zxid))

    async def _tick(self) -> None:
        interval = max(self.options.replica.tick_ms / 2000, 0.01)
        while True:
            await asyncio.sleep(interval)
            if self._is_paused:
                continue
            self.look_for_space()
            self._tell_waiting()
            if self.member is None:
                self.replica.tell_time(*_times())
                self.replica.tick()
                self.flush()
            self.syncer.idle()
            slowest_ms = self.statistics.take_slowest_sync()
            if slowest_ms is not None:
                self.log.warning("slow-fsync", ms=round(slowest_ms))

    def _tell_waiting(self) -> None:
        """Log why nobody is served, when it has been so for a while and whenever it changes."""
        reason = "" if self.is_serving or not self._is_up else reason_of(self)
        if reason and reason == self._waiting_seen and reason != self._waiting_told:
            self._waiting_told = reason
            self.log.warning("not-serving", reason=reason)
        elif not reason:
            self._waiting_told = ""
        self._waiting_seen = reason

    # -- the client port -------------------------------------------------------------------------

    def accept(self, protocol: ClientProtocol, transport: asyncio.Transport) -> None:
        """Let a socket in, if the limits allow it."""
        peer = transport.get_extra_info("peername")
        address, port = peer[:2] if isinstance(peer, tuple) else ("127.0.0.1", 0)
        if not self.has_place(address):
            self.statistics.connections_refused += 1
            self.log.warning("refused", address=address, reason="too many connections")
            transport.abort()
            return
        if self.options.is_keep_alive:
            line = transport.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        limits = self.options.replica
        transport.set_write_buffer_limits(high=min(limits.max_burst_bytes, limits.max_unsent_bytes))
        self.replica.tell_time(*_times())
        connection = self.replica.connect(address, port, protocol.subject)
        connection.is_secure = protocol.is_secure
        protocol.admit(connection)
        self._connections[connection] = protocol
        self._per_address[address] = self._per_address.get(address, 0) + 1

    def has_place(self, address: str, arriving: int = 0, arriving_in_all: int = 0) -> bool:
        """Whether the limits allow one more connection, besides those that are on their way."""
        per_address, total = self.options.max_connections_per_address, self.options.max_connections
        count = self._per_address.get(address, 0) + arriving
        if per_address and count >= per_address:
            return False
        return not total or len(self._connections) + arriving_in_all < total

    def receive(self, connection: Connection, data: bytes, is_delayed: bool = False) -> None:
        """Bytes from a client."""
        if self._delay_seconds and not is_delayed:
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay_seconds, self.receive, connection, data, True)
            return
        if not self.turn.is_running:
            self.turn.begin()
        if is_delayed:
            self.turn.forget_time()
        self.replica.receive(connection, data)
        if connection.queue and self._must_wait(connection):
            protocol = self._connections.get(connection)
            if protocol is not None:
                protocol.hold("outstanding")
                self._paused.add(protocol)

    def _must_wait(self, connection: Connection) -> bool:
        """Whether nothing is read from a client that has a request under way."""
        # One that has no session yet may not fill the memory while the disk is slow.
        is_early = connection.phase is Phase.CONNECTING
        limit = self.options.replica.outstanding_limit
        return is_early or connection.is_throttled or self.replica.outstanding > limit

    def _release_paused(self) -> None:
        if self.replica.outstanding > self.options.replica.outstanding_limit:
            return
        for protocol in [p for p in self._paused if not p.waits(self._must_wait)]:
            self._paused.discard(protocol)
            protocol.release("outstanding")

    def lost(self, connection: Connection) -> None:
        """A socket is gone."""
        protocol = self._connections.pop(connection, None)
        if protocol is None:
            return
        self._paused.discard(protocol)
        left = self._per_address[connection.address] - 1
        if left:
            self._per_address[connection.address] = left
        else:
            del self._per_address[connection.address]
        if connection.is_open:
            self.replica.statistics.drops += 1
        self.replica.lost(connection)

    def go_on(self, connection: Connection) -> None:
        """A client has taken what was sent to it; handle the requests that waited for that."""
        protocol = self._connections.get(connection)
        if protocol is not None and connection.is_stalled and not protocol.is_full:
            self.replica.tell_time(*_times())
            go_on(self.replica, connection)
            self.flush()

    def slow_reader(self, connection: Connection, unsent_bytes: int) -> None:
        """A client does not take what is sent to it: cut it off before it costs more memory."""
        reason = f"it does not read what it is sent: {unsent_bytes} bytes wait for it"
        self.replica.close(connection, reason)
        protocol = self._connections.get(connection)
        if protocol is not None:
            protocol.abort()

    # -- faults, for tests ------------------------------------------------------------------------

    def drop_connections(self) -> None:
        """Cut every connection at once."""
        for protocol in list(self._connections.values()):
            protocol.abort()

    async def crash(self) -> None:
        """End as a killed process does: nothing more is written, and everybody is cut off."""
        self._is_up = False
        self.syncer.abandon()
        await self._listeners.close()
        if self.member is not None:
            await self.member.stop()
        self._ticker.cancel()
        self.drop_connections()
        await self.snapshots.stop()
        if self.admin is not None:
            await self.admin.stop()
        await self._listeners.wait_closed()

    def pause(self) -> None:
        """Stop to read from clients."""
        self._is_paused = True
        for protocol in self._connections.values():
            protocol.hold("paused")

    def resume(self) -> None:
        """Read again; a pause costs nobody its session."""
        self._is_paused = False
        self.replica.tell_time(*_times())
        self.replica.touch_all()
        for protocol in self._connections.values():
            protocol.release("paused")

    def delay(self, seconds: float) -> None:
        """Handle what clients send so much later."""
        self._delay_seconds = seconds

    def look_for_space(self) -> None:
        """Ask the disk whether writes are taken."""
        self.syncer.look_for_space()
        self.replica.is_writable = self.syncer.has_space

    def answer_word(self, protocol: ClientProtocol, connection: Connection, data: bytes) -> None:
        """Answer a four-letter word, and close."""
        statistics = self.replica.statistics
        statistics.received += 1
        statistics.bytes_received += len(data)
        connection.received += 1
        protocol.send(answer(self, data).encode("utf-8", "replace"))
        statistics.told += 1
        protocol.close()

    def refuse_stranger(
        self, protocol: ClientProtocol, spoken: str, advice: str, told: bytes
    ) -> None:
        """Tell somebody who wanted another port, in its own protocol, and close."""
        address = protocol.address
        self.log.warning("refused", address=address, reason=f"it speaks {spoken}", advice=advice)
        protocol.send(told)
        protocol.close()

    # -- for reports -----------------------------------------------------------------------------

    @property
    def connection_count(self) -> int:
        """Sockets that are open."""
        return len(self._connections)

    def connections(self) -> list[Connection]:
        """All connections, oldest first."""
        return list(self._connections)

    def wall_clock_of(self, monotonic_ms: int) -> int:
        """A monotonic time as wall clock time, in ms since 1970."""
        now_ms, wall_ms = _times()
        return wall_ms + monotonic_ms - now_ms

    def directory_sizes(self) -> tuple[int, int]:
        """Bytes in the directories of snapshots and of logs."""
        return self._size_of(self.directory.snapshots), self._size_of(self.directory.logs)

    def _size_of(self, place: str) -> int:
        size = 0
        for name in self._disk.list(place):
            path = f"{place}/{name}"
            try:
                is_inside = self._disk.is_directory(path)
                size += self._size_of(path) if is_inside else self._disk.size(path)
            except FileNotFoundError:
                continue  # a file that was just purged or renamed
        return size

    def interest_of(self, connection: Connection) -> int:
        """What a connection's socket waits for, in Java's bits."""
        protocol = self._connections.get(connection)
        return 0 if protocol is None else protocol.interest

    @property
    def mode(self) -> str:
        """What this server is, by Apache's word."""
        if self.options.ensemble is None:
            return "standalone"
        return "looking" if self.member is None else self.member.mode

    @property
    def server_id(self) -> int:
        """Its id as it is shown; Apache shows 0 for a standalone server."""
        return 0 if self.options.ensemble is None else self.options.ensemble.server_id

    @property
    def admin_url(self) -> str | None:
        """Where the admin server's commands are; None: there is none."""
        return None if self.admin is None else self.admin.url

    @property
    def uptime_ms(self) -> int:
        """Time since the start."""
        return _times()[0] - self._started_ms

    def free_bytes(self) -> int:
        """Space that is left on the fuller of the disks."""
        return min(self._disk.free_bytes(place) for place in self.directory.both)

    def last_snapshot(self) -> SnapshotEntry | None:
        """The newest snapshot."""
        return max(self.syncer.store.manifest.snapshots, key=lambda s: s.zxid, default=None)

    def time_of(self, entry: SnapshotEntry) -> float:
        """When a snapshot was written, in seconds since 1970."""
        return self._disk.mtime(self.directory.in_snapshots(entry.name))

    def open_snapshot(self, entry: SnapshotEntry) -> ReadFile:
        """A snapshot's file, for reading."""
        return self._disk.open_read(self.directory.in_snapshots(entry.name))

    def _log_context(self) -> dict[str, object]:
        """What every line of the log has."""
        epoch: int | str = epoch_of(self.replica.tree.last_zxid) if self.is_loaded else "-"
        if self.member is not None:
            epoch = self.member.member.current_epoch
        return {"server": self.options.replica.server_id, "role": self.mode, "epoch": epoch}

    # -- effects ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Do what the replica asks for."""
        replica, member, groups = self.replica, self.member, self._groups
        gathers = member is None or member.gathers
        is_held = bool(replica.appends) and gathers and groups.is_held()
        if member is not None:
            records = member.flush(is_held)
        else:
            records = [] if is_held else replica.take_appends()
        if records:
            self.syncer.append(records, groups.take())
            self.snapshots.count(len(records))
        if replica.dirty:
            statistics = replica.statistics
            for connection in replica.dirty:
                protocol = self._connections.get(connection)
                out = connection.out
                if protocol is not None and out:
                    data = out[0] if len(out) == 1 else b"".join(out)
                    protocol.send(data)
                    if protocol.is_full:
                        protocol.check_unsent(self.options.replica.max_unsent_bytes)
                    elif connection.is_stalled:
                        # The network is quicker than the requests; others have their turn first.
                        asyncio.get_running_loop().call_soon(self.go_on, connection)
                    size = len(data)
                    statistics.bytes_sent += size
                    if size != statistics.last_group_bytes:
                        statistics.note_frames(out, size)
                out.clear()
            replica.dirty.clear()
        if replica.closing:
            for connection in replica.closing:
                self.log.info(
                    "closed",
                    address=connection.address,
                    session=f"0x{java_hex(connection.session_id)}",
                    reason=connection.close_reason,
                )
                protocol = self._connections.get(connection)
                if protocol is not None:
                    protocol.close()
            replica.closing.clear()
        if replica.audits and self._audit is not None:
            self._audit.write(replica.audits)
            replica.audits.clear()
        if self._paused:
            self._release_paused()

    def _group_due(self) -> None:
        if self.member is not None:
            self.member.flush_all()
        else:
            self.flush()

    def _on_durable(self, zxid: Zxid) -> None:
        replica = self.replica
        if self.member is not None:
            self.member.on_durable(zxid)
        else:
            replica.tell_time(*_times())
            replica.log_durable(zxid)
            self.flush()

    def tell_time(self) -> None:
        """Let the replica know what time it is."""
        self.replica.tell_time(*_times())

    def now_ms(self) -> int:
        """Monotonic time."""
        return _times()[0]

    def disk_failed(self, error: StorageError) -> None:
        """The disk failed: nothing that this process believes may be acted on any more (R7)."""
        self.log.critical("disk-failed", reason=error)
        self.failure = error
        self._is_up = False
        self.statistics.disk_failures += 1
        for protocol in list(self._connections.values()):
            protocol.abort()
        if not self._failed.done():
            self._failed.set_result(error)


def _nonce() -> str:
    return secrets.token_urlsafe(30)


def _times() -> tuple[int, int]:
    """Monotonic and wall clock time in ms."""
    return time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000
