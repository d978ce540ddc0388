"""Writes that go out together: to the followers, and to the disk.

What clients wrote waits in the replica until its group is complete (gathering.py), and is then
proposed and stored in one piece. A follower is sent whole groups and stores what it gets at once;
if it waited, too, its clients would wait twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from keepfast.replica import Replica
from keepfast.server.gathering import NO_GROUP, Gathering, Group

_SESSION_SIZE: Final = 8
# Of the records that came together, about so many are looked at. Low: sessions are overlooked, and
# not waited for. High: this is work for every write.
_LOOKED_AT: Final = 64


class WriteGroups:
    """See the module."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, replica: Replica, flush: Callable[[], None]
    ) -> None:
        """`flush` is called when a group is due that was held."""
        self._loop = loop
        self._replica = replica
        self._flush = flush
        self._gathering = Gathering()
        self._timer: asyncio.TimerHandle | None = None
        # Of the records that wait in the replica: how many were counted.
        self._counted = 0

    def is_held(self) -> bool:
        """Whether what waits in the replica has to wait for more; each record asks again."""
        now, appends = self._loop.time(), self._replica.appends
        count = len(appends) - self._counted
        if count > 0:
            # An entry begins with the id of the session that it is made for. A client that sends
            # many together has them in one run: some of them tell whose they are.
            some = appends[self._counted :: 1 + count // _LOOKED_AT]
            self._counted += count
            self._gathering.add([record[1][:_SESSION_SIZE] for record in some], now, count)
        left = self._gathering.seconds_left(now)
        if self._timer is not None and not left:
            self._timer.cancel()
            self._timer = None
        elif self._timer is None and left:
            self._timer = self._loop.call_later(left, self._deadline_passed)
        return left > 0

    def take(self) -> Group:
        """What waits in the replica goes out now."""
        if not self._counted:
            return NO_GROUP
        self._counted = 0
        return self._gathering.take()

    def synced(self, group: Group, sync_seconds: float) -> None:
        """A group is on disk."""
        if group[0]:
            self._gathering.synced(group, self._loop.time(), sync_seconds)

    def _deadline_passed(self) -> None:
        self._timer = None
        self._flush()
