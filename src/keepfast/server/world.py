"""The real world around a server: clocks, timers, threads and clients' sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final

from keepfast.apache import java_hex
from keepfast.driver import Failure, PeerWorld
from keepfast.quorum import DiskOrder, Link, Note, Quorums, SharedSecret
from keepfast.replica import SESSION_CLOSED, Append, AuditRecord, Connection
from keepfast.server.audit_log import AuditLog
from keepfast.server.client_port import ClientProtocol
from keepfast.server.logs import EventLog
from keepfast.server.session_secret import write_secret
from keepfast.wire import Notification, ServerId, StorageError

_NS_OF_MS: Final = 1_000_000
_ERRORS: Final = frozenset(("snapshot-failed", "purge-failed", "stream-failed", "disk-full"))
# What the disk is called with, and what follows, with the seconds that it took.
_DiskJob = tuple[Callable[[], None], Callable[[float], None]]


class AsyncioWorld:
    """A `driver.ServerWorld` of asyncio: the server's own loop, one disk thread, sockets."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: EventLog,
        audit: AuditLog | None,
        on_failed: Callable[[Failure], None],
    ) -> None:
        self.now_ns = time.monotonic_ns
        self.turn_time = loop.time
        self.clients: dict[Connection, ClientProtocol] = {}
        # Those who have closed, until the server has forgotten them.
        self.leaving: dict[Connection, ClientProtocol] = {}
        self.peers: PeerWorld | None = None
        # Where a member keeps what session passwords are made with.
        self.secret_file = ""
        self._loop = loop
        self._log = log
        self._audit = audit
        self._on_failed = on_failed
        # None ends the thread. Not an executor: it takes as long as the loop needs for a write.
        self._disk_jobs: SimpleQueue[_DiskJob | None] = SimpleQueue()
        self._disk_thread: Thread | None = None

    def join_disk(self) -> None:
        """Wait until the disk thread is done with what it was given."""
        if self._disk_thread is not None:
            self._disk_jobs.put(None)
            self._disk_thread.join()

    # -- clock, timers, threads ------------------------------------------------------------------

    def wall_ms(self) -> int:
        """See ServerWorld."""
        return time.time_ns() // _NS_OF_MS

    def call_soon(self, action: Callable[[], None]) -> None:
        """See ServerWorld."""
        self._loop.call_soon(action)

    def call_after_others(self, action: Callable[[], None]) -> None:
        """See ServerWorld."""
        self._loop.call_soon(action)

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        """See ServerWorld."""
        return self._loop.call_later(seconds, action)

    def call_disk(self, work: Callable[[], None]) -> float:
        """See ServerWorld."""
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def on_disk_thread(self, work: Callable[[], None], done: Callable[[float], None]) -> None:
        """See ServerWorld."""
        if self._disk_thread is None:
            self._disk_thread = Thread(target=self._call_disk, name="keepfast-disk", daemon=True)
            self._disk_thread.start()
        self._disk_jobs.put((work, done))

    def _call_disk(self) -> None:
        while (job := self._disk_jobs.get()) is not None:
            work, done = job
            self._loop.call_soon_threadsafe(done, self.call_disk(work))

    def store_secret(self, secret: SharedSecret) -> None:
        """See World."""
        try:
            write_secret(Path(self.secret_file), secret)
        except OSError as error:
            raise StorageError(error.strerror or str(error), self.secret_file) from error

    def aside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """See ServerWorld."""
        self._loop.run_in_executor(None, work).add_done_callback(
            lambda future: self._ended(future, done)
        )

    def _ended(self, future: asyncio.Future[None], done: Callable[[], None]) -> None:
        if not future.cancelled():
            future.result()
            done()

    # -- clients ---------------------------------------------------------------------------------

    def send_client(self, connection: Connection, data: bytes) -> None:
        """See ServerWorld."""
        client = self.clients.get(connection)
        if client is not None:
            client.send(data)

    def unsent_bytes(self, connection: Connection) -> int:
        """See ServerWorld."""
        client = self.clients.get(connection)
        return 0 if client is None else client.unsent_bytes

    def close_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        if connection.close_reason != SESSION_CLOSED:
            # Not where a client says goodbye: that is what all of them do, as often as they like.
            self._log.info(
                "closed",
                address=connection.address,
                session=f"0x{java_hex(connection.session_id)}",
                reason=connection.close_reason,
            )
        client = self.clients.get(connection)
        if client is not None:
            client.close()

    def abort_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        client = self.clients.get(connection)
        if client is not None:
            client.abort()

    def release_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        client = self.leaving.pop(connection, None)
        if client is not None:
            client.close()

    def pause_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        client = self.clients.get(connection)
        if client is not None:
            client.pause()

    def resume_client(self, connection: Connection) -> None:
        """See ServerWorld."""
        client = self.clients.get(connection)
        if client is not None:
            client.resume()

    # -- peers -----------------------------------------------------------------------------------

    def send_peer(self, link: Link, packets: bytes) -> bool:
        """See ServerWorld."""
        return self.peers is None or self.peers.send_peer(link, packets)

    def stream_peer(self, link: Link, piece: bytes) -> bool:
        """See ServerWorld."""
        return self.peers is None or self.peers.stream_peer(link, piece)

    def pause_peer(self, link: Link) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.pause_peer(link)

    def resume_peer(self, link: Link) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.resume_peer(link)

    def hang_up(self, link: Link, reason: str) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.hang_up(link, reason)

    def dial(self, server_id: ServerId) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.dial(server_id)

    def notify(self, server_id: ServerId, vote: Notification) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.notify(server_id, vote)

    def use_members(self, quorums: Quorums) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.use_members(quorums)

    # -- what others are notified of ------------------------------------------------------------

    def logging(self, records: list[Append]) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.logging(records)

    def order_done(self, order: DiskOrder) -> None:
        """See ServerWorld."""
        if self.peers is not None:
            self.peers.order_done(order)

    def note(self, note: Note) -> None:
        """See ServerWorld."""
        log = self._log.error if note.name in _ERRORS else self._log.info
        log(note.name, **dict(note.fields))

    def audit(self, records: list[AuditRecord]) -> None:
        """See ServerWorld."""
        if self._audit is not None:
            self._audit.write(records)

    def failed(self, error: Exception) -> None:
        """See ServerWorld."""
        self._on_failed(Failure(error))
