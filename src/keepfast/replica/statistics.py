"""What a replica counts, for reports.

Counting is on the path of every request, so it is kept to plain additions; what a report shows is
computed on demand. Reads show how: nearly all of them are answered in the turn of the driver in
which they came, that is within the same millisecond, so they are only counted. The driver reports
turns that took longer.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple, Self

from keepfast.wire import EventType

# Apache keeps the digest of every 128th txn, and the last 1024 of them.
DIGEST_INTERVAL: Final = 128
_DIGESTS_KEPT: Final = 1024

# From here on values are kept to three digits, so that the table of a distribution stays small.
_EXACT_BELOW: Final = 1000


class Summary:
    """Number, sum, least and greatest of some values."""

    __slots__ = ("count", "greatest", "least", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total: float = 0
        self.least: float = 0
        self.greatest: float = 0

    def add(self, value: float, times: int = 1) -> None:
        """Take a value, or the same value several times."""
        if not self.count:
            self.least = self.greatest = value
        elif value < self.least:
            self.least = value
        elif value > self.greatest:
            self.greatest = value
        self.count += times
        self.total += value * times

    def with_values(self, other: Summary) -> Self:
        """This and another one together, as a new value."""
        both = type(self)()
        both._take(self)
        both._take(other)
        return both

    def _take(self, other: Summary) -> None:
        if other.count:
            self.least = min(self.least, other.least) if self.count else other.least
            self.greatest = max(self.greatest, other.greatest) if self.count else other.greatest
            self.count += other.count
            self.total += other.total

    @property
    def mean(self) -> float:
        """The mean; 0 of nothing."""
        return self.total / self.count if self.count else 0.0


class Distribution(Summary):
    """A summary that also knows how the values are spread, to a whole number or three digits."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[int, int] = {}

    def add(self, value: float, times: int = 1) -> None:
        """Take a value, or the same value several times."""
        if not self.count:
            self.least = self.greatest = value
        elif value < self.least:
            self.least = value
        elif value > self.greatest:
            self.greatest = value
        self.count += times
        self.total += value * times
        key = int(value)
        if key >= _EXACT_BELOW:
            key = _three_digits(key)
        counts = self._counts
        counts[key] = counts.get(key, 0) + times

    def _take(self, other: Summary) -> None:
        super()._take(other)
        if isinstance(other, Distribution):
            for key, times in other._counts.items():
                self._counts[key] = self._counts.get(key, 0) + times

    def quantile(self, fraction: float) -> int:
        """The least value that this fraction of all values does not exceed; 0 of nothing."""
        wanted = fraction * sum(self._counts.values())
        seen = 0
        for key in sorted(self._counts):
            seen += self._counts[key]
            if seen >= wanted:
                return key
        return 0


def _three_digits(value: int) -> int:
    unit: int = 10 ** (len(str(value)) - 3)
    return value // unit * unit


class SizeRange:
    """The last, the least and the greatest of some sizes in bytes; -1: there was none."""

    __slots__ = ("greatest", "last", "least")

    def __init__(self) -> None:
        self.last = -1
        self.least = -1
        self.greatest = -1

    def add_all(self, sizes: list[int]) -> None:
        """Take sizes, at least one, in their order."""
        self.last = sizes[-1]
        least = min(sizes)
        if least < self.least or self.least < 0:
            self.least = least
        self.greatest = max(self.greatest, *sizes)


class TreeDigest(NamedTuple):
    """The tree's digest right after a txn."""

    zxid: int
    digest: int


_LENGTH_FIELD: Final = 4
_LARGE_GROUP: Final = 64 << 10


class ReplicaStatistics:
    """Counters of one replica. The replica and its driver add; reports read; `reset` clears."""

    __slots__ = (
        "auth_failures",
        "bytes_received",
        "bytes_sent",
        "connects",
        "digests",
        "drops",
        "expired_sessions",
        "large_refusals",
        "last_group_bytes",
        "proposals",
        "proposed",
        "reads",
        "received",
        "responses",
        "revalidations",
        "sessionless_expired",
        "slow_reads",
        "throttle_refusals",
        "throttled",
        "throttled_out",
        "token_deficit",
        "told",
        "updates",
        "watch_bytes",
        "watchers_told",
    )

    def __init__(self) -> None:
        self.digests: deque[TreeDigest] = deque(maxlen=_DIGESTS_KEPT)
        self.reset()

    def reset(self) -> None:
        """Begin to count again."""
        # Packets: from clients; replies to reads that were answered at once; all others to clients.
        self.received = 0
        self.reads = 0
        self.told = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.watch_bytes = 0
        # Of frames, without their length field.
        self.responses = SizeRange()
        self.last_group_bytes = 0
        # Of the txns that a leader proposed in this term, and how many it ever did.
        self.proposals = SizeRange()
        self.proposed = 0
        # Times in ms from a request to its reply: of reads that took one ms or more, of writes.
        self.slow_reads = Distribution()
        self.updates = Distribution()
        self.connects = 0
        self.revalidations = 0
        self.drops = 0
        self.auth_failures = 0
        self.expired_sessions = 0
        # What the limits did (throttle.py): connections closed that had no session, connections
        # and large requests refused, writes held, requests not done as they were held too long.
        self.sessionless_expired = 0
        self.throttle_refusals = 0
        self.large_refusals = 0
        self.throttled = 0
        self.throttled_out = 0
        self.token_deficit = Summary()
        # By event type: how many watchers were notified of one.
        self.watchers_told = {event.value: Summary() for event in EventType}

    @property
    def sent(self) -> int:
        """Packets to clients."""
        return self.reads + self.told

    def read_latency(self) -> Distribution:
        """Times of all reads, in ms."""
        quick = Distribution()
        if self.reads:
            quick.add(0, self.reads)
        return quick.with_values(self.slow_reads)

    def latency(self) -> Summary:
        """Times of all requests, in ms."""
        return self.read_latency().with_values(self.updates)

    def note_slow_turn(self, reads: int, spent_ms: int) -> None:
        """The last `reads` reads were not answered within a millisecond after all."""
        self.reads -= reads
        self.told += reads
        self.slow_reads.add(spent_ms, reads)

    def note_frames(self, frames: list[bytes], size: int) -> None:
        """Frames that go to one client now, `size` bytes together.

        Not called if the group before had the same size. Of a small group the last frame stands
        for all: this is work for every group of frames.
        """
        self.last_group_bytes = size
        sizes = self.responses
        last = sizes.last = len(frames[-1]) - _LENGTH_FIELD
        if last > sizes.greatest:
            sizes.greatest = last
        if last < sizes.least or sizes.least < 0:
            sizes.least = last
        if size > _LARGE_GROUP:
            sizes.greatest = max(sizes.greatest, max(map(len, frames)) - _LENGTH_FIELD)
