"""The tree as it will be once all prepared txns are applied.

A leader prepares a txn long before it is committed, and the next one must see its effects. They
are kept here, znode by znode, over the tree, until the txn is applied; and so is the digest that
the tree will have then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final

from keepfast.tree.digest import MASK, node_crc
from keepfast.tree.node_bytes import STAT_SIZE, TAIL_SIZE, is_ephemeral, owner_of
from keepfast.tree.paths import RESERVED_PREFIX
from keepfast.tree.pending_node import PendingNode, Step

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree


# Of a znode's data: beyond this, to copy it or to compute its CRC takes longer than everything
# else.
LARGE_BYTES: Final = 1024
# How many CRCs of znodes with large data are kept.
_MAX_REMEMBERED: Final = 4096

# How many times as many texts are sorted in a turn as operations are prepared.
_SORTED_AT_ONCE: Final = 8
_NO_STEPS: Final[list[Step]] = []
_GONE: Final = b""
_UNKNOWN: Final[tuple[bytes, int]] = (b"", -1)
# What stands for ephemeralOwner in a stat without one, and in none.
_NO_OWNERS: Final = frozenset((bytes(8), b""))
_key_at: Final = Struct(">q").unpack_from


def sorted_in_slices(texts: list[str], size: int) -> Generator[None, None, Iterable[str]]:
    """The same texts in order: sorted a run at a time, and merged while they are asked for."""
    runs: list[list[str]] = []
    for start in range(0, len(texts), _SORTED_AT_ONCE * size):
        runs.append(sorted(texts[start : start + _SORTED_AT_ONCE * size]))
        yield
    return merge(*runs) if len(runs) > 1 else chain(*runs)


class PendingChanges:
    """Changes over a tree. The tree itself changes only by the txns that were prepared here."""

    __slots__ = (
        "_crcs",
        "_settled",
        "_steps",
        "_tree",
        "_txns",
        "_zxid",
        "digest",
        "nodes",
        "owned",
        "reserved",
    )

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        # Path -> znode as the last of the changes leaves it. PlainSets writes here, too, and leaves
        # some that the tree has already: whatever changes them is put here first.
        self.nodes: dict[str, PendingNode] = {}
        # The changes of each txn that has any, in order; and those of the last one.
        self._txns: deque[tuple[int, list[Step]]] = deque()
        self._steps: list[Step] = []
        self._zxid = -1
        # Path -> stat and CRC of a znode with large data that the tree has; the stat shows whether
        # it still is this one.
        self._crcs: dict[str, tuple[bytes, int]] = {}
        # Changes of long txns that the tree has, and that are forgotten some at a time.
        self._settled: deque[list[Step]] = deque()
        # Session id -> paths of its ephemerals that prepared txns create.
        self.owned: dict[int, set[str]] = {}
        # Zxids of txns with a change below /zookeeper, where digests and quotas have rules of their
        # own.
        self.reserved: set[int] = set()
        # Apache's digest of the tree with all changes.
        self.digest = tree.digest

    def __len__(self) -> int:
        return sum(len(steps) for _, steps in self._txns)

    def find(self, path: str) -> PendingNode | None:
        """The znode at a path once all is applied, or None."""
        pending = self.nodes.get(path)
        if pending is not None:
            return pending if pending.stat else None
        tree = self._tree
        node = tree.find(path)
        if node is None:
            return None
        packed, children, lists = node.packed, node.children, tree.acls.lists
        count = len(children) if children else 0
        size = len(packed) - TAIL_SIZE
        if size:
            # As the properties of `Node` do it, without their calls: this is work for every write.
            acl, stat = lists[_key_at(packed, size)[0]], packed[-STAT_SIZE:]
            known, crc = _UNKNOWN if size <= LARGE_BYTES else self._crcs.get(path, _UNKNOWN)
            return PendingNode(packed[:size], acl, stat, count, crc if known == stat else -1)
        return PendingNode(node.data, lists[node.acl], node.stat, count)

    def remember(self, path: str, node: PendingNode) -> None:
        """Keep the CRC of a znode with large data, which the tree has now."""
        if len(self._crcs) >= _MAX_REMEMBERED:
            self._crcs.clear()
        self._crcs[path] = node.stat, node.crc

    def has(self, path: str) -> bool:
        """Whether there is a znode at a path once all is applied."""
        pending = self.nodes.get(path)
        return self._tree.find(path) is not None if pending is None else pending.stat != _GONE

    def put_below(
        self,
        zxid: int,
        parent_path: str,
        parent: PendingNode,
        above: PendingNode,
        path: str,
        old: PendingNode | None,
        new: PendingNode,
        kind: int,
    ) -> None:
        """Note that a txn creates or deletes a znode, and makes `above` of its parent."""
        gone = parent.crc
        if gone < 0:
            gone = parent.crc = node_crc(parent_path, parent.data, parent.stat)
        if old is not None and old.crc < 0:
            old.crc = node_crc(path, old.data, old.stat)
        if above.stat is parent.stat:
            above.crc = gone  # an earlier operation of this txn has changed it already
        else:
            above.crc = node_crc(parent_path, above.data, above.stat)
        new.crc = node_crc(path, new.data, new.stat) if new.stat else 0
        if path.startswith(RESERVED_PREFIX):
            self._leave_out(zxid, (old, new))
            if parent_path.startswith(RESERVED_PREFIX):
                self._leave_out(zxid, (parent, above))
                gone = 0
        delta = above.crc - gone + new.crc
        self.digest = (self.digest + (delta if old is None else delta - old.crc)) & MASK
        if zxid != self._zxid:
            self._begin(zxid)
        nodes = self.nodes
        parent_before = nodes.get(parent_path)
        # First the parent: nothing may be pending below one that is not there.
        nodes[parent_path] = above
        self._steps.append(
            (kind, path, new, old, nodes.get(path), parent_path, above, parent, parent_before)
        )
        nodes[path] = new

    def _leave_out(self, zxid: int, nodes: Iterable[PendingNode | None]) -> None:
        """Have Apache's digest not cover these, which lie below /zookeeper."""
        self.reserved.add(zxid)
        for node in nodes:
            if node is not None:
                node.crc = 0

    def _begin(self, zxid: int) -> None:
        """The changes from here on are those of the next txn."""
        self._zxid = zxid
        self._steps = []
        self._txns.append((zxid, self._steps))

    def put(self, zxid: int, path: str, old: PendingNode, new: PendingNode, kind: int) -> None:
        """Note that a txn makes `new` of `old`, which `find` gave."""
        if path.startswith(RESERVED_PREFIX):
            self._leave_out(zxid, (old, new))
        else:
            if old.crc < 0:
                old.crc = node_crc(path, old.data, old.stat)
            new.crc = node_crc(path, new.data, new.stat)
            self.digest = (self.digest + new.crc - old.crc) & MASK
        if zxid != self._zxid:
            self._begin(zxid)
        nodes = self.nodes
        self._steps.append((kind, path, new, old, nodes.get(path), "", None, None, None))
        nodes[path] = new

    def own(self, session_id: int, path: str) -> None:
        """Note that a txn creates an ephemeral."""
        self.owned.setdefault(session_id, set()).add(path)

    def ephemerals(self, session_id: int) -> list[str]:
        """The ephemerals of a session once all is applied, sorted."""
        nodes = self.nodes
        # Of those that no txn changes, the tree knows whose they are.
        candidates = self._candidates(session_id)
        return sorted([p for p in candidates if p not in nodes or self._owner(p) == session_id])

    def ephemerals_in_slices(
        self, session_id: int, size: int
    ) -> Generator[None, None, Iterable[tuple[str, PendingNode]]]:
        """The same with their znodes, each found when it is asked for; txns may be applied."""
        candidates = self._candidates(session_id)
        ordered = yield from sorted_in_slices(candidates, size)
        return self._owned_by(session_id, ordered)

    def _owned_by(self, session_id: int, paths: Iterable[str]) -> Iterator[tuple[str, PendingNode]]:
        for path in paths:
            node = self.find(path)
            if node is not None and owner_of(node.stat) == session_id:
                yield path, node

    def _candidates(self, session_id: int) -> list[str]:
        """Its ephemerals in the tree, and those that txns create; some of them a txn deletes."""
        there = self._tree.ephemerals.get(session_id, ())
        return [*there, *self.owned.get(session_id, set()).difference(there)]

    def _owner(self, path: str) -> int:
        node = self.find(path)
        return owner_of(node.stat) if node is not None else 0

    def roll_back(self, zxid: int, digest: int) -> None:
        """Undo the changes of the txn that was prepared last; `digest` is the one before it."""
        for _ in self.roll_back_in_slices(zxid, digest, len(self)):
            pass

    def roll_back_in_slices(self, zxid: int, digest: int, size: int) -> Iterator[None]:
        """The same, `size` changes at a time; nothing may be prepared meanwhile."""
        txns = self._txns
        steps = txns.pop()[1] if txns and txns[-1][0] == zxid else []
        self._zxid = -1
        for number, step in enumerate(reversed(steps), 1):
            _, path, node, _, before, parent_path, above, _, parent_before = step
            if not number % size:
                yield
            self._put_back(path, before)
            if above is not None:
                self._put_back(parent_path, parent_before)
            if self.owned:
                self.disown(path, node)
            is_pending = before is not None and before.stat and not before.is_settled
            if before is not None and is_pending and is_ephemeral(before.stat):
                # An earlier txn creates it; this one deleted it, created it again, and failed.
                self.own(owner_of(before.stat), path)
        self.digest = digest

    def _put_back(self, path: str, before: PendingNode | None) -> None:
        if before is None or before.is_settled:
            del self.nodes[path]
        else:
            self.nodes[path] = before

    def steps_of(self, zxid: int) -> list[Step]:
        """The changes of the txn that was prepared last, if it has this zxid and any."""
        return self._steps if self._zxid == zxid else _NO_STEPS

    def take(self, zxid: int) -> list[Step]:
        """The changes of a txn, which the tree is about to have; txns are taken in their order."""
        txns = self._txns
        if not txns or txns[0][0] != zxid:
            return _NO_STEPS
        steps = txns.popleft()[1]
        self._forget(steps)
        return steps

    def take_long(self, zxid: int) -> None:
        """The tree has a txn of very many changes now: `forget_some` is for these.

        A znode that stays pending meanwhile is what the tree has.
        """
        txns = self._txns
        if txns and txns[0][0] == zxid:
            self._settled.append(txns.popleft()[1])

    def forget_some(self, count: int) -> bool:
        """Forget some of the changes that the tree has; returns whether there are more."""
        settled = self._settled
        if settled:
            self._forget(settled[0][:count])
            del settled[0][:count]
            if not settled[0]:
                settled.popleft()
        return bool(settled)

    def _forget(self, steps: Iterable[Step]) -> None:
        nodes, owned = self.nodes, self.owned
        for _, path, new, _, _, parent_path, above, _, _ in steps:
            if nodes.get(path) is new:
                del nodes[path]
            else:
                new.is_settled = True
            if above is not None:
                if nodes.get(parent_path) is above:
                    del nodes[parent_path]
                else:
                    above.is_settled = True
            if owned and new.stat[44:52] not in _NO_OWNERS:
                self.disown(path, new)

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
