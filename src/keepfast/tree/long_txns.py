"""Txns with very many changes: prepared in slices, installed in one step.

One multi of a megabyte has tens of thousands of operations, the end of a session as many
ephemerals. Nobody may see half of it, and nobody may wait for all of it. So it is computed while
others have their turns, and what is left for the one moment in which the tree changes is to put
ready znodes into dicts and sets:

    a leader    prepares the changes on its pending ones (`Preparer.prepare_long`), and gathers
                them here, before the txn is proposed
    a learner   works the changes out from the record (`read_long`), on a draft over its tree, when
                the txn is the next one to apply

What several operations do to one znode is one change here: from what it was before the txn to what
it is after it. That the tree is the one that the txn was computed on (R12) is checked before
anything changes, as in `install`: byte for byte of every stat, and by the digest.
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
    cversion_of,
    owner_of,
    packed_node,
    stat_after_create,
    stat_after_delete,
    stat_after_set_data,
    stat_of_create,
    version_of,
)
from keepfast.tree.outcome import Change, ChangeKind, OpResult, Outcome
from keepfast.tree.paths import ROOT
from keepfast.tree.pending import PendingChanges, sorted_in_slices
from keepfast.tree.pending_node import PendingNode, Step
from keepfast.tree.quota import deepest_quota
from keepfast.tree.strict import (
    check_create,
    check_delete,
    check_present,
    check_version,
    created_by,
    failed_multi,
)
from keepfast.wire import (
    AclList,
    CheckVersionTxn,
    CloseSessionTxn,
    DeleteTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnHeader,
    Zxid,
    decode_txn_body,
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
        "_changed",
        "_crc_change",
        "_created",
        "_deleted",
        "_digest",
        "_first",
        "_gone",
        "_last",
        "_new",
        "_owners",
        "_present",
        "_recreated",
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
        # Sorted out: what is not there before; what is, with its stat; ready znodes, in an order
        # in which parents come first; what is taken out; what is given other data or another stat;
        # what is given another ACL, too. All that is there by its position in `_present`.
        self._absent: list[str] = []
        self._present: list[str] = []
        self._stats: list[bytes] = []
        self._created: dict[str, Node] = {}
        self._deleted: list[int] = []
        self._changed: list[tuple[int, PendingNode, PendingNode]] = []
        self._recreated: list[tuple[int, PendingNode]] = []
        # Parent -> children that come and go.
        self._new: dict[str, list[str]] = {}
        self._gone: dict[str, list[str]] = {}
        # ephemeralOwner -> znodes that come and go with it.
        self._owners: dict[int, tuple[list[str], list[str]]] = {}
        self._acls: dict[AclList | None, _AclUse] = {}
        self._acls_by_id: dict[int, tuple[AclList | None, _AclUse]] = {}
        self._bytes = self._state_change = self._crc_change = 0
        self._digest: int | None = None
        # The outcome.
        self.changes: list[Change] = []
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
        left = iter(steps)
        while some := list(islice(left, size)):
            self._add(some)
            yield
        operations, done = iter(types), iter(steps)
        while chunk := list(islice(operations, LIGHT * size)):
            self.results += multi_results(chunk, done)
            yield
        items = iter(self._last.items())
        while pairs := list(islice(items, _SORTED * size)):
            self._sort_out(pairs)
            yield

    def fail(self, ops: tuple[SubTxn, ...]) -> list[int]:
        """It is a multi that failed; returns the types of the operations that change something."""
        failure = failed_multi(ops)
        if failure is not None:
            self.error = failure.error
            self.results += failure.results
        return []

    def _add(self, steps: Iterable[Step]) -> None:
        first, last, changes = self._first, self._last, self.changes
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
                position = len(self._present)
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
                self._created[path] = Node(packed_node(new.data, key, new.stat))
                use.paths.append(path)
                self._new.setdefault(path[: path.rfind("/")] or ROOT, []).append(path)
                grown += len(path)
            elif not new.stat:
                self._deleted.append(position)
                self._gone.setdefault(path[: path.rfind("/")] or ROOT, []).append(path)
                grown -= len(path)
            elif new.acl is old.acl:
                self._changed.append((position, old, new))
            else:
                self._recreated.append((position, new))
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

    # -- at once, when it is due -----------------------------------------------------------------

    def install(self) -> Outcome:
        """Have the tree take the txn, or raise ReplayConflict and change nothing."""
        tree, zxid = self._tree, self._zxid
        found, released = self._check()
        nodes, acls, present = tree.nodes, tree.acls, self._present
        self._acquire()
        nodes.insert_all(self._created)
        find, own = tree.find, nodes.own
        for position, old, new in self._changed:
            node = found[position] if own is None else own(present[position], found[position])
            packed = node.packed
            if new.data is old.data:
                node.packed = packed[:-STAT_SIZE] + new.stat
            elif new.data is None or old.data is None:
                node.put(new.data, new.stat)
            else:
                node.packed = b"".join((new.data, packed[-TAIL_SIZE:-STAT_SIZE], new.stat))
        for position, new in self._recreated:
            node = found[position] if own is None else own(present[position], found[position])
            key = acls.acquire(new.acl)
            released[node.acl] += 1
            node.packed = packed_node(new.data, key, new.stat)
        listed = tree.listed
        for parents, sign in ((self._new, 1), (self._gone, -1)):
            for path, paths in parents.items():
                tree.descendants.add(path, sign * len(paths))
                if path in listed:
                    for child in paths:
                        tree.note_child(path, child)
                parent: Any = find(path)
                if parent is None:
                    continue  # it goes, too
                if own is not None:
                    parent = own(path, parent)
                children = parent.changing_children()
                (children.update if sign > 0 else children.difference_update)(paths)
        for position in self._deleted:
            nodes.remove(present[position])
        for key, count in released.items():
            acls.release(key, count)
        for owner, (come, gone) in self._owners.items():
            tree.change_owned(owner, come, gone)
        tree.node_count += len(self._created) - len(self._deleted)
        tree.data_size += self._bytes
        if tree.quotas:
            self._count_quotas()
        if self._digest is not None:
            tree.digest = self._digest
        tree.state_digest = (tree.state_digest + self._state_change) & MASK
        if self.ended_session is not None:
            tree.close_session(self.ended_session)
        tree.last_zxid = zxid
        return Outcome(tuple(self.changes), self.error, tuple(self.results))

    def _check(self) -> tuple[list[Any], Counter[int]]:
        """Refuse a tree that is another one.

        Returns the znodes that are `_present`, and the keys of ACLs of those that will be deleted.
        """
        tree, zxid = self._tree, self._zxid
        find, weights = tree.find, tree.acls.weights
        found: list[Any] = list(map(find, self._present))
        # No loops in Python: there may be tens of thousands.
        if (
            any(map(find, self._absent))
            or not all(found)
            or [node.packed[-STAT_SIZE:] for node in found] != self._stats
        ):
            raise ReplayConflict(zxid, self._other(), _CONFLICT)
        total = tree.digest + self._crc_change
        if (self._digest is not None and total & MASK != self._digest) or zxid <= tree.last_zxid:
            raise ReplayConflict(zxid, None, _CONFLICT)
        keys: list[int] = []
        for position in self._deleted:
            packed = found[position].packed
            key = _key_at(packed, len(packed) - TAIL_SIZE)[0]
            # Null data: the key shows it.
            keys.append(key if key in weights else found[position].acl)
        return found, Counter(keys)

    def _other(self) -> str | None:
        """The first znode that is another one than the txn was prepared on."""
        for path, old in self._first.items():
            node = self._tree.find(path)
            if (node is None) is not (old is None) or (node and old and node.stat != old.stat):
                return path
        return None

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
                    self._created[path].packed = packed_node(new.data, key, new.stat)

    def _count_quotas(self) -> None:
        tree = self._tree
        counts: dict[str, list[int]] = {}
        for path, new in self._last.items():
            old = self._first[path]
            quota = deepest_quota(tree.quotas, path)
            if quota is not None:
                count = counts.setdefault(quota, [0, 0])
                count[0] += _size(new) - _size(old)
                count[1] += bool(new.stat) - (old is not None)
        for quota, (grown, more) in counts.items():
            if grown or more:
                tree.count_quota(quota, grown, more)


def _size(node: PendingNode | None) -> int:
    return len(node.data) if node is not None and node.data else 0


# -- a learner's way -------------------------------------------------------------------------------


def is_long(entry: LogEntry, size: int) -> bool:
    """Whether the txn of a record is computed in slices of `size` operations."""
    body = entry.body
    if isinstance(body, MultiTxn):
        return len(body.txns or ()) > size
    return isinstance(body, CloseSessionTxn) and len(body.paths or ()) > size


def read_long(tree: Tree, entry: LogEntry, size: int) -> Generator[None, None, LongTxn | None]:
    """Work out what a committed txn does to a tree, which stays as it is until it is installed.

    None: it does more than change its znodes, and has to be applied in one piece. Raises
    ReplayConflict.
    """
    header, body = entry.header, entry.body
    txn = LongTxn(tree, header.zxid)
    draft = _Draft(tree, header)
    if isinstance(body, MultiTxn):
        types = [op.type for op in body.txns or ()]
        ops = body.txns or ()
        if _ERROR in types:
            types = txn.fail(ops)
            ops = ()
        for number, op in enumerate(ops, 1):
            draft.do(decode_txn_body(op.type, op.data))
            if not number % size:
                yield
    else:
        types = []
        listed = body.paths or () if isinstance(body, CloseSessionTxn) else ()
        if len(set(listed)) != len(listed):
            raise ReplayConflict(header.zxid, None, "closeSession: a path is listed twice")
        others = tree.ephemerals.get(header.session_id, set()).difference(listed)
        ordered = yield from sorted_in_slices(list(others), size)
        for number, path in enumerate(chain(listed, ordered), 1):
            draft.end(path)
            if not number % size:
                yield
        txn.ended_session = header.session_id
    if draft.pending.reserved:
        return None
    yield from txn.gather(draft.pending.steps_of(header.zxid), draft.pending.digest, types, size)
    return txn


class _Draft:
    """A tree with the changes of one txn, each of which is checked as strictly as in `apply`."""

    def __init__(self, tree: Tree, header: TxnHeader) -> None:
        self.pending = PendingChanges(tree)
        self._header = header

    def do(self, body: TxnBody) -> None:
        """Do one operation of a multi, or raise ReplayConflict."""
        pending, zxid, time_ms = self.pending, self._header.zxid, self._header.time_ms
        find: Any = pending.find
        if isinstance(body, SetDataTxn):
            path = body.path or ROOT
            node: Any = check_present(find, zxid, path, "setData")
            check_version(zxid, path, "setData", version_of(node.stat), body.version)
            stat = stat_after_set_data(node.stat, zxid, time_ms, body.version)
            new = PendingNode(body.data, node.acl, stat, node.child_count)
            pending.put(zxid, path, node, new, _DATA)
        elif isinstance(body, DeleteTxn):
            self._delete(body.path)
        elif isinstance(body, CheckVersionTxn):
            node = check_present(find, zxid, body.path, "check")
            check_version(zxid, body.path, "check", version_of(node.stat), body.version)
        else:
            owner, cversion = created_by(self._header, body)
            path = body.path  # type: ignore[union-attr]  # created_by refused the others
            parent_path, parent, cversion = check_create(find, zxid, path, cversion)
            above = self._above(parent, 1)
            if cversion > cversion_of(parent.stat):
                above.stat = stat_after_create(parent.stat, cversion, zxid)
            made = stat_of_create(zxid, time_ms, owner)
            new = PendingNode(body.data, body.acl, made, 0)  # type: ignore[union-attr,arg-type]
            pending.put_below(zxid, parent_path, parent, above, path, None, new, _CREATED)  # type: ignore[arg-type]

    def end(self, path: str) -> None:
        """Delete an ephemeral of the session that ends, or raise ReplayConflict."""
        node = self._delete(path)
        session_id = self._header.session_id
        if owner_of(node.stat) != session_id:
            zxid = self._header.zxid
            raise ReplayConflict(zxid, path, f"closeSession: not owned by {session_id:#x}")

    def _delete(self, path: str) -> PendingNode:
        zxid = self._header.zxid
        found: Any = check_delete(self.pending.find, zxid, path, _has_children)  # type: ignore[arg-type]
        node, parent_path, parent = found
        above = self._above(parent, -1)
        above.stat = stat_after_delete(parent.stat, zxid)
        gone = PendingNode(None, (), b"", 0)
        self.pending.put_below(zxid, parent_path, parent, above, path, node, gone, _DELETED)
        return node  # type: ignore[no-any-return]

    @staticmethod
    def _above(parent: Any, more: int) -> PendingNode:
        return PendingNode(parent.data, parent.acl, parent.stat, parent.child_count + more)


def _has_children(_path: str, node: Any) -> bool:
    return bool(node.child_count)
