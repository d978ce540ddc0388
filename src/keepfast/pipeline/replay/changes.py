"""What a transaction changed: one row per znode, with the value before and the value after it.

The rows of a history are complete: whoever applies them in order has the tree again, Stats
included (`parent_cversion` is there for that). A transaction that changes no znode has one row too,
without a path: the start and the end of a session, and a write that failed and only used up a zxid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from keepfast.tree import Kind, Tree, kind_of, persisted, ttl_of
from keepfast.wire import (
    AclList,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SetACLTxn,
    SetDataTxn,
    TxnBody,
    decode_txn_body,
    has_failed,
)

_CREATES = (CreateTxn, CreateTxnV0, CreateTTLTxn, CreateContainerTxn)
_PERMISSIONS = ((4, "c"), (8, "d"), (1, "r"), (2, "w"), (16, "a"))
_TYPE_NAMES = {
    OpCode.CREATE: "create",
    OpCode.CREATE2: "create2",
    OpCode.CREATE_CONTAINER: "createContainer",
    OpCode.CREATE_TTL: "createTTL",
    OpCode.DELETE: "delete",
    OpCode.DELETE_CONTAINER: "deleteContainer",
    OpCode.SET_DATA: "setData",
    OpCode.SET_ACL: "setACL",
    OpCode.CHECK: "check",
    OpCode.MULTI: "multi",
    OpCode.RECONFIG: "reconfig",
    OpCode.CREATE_SESSION: "createSession",
    OpCode.CLOSE_SESSION: "closeSession",
    OpCode.ERROR: "error",
}


class ZnodeChange(NamedTuple):
    """One row; what does not apply is None."""

    zxid: int
    operation: int  # its number inside the transaction, from 0
    op: str  # the type of the transaction
    change: str  # created, deleted, data set, ACL set, session opened, session closed, failed
    session_id: int
    cxid: int
    time_ms: int
    path: str | None = None
    old_data: bytes | None = None
    new_data: bytes | None = None
    old_version: int | None = None
    new_version: int | None = None
    acl: AclList | None = None  # after the change
    kind: str | None = None  # of the znode: persistent, ephemeral, container, ttl
    ttl_ms: int | None = None
    parent_cversion: int | None = None  # of a created znode's parent, as it is stored
    timeout_ms: int | None = None
    error: int | None = None
    # False where the values before are those of a snapshot that may be ahead of its zxid.
    is_old_known: bool = True
    old_acl: AclList | None = None  # before the change: who may see the values of then


class _Value(NamedTuple):
    """A znode as the rows need it."""

    data: bytes | None
    version: int
    aversion: int
    cversion: int
    acl: AclList
    kind: str
    ttl_ms: int | None


class _Values:
    """The znodes as an operation finds them: the tree, and what earlier operations did to it."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._changed: dict[str, _Value | None] = {}

    def find(self, path: str) -> _Value | None:
        if path in self._changed:
            return self._changed[path]
        node = self._tree.find(path)
        if node is None:
            return None
        stat = persisted(node)
        kind = kind_of(node.stat)
        return _Value(
            node.data,
            stat.version,
            stat.aversion,
            stat.cversion,
            self._tree.acl_of(node),
            kind.name.lower(),
            ttl_of(node.stat) if kind is Kind.TTL else None,
        )

    def put(self, path: str, value: _Value | None) -> None:
        self._changed[path] = value

    def ephemerals(self, session: int) -> set[str]:
        return self._tree.ephemerals.get(session, set())


def changes_of(entry: LogEntry, tree: Tree) -> list[ZnodeChange]:
    """The rows of a transaction that is about to be applied to `tree`; always at least one."""
    header, values = entry.header, _Values(tree)
    start = ZnodeChange(
        header.zxid, 0, type_name(header.type), "", header.session_id, header.cxid, header.time_ms
    )
    rows: list[ZnodeChange] = []
    for number, body in _operations(entry):
        rows.extend(_rows(start._replace(operation=number), body, values))
    return rows


def type_name(code: int) -> str:
    """The name of a transaction's type, as `keepfast inspect` has it."""
    return _TYPE_NAMES.get(OpCode(code), str(code)) if code in _TYPE_NAMES else str(code)


def acl_texts(acl: AclList) -> list[str]:
    """An ACL as `scheme:id:permissions`, as ZooKeeper's shell writes it; ids are complete."""
    return [
        f"{scheme}:{id_}:{''.join(letter for bit, letter in _PERMISSIONS if perms & bit)}"
        for perms, (scheme, id_) in acl
    ]


def _operations(entry: LogEntry) -> Iterator[tuple[int, TxnBody]]:
    body = entry.body
    if body is None:
        yield 0, CloseSessionTxn(None)
    elif not isinstance(body, MultiTxn):
        yield 0, body
    elif has_failed(body):
        bodies = [decode_txn_body(sub.type, sub.data) for sub in body.txns or ()]
        errors = [one.err for one in bodies if isinstance(one, ErrorTxn) and one.err]
        yield 0, ErrorTxn(errors[0] if errors else 0)
    else:
        is_empty = True
        for number, sub in enumerate(body.txns or ()):
            operation = decode_txn_body(sub.type, sub.data)
            if not isinstance(operation, CheckVersionTxn):
                is_empty = False
                yield number, operation
        if is_empty:
            yield 0, CheckVersionTxn("", 0)


def _rows(start: ZnodeChange, body: TxnBody, values: _Values) -> Iterator[ZnodeChange]:
    if isinstance(body, _CREATES):
        yield _created(start, body, values)
    elif isinstance(body, DeleteTxn):
        yield _deleted(start, body.path, values)
    elif isinstance(body, SetDataTxn):
        yield _data_set(start, body, values)
    elif isinstance(body, SetACLTxn):
        yield _acl_set(start, body, values)
    elif isinstance(body, CreateSessionTxn):
        yield start._replace(change="session opened", timeout_ms=body.timeout_ms)
    elif isinstance(body, CloseSessionTxn):
        yield start._replace(change="session closed")
        # Before 3.6 the record does not say which: then it is all that the session has.
        owned = values.ephemerals(start.session_id)
        paths = dict.fromkeys([*(body.paths or ()), *sorted(owned)])
        for number, path in enumerate(paths, 1):
            if values.find(path) is not None:
                yield _deleted(start._replace(operation=number), path, values)
    elif isinstance(body, ErrorTxn):
        yield start._replace(change="failed", error=body.err)
    else:
        yield start._replace(change="checked")


def _created(
    start: ZnodeChange,
    body: CreateTxn | CreateTxnV0 | CreateTTLTxn | CreateContainerTxn,
    values: _Values,
) -> ZnodeChange:
    kind, ttl_ms = Kind.PERSISTENT, None
    if isinstance(body, CreateTTLTxn):
        kind, ttl_ms = Kind.TTL, body.ttl
    elif isinstance(body, CreateContainerTxn):
        kind = Kind.CONTAINER
    elif body.ephemeral:
        kind = Kind.EPHEMERAL
    cversion = -1 if isinstance(body, CreateTxnV0) else body.parent_cversion
    parent_path = body.path[: body.path.rfind("/")] or "/"
    parent = values.find(parent_path)
    if cversion == -1 and parent is not None:
        cversion = parent.cversion + 1
    if parent is not None:
        values.put(parent_path, parent._replace(cversion=cversion))
    acl = body.acl or ()
    values.put(body.path, _Value(body.data, 0, 0, 0, acl, kind.name.lower(), ttl_ms))
    return start._replace(
        change="created",
        path=body.path,
        new_data=body.data,
        new_version=0,
        acl=acl,
        kind=kind.name.lower(),
        ttl_ms=ttl_ms,
        parent_cversion=cversion,
    )


def _deleted(start: ZnodeChange, path: str, values: _Values) -> ZnodeChange:
    old = values.find(path)
    values.put(path, None)
    row = start._replace(change="deleted", path=path)
    if old is None:
        return row._replace(is_old_known=False)
    return row._replace(
        old_data=old.data,
        old_version=old.version,
        kind=old.kind,
        ttl_ms=old.ttl_ms,
        old_acl=old.acl,
    )


def _data_set(start: ZnodeChange, body: SetDataTxn, values: _Values) -> ZnodeChange:
    path = body.path or "/"
    old = values.find(path)
    row = start._replace(change="data set", path=path, new_data=body.data, new_version=body.version)
    if old is None:
        return row._replace(is_old_known=False)
    values.put(path, old._replace(data=body.data, version=body.version))
    return row._replace(
        old_data=old.data,
        old_version=old.version,
        acl=old.acl,
        kind=old.kind,
        ttl_ms=old.ttl_ms,
        old_acl=old.acl,
    )


def _acl_set(start: ZnodeChange, body: SetACLTxn, values: _Values) -> ZnodeChange:
    path = body.path or "/"
    old = values.find(path)
    acl = body.acl or ()
    row = start._replace(change="ACL set", path=path, new_version=body.version, acl=acl)
    if old is None:
        return row._replace(is_old_known=False)
    values.put(path, old._replace(acl=acl, aversion=body.version))
    return row._replace(
        old_data=old.data,
        new_data=old.data,
        old_version=old.aversion,
        kind=old.kind,
        ttl_ms=old.ttl_ms,
        old_acl=old.acl,
    )
