"""Exact application: each function checks that a txn fits the tree, then changes it.

The leader computed the txn against the tree that we must have as well. So versions in it directly
follow ours, what it creates is not there, and what it changes is. Whatever does not fit raises
ReplayConflict before the first change (rule R12).

A multi is first run on a draft: copies of the znodes it touches, laid over the tree. It is applied
only if all of it fits there.

Not refused, because valid Apache histories contain them: closing a session that is not known (a
client's close and an expiry cross), opening one again, an ephemeral of a session that is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from keepfast.tree.errors import ReplayConflict
from keepfast.tree.node import Node, make_node
from keepfast.tree.node_bytes import (
    CONTAINER_OWNER,
    MAX_CVERSION,
    MAX_TTL_MS,
    aversion_of,
    cversion_of,
    is_ephemeral,
    owner_of,
    signed_int,
    stat_after_create,
    stat_after_set_data,
    stat_of_create,
    ttl_owner,
    version_of,
)
from keepfast.tree.outcome import NOTHING, Change, OpResult, Outcome
from keepfast.tree.paths import CONFIG, ROOT, parent_of
from keepfast.tree.wire_stat import wire_stat
from keepfast.wire import (
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnHeader,
    decode_txn_body,
)

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree

Find = Callable[[str], Node | None]
Handler = Callable[["Tree", TxnHeader, Any], Outcome]

_CURRENT_PLUS_ONE: Final = -1

_ERROR: Final = OpCode.ERROR.value
_CREATE: Final = OpCode.CREATE.value


# -- does it fit? --------------------------------------------------------------------------------


def check_create(find: Find, zxid: int, path: str, cversion: int) -> tuple[str, Node, int]:
    """The parent's path, the parent, and its cversion once the child is there."""
    if find(path) is not None:
        raise ReplayConflict(zxid, path, "create: the znode exists")
    if path[:1] != "/" or path[-1] == "/":
        raise ReplayConflict(zxid, path, "create: not a path")
    parent_path = path[: path.rfind("/")] or ROOT
    parent = find(parent_path)
    if parent is None:
        raise ReplayConflict(zxid, path, "create: the parent does not exist")
    stat = parent.stat
    current = cversion_of(stat)
    if cversion != current + 1:
        if cversion == _CURRENT_PLUS_ONE:
            cversion = signed_int(current + 1)
        # After 2^31 - 1 the leader counts on from -2^31, and no server takes that over.
        elif current != MAX_CVERSION or cversion >= 0:
            raise ReplayConflict(
                zxid,
                path,
                f"create: the parent's cversion is {current}, the txn makes it {cversion}",
            )
    if is_ephemeral(stat):
        raise ReplayConflict(zxid, path, "create: the parent is ephemeral")
    return parent_path, parent, cversion


def check_present(find: Find, zxid: int, path: str, what: str) -> Node:
    """The znode at `path`."""
    node = find(path or ROOT)
    if node is None:
        raise ReplayConflict(zxid, path, f"{what}: the znode does not exist")
    return node


def check_delete(
    find: Find, zxid: int, path: str, has_children: Callable[[str, Node], bool]
) -> tuple[Node, str, Node]:
    """The znode, its parent's path and its parent."""
    node = check_present(find, zxid, path, "delete")
    if has_children(path, node):
        raise ReplayConflict(zxid, path, "delete: the znode has children")
    parent_path = parent_of(path)
    parent = find(parent_path)
    if parent is None or parent is node:
        raise ReplayConflict(zxid, path, "delete: the root cannot be deleted")
    return node, parent_path, parent


def check_version(zxid: int, path: str, what: str, current: int, given: int) -> None:
    """Refuse a resulting version that does not follow the current one."""
    if given == current + 1:
        return
    # Versions wrap; newer leaders skip -1, which clients cannot ask for.
    if given == signed_int(current + 1) or (given == 0 and current == -2):
        return
    if path == CONFIG:
        # Each server sets this znode's version to -1 when it learns the configuration, so the
        # version that a txn gives says nothing about what is missing here.
        return
    raise ReplayConflict(zxid, path, f"{what}: version {current} here, the txn makes it {given}")


def check_ttl(zxid: int, path: str, ttl_ms: int) -> None:
    """Refuse a TTL that does not fit into ephemeralOwner: a Java server never recovers from it."""
    if not 0 < ttl_ms <= MAX_TTL_MS:
        raise ReplayConflict(zxid, path, f"create: a TTL of {ttl_ms} ms is out of range")


def created_by(header: TxnHeader, body: TxnBody) -> tuple[int, int]:
    """ephemeralOwner of the znode that a create makes, and the parent's cversion in the txn."""
    if isinstance(body, CreateTxn):
        return header.session_id if body.ephemeral else 0, body.parent_cversion
    if isinstance(body, CreateContainerTxn):
        return CONTAINER_OWNER, body.parent_cversion
    if isinstance(body, CreateTTLTxn):
        check_ttl(header.zxid, body.path, body.ttl)
        return ttl_owner(body.ttl), body.parent_cversion
    if isinstance(body, CreateTxnV0):
        return header.session_id if body.ephemeral else 0, _CURRENT_PLUS_ONE
    raise ReplayConflict(header.zxid, None, f"type {header.type} with a {type(body).__name__}")


def _has_children(_path: str, node: Node) -> bool:
    return bool(node.children)


# -- the operations ------------------------------------------------------------------------------


def _create(tree: Tree, header: TxnHeader, body: Any) -> Outcome:
    return Outcome((_create_one(tree, header, body),))


def _create_one(tree: Tree, header: TxnHeader, body: Any) -> Change:
    owner, cversion = created_by(header, body)
    path = body.path
    parent_path, parent, cversion = check_create(tree.find, header.zxid, path, cversion)
    return tree.create_node(header, path, body.data, body.acl, owner, parent_path, parent, cversion)


def _delete(tree: Tree, header: TxnHeader, body: DeleteTxn) -> Outcome:
    return Outcome((_delete_one(tree, header, body),))


def _delete_one(tree: Tree, header: TxnHeader, body: DeleteTxn) -> Change:
    path, zxid = body.path, header.zxid
    node, parent_path, parent = check_delete(tree.find, zxid, path, _has_children)
    return tree.delete_node(path, node, parent_path, parent, zxid)


def _set_data(tree: Tree, header: TxnHeader, body: SetDataTxn) -> Outcome:
    return Outcome((_set_data_one(tree, header, body),))


def _set_data_one(tree: Tree, header: TxnHeader, body: SetDataTxn) -> Change:
    path, data, version = body
    node = tree.find(path)
    if node is None:
        node = check_present(tree.find, header.zxid, path, "setData")
        path = ROOT
    current = version_of(node.stat)
    if version != current + 1:
        check_version(header.zxid, path, "setData", current, version)
    return tree.set_data(path, node, data, version, header.zxid, header.time_ms)


def _reconfig(tree: Tree, header: TxnHeader, body: SetDataTxn) -> Outcome:
    node = check_present(tree.find, header.zxid, body.path, "reconfig")
    if body.path != CONFIG:
        raise ReplayConflict(header.zxid, body.path, f"reconfig: not on {CONFIG}")
    zxid, time_ms = header.zxid, header.time_ms
    tree.config_before = node.data
    return Outcome((tree.set_data(body.path, node, body.data, body.version, zxid, time_ms),))


def _set_acl(tree: Tree, header: TxnHeader, body: SetACLTxn) -> Outcome:
    path = body.path or ROOT
    node = check_present(tree.find, header.zxid, path, "setACL")
    check_version(header.zxid, path, "setACL", aversion_of(node.stat), body.version)
    return Outcome((tree.set_acl(path, node, body.acl, body.version),))


def _create_session(tree: Tree, header: TxnHeader, body: CreateSessionTxn) -> Outcome:
    tree.open_session(header.session_id, body.timeout_ms)
    return NOTHING


def _close_session(tree: Tree, header: TxnHeader, body: CloseSessionTxn | None) -> Outcome:
    session_id, zxid = header.session_id, header.zxid
    listed = body.paths or () if body is not None else ()
    if len(set(listed)) != len(listed):
        raise ReplayConflict(zxid, None, "closeSession: a path is listed twice")
    for path in listed:
        node = check_delete(tree.find, zxid, path, _has_children)[0]
        if owner_of(node.stat) != session_id:
            raise ReplayConflict(zxid, path, f"closeSession: not owned by {session_id:#x}")
    # Before 3.6 there is no list. Sorted: events must come in one order on all servers.
    others = sorted(tree.ephemerals.get(session_id, set()).difference(listed))
    for path in others:
        check_delete(tree.find, zxid, path, _has_children)
    changes = []
    for path in (*listed, *others):
        node, parent_path, parent = check_delete(tree.find, zxid, path, _has_children)
        changes.append(tree.delete_node(path, node, parent_path, parent, zxid))
    tree.close_session(session_id)
    return Outcome(tuple(changes))


def _error(_tree: Tree, _header: TxnHeader, body: ErrorTxn) -> Outcome:
    return Outcome((), body.err)


# -- multi ---------------------------------------------------------------------------------------


class Draft:
    """What a multi would do: copies of the znodes that it touches, laid over the tree."""

    __slots__ = ("_counts", "_header", "_nodes", "_tree")

    def __init__(self, tree: Tree, header: TxnHeader) -> None:
        self._tree = tree
        self._header = header
        self._nodes: dict[str, Node | None] = {}
        # Changes in the number of children; the sets themselves may be large.
        self._counts: dict[str, int] = {}

    def try_op(self, body: TxnBody) -> None:
        """Do one operation on the draft, or raise ReplayConflict."""
        zxid, time_ms = self._header.zxid, self._header.time_ms
        if isinstance(body, SetDataTxn):
            node = check_present(self._find, zxid, body.path, "setData")
            check_version(zxid, body.path, "setData", version_of(node.stat), body.version)
            stat = stat_after_set_data(node.stat, zxid, time_ms, body.version)
            self._put(body.path or ROOT, stat)
        elif isinstance(body, DeleteTxn):
            check_delete(self._find, zxid, body.path, self._has_children)
            self._nodes[body.path] = None
            self._count(parent_of(body.path), -1)
        elif isinstance(body, CheckVersionTxn):
            node = check_present(self._find, zxid, body.path, "check")
            check_version(zxid, body.path, "check", version_of(node.stat), body.version)
        else:
            owner, cversion = created_by(self._header, body)
            path = body.path  # type: ignore[union-attr]  # created_by refused the others
            parent_path, parent, cversion = check_create(self._find, zxid, path, cversion)
            self._put(path, stat_of_create(zxid, time_ms, owner))
            if cversion > cversion_of(parent.stat):
                self._put(parent_path, stat_after_create(parent.stat, cversion, zxid))
            # One that was deleted in this multi left its old count after.
            self._counts[path] = 0
            self._count(parent_path, 1)

    def _find(self, path: str) -> Node | None:
        if path in self._nodes:
            return self._nodes[path]
        return self._tree.find(path)

    def _put(self, path: str, stat: bytes) -> None:
        self._nodes[path] = make_node(None, 0, stat)

    def _count(self, path: str, change: int) -> None:
        self._counts[path] = self._child_count(path) + change

    def _child_count(self, path: str) -> int:
        count = self._counts.get(path)
        if count is None:
            node = self._tree.find(path)
            count = len(node.children) if node is not None and node.children else 0
        return count

    def _has_children(self, path: str, _node: Node) -> bool:
        return self._child_count(path) > 0


def _multi(tree: Tree, header: TxnHeader, body: MultiTxn) -> Outcome:
    ops = body.txns or ()
    failure = failed_multi(ops)
    if failure is not None:
        return failure
    # All of it is decoded before any of it is applied: a bad operation must change nothing.
    bodies = [decode_txn_body(op.type, op.data) for op in ops]
    if len(bodies) > 1:
        draft = Draft(tree, header)
        for sub_body in bodies:
            draft.try_op(sub_body)
    changes = []
    results = []
    for op, sub_body in zip(ops, bodies, strict=True):
        change, result = _apply_op(tree, header, op.type, sub_body)
        if change is not None:
            changes.append(change)
        results.append(result)
    return Outcome(tuple(changes), 0, tuple(results))


def failed_multi(ops: tuple[SubTxn, ...]) -> Outcome | None:
    """The outcome of a multi of which one operation failed, or None if none did."""
    if all(op.type != _ERROR for op in ops):
        return None
    results = []
    # There may be very many, and the answers to nearly all of them are the same.
    codes: dict[bytes | None, int] = {}
    made: dict[int, OpResult] = {}
    error = 0
    for type_, data in ops:
        if type_ == _ERROR:
            known = codes.get(data)
            if known is None:
                sub_body = decode_txn_body(type_, data)
                known = codes[data] = sub_body.err if isinstance(sub_body, ErrorTxn) else 0
            code = known
            error = error or code
        else:
            # Before the one that failed: it would have succeeded. After it: not tried.
            code = ErrorCode.RUNTIME_INCONSISTENCY if error else ErrorCode.OK
        result = made.get(code)
        if result is None:
            result = made[code] = OpResult(_ERROR, code)
        results.append(result)
    return Outcome((), error, tuple(results))


def _apply_op(
    tree: Tree, header: TxnHeader, type_: int, body: TxnBody
) -> tuple[Change | None, OpResult]:
    change: Change | None
    if isinstance(body, SetDataTxn):
        change = _set_data_one(tree, header, body)
    elif isinstance(body, DeleteTxn):
        return _delete_one(tree, header, body), OpResult(type_, 0, body.path)
    elif isinstance(body, CheckVersionTxn):
        node = check_present(tree.find, header.zxid, body.path, "check")
        check_version(header.zxid, body.path, "check", version_of(node.stat), body.version)
        return None, OpResult(type_, 0, body.path)
    else:
        change = _create_one(tree, header, body)
        if type_ == _CREATE:
            return change, OpResult(type_, 0, change.path)
    found = tree.find(change.path)
    stat = None if found is None else wire_stat(found)
    return change, OpResult(type_, 0, change.path, stat)


HANDLERS: Final[dict[int, Handler]] = {
    OpCode.CREATE.value: _create,
    OpCode.CREATE2.value: _create,
    OpCode.CREATE_TTL.value: _create,
    OpCode.CREATE_CONTAINER.value: _create,
    OpCode.DELETE.value: _delete,
    OpCode.DELETE_CONTAINER.value: _delete,
    OpCode.SET_DATA.value: _set_data,
    OpCode.RECONFIG.value: _reconfig,
    OpCode.SET_ACL.value: _set_acl,
    OpCode.CREATE_SESSION.value: _create_session,
    OpCode.CLOSE_SESSION.value: _close_session,
    OpCode.ERROR.value: _error,
    OpCode.MULTI.value: _multi,
}
