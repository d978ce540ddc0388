"""What a server needs from the world around it: clock, timers, threads, connections.

A world decides nothing: not when a group of writes is complete, not when a snapshot is due, not
whose requests wait. There are two, `server.AsyncioWorld` and `sim.Process`; whatever one of them
decided on its own, the other could not test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from keepfast.quorum import DiskOrder, Link, Note, Quorums, SharedSecret
from keepfast.replica import Append, AuditRecord, Connection
from keepfast.wire import Notification, ServerId

Action = Callable[[], None]


class Timer(Protocol):
    """Something that will be called, unless it is cancelled."""

    def cancel(self) -> None:
        """Do not call it; harmless if it was called."""


class PeerWorld(Protocol):
    """Connections to the other servers of an ensemble, and what belongs to them."""

    def send_peer(self, link: Link, packets: bytes) -> bool:
        """Send whole packets; False: wait for `link_drained` before the next ones."""

    def stream_peer(self, link: Link, piece: bytes) -> bool:
        """Send a piece of a stream; as `send_peer`."""

    def pause_peer(self, link: Link) -> None:
        """Leave what it sends in its socket; some of it may come nevertheless."""

    def resume_peer(self, link: Link) -> None:
        """Read from it again."""

    def hang_up(self, link: Link, reason: str) -> None:
        """Close a link; nothing comes back from it any more."""

    def dial(self, server_id: ServerId) -> None:
        """Connect to a peer's quorum port; `link_dialled` or `dial_failed` follows."""

    def notify(self, server_id: ServerId, vote: Notification) -> None:
        """Send a vote on the election connection."""

    def use_members(self, quorums: Quorums) -> None:
        """Talk to these peers from now on."""

    def logging(self, records: list[Append]) -> None:
        """These records are about to be appended to the log."""

    def order_done(self, order: DiskOrder) -> None:
        """The disk has carried out an order."""


class ServerWorld(PeerWorld, Protocol):
    """Clock, timers, threads and connections. All of it is called on the loop's own thread."""

    # -- clock and timers ------------------------------------------------------------------------

    def turn_time(self) -> float:
        """Monotonic time in seconds: the server's clock. It may stand still within a turn.

        A group waits for clients that are about to write; with a clock that advances while this
        server works, it would stop waiting because of the server's own work.
        """

    def now_ns(self) -> int:
        """Monotonic time that never stands still, to measure how long something took."""

    def wall_ms(self) -> int:
        """Wall clock time, in ms since 1970."""

    def call_soon(self, action: Action) -> None:
        """Call it when all that has come by now was passed in."""

    def call_after_others(self, action: Action) -> None:
        """Call it when others have had their turn: the next step of work that takes long."""

    def call_later(self, seconds: float, action: Action) -> Timer:
        """Call it after a while."""

    # -- disk and threads ------------------------------------------------------------------------

    def call_disk(self, work: Action) -> float:
        """Call the disk here and now; returns the seconds that it took."""

    def on_disk_thread(self, work: Action, done: Callable[[float], None]) -> None:
        """Call the disk on its thread, then `done` here, with the seconds that it took.

        `work` does not raise; there is one such thread.
        """

    def aside(self, work: Action, done: Action) -> None:
        """Run something that takes long on any thread, then `done` here. `work` does not raise."""

    def store_secret(self, secret: SharedSecret) -> None:
        """Make durable what session passwords are made with, beside the data. Raises StorageError.

        Called on the disk thread.
        """

    # -- clients ---------------------------------------------------------------------------------

    def send_client(self, connection: Connection, data: bytes) -> None:
        """Send bytes; `client_full` may come back at once, `client_lost` later."""

    def unsent_bytes(self, connection: Connection) -> int:
        """What a client has not taken yet."""

    def close_client(self, connection: Connection) -> None:
        """Close after what was sent."""

    def abort_client(self, connection: Connection) -> None:
        """Close at once."""

    def release_client(self, connection: Connection) -> None:
        """Close what is left of a client that was lost and is forgotten now."""

    def pause_client(self, connection: Connection) -> None:
        """Leave what it sends in its socket."""

    def resume_client(self, connection: Connection) -> None:
        """Read from it again."""

    # -- what others are notified of ------------------------------------------------------------

    def note(self, note: Note) -> None:
        """A rare branch was taken."""

    def audit(self, records: list[AuditRecord]) -> None:
        """Changes for the audit log."""

    def failed(self, error: Exception) -> None:
        """The server is over, for this reason: see `guard.Failure`. Nothing is called any more."""
