"""Txns on their way from a request to the tree."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from keepfast.replica.connection import Connection
from keepfast.replica.pending_write import PendingWrite
from keepfast.tree import LongTxn, PlainSet
from keepfast.wire import LogEntry, OpCode, Zxid, decode_entry

# Requests of clients that become txns.
WRITES: Final = frozenset(
    op.value
    for op in (
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.SET_ACL,
        OpCode.MULTI,
        OpCode.RECONFIG,
        OpCode.CLOSE_SESSION,
    )
)


_NO_SET: Final[Any] = ()


class Proposal(msgspec.Struct, gc=False, eq=False):
    """A txn on its way: what is applied when it is committed, and who waits for it.

    A Struct, because one is made for each write; nothing that it refers to refers back to it.
    """

    zxid: Zxid
    entry: LogEntry
    op: int
    xid: int
    connection: Connection | None
    waiting: PendingWrite | None
    # What was asked for; None unless changes are audited.
    request: Any
    # Of a txn of very many changes: these, worked out, and the body of the reply.
    long_txn: LongTxn | None = None
    reply_body: bytes | None = None


class PlainWrite(PendingWrite, gc=False, eq=False):
    """A Proposal that goes the quick way (quick_writes.py), and who waits for it in one.

    Its connection refers back to it until it is answered or the connection is gone.
    """

    zxid: Zxid = Zxid(0)
    plain: PlainSet = _NO_SET
    # None: another server's client asked for it.
    connection: Connection | None = None

    @property
    def entry(self) -> LogEntry:
        """The txn; nobody needs it as a record while all goes well."""
        return decode_entry(self.plain[0])


class Append(NamedTuple):
    """A record for the store; they come in the order of their zxids."""

    zxid: Zxid
    entry: bytes
    digest: int | None
