"""The znodes, sessions and ACLs of one server, changed by txns alone.

`apply` is strict: a committed txn fits the tree that the leader had, so one that does not fit ours
shows that ours is another tree. It is refused before anything is changed. `apply_fuzzy` is for
the one place where txns may have been applied before: after an Apache snapshot, which is copied
while txns continue.

All state depends on the txn alone: nothing here reads a clock, draws a number or orders by hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from struct import Struct
from typing import Final

from keepfast.tree import fuzzy, strict
from keepfast.tree.acl import OPEN_KEY, AclTable
from keepfast.tree.descendants import DescendantCounts
from keepfast.tree.digest import MASK, counted_crc, node_crc, session_digest
from keepfast.tree.errors import ReplayConflict
from keepfast.tree.frozen import FrozenTree
from keepfast.tree.node import Node, make_node
from keepfast.tree.node_bytes import (
    NEW_STAT,
    STAT_SIZE,
    TAIL_SIZE,
    Kind,
    cversion_of,
    kind_of_owner,
    owner_of,
    packed_node,
    stat_after_create,
    stat_after_delete,
    stat_after_set_acl,
    stat_after_set_data,
    stat_of_create,
)
from keepfast.tree.nodemap import NodeMap
from keepfast.tree.outcome import Change, ChangeKind, Outcome
from keepfast.tree.paths import CONFIG, QUOTA, RESERVED_PREFIX, ROOT, ZOOKEEPER, parent_of
from keepfast.tree.quota import (
    BYTES,
    COUNT,
    counted_path,
    deepest_quota,
    format_counts,
    limited_path,
    parse_counts,
    stats_path,
)
from keepfast.wire import READ_ACL, AclList, OpCode, TxnBody, TxnHeader, Zxid, invariant

_ERROR: Final = OpCode.ERROR.value
_CREATED: Final = ChangeKind.CREATED
_DELETED: Final = ChangeKind.DELETED
_DATA: Final = ChangeKind.DATA
_ACL: Final = ChangeKind.ACL
_key_at: Final = Struct(">q").unpack_from
# Low: a list whose children change a lot is rebuilt each time. High: wasted memory.
# Not Final, which would put the number into compiled code: tests make it small.
_MAX_LISTED_CHANGES = 10_000


class Tree:
    """The replicated state of a server.

    Fields are for reading. `find` is replaced when the tree is frozen and thawed: call it
    as `tree.find(path)`, never keep it. A znode that it returns may be replaced by the next
    `apply`.
    """

    __slots__ = (
        "acls",
        "config_before",
        "containers",
        "data_size",
        "descendants",
        "digest",
        "ephemerals",
        "find",
        "last_zxid",
        "left",
        "listed",
        "node_count",
        "nodes",
        "quotas",
        "sessions",
        "state_digest",
        "ttls",
    )

    # The znode at a path, or None. The root is "/".
    find: Callable[[str], Node | None]

    def __init__(self, nodes: NodeMap | None = None, acls: AclTable | None = None) -> None:
        """Apache's empty tree: the root, /zookeeper and its two children.

        With arguments: a tree around znodes that a TreeBuilder checked; it sets the other fields.
        """
        self.nodes = NodeMap() if nodes is None else nodes
        self.find = self.nodes.find
        self.acls = AclTable() if acls is None else acls
        # Apache's digest, version 2, and our own; see `digest`. Both unsigned, 64 bits.
        self.digest = 0
        self.state_digest = 0
        self.last_zxid = Zxid(0)
        self.node_count = 0
        # Lengths of all paths and data. (Apache's counts the root twice.)
        self.data_size = 0
        self.descendants = DescendantCounts()
        # Path -> the children added and removed since a list of them was cached.
        self.listed: dict[str, list[str]] = {}
        # Session id -> timeout in ms.
        self.sessions: dict[int, int] = {}
        # Session id -> paths; a session without ephemerals has no entry.
        self.ephemerals: dict[int, set[str]] = {}
        self.containers: set[str] = set()
        self.ttls: set[str] = set()
        # Paths that have a quota.
        self.quotas: set[str] = set()
        # Sets of children and ephemerals that very large txns emptied; freed some at a time.
        self.left: list[set[str] | list[str]] = []
        # What /zookeeper/config held before the last membership change applied here.
        self.config_before: bytes | None = None
        if nodes is None:
            self._adopt(ROOT, make_node(b"", OPEN_KEY, NEW_STAT))
            self.add_builtin_nodes()

    def add_builtin_nodes(self) -> None:
        """Add those of Apache's built-in znodes that are not there. They come from no txn."""
        for path in (ZOOKEEPER, QUOTA):
            if self.find(path) is None:
                self._adopt(path, make_node(b"", OPEN_KEY, NEW_STAT))
        if self.find(CONFIG) is None:
            stat = stat_after_set_acl(NEW_STAT, -1)
            self._adopt(CONFIG, make_node(b"", self.acls.acquire(READ_ACL), stat))

    def put_config(self, text: bytes, version: int) -> None:
        """Have /zookeeper/config say which membership holds; as in Apache, this is not a txn.

        Apache's servers enter the time of their own clock, so that theirs differ; ours do not.
        """
        node = self.find(CONFIG)
        if node is not None and node.data != text:
            self.set_data(CONFIG, node, text, -1, version, 0)

    def acl_of(self, node: Node) -> AclList:
        """The ACL list of a znode of this tree."""
        return self.acls.lists[node.acl]

    def paths(self) -> Iterable[str]:
        """All paths. The tree must not change while they are iterated."""
        return self.nodes.paths()

    # -- txns ------------------------------------------------------------------------------------

    def apply(self, header: TxnHeader, body: TxnBody | None) -> Outcome:
        """Apply a committed txn exactly, or raise ReplayConflict and change nothing.

        A failed txn (type -1, or a multi with a failed operation) is applied too: it changes
        `last_zxid` alone, and its code is in the outcome.
        """
        zxid = header.zxid
        if zxid <= self.last_zxid and (zxid != self.last_zxid or header.type != _ERROR):
            # Apache logs a request that it cannot decode as an error under the zxid of the txn
            # before it. That changes nothing; everything else would be applied twice.
            raise ReplayConflict(zxid, None, f"the tree is already at {self.last_zxid:#x}")
        handler = strict.HANDLERS.get(header.type)
        if handler is None:
            raise ReplayConflict(zxid, None, f"unknown txn type {header.type}")
        outcome = handler(self, header, body)
        self.last_zxid = zxid
        return outcome

    def take_data(
        self,
        zxid: Zxid,
        path: str,
        data: bytes,
        stat: bytes,
        before: bytes,
        delta: int,
        digest: int,
    ) -> Node:
        """Install a setData that was computed on this very tree; returns the znode.

        It is what `apply` of the txn would do, with what plain_sets.py computed for it: data and
        stat after the txn, the stat before, what is added to the sum of the CRCs, and the digest
        after it, which is in the log. Raises ReplayConflict and changes nothing if this is not the
        tree that it was computed on.
        """
        node = self.find(path)
        after = (self.digest + delta) & MASK
        if (
            node is None
            or node.packed[-STAT_SIZE:] != before
            or after != digest
            or zxid <= self.last_zxid
        ):
            raise ReplayConflict(zxid, path, "setData: it was prepared on another tree")
        own = self.nodes.own
        if own is not None:
            node = own(path, node)
        packed = node.packed
        size = len(packed) - TAIL_SIZE
        if size and data:
            # As in `Node.put`, without a call: this is work for every write.
            key = _key_at(packed, size)[0]
            node.packed = b"".join((data, packed[size:-STAT_SIZE], stat))
        else:
            key = node.acl
            node.put(data, stat)
        grown = len(data) - size
        self.digest = after
        self.state_digest = (self.state_digest + delta * self.acls.weights[key]) & MASK
        self.data_size += grown
        if self.quotas:
            self.count_quota(path, grown, 0)
        self.last_zxid = zxid
        return node

    def apply_fuzzy(self, header: TxnHeader, body: TxnBody | None) -> Outcome:
        """Apply a txn that a part of the tree may already hold; the outcome is for counting only.

        Only for txns after the zxid of a snapshot that was copied while txns continued, up to the
        last txn that can be in it (`TreeBuilder.max_zxid_seen`). After that, the tree is exact.
        """
        outcome = fuzzy.apply(self, header, body)
        self.last_zxid = max(self.last_zxid, header.zxid)
        return outcome

    def advance(self, zxid: Zxid) -> None:
        """Note the start of an epoch, which moves the zxid without a txn."""
        self.last_zxid = max(self.last_zxid, zxid)

    @property
    def shared_digest(self) -> int:
        """The state digest without /zookeeper/config, which each member writes by its own files."""
        node = self.find(CONFIG)
        if node is None:
            return self.state_digest
        crc = counted_crc(CONFIG, node.data, node.stat) + 1
        return (self.state_digest - crc * self.acls.weights.get(node.acl, 1)) & MASK

    # -- copies of one moment --------------------------------------------------------------------

    def freeze(self) -> FrozenTree:
        """The tree as it is now; writes may continue. `nodemap` explains how.

        One at a time: the FrozenTree must be closed, and thawed, before the next. What is left to
        thaw is thawed here.
        """
        while not self.nodes.thaw_step(1 << 30):
            pass
        nodes = self.nodes.freeze()
        self.find = self.nodes.find
        return FrozenTree(
            zxid=self.last_zxid,
            digest=self.digest,
            state_digest=self.state_digest,
            sessions=dict(self.sessions),
            acls=self.acls.entries(),
            nodes=nodes,
            on_close=self._unfreeze,
        )

    @property
    def is_frozen(self) -> bool:
        """Whether a FrozenTree is open."""
        return self.nodes.is_frozen

    def thaw_step(self, budget: int) -> bool:
        """Merge up to `budget` changes made while frozen or by `put_all`; True when none are left.

        And free what those left behind. About 0.2 us each. Reads and writes are correct at any
        time, only slightly slower until then.
        """
        left = self.left
        if left:
            some = left[-1]
            for _ in range(min(budget, len(some))):
                some.pop()
            if not some:
                left.pop()
            return False
        is_done = self.nodes.thaw_step(budget)
        self.find = self.nodes.find
        return is_done

    def put_all(self, nodes: dict[str, Node], order: list[str]) -> None:
        """See NodeMap; `thaw_step` is wanted then. Nothing but znodes is changed."""
        self.nodes.put_all(nodes, order)
        self.find = self.nodes.find

    def _unfreeze(self) -> None:
        self.nodes.unfreeze()
        self.find = self.nodes.find

    # -- changes; the modules `strict` and `fuzzy` decide whether they may be made ----------------

    def create_node(
        self,
        header: TxnHeader,
        path: str,
        data: bytes | None,
        acl: AclList | None,
        owner: int,
        parent_path: str,
        parent: Node,
        cversion: int,
    ) -> Change:
        """Add a znode that is not there below `parent`, whose cversion becomes `cversion`."""
        zxid = header.zxid
        nodes = self.nodes
        acls = self.acls
        if nodes.own is not None:
            parent = nodes.own(parent_path, parent)
        if cversion > cversion_of(parent.stat):
            self._restat(parent_path, parent, stat_after_create(parent.stat, cversion, zxid))
        parent.changing_children().add(path)
        if self.listed:
            self.note_child(parent_path, path)
        stat = stat_of_create(zxid, header.time_ms, owner)
        key = acls.acquire(acl)
        nodes.insert(path, make_node(data, key, stat))
        self.descendants.add(parent_path, 1)
        self.node_count += 1
        self.data_size += len(path) + (len(data) if data else 0)
        if path.startswith(RESERVED_PREFIX):
            crc = counted_crc(path, data, stat)
        else:
            crc = node_crc(path, data, stat)
            self.digest = (self.digest + crc) & MASK
        self.state_digest = (self.state_digest + (crc + 1) * acls.weights[key]) & MASK
        if owner:
            self.own_path(owner, path)
        if self.quotas or path.startswith(RESERVED_PREFIX):
            self._count_created(path, len(data) if data else 0)
        return Change(_CREATED, path, acls.lists[key], acls.lists[parent.acl])

    def delete_node(
        self, path: str, node: Node, parent_path: str, parent: Node, zxid: int
    ) -> Change:
        """Remove an existing znode that has no children."""
        acls = self.acls
        self.note_deletion(parent_path, parent, zxid)
        if parent.children is not None:
            parent.changing_children().discard(path)
        if self.listed:
            self.note_child(parent_path, path)
        self.nodes.remove(path)
        self.descendants.add(parent_path, -1)
        data, stat, key = node.data, node.stat, node.acl
        self.node_count -= 1
        self.data_size -= len(path) + (len(data) if data else 0)
        if path.startswith(RESERVED_PREFIX):
            crc = counted_crc(path, data, stat)
        else:
            crc = node_crc(path, data, stat)
            self.digest = (self.digest - crc) & MASK
        self.state_digest = (self.state_digest - (crc + 1) * acls.weights[key]) & MASK
        change = Change(_DELETED, path, acls.lists[key], acls.lists[parent.acl])
        acls.release(key)
        owner = owner_of(stat)
        if owner:
            self.disown_path(owner, path)
        if self.quotas:
            self.quotas.discard(limited_path(path) or "")
            self.count_quota(path, -len(data) if data else 0, -1)
        return change

    def set_data(
        self, path: str, node: Node, data: bytes | None, version: int, zxid: int, time_ms: int
    ) -> Change:
        """Replace the data of a znode."""
        own = self.nodes.own
        if own is not None:
            node = own(path, node)
        old_data, old_stat = node.data, node.stat
        stat = stat_after_set_data(old_stat, zxid, time_ms, version)
        node.put(data, stat)
        acls = self.acls
        if path.startswith(RESERVED_PREFIX):
            delta = counted_crc(path, data, stat) - counted_crc(path, old_data, old_stat)
        else:
            delta = node_crc(path, data, stat) - node_crc(path, old_data, old_stat)
            self.digest = (self.digest + delta) & MASK
        self.state_digest = (self.state_digest + delta * acls.weights[node.acl]) & MASK
        grown = (len(data) if data else 0) - (len(old_data) if old_data else 0)
        self.data_size += grown
        if self.quotas:
            self.count_quota(path, grown, 0)
        return Change(_DATA, path, acls.lists[node.acl])

    def set_acl(self, path: str, node: Node, acl: AclList | None, aversion: int) -> Change:
        """Replace the ACL of a znode."""
        own = self.nodes.own
        if own is not None:
            node = own(path, node)
        acls = self.acls
        stat = stat_after_set_acl(node.stat, aversion)
        old_crc = counted_crc(path, node.data, node.stat)
        crc = counted_crc(path, node.data, stat)
        if not path.startswith(RESERVED_PREFIX):
            self.digest = (self.digest + crc - old_crc) & MASK
        old_key = node.acl
        old_weight = acls.weights[old_key]
        # First the new one: the list is often the old one, whose entry would vanish and come back.
        key = acls.acquire(acl)
        node.packed = packed_node(node.data, key, stat)
        self.state_digest = (
            self.state_digest + (crc + 1) * acls.weights[key] - (old_crc + 1) * old_weight
        ) & MASK
        acls.release(old_key)
        return Change(_ACL, path, acls.lists[key])

    def replace_acl(self, path: str, node: Node, acl: AclList | None) -> None:
        """Replace the ACL of a znode with no change of its stat."""
        own = self.nodes.own
        if own is not None:
            node = own(path, node)
        acls = self.acls
        crc = counted_crc(path, node.data, node.stat) + 1
        old_key = node.acl
        old_weight = acls.weights[old_key]
        key = acls.acquire(acl)
        node.packed = packed_node(node.data, key, node.stat)
        delta = crc * (acls.weights[key] - old_weight)
        self.state_digest = (self.state_digest + delta) & MASK
        acls.release(old_key)

    def open_session(self, session_id: int, timeout_ms: int) -> None:
        """Add a session, or give it another timeout."""
        self.close_session(session_id)
        self.sessions[session_id] = timeout_ms
        self.state_digest = (self.state_digest + session_digest(session_id, timeout_ms)) & MASK

    def close_session(self, session_id: int) -> None:
        """Forget a session; its ephemerals are deleted one by one."""
        timeout_ms = self.sessions.pop(session_id, None)
        if timeout_ms is not None:
            gone = session_digest(session_id, timeout_ms)
            self.state_digest = (self.state_digest - gone) & MASK

    def note_creation(self, path: str, node: Node, cversion: int, zxid: int) -> None:
        """Count a created child of `node`, unless it was counted."""
        if cversion > cversion_of(node.stat):
            own = self.nodes.own
            if own is not None:
                node = own(path, node)
            self._restat(path, node, stat_after_create(node.stat, cversion, zxid))

    def note_deletion(self, path: str, node: Node, zxid: int) -> None:
        """Note a deleted child of `node`, unless a later change was noted."""
        old_stat = node.stat
        stat = stat_after_delete(old_stat, zxid)
        if stat is not old_stat:
            own = self.nodes.own
            if own is not None:
                node = own(path, node)
            self._restat(path, node, stat)

    def _restat(self, path: str, node: Node, stat: bytes) -> None:
        data, old_stat = node.data, node.stat
        if path.startswith(RESERVED_PREFIX):
            delta = counted_crc(path, data, stat) - counted_crc(path, data, old_stat)
        else:
            delta = node_crc(path, data, stat) - node_crc(path, data, old_stat)
            self.digest = (self.digest + delta) & MASK
        self.state_digest = (self.state_digest + delta * self.acls.weights[node.acl]) & MASK
        node.put_stat(stat)

    def note_child(self, parent_path: str, path: str) -> None:
        """Record that a child was added or removed, if a list of the children is cached."""
        changed = self.listed.get(parent_path)
        if changed is not None:
            changed.append(path)
            if len(changed) > _MAX_LISTED_CHANGES:
                del self.listed[parent_path]  # by then it is rebuilt

    def own_path(self, owner: int, path: str) -> None:
        """Note that a znode has an ephemeralOwner."""
        paths = self.ephemerals.get(owner)
        if paths is not None:
            paths.add(path)
            return
        kind = kind_of_owner(owner)
        if kind is Kind.EPHEMERAL:
            self.ephemerals[owner] = {path}
        elif kind is Kind.CONTAINER:
            self.containers.add(path)
        else:
            self.ttls.add(path)

    def disown_path(self, owner: int, path: str) -> None:
        paths = self.ephemerals.get(owner)
        if paths is not None:
            paths.discard(path)
            if not paths:
                del self.ephemerals[owner]
        elif kind_of_owner(owner) is Kind.CONTAINER:
            self.containers.discard(path)
        else:
            self.ttls.discard(path)

    def change_owned(self, owner: int, come: Collection[str], gone: Collection[str]) -> None:
        """Note that many znodes with one ephemeralOwner came and went."""
        if kind_of_owner(owner) is not Kind.EPHEMERAL:
            for path in gone:
                self.disown_path(owner, path)
            for path in come:
                self.own_path(owner, path)
            return
        paths = self.ephemerals.setdefault(owner, set())
        if len(gone) == len(paths) and not come:
            self.left.append(self.ephemerals.pop(owner))
            return
        paths.difference_update(gone)
        paths.update(come)
        if not paths:
            del self.ephemerals[owner]

    # -- quotas ----------------------------------------------------------------------------------

    def _count_created(self, path: str, size_bytes: int) -> None:
        limited = limited_path(path)
        if limited is not None:
            self.quotas.add(limited)
        counted = counted_path(path)
        if counted is not None:
            self.recount(counted)
        self.count_quota(path, size_bytes, 1)

    def count_quota(self, path: str, bytes_diff: int, count_diff: int) -> None:
        """Count a change at a path for its quota, if it has one."""
        quota = deepest_quota(self.quotas, path)
        if quota is None:
            return
        stats = stats_path(quota)
        node = self.find(stats)
        # The client tool creates the limits first; until the statistics exist, nothing is counted.
        if node is None:
            return
        counts = parse_counts(node.data)
        counts[COUNT] = counts.get(COUNT, -1) + count_diff
        counts[BYTES] = counts.get(BYTES, -1) + bytes_diff
        self._rewrite(stats, node, format_counts(counts))

    def recount(self, quota: str) -> None:
        """Count all that is below a path with a quota and write it to its statistics."""
        stats = stats_path(quota)
        node = self.find(stats)
        if node is None:
            return
        count = size_bytes = 0
        waiting = [quota or ROOT]
        while waiting:
            found = self.find(waiting.pop())
            if found is not None:
                count += 1
                size_bytes += len(found.data) if found.data else 0
                waiting.extend(found.children or ())
        self._rewrite(stats, node, format_counts({COUNT: count, BYTES: size_bytes}))

    def _rewrite(self, path: str, node: Node, data: bytes) -> None:
        """Replace data that no digest covers."""
        own = self.nodes.own
        if own is not None:
            node = own(path, node)
        self.data_size += len(data) - (len(node.packed) - TAIL_SIZE)
        node.put(data, node.stat)

    def _adopt(self, path: str, node: Node) -> None:
        """Add a znode that comes from no txn, and itself to its parent's children."""
        if path != ROOT:
            parent = self.find(parent_of(path))
            invariant(parent is not None, "built-in znodes are added from the root on")
            if parent is not None:
                parent.changing_children().add(path)
                self.descendants.add(parent_of(path), 1)
        self.nodes.insert(path, node)
        self.node_count += 1
        self.data_size += len(path) + len(node.data or b"")
        crc = node_crc(path, node.data, node.stat)
        if not path.startswith(RESERVED_PREFIX):
            self.digest = (self.digest + crc) & MASK
        self.state_digest = (self.state_digest + (crc + 1) * self.acls.weights[node.acl]) & MASK
