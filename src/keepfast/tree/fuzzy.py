"""Application on a tree that may hold the txn already, in part.

Apache copies a snapshot znode by znode while txns continue. So, after the zxid in its name, a txn
may find its own effects, or effects of later ones. The rules below are idempotent: whatever
was copied early, once the last txn that can be in the copy is applied, the tree is exact.

    create, the znode is there     it stays, and takes the ACL of the txn: a later setACL in the
                                   copy comes again. The parent's cversion and pzxid are raised
    create, no parent              ignored: a later txn deleted it, and comes again
    delete, no znode               ignored; the parent's pzxid is raised
    delete, children are there     they go too: they belong to a later znode of the same path, and
                                   come again with it
    setData, setACL, no znode      ignored; otherwise they overwrite
    multi                          each operation for itself

One case stays open. Before 3.6 a closeSession does not list its ephemerals; where one was not
copied, nothing shows whose pzxid is to be raised.

Apache raises the parent for a create of type 1 alone, and leaves the children of a deleted znode
behind without a parent. Both can end in a tree that no other server has; here it is the exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from keepfast.tree.errors import ReplayConflict
from keepfast.tree.node_bytes import cversion_of, signed_int
from keepfast.tree.outcome import Change, OpResult, Outcome
from keepfast.tree.paths import CONFIG, ROOT, parent_of
from keepfast.tree.strict import created_by, failed_multi
from keepfast.wire import (
    CloseSessionTxn,
    CreateSessionTxn,
    DeleteTxn,
    ErrorTxn,
    InvariantViolation,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    TxnBody,
    TxnHeader,
    decode_txn_body,
)

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree


def _create(tree: Tree, header: TxnHeader, body: Any) -> list[Change]:
    owner, cversion = created_by(header, body)
    path = body.path
    if path[:1] != "/" or (path[-1] == "/" and path != ROOT):
        raise ReplayConflict(header.zxid, path, "create: not a path")
    parent_path = parent_of(path)
    parent = tree.find(parent_path)
    if parent is None:
        return []
    if cversion == -1:
        cversion = signed_int(cversion_of(parent.stat) + 1)
    node = tree.find(path)
    if node is not None:
        tree.replace_acl(path, node, body.acl)
        tree.note_creation(parent_path, parent, cversion, header.zxid)
        return []
    return [
        tree.create_node(header, path, body.data, body.acl, owner, parent_path, parent, cversion)
    ]


def _delete_path(tree: Tree, zxid: int, path: str) -> list[Change]:
    parent_path = parent_of(path)
    parent = tree.find(parent_path)
    if parent is None or path == ROOT:
        return []
    node = tree.find(path)
    if node is None:
        tree.note_deletion(parent_path, parent, zxid)
        return []
    # Parents first; deleted from the end. Not by recursion: a damaged tree may be deep.
    subtree = [path]
    for above in subtree:
        found = tree.find(above)
        if found is not None and found.children:
            subtree.extend(sorted(found.children))
    return [_take_out(tree, zxid, below) for below in reversed(subtree)]


def _take_out(tree: Tree, zxid: int, path: str) -> Change:
    node = tree.find(path)
    parent_path = parent_of(path)
    parent = tree.find(parent_path)
    if node is None or parent is None:
        raise InvariantViolation(f"{path} has children that are not there")
    return tree.delete_node(path, node, parent_path, parent, zxid)


def _delete(tree: Tree, header: TxnHeader, body: DeleteTxn) -> list[Change]:
    return _delete_path(tree, header.zxid, body.path)


def _set_data(tree: Tree, header: TxnHeader, body: SetDataTxn) -> list[Change]:
    path = body.path or ROOT
    node = tree.find(path)
    if node is None:
        return []
    return [tree.set_data(path, node, body.data, body.version, header.zxid, header.time_ms)]


def _reconfig(tree: Tree, header: TxnHeader, body: SetDataTxn) -> list[Change]:
    node = tree.find(CONFIG)
    if node is not None and node.data != body.data:  # else the tree holds it already
        tree.config_before = node.data
    return _set_data(tree, header, body)


def _set_acl(tree: Tree, _header: TxnHeader, body: SetACLTxn) -> list[Change]:
    path = body.path or ROOT
    node = tree.find(path)
    return [] if node is None else [tree.set_acl(path, node, body.acl, body.version)]


def _create_session(tree: Tree, header: TxnHeader, body: CreateSessionTxn) -> list[Change]:
    tree.open_session(header.session_id, body.timeout_ms)
    return []


def _close_session(tree: Tree, header: TxnHeader, body: CloseSessionTxn | None) -> list[Change]:
    changes = []
    for path in body.paths or () if body is not None else ():
        changes.extend(_delete_path(tree, header.zxid, path))
    for path in sorted(tree.ephemerals.get(header.session_id, ())):
        changes.extend(_delete_path(tree, header.zxid, path))
    tree.close_session(header.session_id)
    return changes


def _multi(tree: Tree, header: TxnHeader, body: MultiTxn) -> Outcome:
    ops = body.txns or ()
    failure = failed_multi(ops)
    if failure is not None:
        return failure
    bodies = [decode_txn_body(op.type, op.data) for op in ops]
    changes: list[Change] = []
    for op, sub_body in zip(ops, bodies, strict=True):
        if op.type != OpCode.CHECK:
            changes.extend(_HANDLERS[op.type](tree, header, sub_body))
    return Outcome(tuple(changes), 0, tuple(OpResult(op.type, 0) for op in ops))


_HANDLERS: Final[dict[int, Callable[[Tree, TxnHeader, Any], list[Change]]]] = {
    OpCode.CREATE: _create,
    OpCode.CREATE2: _create,
    OpCode.CREATE_TTL: _create,
    OpCode.CREATE_CONTAINER: _create,
    OpCode.DELETE: _delete,
    OpCode.DELETE_CONTAINER: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.RECONFIG: _reconfig,
    OpCode.SET_ACL: _set_acl,
    OpCode.CREATE_SESSION: _create_session,
    OpCode.CLOSE_SESSION: _close_session,
}


def apply(tree: Tree, header: TxnHeader, body: TxnBody | None) -> Outcome:
    """Apply a txn that the tree may hold already."""
    if isinstance(body, ErrorTxn):
        return Outcome((), body.err)
    if isinstance(body, MultiTxn):
        return _multi(tree, header, body)
    handler = _HANDLERS.get(header.type)
    if handler is None:
        raise ReplayConflict(header.zxid, None, f"unknown txn type {header.type}")
    return Outcome(tuple(handler(tree, header, body)))
