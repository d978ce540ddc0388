"""Writes that are sent to the followers and the disk together.

What clients wrote waits in the replica until its group is complete (gathering.py), and is then
proposed and stored together. A follower is sent whole groups and stores what it gets at once; if it
waited, too, its clients would wait twice.
"""

from __future__ import annotations

from typing import Final

from keepfast.replica.gathering import NO_GROUP, Gathering, Group
from keepfast.replica.proposals import Append

_SESSION_SIZE: Final = 8
# About how many of the records that arrived together are sampled. Low: sessions are overlooked, and
# not waited for. High: this is work for every write.
_LOOKED_AT: Final = 64


class WriteGroups:
    """Decides when the records that wait go out; times in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._gathering = Gathering()
        # Of the records that wait: how many were counted.
        self._counted = 0
        # When a group that is held is due; None: none is.
        self.deadline: float | None = None

    def is_held(self, appends: list[Append], now: float) -> bool:
        """Whether these records have to wait for more; ask again whenever there are more."""
        count = len(appends) - self._counted
        if count > 0:
            # An entry begins with the id of the session that it is made for. A client that sends
            # many together has them in one run: some of them tell whose they are.
            some = appends[self._counted :: 1 + count // _LOOKED_AT]
            self._counted += count
            self._gathering.add([record[1][:_SESSION_SIZE] for record in some], now, count)
        left = self._gathering.seconds_left(now)
        self.deadline = now + left if left else None
        return left > 0

    def take(self) -> Group:
        """All that waits goes out now."""
        self.deadline = None
        if not self._counted:
            return NO_GROUP
        self._counted = 0
        return self._gathering.take()

    def fsynced(self, group: Group, now: float, fsync_seconds: float) -> None:
        """A group is on disk."""
        if group[0]:
            self._gathering.synced(group, now, fsync_seconds)
