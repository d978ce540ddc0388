"""A reply answers the request that was sent, and no other (R15).

A client may use a number again: kazoo counts its requests from 1 on every connection. So the number
proves nothing. What does is the txn under the reply's zxid: it has to be the one that this request
asks for, its result has to be what the reply says, and no two requests may get the same
one. Where a request was refused, the state before it has to be a reason for that refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.sim.operations import Operation, SessionView
from keepfast.tree import parent_of
from keepfast.wire import (
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateMode,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    MultiTxn,
    OpCode,
    ServerId,
    SetDataTxn,
    Stat,
    codec_of,
    decode_txn_body,
    format_zxid,
)

_STAT: Final = codec_of(Stat)
_SEQUENCE_DIGITS: Final = 10
# Bytes of a txn beside a path and data.
_MAX_TXN_OVERHEAD: Final = 110
_CREATES: Final = frozenset(
    (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_TTL, OpCode.CREATE_CONTAINER)
)
_WITH_STAT: Final = frozenset((OpCode.CREATE2, OpCode.CREATE_TTL, OpCode.CREATE_CONTAINER))
_CHECKED: Final = _CREATES | {OpCode.SET_DATA, OpCode.DELETE, OpCode.MULTI, OpCode.CLOSE_SESSION}
# Refusals that say nothing about a znode.
_ABOUT_SESSIONS: Final = frozenset(
    (
        ErrorCode.SESSION_MOVED,
        ErrorCode.SESSION_EXPIRED,
        ErrorCode.EPHEMERAL_ON_LOCAL_SESSION,
        ErrorCode.QUOTA_EXCEEDED,
    )
)

# No txn was made of these: the server was not able, or did not want, to take a write.
NOT_LOGGED: Final = frozenset(
    (
        ErrorCode.SYSTEM_ERROR,
        ErrorCode.CONNECTION_LOSS,
        ErrorCode.UNIMPLEMENTED,
        ErrorCode.NOT_READ_ONLY,
        ErrorCode.THROTTLED_OP,
    )
)


class AnswerChecker(Checker):
    """Compares each reply with the request that its connection sent under that number."""

    name = "answers"

    def __init__(self, ledger: Ledger, limits: Mapping[ServerId, int]) -> None:
        """`limits`: the largest txn that each server may make."""
        super().__init__(ledger)
        self._limits = limits
        # The request that each txn answered.
        self._told: dict[int, Operation] = {}

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        entry = self.ledger.decoded.get(operation.zxid)  # type: ignore[call-overload]
        if entry is None or operation.type not in _CHECKED or operation.error in NOT_LOGGED:
            return
        is_close = operation.type is OpCode.CLOSE_SESSION
        if is_close and operation.session_id not in self.ledger.session_starts:
            return  # only its server knew it
        earlier = self._told.setdefault(operation.zxid, operation)
        if earlier is not operation:
            self._complain(operation, f"by the txn that c{earlier.client}'s {earlier} was told of")
        if operation.request is None and not is_close:
            return
        what = self._difference(operation, entry.body)
        if what:
            self._complain(operation, what)

    def _difference(self, operation: Operation, body: Any) -> str:
        if operation.type is OpCode.CLOSE_SESSION:
            is_close = body is None or isinstance(body, CloseSessionTxn)
            return "" if is_close or operation.error else f"by {body}"
        if operation.type is OpCode.MULTI:
            return self._multi_difference(operation, body)
        if isinstance(body, ErrorTxn):
            return self._refusal_difference(operation, operation.error)
        what = _txn_difference(operation.type, operation.request, body)
        return what or self._reply_difference(operation, body)

    def _reply_difference(self, operation: Operation, body: Any) -> str:
        reply = operation.reply
        if operation.type in _CREATES and reply.path != body.path:
            return f"by the path {reply.path}, and {body.path} was made"
        if operation.type is OpCode.SET_DATA or operation.type in _WITH_STAT:
            expected = self.ledger.state_at(body.path, operation.zxid).stat
            if reply.stat != _STAT.decode(expected or b""):
                return f"by {reply.stat}, and the znode is {_STAT.decode(expected or b'')}"
        return ""

    def _refusal_difference(self, operation: Operation, error: int) -> str:
        if error in _ABOUT_SESSIONS:
            return ""
        reasons = self._reasons(operation.type, operation.request, operation.zxid - 1)
        if error in reasons:
            return ""
        if error == ErrorCode.MARSHALLING_ERROR and self._is_large(operation):
            return ""
        names = ", ".join(sorted(reason.name for reason in reasons)) or "nothing"
        return f"by error {error}, and {names} was wrong with it"

    def _is_large(self, operation: Operation) -> bool:
        """Whether a request may be too large for a txn."""
        request = operation.request
        size = len(request.path) + len(getattr(request, "data", None) or b"")
        return size + _MAX_TXN_OVERHEAD > min(self._limits.values(), default=0)

    def _reasons(self, type_: OpCode, request: Any, zxid: int) -> set[ErrorCode]:
        """All that stood against a request at a zxid."""
        state = self.ledger.state_at(request.path, zxid)
        reasons: set[ErrorCode] = set()
        if type_ in _CREATES:
            if not CreateMode(request.flags).is_sequential and state.stat is not None:
                reasons.add(ErrorCode.NODE_EXISTS)
            parent = self.ledger.state_at(parent_of(request.path), zxid)
            if parent.stat is None:
                reasons.add(ErrorCode.NO_NODE)
            elif _STAT.decode(parent.stat).ephemeral_owner:
                reasons.add(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
            return reasons
        if state.stat is None:
            return {ErrorCode.NO_NODE}
        if request.version not in (-1, _STAT.decode(state.stat).version):
            reasons.add(ErrorCode.BAD_VERSION)
        if type_ is OpCode.DELETE and state.children:
            reasons.add(ErrorCode.NOT_EMPTY)
        return reasons

    def _multi_difference(self, operation: Operation, body: Any) -> str:
        if isinstance(body, ErrorTxn):
            return "" if operation.error == body.err else f"by error {operation.error}"
        if not isinstance(body, MultiTxn):
            return f"by {body}"
        parts = body.txns or ()
        if len(parts) != len(operation.request):
            return f"by a multi of {len(parts)}"
        bodies = [decode_txn_body(part.type, part.data) for part in parts]
        if any(isinstance(each, ErrorTxn) for each in bodies):
            return self._failure_difference(operation, bodies)
        if operation.error or len(operation.reply) != len(parts):
            return f"by error {operation.error}"
        for asked, made, result in zip(operation.request, bodies, operation.reply, strict=True):
            what = _txn_difference(OpCode(asked.type), asked.request, made)
            if not what and isinstance(made, SetDataTxn):
                stat = result.result.stat
                if (stat.version, stat.mzxid) != (made.version, operation.zxid):
                    what = f"by {stat}"
            if not what and isinstance(made, CreateTxn) and result.result.path != made.path:
                what = f"by the path {result.result.path}"
            if what:
                return f"{what}, for {OpCode(asked.type).name} {asked.request.path}"
        return ""

    def _failure_difference(self, operation: Operation, bodies: list[Any]) -> str:
        """The reply has the error of each part."""
        made = [body.err if isinstance(body, ErrorTxn) else 0 for body in bodies]
        told = [result.err for result in operation.reply or ()]
        return "" if operation.error or made == told else f"by the errors {told}, not {made}"

    def _complain(self, operation: Operation, what: str) -> None:
        raise Violation(
            self.name,
            f"{operation} of c{operation.client} (xid {operation.xid}) is answered under "
            f"{format_zxid(operation.zxid)} {what}",
        )


def _txn_difference(type_: OpCode, request: Any, body: Any) -> str:
    """In what a txn is not the one that a request asks for; empty: it is."""
    if type_ in _CREATES:
        return _create_difference(request, body)
    if type_ is OpCode.SET_DATA:
        is_asked = (
            isinstance(body, SetDataTxn)
            and (body.path, body.data) == (request.path, request.data)
            and request.version in (-1, body.version - 1)
        )
    elif type_ is OpCode.DELETE:
        is_asked = isinstance(body, DeleteTxn) and body.path == request.path
    else:
        is_asked = isinstance(body, CheckVersionTxn) and body.path == request.path
    return "" if is_asked else f"by {body}, where {request} was asked for"


def _create_difference(request: Any, body: Any) -> str:
    mode = CreateMode(request.flags)
    if not isinstance(body, CreateTxn | CreateTTLTxn | CreateContainerTxn):
        return f"by {body}, where {request} was asked for"
    path = body.path
    if mode.is_sequential:
        path = path[:-_SEQUENCE_DIGITS]
    is_ephemeral = isinstance(body, CreateTxn) and body.ephemeral
    ttl = body.ttl if isinstance(body, CreateTTLTxn) else -1
    is_asked = (path, body.data) == (request.path, request.data) and (
        is_ephemeral == mode.is_ephemeral and ttl == getattr(request, "ttl", -1)
    )
    return "" if is_asked else f"by {body}, where {request} was asked for"
