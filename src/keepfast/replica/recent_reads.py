"""Replies to reads that are likely to be asked for again.

A reply is kept by the question as it came, with the bytes of the znode that it was made of.
Whatever changes a znode gives it new bytes, never the same: while it has those, the reply is right,
whoever changed it and however the tree came about. Nothing has to be thrown away when a znode
changes.
"""

from __future__ import annotations

from typing import Final

# How many are kept. Low: a working set does not fit. High: memory for what nobody asks for.
_MOST: Final = 4096
# Longer ones are made anew each time.
_MOST_BYTES: Final = 1024
# When all places are taken, this long passes before everything is forgotten: a client that walks
# over the whole tree would otherwise cost the others their replies again and again.
_LEAST_MS: Final = 1000


class RecentReads:
    """Keeps replies to reads for the next one who asks the same."""

    __slots__ = ("_since_ms", "replies")

    def __init__(self) -> None:
        # Request behind its xid -> path, bytes of the znode, reply behind its zxid and error.
        self.replies: dict[bytes, tuple[str, bytes, bytes]] = {}
        self._since_ms = 0

    def keep(self, question: bytes, path: str, packed: bytes, body: bytes, now_ms: int) -> None:
        """Keep the reply that was made of a znode without children."""
        replies = self.replies
        if len(body) > _MOST_BYTES:
            return
        if len(replies) >= _MOST:
            if now_ms - self._since_ms < _LEAST_MS:
                return
            replies.clear()
        if not replies:
            self._since_ms = now_ms
        replies[question] = (path, packed, body)
