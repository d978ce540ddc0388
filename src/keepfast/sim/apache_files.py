"""The data directory of a simulated server of Apache's; see apache.py."""

from __future__ import annotations

import copy
from typing import Final

from keepfast.tree import Tree
from keepfast.wire import Zxid

_NONE: Final = Zxid(-1)


class ApacheFiles:
    """What lies in the data directory of such a server beside what our store keeps."""

    def __init__(self) -> None:
        # The snapshots that it took when it was elected.
        self.snapshots: dict[Zxid, Tree] = {}
        # All records of its log, those from before a tree that it was sent as well.
        self.log: dict[Zxid, bytes] = {}
        # Whether the leader that fills it had no quorum without it, and could do no better.
        self.is_needed = False
        # Whether it dies as soon as it is elected the next time.
        self.dies_when_elected = False

    @property
    def last(self) -> Zxid:
        """The last record of the log."""
        return max(self.log, default=_NONE)

    def cut(self, zxid: Zxid) -> Tree | None:
        """Truncate the log; returns the tree that it loads then, if that is one beyond the cut."""
        for each in [z for z in self.log if z > zxid]:
            del self.log[each]
        newest = max(self.snapshots, default=_NONE)
        return copy.deepcopy(self.snapshots[newest]) if newest > zxid else None

    def installed(self, zxid: Zxid) -> None:
        """A tree was stored as the newest snapshot."""
        self.snapshots = {z: tree for z, tree in self.snapshots.items() if z > zxid}
