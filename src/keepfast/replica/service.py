"""What the parts of a server share: the tree that is served, the clock, the clients, the effects.

A part (the handshake, a leader's proposer, the throttle and so on) is given this and does its work
on it; none of them knows the replica that they belong to. What they cannot do themselves, because
it takes all of them, they leave here: requests that can be handled now are `ready`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from keepfast.replica.audit import AuditRecord
from keepfast.replica.child_lists import ChildLists
from keepfast.replica.connection import Connection, Phase
from keepfast.replica.event_gate import EventGate
from keepfast.replica.proposals import Append, PlainWrite, Proposal
from keepfast.replica.recent_reads import RecentReads
from keepfast.replica.replica_options import ReplicaOptions
from keepfast.replica.sessions import SessionTracker, TouchTable
from keepfast.replica.statistics import Distribution, ReplicaStatistics
from keepfast.tree import Tree, WatchTable
from keepfast.wire import ServerId, Zxid


class Service:
    """What the parts of a server work on together."""

    __slots__ = (
        "appends",
        "audits",
        "child_lists",
        "closing",
        "connections",
        "dirty",
        "gate",
        "greeted",
        "has_more_work",
        "held_since",
        "is_busy",
        "is_read_only",
        "is_writable",
        "large_bytes",
        "last_proposed",
        "last_zxid",
        "made",
        "max_field",
        "now_ms",
        "options",
        "passwords",
        "postponed",
        "proposals",
        "ready",
        "recent_reads",
        "server_id",
        "sessions",
        "skips_acls",
        "spent",
        "stalled",
        "statistics",
        "strangers",
        "stuck",
        "tree",
        "uncounted_reply",
        "unfinished",
        "wall_ms",
        "watches",
    )

    def __init__(self, tree: Tree, options: ReplicaOptions, now_ms: int, wall_ms: int) -> None:
        self.options = options
        self.server_id = ServerId(options.server_id)
        self.max_field = options.max_field_bytes
        self.uncounted_reply = options.uncounted_reply_bytes
        # What sessions are got back with; an ensemble may agree on others.
        self.passwords = options.passwords
        self.skips_acls = options.prepare.is_acl_skipped
        self.statistics = ReplicaStatistics()
        # Monotonic time for deadlines, wall clock time for txns.
        self.now_ms = now_ms
        self.wall_ms = wall_ms
        # The tree that is served; the zxid in replies: the last txn, or the start of the epoch;
        # sessions.
        self.tree = tree
        self.last_zxid = tree.last_zxid
        self.sessions: SessionTracker | TouchTable = SessionTracker(options.tick_ms)
        # Whether records are accepted. Not on a full disk: reads continue, writes are refused.
        self.is_writable = True
        self.is_read_only = False
        self.watches: WatchTable[Connection] = WatchTable(options.max_watch_bytes)
        # Who waits for the events of the last txn; None: all of them are sent.
        self.gate: EventGate | None = None
        self.recent_reads = RecentReads()
        self.child_lists = ChildLists()
        # Txns that were made here and are not committed yet, and the last one that ever was.
        self.proposals: deque[Proposal | PlainWrite] = deque()
        self.last_proposed = Zxid(0)
        # Whether a long txn is being made, after which all other writes have to wait; and what
        # waits, in order (proposer.py).
        self.is_busy = False
        self.postponed: deque[Callable[[], None]] = deque()
        # Connections: by session; without a session, the oldest first; those that sent something;
        # those whose writes have to wait, and since when.
        self.connections: dict[int, Connection] = {}
        self.strangers: dict[Connection, None] = {}
        self.greeted: dict[Connection, None] = {}
        self.held_since: dict[Connection, int] = {}
        # Those that have to take what they asked for, or wait for the turn of others, before more
        # is answered (backpressure.py).
        self.stalled: dict[Connection, None] = {}
        # Bytes of the large requests that are arriving or under way.
        self.large_bytes = 0
        # Requests that waited for a session and are to be handled next, in order.
        self.ready: list[tuple[Connection, list[bytes]]] = []
        # Effects. In the order of their first mention: the same in every run of a simulated world.
        self.appends: list[Append] = []
        self.dirty: dict[Connection, None] = {}
        self.closing: dict[Connection, None] = {}
        # Those among them that do not take what they are sent: nothing more is sent to them.
        self.stuck: list[Connection] = []
        # Those whose next request was begun and takes more than this turn.
        self.unfinished: dict[Connection, None] = {}
        # Work of this turn on what is committed, and on large txns that are made (commit_turns.py).
        self.spent = self.made = 0
        # Whether something that takes many turns continues when others had theirs.
        self.has_more_work = False
        # None: changes are not audited.
        self.audits: list[AuditRecord] | None = [] if options.is_audited else None

    @property
    def outstanding(self) -> int:
        """Writes that are under way."""
        return len(self.proposals) + len(self.postponed)

    # -- effects ---------------------------------------------------------------------------------

    def take_appends(self) -> list[Append]:
        """The records to store, in order."""
        records, self.appends = self.appends, []
        return records

    def take_dirty(self) -> dict[Connection, None]:
        """The connections that have something to be sent."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def take_closing(self) -> dict[Connection, None]:
        """The connections that are to be closed."""
        closing, self.closing = self.closing, {}
        return closing

    def take_unfinished(self) -> dict[Connection, None]:
        """The connections whose requests continue when others have had their turn."""
        unfinished, self.unfinished = self.unfinished, {}
        return unfinished

    def take_stuck(self) -> list[Connection]:
        """The connections that are to be cut off."""
        stuck, self.stuck = self.stuck, []
        return stuck

    def take_audits(self) -> list[AuditRecord]:
        """The records for the audit log."""
        audits, self.audits = self.audits or [], []
        return audits

    # -- clients ---------------------------------------------------------------------------------

    def send(self, connection: Connection, data: bytes) -> None:
        """Queue a frame for a client."""
        connection.out.append(data)
        connection.told += 1
        self.statistics.told += 1
        self.dirty[connection] = None

    def lost(self, connection: Connection) -> None:
        """The connection is gone; its session survives until it expires."""
        if connection.phase is Phase.CLOSED:
            return
        connection.phase = Phase.CLOSED
        connection.free_until = -1
        connection.queue.clear()
        connection.held.clear()
        connection.unfinished = None
        self.held_since.pop(connection, None)
        self.stalled.pop(connection, None)
        self.strangers.pop(connection, None)
        self.large_bytes -= connection.large_bytes
        connection.large_bytes = 0
        self.greeted.pop(connection, None)
        if self.watches.drop(connection):
            self.has_more_work = True
        if self.connections.get(connection.session_id) is connection:
            del self.connections[connection.session_id]

    def close(self, connection: Connection, reason: str = "") -> None:
        """End a connection; what is in its `out` is still sent."""
        if connection.phase is Phase.CLOSED:
            return
        connection.close_reason = reason
        self.lost(connection)
        self.closing[connection] = None

    def cut_off(self, connection: Connection, waiting_bytes: int) -> None:
        """End a connection whose client lets so much wait that it is not even sent."""
        self.close(connection, f"it does not read what it is sent: {waiting_bytes} bytes wait")
        self.stuck.append(connection)

    def count_reads(self, connection: Connection, count: int, op: int, xid: int) -> None:
        """Count reads that were answered at once; the last of them was this one."""
        self.statistics.reads += count
        connection.reads += count
        connection.last_op = op
        connection.last_zxid = self.tree.last_zxid
        connection.last_ms = self.now_ms
        if xid >= 0:
            connection.last_xid = xid
        self.dirty[connection] = None

    def note(
        self,
        times: Distribution,
        connection: Connection,
        op: int,
        xid: int,
        since_ms: int,
        count: int = 1,
    ) -> None:
        """Count a request that had to wait and is answered now, or the last of several."""
        spent_ms = self.now_ms - since_ms
        times.add(spent_ms, count)
        connection.note(op, xid, self.last_zxid, self.now_ms, spent_ms, count)
