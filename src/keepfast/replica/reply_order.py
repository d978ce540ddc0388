"""Replies are sent in request order: what is ready is sent, what is not delays the rest.

A read after a write waits in its connection's queue and is answered here, once the write is. What
stalls (backpressure.py) waits longer, but never until the next write of its connection is applied:
it would show that one (parked_reads.py).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from keepfast.replica.backpressure import TURN_REQUESTS, is_held, note_large, put_off, stall
from keepfast.replica.connection import Connection, Phase
from keepfast.replica.pending_write import NO_OPERATION, PendingWrite
from keepfast.replica.reads import HANDLERS as READS
from keepfast.replica.reads import plain_data_reply
from keepfast.replica.service import Service
from keepfast.replica.unfinished import UnfinishedError
from keepfast.wire import ErrorCode, KeeperError, MalformedRecord, OpCode, Xid, encode_reply

_REQUEST_HEADER: Final = Struct(">ii")
_pack_zxid: Final = Struct(">q").pack
# Where the zxid of a reply's frame stands: after its length and its xid.
_ZXID_AT: Final = 8
_ZXID_END: Final = 16
_OPEN: Final = Phase.OPEN
_GET_DATA: Final = OpCode.GET_DATA.value
_PING: Final = OpCode.PING.value
_SYNC: Final = OpCode.SYNC.value


def read_reply(service: Service, connection: Connection, xid: int, op: int, data: bytes) -> bytes:
    """The reply to a read, also to one that `plain_data_reply` does not answer.

    Raises UnfinishedError where it takes longer than a turn may.
    """
    zxid = service.last_zxid
    try:
        body = READS[op](service, connection, data)
    except KeeperError as error:
        return encode_reply(xid, zxid, error.code)
    except MalformedRecord:
        return encode_reply(xid, zxid, ErrorCode.MARSHALLING_ERROR)
    return encode_reply(Xid.PING if op == _PING else xid, zxid, 0, body)


def answer(service: Service, connection: Connection, waiting: PendingWrite, reply: bytes) -> None:
    """A write is done: send what is ready now, in the order of the requests."""
    waiting.reply = reply
    if waiting.large_bytes:
        service.large_bytes -= waiting.large_bytes
        waiting.large_bytes = 0
    send_ready(service, connection)


def answer_sync(
    service: Service,
    connection: Connection,
    waiting: PendingWrite,
    xid: int,
    body: bytes,
    code: int = 0,
) -> None:
    """Answer a sync, or what was refused after others, now."""
    op = NO_OPERATION if code else _SYNC
    waiting.shows_present = True
    service.note(service.statistics.slow_reads, connection, op, xid, waiting.since_ms)
    answer(service, connection, waiting, encode_reply(xid, service.last_zxid, code, body))


def send_ready(service: Service, connection: Connection) -> None:
    """Send the replies that nothing is before any more."""
    if connection.phase is _OPEN and not connection.is_stalled and not is_held(service, connection):
        _send(service, connection, is_overdue=False)


def send_overdue(service: Service, connection: Connection) -> None:
    """A write of this connection is about to be applied: send all that is before it.

    That is what was stalled. A client that lets too much wait is cut off.
    """
    if connection.phase is _OPEN:
        _send(service, connection, is_overdue=True)


def _send(service: Service, connection: Connection, *, is_overdue: bool) -> None:
    since_ms = service.now_ms
    queue, out, uncounted = connection.queue, connection.out, service.uncounted_reply
    sent = reads = xid = op = size = largest = 0
    is_open = True
    while is_open and queue:
        item = queue.popleft()
        if isinstance(item, bytes):
            xid, op = _REQUEST_HEADER.unpack_from(item)
            plain = plain_data_reply(service, xid, item) if op == _GET_DATA else None
            try:
                reply = read_reply(service, connection, xid, op, item) if plain is None else plain
            except UnfinishedError:
                queue.appendleft(item)
                if is_overdue:
                    continue
                put_off(service, connection)
                break
            out.append(reply)
            reads += 1
            if len(reply) > uncounted or connection.work:
                is_open = not note_large(service, connection, len(reply)) or is_overdue
            if is_overdue:
                size, largest = size + len(reply), max(largest, len(reply))
                is_open = size <= service.options.max_unsent_bytes + largest
            elif reads >= TURN_REQUESTS:
                stall(service, connection)
                is_open = False
        elif item.reply is None:
            queue.appendleft(item)
            break
        else:
            if reads:
                service.note(service.statistics.slow_reads, connection, op, xid, since_ms, reads)
                reads = 0
            since_ms = item.since_ms
            reply = item.reply
            if item.shows_present:
                zxid = _pack_zxid(service.last_zxid)
                reply = reply[:_ZXID_AT] + zxid + reply[_ZXID_END:]
            out.append(reply)
        sent += 1
    if sent:
        connection.told += sent
        service.statistics.told += sent
        service.dirty[connection] = None
    if reads:
        service.note(service.statistics.slow_reads, connection, op, xid, since_ms, reads)
    if is_overdue and not is_open:
        out.clear()
        service.cut_off(connection, size)
    elif connection.waits_for_reads and not queue:
        connection.waits_for_reads = False
        if not connection.is_held_up:
            held, connection.held = connection.held, []
            service.ready.append((connection, held))
