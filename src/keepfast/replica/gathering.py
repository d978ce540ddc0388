"""How long a group of records waits for more of them before it is proposed and fsynced.

Clients that wait for each write before they send the next one split into two halves: one half is
being fsynced while the other half sends, and the disk is called twice for what it could do in one
call. Clients that were just answered are about to write again; waiting for them for a small part of
the time that an fsync takes nearly doubles the throughput of such clients.

So after a sync a record is expected of each session that it made one durable for, or that one came
from meanwhile, and more than half as many records as these were. When they are there the next group
is due, without any waiting; when none came for a while it is due anyway. If the expected ones did
not come, the next groups do not wait: first one, then three, then seven, and so on. Not as many
records: a client that also reads sends now more writes and now less, and stops at the first one, as
the requests after it have to wait for it.
"""

from __future__ import annotations

from typing import Final

# A fraction of the time that an fsync takes. Low: those that answer late miss the group. High: a
# group whose clients have left waits for nothing.
_SHARE: Final = 0.5
# Of the records of the last group and those that came meanwhile. Low: clients with many writes
# under way are served in many small groups. High: one that wrote less this time is waited for.
_MIN_RECORDS: Final = 0.6
# The loop's clock ticks in milliseconds.
_MIN_SECONDS: Final = 0.001
_MAX_SECONDS: Final = 0.01
# The maximum number of groups that do not wait after a fruitless wait.
_MAX_SKIPPED: Final = 256

# Records, and the sessions that they are of.
Group = tuple[int, frozenset[bytes]]
NO_GROUP: Final[Group] = (0, frozenset())


class Gathering:
    """Decides when a group of records has waited long enough. Times in seconds, of any clock."""

    __slots__ = (
        "_deadline",
        "_disappointments",
        "_expected_records",
        "_expected_sessions",
        "_is_holding",
        "_latest",
        "_records",
        "_sessions",
        "_share",
        "_skips",
    )

    def __init__(self) -> None:
        # What waits: records, and the sessions that they are of; and what a group is complete with.
        self._records = 0
        self._sessions: set[bytes] = set()
        self._expected_records = 0.0
        self._expected_sessions = 0
        self._share = _MIN_SECONDS
        self._deadline = self._latest = 0.0
        self._is_holding = False
        self._disappointments = 0
        self._skips = 0

    def add(self, sessions: list[bytes], now: float, records: int | None = None) -> None:
        """Records wait from now on, of these sessions; one of each unless their number is given."""
        self._records += len(sessions) if records is None else records
        self._sessions.update(sessions)
        # Those that are still to come may only have to wait for the processor, as these had.
        self._deadline = min(now + self._share, self._latest)

    def take(self) -> Group:
        """All that waits goes out."""
        group = (self._records, frozenset(self._sessions))
        self._records, self._sessions = 0, set()
        return group

    def synced(self, group: Group, now: float, sync_seconds: float) -> None:
        """The fsync of a group is done."""
        records, sessions = group
        self._expected_sessions = len(sessions | self._sessions)
        self._expected_records = (records + self._records) * _MIN_RECORDS
        self._share = min(max(sync_seconds * _SHARE, _MIN_SECONDS), _MAX_SECONDS)
        self._deadline = now + self._share
        self._latest = now + _MAX_SECONDS
        self._is_holding = False
        if self._skips:
            self._skips -= 1

    def seconds_left(self, now: float) -> float:
        """How much longer the pending records are held back; 0: they are due."""
        if self._skips:
            return 0.0
        if (
            len(self._sessions) >= self._expected_sessions
            and self._records >= self._expected_records
        ):
            self._disappointments = 0
            return 0.0
        left = self._deadline - now
        if left > 0:
            self._is_holding = True
            return left
        if self._is_holding:
            self._is_holding = False
            self._disappointments += 1
            self._skips = min(1 << self._disappointments, _MAX_SKIPPED)
        return 0.0
