"""Sessions and when they end.

Deadlines are rounded up to a tick, so that sessions expire in buckets and touching one on every
packet costs a comparison. A session therefore lives for its timeout and up to one tick longer; in
an ensemble, until the server of its client has answered a ping that was sent after the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from keepfast.tree import Tree
from keepfast.wire import SessionId

# Sessions that are ended in one tick; the others are ended in the next ones.
MAX_EXPIRED: Final = 5000


def _always(_session_id: int, _deadline: int) -> bool:
    return True


class SessionTracker:
    """Deadlines of the sessions that this server watches over. All times are monotonic, in ms."""

    __slots__ = ("_buckets", "_deadlines", "_tick_ms", "timeouts")

    def __init__(self, tick_ms: int) -> None:
        self._tick_ms = tick_ms
        self.timeouts: dict[int, int] = {}
        self._deadlines: dict[int, int] = {}
        self._buckets: dict[int, set[int]] = {}

    def __contains__(self, session_id: object) -> bool:
        return session_id in self.timeouts

    def __len__(self) -> int:
        return len(self.timeouts)

    def track(self, session_id: int, timeout_ms: int, now_ms: int) -> None:
        """Watch over a session from now on, or give it another timeout."""
        self.timeouts[session_id] = timeout_ms
        self.touch(session_id, now_ms)

    def touch(self, session_id: int, now_ms: int) -> int:
        """Note a sign of life; until when another one changes nothing, -1 if it is not tracked."""
        timeout_ms = self.timeouts.get(session_id)
        if timeout_ms is None:
            return -1
        deadline = ((now_ms + timeout_ms) // self._tick_ms + 1) * self._tick_ms
        old = self._deadlines.get(session_id)
        if deadline != old:
            if old is not None:
                self._leave(session_id, old)
            self._deadlines[session_id] = deadline
            self._buckets.setdefault(deadline, set()).add(session_id)
        return deadline - timeout_ms

    def forget(self, session_id: int) -> None:
        """Stop tracking a session."""
        self.timeouts.pop(session_id, None)
        deadline = self._deadlines.pop(session_id, None)
        if deadline is not None:
            self._leave(session_id, deadline)

    def expired(
        self, now_ms: int, most: int, is_silent: Callable[[int, int], bool] = _always
    ) -> list[SessionId]:
        """The sessions whose deadline has passed, at most this many; they are forgotten.

        `is_silent`: whether it is known that nobody has heard of a session up to its deadline.
        """
        ended = list(islice(self._silent(now_ms, is_silent), most))
        for session_id in ended:
            self.forget(session_id)
        return ended

    def buckets(self) -> dict[int, list[int]]:
        """Deadline -> sessions, in order; for reports."""
        return {deadline: sorted(self._buckets[deadline]) for deadline in sorted(self._buckets)}

    def _silent(self, now_ms: int, is_silent: Callable[[int, int], bool]) -> Iterator[SessionId]:
        for deadline in sorted([deadline for deadline in self._buckets if deadline <= now_ms]):
            for session_id in sorted(self._buckets[deadline]):
                if is_silent(session_id, deadline):
                    yield SessionId(session_id)

    def _leave(self, session_id: int, deadline: int) -> None:
        bucket = self._buckets[deadline]
        bucket.discard(session_id)
        if not bucket:
            del self._buckets[deadline]


class TouchTable:
    """The sessions as a learner sees them: the leader tracks them, and is sent the live ones."""

    __slots__ = ("_tree", "touched")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # Session -> timeout, of those heard from since the last report to the leader.
        self.touched: dict[int, int] = {}

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._tree.sessions

    def __len__(self) -> int:
        return len(self._tree.sessions)

    def touch(self, session_id: int, now_ms: int) -> int:
        """Note a sign of life, again in the next millisecond; -1 if there is no such session."""
        timeout_ms = self._tree.sessions.get(session_id)
        if timeout_ms is None:
            return -1
        self.touched[session_id] = timeout_ms
        return now_ms + 1

    def take(self) -> dict[int, int]:
        """Those that were heard of since the last call."""
        touched, self.touched = self.touched, {}
        return touched

    def buckets(self) -> dict[int, list[int]]:
        """A learner keeps no deadlines."""
        return {}


def first_session_id(server_id: int, now_ms: int) -> int:
    """Where a server starts to count its session ids, as Apache does.

    The server's id in the top byte, then 40 bits of a clock: ids of two servers, and of two runs of
    one server, do not meet.
    """
    clock = (now_ms << 24 & 0xFFFFFFFFFFFFFFFF) >> 8
    value = (server_id << 56 | clock) & 0xFFFFFFFFFFFFFFFF
    if value == 1 << 63:
        # It marks a container where an ephemeral's owner stands.
        value += 1
    return value - (1 << 64) if value >> 63 else value
