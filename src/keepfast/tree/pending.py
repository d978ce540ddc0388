"""The tree as it will be once all prepared txns are applied.

A leader prepares a txn long before it is committed, and the next one must see its effects. They
are kept here, znode by znode, over the tree, until the txn is applied; and so is the digest that
the tree will have then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from keepfast.tree.digest import MASK, node_crc
from keepfast.tree.node import is_ephemeral, owner_of
from keepfast.tree.paths import RESERVED_PREFIX
from keepfast.wire import AclList

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree


# Of a stat: czxid, ctime, cversion to ephemeralOwner and pzxid, which a change of the data leaves
# as they are; and the version.
PlainStat = tuple[bytes, bytes, bytes, bytes, int]


class PendingNode(msgspec.Struct, gc=False, eq=False):
    """A znode as the prepared txns leave it. Never changed: each txn makes a new one.

    A Struct for the same reasons as `Node`: several are made for each write.
    """

    data: bytes | None
    acl: AclList
    # Empty for a znode that is deleted.
    stat: bytes
    child_count: int
    # What it adds to Apache's digest; -1 if that was not computed yet.
    crc: int = -1
    # Of a znode whose data anybody may change, if that was seen: its stat, in pieces
    # (plain_sets.py).
    plain: PlainStat | None = None


# One change of one znode by one prepared txn: zxid, path, the znode behind it, and the pending one
# before it, if there was one. A plain tuple: several are made for each write.
_Step = tuple[int, str, PendingNode, PendingNode | None]


class PendingChanges:
    """Changes over a tree. The tree itself changes only by the txns that were prepared here."""

    __slots__ = ("_steps", "_tree", "digest", "nodes", "owned")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # Path -> znode as the last of the changes leaves it. PlainSets writes here, too, and leaves
        # some that the tree has already: whatever changes them is put here first.
        self.nodes: dict[str, PendingNode] = {}
        self._steps: deque[_Step] = deque()
        # Session id -> paths of its ephemerals that prepared txns create.
        self.owned: dict[int, set[str]] = {}
        # Apache's digest of the tree with all changes.
        self.digest = tree.digest

    def __len__(self) -> int:
        return len(self._steps)

    def find(self, path: str) -> PendingNode | None:
        """The znode at a path once all is applied, or None."""
        pending = self.nodes.get(path)
        if pending is not None:
            return pending if pending.stat else None
        tree = self._tree
        node = tree.find(path)
        if node is None:
            return None
        children = node.children
        return PendingNode(
            node.data, tree.acls.lists[node.acl], node.stat, len(children) if children else 0
        )

    def put(self, zxid: int, path: str, old: PendingNode | None, new: PendingNode) -> None:
        """Note that a txn makes `new` of `old`, which `find` gave; None: it creates the znode."""
        if path.startswith(RESERVED_PREFIX):
            new.crc = 0
        else:
            gone = 0
            if old is not None:
                gone = old.crc if old.crc >= 0 else node_crc(path, old.data, old.stat)
            new.crc = node_crc(path, new.data, new.stat) if new.stat else 0
            self.digest = (self.digest + new.crc - gone) & MASK
        self._steps.append((zxid, path, new, self.nodes.get(path)))
        self.nodes[path] = new

    def delete(self, zxid: int, path: str, old: PendingNode) -> None:
        """Note that a txn deletes a znode."""
        self.put(zxid, path, old, PendingNode(None, (), b"", 0))

    def own(self, session_id: int, path: str) -> None:
        """Note that a txn creates an ephemeral."""
        self.owned.setdefault(session_id, set()).add(path)

    def ephemerals(self, session_id: int) -> list[str]:
        """The ephemerals of a session once all is applied, sorted."""
        paths = self._tree.ephemerals.get(session_id, set()) | self.owned.get(session_id, set())
        return sorted(path for path in paths if self._owner(path) == session_id)

    def _owner(self, path: str) -> int:
        node = self.find(path)
        return owner_of(node.stat) if node is not None else 0

    def roll_back(self, zxid: int, digest: int) -> None:
        """Undo the changes of the txn that was prepared last; `digest` is the one before it."""
        steps = self._steps
        nodes = self.nodes
        while steps and steps[-1][0] == zxid:
            _, path, node, previous = steps.pop()
            if previous is None:
                del nodes[path]
            else:
                nodes[path] = previous
            if self.owned:
                self.disown(path, node)
        self.digest = digest

    def forget(self, zxid: int) -> None:
        """Drop the changes of all txns up to this one: the tree has them now."""
        steps = self._steps
        nodes = self.nodes
        while steps and steps[0][0] <= zxid:
            _, path, node, _ = steps.popleft()
            if nodes.get(path) is node:
                del nodes[path]
            if self.owned:
                self.disown(path, node)

    def disown(self, path: str, node: PendingNode) -> None:
        """Take back what `own` noted, unless a later txn creates the same ephemeral again."""
        if not node.stat or not is_ephemeral(node.stat):
            return
        owner = owner_of(node.stat)
        latest = self.nodes.get(path)
        paths = self.owned.get(owner)
        if paths is None or (latest is not None and latest.stat and owner_of(latest.stat) == owner):
            return
        paths.discard(path)
        if not paths:
            del self.owned[owner]
