"""Txns with very many changes: prepared in slices, installed in one step.

One multi of a megabyte has tens of thousands of operations, the end of a session as many
ephemerals. Nobody may see half of it, and nobody may wait for all of it. So it is computed while
others have their turns, and what is left for the one moment in which the tree changes is to have it
look at the changed znodes first (`NodeMap.put_all`), and to change sets of children and a few sums:

    a leader    prepares the changes on its pending ones (`Preparer.prepare_long`), and gathers
                them here, before the txn is proposed
    a learner   works the changes out from the record, on a draft over its tree, when the txn is the
                next one to apply (`long_records`)

What several operations do to one znode is one change here: from what it was before the txn to what
it is after it. That the tree is the one that the txn was computed on (R12) is checked before
anything changes, as in `install`: byte for byte of every stat, and by the digest. The stats are
compared in slices, too (`compare`), and once more, at once, if the tree has changed since.

What a txn leaves behind is let go in slices, too (`NodeMap.thaw_step`, `LongTxn.let_go`): to free
100,000 objects takes as long as to make them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence, Set
from itertools import chain, islice
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from keepfast.tree.acl import OPEN_KEY
from keepfast.tree.digest import MASK, acl_weight
from keepfast.tree.errors import ReplayConflict
from keepfast.tree.install import multi_results
from keepfast.tree.node import Node
from keepfast.tree.node_bytes import (
    STAT_SIZE,
    TAIL_SIZE,
    packed_node,
)
from keepfast.tree.nodemap import TOMBSTONE
from keepfast.tree.outcome import Change, ChangeKind, OpResult, Outcome
from keepfast.tree.paths import ROOT
from keepfast.tree.pending_node import PendingNode, Step
from keepfast.tree.quota import deepest_quota
from keepfast.tree.strict import (
    failed_multi,
)
from keepfast.wire import (
    AclList,
    OpCode,
    SubTxn,
    TxnBody,
    Zxid,
)

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree

# How many times as much of the cheaper work (sorting, encoding) is done in a turn.
_SORTED: Final = 2
LIGHT: Final = 8

_MULTI: Final = OpCode.MULTI.value
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_ERROR: Final = OpCode.ERROR.value
_CREATED: Final = ChangeKind.CREATED.value
_DELETED: Final = ChangeKind.DELETED.value
_DATA: Final = ChangeKind.DATA.value
_KINDS: Final = {kind.value: kind for kind in ChangeKind}
_NO_OWNER: Final = bytes(8)
_key_at: Final = Struct(">q").unpack_from

_CONFLICT: Final = "it was prepared on another tree"

# Each iteration does one slice of the work.
Slices = Generator[None, None, None]


def run_through(slices: Generator[None, None, TxnBody]) -> TxnBody:
    """The result of work in slices, done without interruption."""
    while True:
        try:
            next(slices)
        except StopIteration as done:
            body: TxnBody = done.value
            return body


class _AclUse:
    """One ACL list among the znodes that a txn creates, and who has it."""

    __slots__ = ("acl", "key", "paths", "weight")

    def __init__(self, acl: AclList | None, key: int | None, weight: int) -> None:
        self.acl = acl
        # Its key in the tree's table, if it has one by now; znodes are made ready with it.
        self.key = key
        self.weight = weight
        self.paths: list[str] = []


class LongTxn:
    """All that a txn does, ready to be put into the tree."""

    __slots__ = (
        "_absent",
        "_acls",
        "_acls_by_id",
        "_bytes",
        "_changes",
        "_crc_change",
        "_digest",
        "_first",
        "_fresh",
        "_gone",
        "_last",
        "_mark",
        "_new",
        "_order",
        "_overlay",
        "_owners",
        "_parents",
        "_present",
        "_quota_changes",
        "_recreated",
        "_released",
        "_state_change",
        "_stats",
        "_tree",
        "_zxid",
        "changes",
        "ended_session",
        "error",
        "results",
    )

    def __init__(self, tree: Tree, zxid: Zxid) -> None:
        self._tree = tree
        self._zxid = zxid
        # Each znode as it was before the txn, None if it was not there, and as it is after it.
        self._first: dict[str, PendingNode | None] = {}
        self._last: dict[str, PendingNode] = {}
        # Sorted out: what is not there before; what is, with its stat, and what becomes of it; and
        # each znode as the tree will have it, in an order in which parents come first.
        self._absent: list[str] = []
        self._present: list[str] = []
        self._stats: list[bytes] = []
        self._fresh: list[tuple[Node, PendingNode, PendingNode]] = []
        self._overlay: dict[str, Node] = {}
        self._order: list[str] = []
        # Parent -> children that come and go.
        self._new: dict[str, dict[str, None]] = {}
        self._gone: dict[str, dict[str, None]] = {}
        # ephemeralOwner -> znodes that come and go with it.
        self._owners: dict[int, tuple[list[str], list[str]]] = {}
        self._acls: dict[AclList | None, _AclUse] = {}
        self._acls_by_id: dict[int, tuple[AclList | None, _AclUse]] = {}
        self._bytes = self._state_change = self._crc_change = 0
        self._digest: int | None = None
        # What the tree was when it was compared, and what was read from it then: keys of ACLs that
        # will be released, znodes that are given another one, znodes that have children and the
        # new ones in their place, what quotas count.
        self._mark: object = None
        self._released: Counter[int] = Counter()
        self._recreated: list[tuple[Node, PendingNode]] = []
        self._parents: list[tuple[Any, Node]] = []
        self._quota_changes: dict[str, list[int]] = {}
        # The outcome; the changes in a list while they come and go.
        self._changes: list[Change] = []
        self.changes: tuple[Change, ...] = ()
        self.results: list[OpResult] = []
        self.error = 0
        # The session that the txn ends, if it does.
        self.ended_session: int | None = None

    # -- in slices, before the txn is due --------------------------------------------------------

    def gather(self, steps: Sequence[Step], digest: int, types: Sequence[int], size: int) -> Slices:
        """Take in what was computed: the steps, the digest after them, a multi's types.

        `size`: how much is done in one slice.
        """
        self._digest = digest
        left, changes = iter(steps), self._changes
        while some := list(islice(left, size)):
            self._add(some, changes)
            yield
        operations, done = iter(types), iter(steps)
        while chunk := list(islice(operations, LIGHT * size)):
            self.results += multi_results(chunk, done)
            yield
        items = iter(self._last.items())
        while pairs := list(islice(items, _SORTED * size)):
            self._sort_out(pairs)
            yield
        self._order = list(self._overlay)
        self.changes = tuple(changes)
        changes.clear()

    def fail(self, ops: tuple[SubTxn, ...]) -> list[int]:
        """It is a multi that failed; returns the types of the operations that change something."""
        failure = failed_multi(ops)
        if failure is not None:
            self.error = failure.error
            self.results += failure.results
        return []

    def _add(self, steps: Iterable[Step], changes: list[Change]) -> None:
        first, last = self._first, self._last
        for kind, path, new, old, _, parent_path, above, before, _ in steps:
            parent_acl = None
            if above is not None:
                first.setdefault(parent_path, before)
                last[parent_path] = above
                parent_acl = above.acl
            first.setdefault(path, old)
            last[path] = new
            acl = new.acl if old is None or new.stat else old.acl
            changes.append(Change(_KINDS[kind], path, acl, parent_acl))

    def _sort_out(self, items: Iterable[tuple[str, PendingNode]]) -> None:
        state = grown = crc = 0
        for path, new in items:
            old = self._first[path]
            crc += new.crc
            if old is None:
                self._absent.append(path)
                if not new.stat:
                    continue  # it came and went
            else:
                self._present.append(path)
                self._stats.append(old.stat)
                crc -= old.crc
                state -= (old.crc + 1) * self._use_of(old.acl).weight
                grown -= len(old.data) if old.data else 0
            if new.stat:
                use = self._use_of(new.acl)
                state += (new.crc + 1) * use.weight
                grown += len(new.data) if new.data else 0
            if old is None:
                key = OPEN_KEY if use.key is None else use.key
                self._overlay[path] = Node(packed_node(new.data, key, new.stat))
                use.paths.append(path)
                self._new.setdefault(path[: path.rfind("/")] or ROOT, {})[path] = None
                grown += len(path)
            else:
                fresh = TOMBSTONE
                if new.stat:
                    fresh = Node(b"")
                else:
                    self._gone.setdefault(path[: path.rfind("/")] or ROOT, {})[path] = None
                    grown -= len(path)
                self._overlay[path] = fresh
                self._fresh.append((fresh, old, new))
            before = _NO_OWNER if old is None else old.stat[44:52]
            after = new.stat[44:52] or _NO_OWNER
            if before != after:
                self._note_owners(path, before, after)
        self._state_change += state
        self._crc_change += crc
        self._bytes += grown

    def _use_of(self, acl: AclList | None) -> _AclUse:
        known = self._acls_by_id.get(id(acl))
        if known is not None:
            return known[1]
        use = self._acls.get(acl)
        if use is None:
            acls = self._tree.acls
            if acl is None:
                use = _AclUse(None, OPEN_KEY, acls.weights[OPEN_KEY])
            else:
                use = _AclUse(acl, acls.find_key(acl), acl_weight(acl))
            self._acls[acl] = use
        # The list is kept, too: another one must not get its id.
        self._acls_by_id[id(acl)] = (acl, use)
        return use

    def _note_owners(self, path: str, before: bytes, after: bytes) -> None:
        for packed, position in ((before, 1), (after, 0)):
            if packed != _NO_OWNER:
                owner = _key_at(packed)[0]
                self._owners.setdefault(owner, ([], []))[position].append(path)

    @property
    def paths(self) -> Set[str]:
        """All znodes that it changes, and their parents."""
        return self._last.keys()

    def compare(self, size: int) -> Slices:
        """Hold the tree against the one that the txn was computed on, last of all before it is due.

        Stops where it is another one: txns before this one may still be to come.
        """
        try:
            yield from self._compare(size)
        except ReplayConflict:
            self._mark = None

    def _compare(self, size: int) -> Slices:
        tree = self._tree
        self._mark = mark = _mark_of(tree)
        self._released.clear()
        self._recreated, self._parents, self._quota_changes = [], [], {}
        for start in range(0, len(self._absent), LIGHT * size):
            if any(map(tree.find, self._absent[start : start + LIGHT * size])):
                self._refuse()
            yield
            if _mark_of(tree) != mark:
                return
        for start in range(0, len(self._present), LIGHT * size):
            part = slice(start, start + LIGHT * size)
            found: list[Any] = list(map(tree.find, self._present[part]))
            if not all(found) or [n.packed[-STAT_SIZE:] for n in found] != self._stats[part]:
                self._refuse()
            self._make_ready(found, self._fresh[part])
            yield
            if _mark_of(tree) != mark:
                return
        if tree.quotas:
            items = iter(self._last.items())
            while pairs := list(islice(items, LIGHT * size)):
                self._count_quotas(pairs)
                yield
                if _mark_of(tree) != mark:
                    return

    def _make_ready(
        self, found: Iterable[Any], fresh: Iterable[tuple[Node, PendingNode, PendingNode]]
    ) -> None:
        """Make the new znodes of those that are there."""
        weights, released = self._tree.acls.weights, list[int]()
        for node, (new_node, old, new) in zip(found, fresh, strict=True):
            packed = node.packed
            if new_node is TOMBSTONE or new.acl is not old.acl:
                key = _key_at(packed, len(packed) - TAIL_SIZE)[0]
                # Null data: the key shows it.
                released.append(key if key in weights else node.acl)
                if new_node is not TOMBSTONE:
                    self._recreated.append((new_node, new))
            elif new.data is old.data:
                new_node.packed = packed[:-STAT_SIZE] + new.stat
            else:
                new_node.packed = packed_node(new.data, node.acl, new.stat)
            if node.children and new_node is not TOMBSTONE:
                self._parents.append((node, new_node))
        self._released.update(released)

    # -- at once, when it is due -----------------------------------------------------------------

    def install(self) -> Outcome:
        """Have the tree take the txn, or raise ReplayConflict and change nothing."""
        tree, zxid = self._tree, self._zxid
        if self._mark != _mark_of(tree):
            for _ in self._compare(len(self._last) + 1):
                pass
        total = tree.digest + self._crc_change
        if (self._digest is not None and total & MASK != self._digest) or zxid <= tree.last_zxid:
            raise ReplayConflict(zxid, None, _CONFLICT)
        acls = tree.acls
        self._acquire()
        released = self._released
        for node, new in self._recreated:
            node.packed = packed_node(new.data, acls.acquire(new.acl), new.stat)
        for old_node, node in self._parents:
            node.children = old_node.children
        tree.put_all(self._overlay, self._order)
        for parents, sign in ((self._new, 1), (self._gone, -1)):
            for path, paths in parents.items():
                self._change_children(path, paths, sign)
        for key, count in released.items():
            acls.release(key, count)
        for owner, (come, gone) in self._owners.items():
            tree.change_owned(owner, come, gone)
        tree.node_count += sum(map(len, self._new.values())) - sum(map(len, self._gone.values()))
        tree.data_size += self._bytes
        for quota, (grown, more) in self._quota_changes.items():
            if grown or more:
                tree.count_quota(quota, grown, more)
        if self._digest is not None:
            tree.digest = self._digest
        tree.state_digest = (tree.state_digest + self._state_change) & MASK
        if self.ended_session is not None:
            tree.close_session(self.ended_session)
        tree.last_zxid = zxid
        return Outcome(self.changes, self.error, tuple(self.results))

    def _change_children(self, path: str, paths: dict[str, None], sign: int) -> None:
        """Very many children of a znode came, or with -1 went; they may be all it had."""
        tree = self._tree
        tree.descendants.add(path, sign * len(paths))
        if path in tree.listed:
            for child in paths:
                tree.note_child(path, child)
        node = tree.find(path)
        if node is None:
            return  # it went, too
        if tree.nodes.own is not None:
            node = tree.nodes.own(path, node)
        if sign > 0:
            node.changing_children().update(paths)
        elif node.children is not None and len(node.children) == len(paths):
            tree.left.append(node.children)
            node.children = None
        else:
            node.changing_children().difference_update(paths)

    def _refuse(self) -> None:
        """Raise ReplayConflict: a znode is another one than the txn was prepared on."""
        for path, old in self._first.items():
            node = self._tree.find(path)
            if (node is None) is not (old is None) or (node and old and node.stat != old.stat):
                raise ReplayConflict(self._zxid, path, _CONFLICT)
        raise ReplayConflict(self._zxid, None, _CONFLICT)

    def let_go(self, count: int) -> bool:
        """Forget so much of it, once nobody asks what it was; returns whether there is more."""
        changes = self._changes
        if self.changes:
            changes += self.changes
            self.changes = ()
        left: list[Any] = [
            changes,
            self._first,
            self._last,
            self._present,
            self._stats,
            self._fresh,
        ]
        left += (self._absent, self.results, self._parents, self._recreated, *self._gone.values())
        left += chain(*self._owners.values(), (use.paths for use in self._acls.values()))
        for each in left:
            if isinstance(each, list):
                del each[-count:]
            else:
                for _ in range(min(count, len(each))):
                    each.popitem()
            if each:
                return True
        return False

    def _acquire(self) -> None:
        """Have the tree's table count the lists of the new znodes, and these have its keys."""
        acls = self._tree.acls
        for use in self._acls.values():
            if not use.paths:
                continue
            key = acls.acquire(use.acl)
            acls.acquire_key(key, len(use.paths) - 1)
            if key != use.key:
                # The list is new in the tree, or was entered again since.
                for path in use.paths:
                    new = self._last[path]
                    self._overlay[path].packed = packed_node(new.data, key, new.stat)

    def _count_quotas(self, pairs: Iterable[tuple[str, PendingNode]]) -> None:
        for path, new in pairs:
            old = self._first[path]
            quota = deepest_quota(self._tree.quotas, path)
            if quota is not None:
                count = self._quota_changes.setdefault(quota, [0, 0])
                count[0] += _size(new) - _size(old)
                count[1] += bool(new.stat) - (old is not None)


def _mark_of(tree: Tree) -> object:
    """What every txn changes."""
    return tree, tree.last_zxid, tree.digest, tree.state_digest, tree.node_count, tree.data_size


def _size(node: PendingNode | None) -> int:
    return len(node.data) if node is not None and node.data else 0
