"""How long each turn held the loop, making every other client wait.

Everything that the loop does for a server runs inside a turn: what clients sent is handled, a group
is durable, a timer is due, a piece of a snapshot is written. The time that the disk takes in a call
of its own is not counted here, but as fsync time.
"""

from __future__ import annotations

from typing import Final

# A turn of up to this length delays nobody noticeably.
LIMIT_NS: Final = 5_000_000
_NS_OF_MS: Final = 1_000_000
# Turns are counted in steps of 16.4 us up to 16.8 ms, and by powers of two above.
_STEP_BITS: Final = 14
_STEPS: Final = 1024
_LARGEST: Final = 64


class TurnTimes:
    """Number, worst and spread of turns; adding one costs a tenth of a microsecond."""

    __slots__ = ("_counts", "_excused_ns", "over_limit", "worst_ns")

    def __init__(self) -> None:
        self._excused_ns = 0
        self.reset()

    def reset(self) -> None:
        """Begin to count again."""
        self._counts = [0] * (_STEPS + _LARGEST)
        self.worst_ns = 0
        self.over_limit = 0

    def excuse(self, seconds: float) -> None:
        """This much of the current turn was spent in the disk."""
        self._excused_ns += int(seconds * 1_000_000_000)

    def add(self, spent_ns: int) -> None:
        """A turn is over."""
        if self._excused_ns:
            spent_ns = max(spent_ns - self._excused_ns, 0)
            self._excused_ns = 0
        step = spent_ns >> _STEP_BITS
        self._counts[step if step < _STEPS else _STEPS + step.bit_length()] += 1
        if spent_ns > self.worst_ns:
            self.worst_ns = spent_ns
        if spent_ns > LIMIT_NS:
            self.over_limit += 1

    @property
    def worst_ms(self) -> float:
        """The longest turn."""
        return self.worst_ns / _NS_OF_MS

    def quantile_ms(self, fraction: float) -> float:
        """The duration that this fraction of turns did not exceed, rounded up a step; 0 if none."""
        wanted = fraction * sum(self._counts)
        seen = 0
        for place, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                steps = place + 1 if place < _STEPS else 1 << (place - _STEPS)
                return min((steps << _STEP_BITS) / _NS_OF_MS, self.worst_ms)
        return 0.0
