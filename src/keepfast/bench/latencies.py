"""Latencies as a histogram: constant memory, each value kept to about one percent."""

from __future__ import annotations

from collections import Counter
from math import log2
from typing import Final

# Buckets for each doubling: a bucket is 2 ** (1 / 64), 1.1 % wide.
_BUCKETS: Final = 64
_NS_PER_US: Final = 1000


class Latencies:
    """Times in nanoseconds go in, percentiles in microseconds come out."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.worst_ns = 0

    def add(self, spent_ns: int) -> None:
        """Count one request."""
        self._counts[int(log2(max(spent_ns, 1)) * _BUCKETS)] += 1
        self.count += 1
        self.worst_ns = max(self.worst_ns, spent_ns)

    def percentile_us(self, percent: float) -> float:
        """The time that this percentage of requests did not exceed; 0 if there were none."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= wanted:
                upper_ns: float = 2 ** ((bucket + 1) / _BUCKETS)
                return min(upper_ns, self.worst_ns) / _NS_PER_US
        return 0.0

    @property
    def worst_us(self) -> float:
        """The longest of them."""
        return self.worst_ns / _NS_PER_US

    def histogram(self) -> list[tuple[float, int]]:
        """For each power of two: its upper end in microseconds, and how many were below it."""
        doublings: Counter[int] = Counter()
        for bucket, count in self._counts.items():
            doublings[bucket // _BUCKETS + 1] += count
        return [(2**end / _NS_PER_US, count) for end, count in sorted(doublings.items())]
