"""Which changes a txn made, and by whom, for the audit log.

As in Apache, a change is logged by the server that its client is connected to; a multi that
succeeds operation by operation, one that fails as one record, and the ephemerals deleted with their
session one by one, by every server. Unlike Apache, what the servers delete on their own
(containers, TTLs) is logged too, and secrets in ACLs are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from keepfast.tree import ChangeKind, Outcome
from keepfast.wire import AclList, CreateMode, Id, MultiOp, OpCode, Perms

if TYPE_CHECKING:
    from keepfast.replica.proposals import Proposal

_EPHEMERAL_GONE: Final = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
_CREATE: Final = "create"
_OPERATIONS: Final[dict[int, str]] = {
    OpCode.CREATE: _CREATE,
    OpCode.CREATE2: _CREATE,
    OpCode.CREATE_CONTAINER: _CREATE,
    OpCode.CREATE_TTL: _CREATE,
    OpCode.DELETE: "delete",
    OpCode.DELETE_CONTAINER: "delete",
    OpCode.SET_DATA: "setData",
    OpCode.SET_ACL: "setAcl",
    OpCode.MULTI: "multiOperation",
    OpCode.RECONFIG: "reconfig",
}
_LETTERS: Final = (
    (Perms.CREATE, "c"),
    (Perms.DELETE, "d"),
    (Perms.READ, "r"),
    (Perms.WRITE, "w"),
    (Perms.ADMIN, "a"),
)


class AuditRecord(NamedTuple):
    """One change, or one attempt; None where a field does not apply."""

    session_id: int
    # Who asked; None: the server itself.
    users: str | None
    address: str | None
    operation: str
    path: str | None
    znode_type: str | None
    acl: str | None
    is_success: bool


class _Asker(NamedTuple):
    """Who asked for a change; None: the server itself."""

    users: str | None
    address: str | None


_SERVER: Final = _Asker(None, None)


def audit_records(proposal: Proposal, outcome: Outcome) -> Iterator[AuditRecord]:
    """What a txn changed; nothing for one that only begins or ends a session."""
    connection = proposal.connection
    # As it is now: of a txn with very many changes the records are made later.
    asker = _SERVER
    if connection is not None:
        asker = _Asker(_users(connection.ids), connection.address)
    return _records(proposal, outcome, asker)


def _records(proposal: Proposal, outcome: Outcome, asker: _Asker) -> Iterator[AuditRecord]:
    op, request = proposal.op, proposal.request
    is_of_client = proposal.connection is not None
    if op == OpCode.CLOSE_SESSION or (op == OpCode.MULTI and not is_of_client and not proposal.xid):
        # At once, or before it because they are too many for one txn.
        for change in outcome.changes:
            if change.kind is ChangeKind.DELETED:
                yield _record(proposal, _SERVER, _EPHEMERAL_GONE, change.path)
    elif proposal.entry.header.session_id and not is_of_client:
        return  # the server that its client is connected to knows more, and logs it
    elif op == OpCode.MULTI and not outcome.error:
        for sub, result in zip(request, outcome.results, strict=True):
            if sub.type in _OPERATIONS:
                yield _record(
                    proposal, asker, _OPERATIONS[sub.type], result.path or sub.request.path, sub
                )
    elif op in _OPERATIONS:
        path = getattr(proposal.entry.body, "path", None) or _path_of(request)
        asked = MultiOp(op, request)
        yield _record(proposal, asker, _OPERATIONS[op], path, asked, is_success=not outcome.error)


def _record(
    proposal: Proposal,
    asker: _Asker,
    operation: str,
    path: str | None,
    asked: MultiOp | None = None,
    *,
    is_success: bool = True,
) -> AuditRecord:
    request = None if asked is None else asked.request
    return AuditRecord(
        session_id=proposal.entry.header.session_id,
        users=asker.users,
        address=asker.address,
        operation=operation,
        path=path,
        znode_type=_znode_type(request) if operation == _CREATE else None,
        acl=_acl_text(getattr(request, "acl", None)) if operation == "setAcl" else None,
        is_success=is_success,
    )


def _path_of(request: Any) -> str | None:
    """The path that was asked for: a failed txn has none."""
    path = getattr(request, "path", None)
    return path.decode("utf-8", "replace") if isinstance(path, bytes) else path


def _users(ids: tuple[Id, ...]) -> str:
    return ",".join(
        held.id.partition(":")[0] if held.scheme == "digest" else held.id for held in ids
    )


def _znode_type(request: Any) -> str | None:
    try:
        return CreateMode(getattr(request, "flags", -1)).name.lower()
    except ValueError:
        return None


def _acl_text(acl: AclList | None) -> str:
    shown = []
    for entry in acl or ():
        scheme, name = entry.id
        if scheme == "digest":
            name = name.partition(":")[0] + ":x"
        letters = "".join(letter for bit, letter in _LETTERS if entry.perms & bit)
        shown.append(f"{scheme}:{name}:{letters}")
    return ",".join(shown)
