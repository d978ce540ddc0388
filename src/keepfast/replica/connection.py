"""One client connection as the replica sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final

from keepfast.replica.pending_write import NO_OPERATION, PendingWrite
from keepfast.replica.sasl import Exchange
from keepfast.replica.statistics import Summary
from keepfast.tree import Caller, WatchKind
from keepfast.wire import EventType, FrameParser, Id, SessionId, Zxid

NO_SESSION: Final = SessionId(0)
_ID_OVERHEAD_BYTES: Final = 8
# Why a connection is closed whose client has closed its session.
SESSION_CLOSED: Final = "the session was closed"


# A watch that a client sets again, and the event that it missed; None: none, it is only set.
MissedEvent = tuple[WatchKind, str, EventType | None]


class Phase(Enum):
    """The state of a connection."""

    NEW = "new"  # nothing was read yet
    CONNECTING = "connecting"  # its session is being created
    OPEN = "open"
    CLOSED = "closed"


class Connection:
    """State of one connection. The driver reads `out` and `phase`; the replica writes them.

    `queue` is empty unless a write is under way: then it holds that write and all that came
    after it, in order, so that replies leave in the order of the requests.
    """

    __slots__ = (
        "address",
        "burst",
        "caller",
        "close_reason",
        "frames",
        "free_until",
        "held",
        "id_bytes",
        "ids",
        "is_full",
        "is_secure",
        "is_stalled",
        "is_throttled",
        "large_bytes",
        "largest_unsent",
        "last_latency_ms",
        "last_ms",
        "last_op",
        "last_xid",
        "last_zxid",
        "moved_at",
        "number",
        "opened_ms",
        "out",
        "owes_identity",
        "parked_bytes",
        "phase",
        "port",
        "queue",
        "reads",
        "received",
        "sasl",
        "session_id",
        "timeout_ms",
        "told",
        "unfinished",
        "waits",
        "waits_for_reads",
        "wants_read_only_byte",
        "work",
    )

    def __init__(
        self, number: int, address: str, port: int, max_frame_bytes: int, now_ms: int
    ) -> None:
        self.number = number
        self.address = address
        self.port = port
        self.frames = FrameParser(max_frame_bytes, 1)
        self.phase = Phase.NEW
        self.out: list[bytes] = []
        self.queue: deque[PendingWrite | bytes] = deque()
        # Large replies since the last pause, work not counted there yet, and whether that was too
        # much (backpressure.py); whether its requests have to wait for room (throttle.py), or for a
        # check of who it is; the requests that wait for any of these.
        self.burst = 0
        self.work = 0
        self.is_stalled = False
        self.is_throttled = False
        # Whether a write waits until the reads before it are answered, and about how much
        # those are that stand before writes which did not have to (parked_reads.py).
        self.waits_for_reads = False
        self.parked_bytes = 0
        # Whether the client has to read some of what it was sent before it is sent more.
        self.is_full = False
        # The largest reply among what it has not read since then.
        self.largest_unsent = 0
        self.held: list[bytes] = []
        # What is left of a request that takes several turns, which is the first of those.
        self.unfinished: Iterator[MissedEvent | None] | None = None
        # Size of the request that is arriving, if it is large.
        self.large_bytes = 0
        # Until when a sign of life does not extend its session, as long as it is open and
        # nothing holds up its requests; otherwise -1.
        self.free_until = -1
        self.session_id = NO_SESSION
        # Txns of its session up to this one were asked for on other connections.
        self.moved_at = Zxid(-1)
        self.timeout_ms = 0
        self.ids: tuple[Id, ...] = (Id("ip", address),)
        # Their size, about; without the address.
        self.id_bytes = 0
        self.caller = Caller(NO_SESSION, self.ids)
        # Whether it is inside TLS; for reports.
        self.is_secure = False
        # Whether it has to authenticate before anything else.
        self.owes_identity = False
        self.sasl: Exchange | None = None
        self.wants_read_only_byte = True
        self.close_reason = ""
        self.opened_ms = now_ms
        self.reset_statistics()

    def reset_statistics(self) -> None:
        """Reset the counters, which are for reports alone."""
        self.received = 0
        # Replies to reads that were answered at once; all other packets to the client.
        self.reads = 0
        self.told = 0
        # Times of all other requests, in ms.
        self.waits = Summary()
        # The last request that was answered: type, xid, zxid and time of the reply.
        self.last_op = NO_OPERATION
        self.last_xid = -1
        self.last_zxid = -1
        self.last_ms = 0
        self.last_latency_ms = 0

    @property
    def sent(self) -> int:
        """Packets to the client."""
        return self.reads + self.told

    def latency(self) -> Summary:
        """Times of all requests, in ms."""
        quick = Summary()
        if self.reads:
            quick.add(0, self.reads)
        return quick.with_values(self.waits)

    @property
    def is_open(self) -> bool:
        """Whether it has a session and may be written to."""
        return self.phase is Phase.OPEN

    @property
    def is_held_up(self) -> bool:
        """Whether its further requests have to wait."""
        return self.is_throttled or self.is_stalled or self.waits_for_reads

    def identify(self, session_id: SessionId, timeout_ms: int) -> None:
        """Give it its session."""
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.caller = Caller(session_id, self.ids)

    def note(
        self, op: int, xid: int, zxid: int, now_ms: int, spent_ms: int, times: int = 1
    ) -> None:
        """Count a request that had to wait and is answered now, or several of one kind."""
        self.waits.add(spent_ms, times)
        self.last_op = op
        if xid >= 0:
            self.last_xid = xid
        self.last_zxid = zxid
        self.last_ms = now_ms
        self.last_latency_ms = spent_ms

    def add_id(self, identity: Id) -> None:
        """Note what it has authenticated as; ids accumulate."""
        if identity not in self.ids:
            self.id_bytes += size_of_id(identity)
            self.ids = (*self.ids, identity)
            self.caller = self.caller._replace(ids=self.ids)


def size_of_id(identity: Id) -> int:
    """The bytes of an id, about: also of what holds it."""
    return len(identity.scheme) + len(identity.id) + _ID_OVERHEAD_BYTES
