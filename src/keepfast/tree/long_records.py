"""A learner's way to a txn with very many changes: worked out from its record, in slices.

On a draft over the tree, when the txn is the next one to apply; see `long_txns`.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from keepfast.tree.errors import ReplayConflict
from keepfast.tree.long_txns import LongTxn
from keepfast.tree.node_bytes import (
    cversion_of,
    owner_of,
    stat_after_create,
    stat_after_delete,
    stat_after_set_data,
    stat_of_create,
    version_of,
)
from keepfast.tree.outcome import ChangeKind
from keepfast.tree.paths import ROOT
from keepfast.tree.pending import PendingChanges, sorted_in_slices
from keepfast.tree.pending_node import PendingNode
from keepfast.tree.strict import (
    check_create,
    check_delete,
    check_present,
    check_version,
    created_by,
)
from keepfast.wire import (
    CheckVersionTxn,
    CloseSessionTxn,
    DeleteTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SetDataTxn,
    TxnBody,
    TxnHeader,
    decode_txn_body,
)

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree

_ERROR: Final = OpCode.ERROR.value
_CREATED: Final = ChangeKind.CREATED.value
_DELETED: Final = ChangeKind.DELETED.value
_DATA: Final = ChangeKind.DATA.value


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
    yield from txn.compare(size)
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
