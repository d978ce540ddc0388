"""How long a group of records waits for more of them before it is synced.

Clients that wait for a write before they send the next fall into two halves on their own: one half
is being synced while the other half sends, and the disk is called twice for what it could do at
once. Those who were answered a moment ago are about to write again; to wait for them for a small
part of the time that a sync takes nearly doubles what such clients get done.

So behind a sync as many records are expected as it made durable and as came meanwhile. When they
are there the next group is due, without any waiting; at a deadline it is due anyway. If the
expected ones did not come, the next groups do not wait: first one, then two, then four, and so on.
"""

from __future__ import annotations

from typing import Final

# Of the time that a sync takes. Low: those that answer late miss the group. High: a group whose
# clients have left waits for nothing.
_SHARE: Final = 0.5
# The loop's clock ticks in milliseconds.
LEAST_SECONDS: Final = 0.001
_MOST_SECONDS: Final = 0.01
# Groups that do not wait behind the last disappointment, at most.
_MOST_SKIPPED: Final = 256


class Gathering:
    """See the module. Times in seconds, of any clock."""

    __slots__ = ("_deadline", "_disappointments", "_expected", "_is_holding", "_skips")

    def __init__(self) -> None:
        self._expected = 0
        self._deadline = 0.0
        self._is_holding = False
        self._disappointments = 0
        self._skips = 0

    def synced(self, records: int, waiting: int, now: float, sync_seconds: float) -> None:
        """A sync is done: how many records it made durable, and how many came meanwhile."""
        self._expected = records + waiting
        share = min(max(sync_seconds * _SHARE, LEAST_SECONDS), _MOST_SECONDS)
        self._deadline = now + share
        self._is_holding = False
        if self._skips:
            self._skips -= 1

    def seconds_left(self, waiting: int, now: float) -> float:
        """How long a group of `waiting` records is to be held back still; 0: it is due."""
        if self._skips:
            return 0.0
        if waiting >= self._expected:
            self._disappointments = 0
            return 0.0
        left = self._deadline - now
        if left > 0:
            self._is_holding = True
            return left
        if self._is_holding:
            self._is_holding = False
            self._disappointments += 1
            self._skips = min(1 << self._disappointments, _MOST_SKIPPED)
        return 0.0
