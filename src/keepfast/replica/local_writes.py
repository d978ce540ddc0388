"""Writes that never become txns, or not yet: on a read-only server, and of local sessions."""

from __future__ import annotations

from typing import Any, Final

from keepfast.replica.connection import Connection
from keepfast.replica.handshake import Handshake
from keepfast.replica.malformed import decode_write
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.reply_order import answer
from keepfast.replica.service import Service
from keepfast.wire import CreateMode, ErrorCode, OpCode, encode_reply

_HEADER_SIZE: Final = 8
_CLOSE_SESSION: Final = OpCode.CLOSE_SESSION.value
_MULTI: Final = OpCode.MULTI.value
_EPHEMERAL: Final = frozenset((CreateMode.EPHEMERAL.value, CreateMode.EPHEMERAL_SEQUENTIAL.value))


def answers_alone(
    service: Service,
    handshake: Handshake,
    connection: Connection,
    waiting: PendingWrite,
    payload: bytes,
) -> bool:
    """Answer a write here and now, if it is one of those; False: it goes the usual way."""
    xid, op = waiting.xid, waiting.op
    if op == _CLOSE_SESSION and connection.caller.is_local:
        handshake.end_local(connection)
        answer(service, connection, waiting, encode_reply(xid, service.last_zxid, 0))
        service.close(connection, "the session was closed")
        return True
    if service.is_read_only:
        reply = encode_reply(xid, service.last_zxid, ErrorCode.NOT_READ_ONLY)
        answer(service, connection, waiting, reply)
        return True
    if service.options.has_session_upgrades:
        most = service.options.prepare.max_acl_entries
        request = decode_write(op, payload, _HEADER_SIZE, service.max_field, most)
        if _makes_ephemeral(op, request):
            handshake.upgrade(connection)
    return False


def _makes_ephemeral(op: int, request: Any) -> bool:
    if op == _MULTI:
        operations = request if isinstance(request, tuple) else ()
        return any(_makes_ephemeral(one.type, one.request) for one in operations)
    return getattr(request, "flags", None) in _EPHEMERAL
