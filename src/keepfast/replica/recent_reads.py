"""A cache of replies to reads.

A reply is cached by the bytes of the request, with the bytes object of the znode that it was built
from. Every change of a znode creates a new object: while the znode still has the old one, the reply
is valid, however the tree came about. Nothing has to be invalidated when a znode changes.
"""

from __future__ import annotations

from typing import Final

# How many are cached. Low: a working set does not fit. High: wasted memory.
_MAX_KEPT: Final = 4096
# Longer ones are rebuilt each time.
_MAX_BYTES: Final = 1024
# When all places are taken, this long passes before the cache is cleared: a client that walks the
# whole tree would otherwise evict the others' replies again and again.
_MIN_MS: Final = 1000


class RecentReads:
    """Caches replies to reads."""

    __slots__ = ("_since_ms", "replies")

    def __init__(self) -> None:
        # Request after its xid -> path, bytes of the znode, reply after its zxid and error.
        self.replies: dict[bytes, tuple[str, bytes, bytes]] = {}
        self._since_ms = 0

    def keep(self, question: bytes, path: str, packed: bytes, body: bytes, now_ms: int) -> None:
        """Keep the reply that was made of a znode without children."""
        replies = self.replies
        if len(body) > _MAX_BYTES:
            return
        if len(replies) >= _MAX_KEPT:
            if now_ms - self._since_ms < _MIN_MS:
                return
            replies.clear()
        if not replies:
            self._since_ms = now_ms
        replies[question] = (path, packed, body)
