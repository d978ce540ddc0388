"""One client connection as the replica sees it."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any, Final

import msgspec

from keepfast.replica.sasl import DigestMd5
from keepfast.replica.statistics import Summary
from keepfast.tree import Caller
from keepfast.wire import FrameParser, Id, OpCode, SessionId

NO_SESSION: Final = SessionId(0)
# Where the type of a request stands: there was none, or it failed.
NO_OPERATION: Final = -1
_SYNC: Final = OpCode.SYNC.value


class Phase(Enum):
    """How far a connection has come."""

    NEW = "new"  # nothing was read yet
    CONNECTING = "connecting"  # its session is being created
    OPEN = "open"
    CLOSED = "closed"


class PendingWrite(msgspec.Struct, gc=False, eq=False):
    """A request that waits for its txn; it holds up the requests behind it on its connection.

    A Struct, because one is made for each write; nothing that it refers to refers back to it.
    """

    since_ms: int
    xid: int = 0
    op: int = NO_OPERATION
    # What was asked for, where another server makes the txn and changes are audited.
    request: Any = None
    # The reply's frame, once it is known; b"" for no reply at all.
    reply: bytes | None = None
    # Its size, if it counts as a large request.
    large_bytes: int = 0

    @property
    def is_sync(self) -> bool:
        """Whether it waits for the txns of others, and not for one of its own."""
        return self.op == _SYNC


class Connection:
    """State of one connection. The driver reads `out` and `phase`; the replica writes them.

    `queue` is empty unless a write is under way: then it holds that write and all that came
    behind it, in order, so that replies leave in the order of the requests.
    """

    __slots__ = (
        "address",
        "burst",
        "caller",
        "close_reason",
        "frames",
        "free_ms",
        "held",
        "ids",
        "is_secure",
        "is_stalled",
        "is_throttled",
        "large_bytes",
        "last_latency_ms",
        "last_ms",
        "last_op",
        "last_xid",
        "last_zxid",
        "number",
        "opened_ms",
        "out",
        "owes_identity",
        "phase",
        "port",
        "queue",
        "reads",
        "received",
        "sasl",
        "session_id",
        "timeout_ms",
        "told",
        "touched_ms",
        "waits",
        "wants_read_only_byte",
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
        # Large replies since the last pause, and whether that was too much (backpressure.py);
        # whether its writes have to wait for room (throttle.py); the requests that wait for either.
        self.burst = 0
        self.is_stalled = False
        self.is_throttled = False
        self.held: list[bytes] = []
        # Size of the request that is arriving, if it is large.
        self.large_bytes = 0
        # When its session was given its full time again.
        self.touched_ms = -1
        # The same, as long as it is open and nothing holds up its requests; otherwise -1.
        self.free_ms = -1
        self.session_id = NO_SESSION
        self.timeout_ms = 0
        self.ids: tuple[Id, ...] = (Id("ip", address),)
        self.caller = Caller(NO_SESSION, self.ids)
        # Whether it is inside TLS; for reports.
        self.is_secure = False
        # Whether it has to say who it is before anything else.
        self.owes_identity = False
        self.sasl: DigestMd5 | None = None
        self.wants_read_only_byte = True
        self.close_reason = ""
        self.opened_ms = now_ms
        self.reset_statistics()

    def reset_statistics(self) -> None:
        """Begin to count anew; all of this is for reports."""
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

    def identify(self, session_id: SessionId, timeout_ms: int) -> None:
        """Give it its session."""
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.caller = Caller(session_id, self.ids)

    def waits_for(self, xid: int) -> PendingWrite | None:
        """The oldest write without a reply, if it is the one with this xid."""
        for item in self.queue:
            if isinstance(item, PendingWrite) and item.reply is None and not item.is_sync:
                return item if item.xid == xid else None
        return None

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
            self.ids = (*self.ids, identity)
            self.caller = self.caller._replace(ids=self.ids)
