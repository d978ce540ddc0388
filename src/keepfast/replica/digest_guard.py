"""Whether the tree is still the leader's, txn by txn (R10).

A Keepfast leader's digest is that of its tree: one that differs shows that ours is another tree. An
Apache leader logs wrong digests of its own: for a create2 with the container flag, and around
changes of "/" while others are under way. These are told apart, or pass after a few txns; a tree
that differs does not.
"""

from __future__ import annotations

from typing import Final

from keepfast.tree import DIGEST_VERSION, ContainerQuirk, Tree
from keepfast.wire import LogEntry

# Wrong digests in a row that an Apache leader is allowed: it computes them ahead, so that one slip
# stays until it had nothing to do for a moment.
_DOUBTS: Final = 16
_MODULUS: Final = 1 << 64


class DigestGuard:
    """Follows the digests under one leader."""

    __slots__ = ("_doubts", "_quirk", "mismatches", "trusts_leader")

    def __init__(self, trusts_leader: bool) -> None:
        """`trusts_leader`: its digests are exact, every difference counts."""
        self.trusts_leader = trusts_leader
        self.mismatches = 0
        self._doubts = 0
        self._quirk = ContainerQuirk()

    def agrees(self, tree: Tree, entry: LogEntry) -> bool:
        """Whether the tree behind this txn may be the leader's."""
        digest = entry.digest
        if digest is None or digest.version != DIGEST_VERSION:
            return True
        if digest.tree_digest == tree.digest:
            self.note_agreement()
            return True
        self.mismatches += 1
        if self.trusts_leader:
            return False
        if self._quirk.explains(tree, entry, digest.tree_digest):
            return True
        self._quirk.reset((digest.tree_digest - tree.digest) % _MODULUS)
        self._doubts += 1
        return self._doubts <= _DOUBTS

    def note_agreement(self) -> None:
        """The tree has the very digest that the leader's has: all doubts are over."""
        if self._doubts or self._quirk.delta:
            self._doubts = 0
            self._quirk.reset()
