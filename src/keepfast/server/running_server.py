"""A running server: its data, its loop, and what can be queried.

Reports (four-letter words, commands, metrics, probes) are built from this. How it starts and stops,
and what it listens to, is in server.py.
"""

from __future__ import annotations

import asyncio
import time

from keepfast.driver import Failure, ServerLoop, ServerStatistics
from keepfast.replica import Connection, Member, Replica, ServerCore
from keepfast.server.listening import UnresolvedHostError
from keepfast.server.logs import EventLog
from keepfast.server.server_options import ServerOptions
from keepfast.server.world import AsyncioWorld
from keepfast.storage import (
    DataDirectory,
    Disk,
    ReadFile,
    Recovery,
    SnapshotEntry,
    Store,
)
from keepfast.wire import ServerId, epoch_of

# Apache's mask of what is traced. It is kept and shown; nothing is traced here.
_TRACE_MASK = 306


class RunningServer:
    """What reports are made of: a server's data, its loop and its clients while it runs."""

    def __init__(self, options: ServerOptions, disk: Disk) -> None:
        self.options = options
        self.port: int = options.port or 0
        self.secure_port: int | None = None
        self.disk = disk
        self.log = EventLog(self._log_context, "keepfast.server")
        self.statistics = ServerStatistics(options.slow_fsync_ms)
        self.trace_mask: int = _TRACE_MASK
        # The data was read; what is done until then; clients are let in; why the server ended.
        self.is_loaded = False
        self.loading = "reading the data directory"
        self.is_up = False
        self.failure: Failure | None = None
        self.started_ms = monotonic_ms()
        # Available once the data was read.
        self.directory: DataDirectory
        self.store: Store
        self.recovery: Recovery
        self.replica: Replica
        self.member: Member | None = None
        self.core: ServerCore
        self.driver: ServerLoop
        self.world: AsyncioWorld

    @property
    def is_serving(self) -> bool:
        """Whether clients are let in."""
        return self.is_up and self.replica.is_serving

    async def take_snapshot(self) -> SnapshotEntry | None:
        """Take a snapshot that holds at least everything that is applied now; None: it failed."""
        finished: asyncio.Future[SnapshotEntry | None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            tree = self.core.tree
            if tree is None:
                finished.set_result(None)
            else:
                self.driver.snapshots.begin(tree, finished.set_result)

        # One that began earlier holds an older state.
        self.driver.guard.run(lambda: self.driver.snapshots.when_idle(begin))
        return await finished

    def hand_over(self) -> ServerId | None:
        """Hand leadership over; returns to which server, None if that is impossible."""
        found: list[ServerId | None] = [None]
        if self.member is not None:
            member = self.member
            self.driver.run(lambda: found.append(member.hand_over()))
        return found[-1]

    @property
    def connection_count(self) -> int:
        """Sockets that are open."""
        return len(self.world.clients)

    def connections(self) -> list[Connection]:
        """All connections, oldest first."""
        return list(self.world.clients)

    def wall_clock_of(self, at_ms: int) -> int:
        """A monotonic time as wall clock time, in ms since 1970."""
        return self.world.wall_ms() + at_ms - monotonic_ms()

    def directory_sizes(self) -> tuple[int, int]:
        """Bytes in the directories of snapshots and of logs."""
        return self._size_of(self.directory.snapshots), self._size_of(self.directory.logs)

    def _size_of(self, place: str) -> int:
        size = 0
        for name in self.disk.list(place):
            path = f"{place}/{name}"
            try:
                is_inside = self.disk.is_directory(path)
                size += self._size_of(path) if is_inside else self.disk.size(path)
            except FileNotFoundError:
                continue  # a file that was just purged or renamed
        return size

    def interest_of(self, connection: Connection) -> int:
        """What a connection's socket waits for, in Java's bits."""
        protocol = self.world.clients.get(connection)
        return 0 if protocol is None else protocol.interest

    @property
    def mode(self) -> str:
        """What this server is, by Apache's word."""
        if self.options.ensemble is None:
            return "standalone"
        if self.member is None:
            return "looking"
        if self.replica.is_read_only:
            return "read-only"
        return self.member.state.role.mode

    @property
    def server_id(self) -> int:
        """Its id as it is shown; Apache shows 0 for a standalone server."""
        return 0 if self.options.ensemble is None else self.options.ensemble.server_id

    @property
    def uptime_ms(self) -> int:
        """Time since the start."""
        return monotonic_ms() - self.started_ms

    def free_bytes(self) -> int:
        """Space that is left on the fuller of the disks."""
        try:
            return min(self.disk.free_bytes(place) for place in self.directory.both)
        except OSError:
            return 0  # for reports; the ticker asks as well, and ends the server

    def last_snapshot(self) -> SnapshotEntry | None:
        """The newest snapshot."""
        return max(self.store.manifest.snapshots, key=lambda s: s.zxid, default=None)

    def time_of(self, entry: SnapshotEntry) -> float:
        """When a snapshot was written, in seconds since 1970."""
        return self.disk.mtime(self.directory.in_snapshots(entry.name))

    def open_snapshot(self, entry: SnapshotEntry) -> ReadFile:
        """A snapshot's file, for reading."""
        return self.disk.open_read(self.directory.in_snapshots(entry.name))

    def wait_for_name(self, error: UnresolvedHostError) -> None:
        """Report why it does not listen yet: a host name of its own has no address."""
        self.loading = str(error)
        self.log.warning("not-listening", reason=error, advice="it is tried every second")

    def _log_context(self) -> dict[str, object]:
        """What every line of the log has."""
        epoch: int | str = epoch_of(self.replica.tree.last_zxid) if self.is_loaded else "-"
        if self.member is not None:
            epoch = self.member.state.current_epoch
        return {"server": self.server_id, "role": self.mode, "epoch": epoch}


def monotonic_ms() -> int:
    """Monotonic time."""
    return time.monotonic_ns() // 1_000_000
