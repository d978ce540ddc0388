"""Writes that never become txns, or not at once: on a read-only server, and of local sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from keepfast.replica.connection import Connection, PendingWrite
from keepfast.replica.proposer import decode_write
from keepfast.wire import CreateMode, ErrorCode, OpCode, encode_reply

if TYPE_CHECKING:
    from keepfast.replica.replica import Replica

_HEADER_SIZE: Final = 8
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_MULTI: Final = OpCode.MULTI.value
_EPHEMERAL: Final = frozenset((CreateMode.EPHEMERAL.value, CreateMode.EPHEMERAL_SEQUENTIAL.value))


def answers_alone(
    replica: Replica, connection: Connection, waiting: PendingWrite, payload: bytes
) -> bool:
    """Answer a write here and now, if it is one of those; False: it goes the usual way."""
    xid, op = waiting.xid, waiting.op
    if op == _CLOSE_SESSION:
        replica.handshake.end_local(connection)
        replica.answer(connection, waiting, encode_reply(xid, replica.last_zxid, 0))
        replica.close(connection, "the session was closed")
        return True
    if replica.is_read_only:
        reply = encode_reply(xid, replica.last_zxid, ErrorCode.NOT_READ_ONLY)
        replica.answer(connection, waiting, reply)
        return True
    if replica.options.has_session_upgrades:
        request = decode_write(op, payload, _HEADER_SIZE, replica.max_field)
        if _makes_ephemeral(op, request):
            replica.handshake.upgrade(connection)
    return False


def _makes_ephemeral(op: int, request: Any) -> bool:
    if op == _MULTI:
        operations = request if isinstance(request, tuple) else ()
        return any(_makes_ephemeral(one.type, one.request) for one in operations)
    return getattr(request, "flags", None) in _EPHEMERAL
