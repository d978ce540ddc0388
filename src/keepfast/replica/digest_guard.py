"""Whether the tree is still the leader's, txn by txn (R10).

A Keepfast leader's digest is that of its tree: one that differs shows that ours is another tree. An
Apache leader logs wrong digests of its own: for a create2 with the container flag, and around
changes of "/" while others are under way. These are recognised, or pass after a few txns; a tree
that differs does not.

Only a tree that was equal earlier in the same epoch is given a few txns: from then on both make the
same changes, so it is the leader's digest that is off. A tree that differs shows at the first txn,
and is fenced there; if a new tree does not resolve it, the leader's digest was off before we
joined.

Across epochs a match is worth nothing. An Apache server that was sent a tree keeps its old log, and
as a leader it sends what that has: records that were never committed, whose digests are right, and
then those of a later epoch, which follow something else. Nor does a wrong digest outlast its epoch:
the next leader begins with the digest of its tree.
"""

from __future__ import annotations

from typing import Final

from keepfast.tree import ContainerQuirk, DigestFit, Tree
from keepfast.wire import LogEntry, Zxid, epoch_of

# Wrong digests in a row that an Apache leader is allowed: it computes them ahead, so that one slip
# stays until it had nothing to do for a moment.
_DOUBTS: Final = 16


class DigestGuard:
    """Compares the digests under one leader."""

    __slots__ = ("_doubts", "_epoch", "_has_agreed", "_quirk", "mismatches", "trusts_leader")

    def __init__(self, trusts_leader: bool) -> None:
        """`trusts_leader`: its digests are exact, every difference counts."""
        self.trusts_leader = trusts_leader
        self.mismatches = 0
        # What follows is of the records of this epoch.
        self._epoch = -1
        self._doubts = 0
        self._has_agreed = False
        self._quirk = ContainerQuirk()

    def agrees(self, tree: Tree, entry: LogEntry) -> bool:
        """Whether the tree after this txn may be the leader's."""
        self._enter(epoch_of(entry.header.zxid))
        fit = self._quirk.judge(tree, entry)
        if fit is DigestFit.UNKNOWN:
            return True
        if fit is DigestFit.RIGHT:
            self.note_agreement(entry.header.zxid)
            return True
        self.mismatches += 1
        if self.trusts_leader:
            return False
        if fit is DigestFit.EXPLAINED:
            return True
        self._doubts += 1
        return self._has_agreed and self._doubts <= _DOUBTS

    def note_agreement(self, zxid: Zxid) -> None:
        """After this txn our tree has exactly the leader's digest: all doubts are resolved."""
        self._epoch = epoch_of(zxid)
        self._has_agreed = True
        if self._doubts or self._quirk.delta:
            self._doubts = 0
            self._quirk.reset()

    def _enter(self, epoch: int) -> None:
        """Start over with the first record of an epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._has_agreed = False
            self._doubts = 0
            self._quirk.reset()
