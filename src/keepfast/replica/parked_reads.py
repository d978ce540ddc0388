"""Reads that wait between two writes of one client: they must not show the second one.

They are answered when the first write is. Whatever is left of them then, because the client reads
too slowly or because it is too much for one turn (backpressure.py), is answered before the second
write is applied, however much that is (`send_overdue` in reply_order.py). So that this never delays
other clients for long, a write is not even accepted while too much is queued before it: it waits,
and all that its client sent after it, until those reads are answered. Reads of small znodes before
a write do not hold it up: clients that pipeline both stay as fast as before.
"""

from __future__ import annotations

from typing import Final

from keepfast.replica.connection import Connection
from keepfast.replica.proposals import WRITES
from keepfast.replica.service import Service
from keepfast.wire import OpCode

_GET_DATA: Final = OpCode.GET_DATA.value
_LISTS: Final = frozenset((OpCode.GET_CHILDREN.value, OpCode.GET_CHILDREN2.value))
# The cost of these is unknown before they are decoded.
_LARGE: Final = frozenset(
    op.value
    for op in (
        OpCode.MULTI_READ,
        OpCode.GET_EPHEMERALS,
        OpCode.SET_WATCHES,
        OpCode.SET_WATCHES2,
    )
)
# All that wait, and a sync: it stands in the queue as a write does.
_ORDERED: Final = WRITES | {OpCode.SYNC.value}
# What any read costs beside its reply, in bytes of a reply that take as long.
_READ_WORK: Final = 512
# The last byte of a request's type, which tells reads apart; after it the length of the path.
_TYPE_AT: Final = 7
_PATH_AT: Final = 12


def must_wait(service: Service, connection: Connection, op: int) -> bool:
    """Whether a request waits for the reads before it; the last in the queue is one.

    A bound, and no exact sum: what was counted is forgotten when no write is in front any more.
    """
    if op not in _ORDERED:
        return False
    queue, find = connection.queue, service.tree.find
    most = service.options.max_parked_bytes
    total = 0
    for item in reversed(queue):
        if not isinstance(item, bytes):
            if item is not queue[0]:
                total += connection.parked_bytes
            break
        type_ = item[_TYPE_AT]
        if type_ == _GET_DATA:
            try:
                # Before the last byte, which asks for a watch.
                node = find(item[_PATH_AT:-1].decode())
            except UnicodeDecodeError:
                node = None
            total += _READ_WORK if node is None else _READ_WORK + len(node.packed)
        elif type_ in _LISTS:
            total += _READ_WORK + _work_of_list(service, item)
        else:
            total += most + 1 if type_ in _LARGE else _READ_WORK
        if total > most:
            break
    connection.parked_bytes = total
    if total > most:
        connection.waits_for_reads = True
        connection.free_until = -1
        return True
    return False


def _work_of_list(service: Service, payload: bytes) -> int:
    path = payload[_PATH_AT:-1].decode(errors="replace") or "/"
    node = service.tree.find(path)
    return 0 if node is None else service.child_lists.work(path, node)
