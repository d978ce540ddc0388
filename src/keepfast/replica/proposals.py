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

# The type of a txn comes after the first 28 bytes of its record.
_TYPE_AT: Final = slice(28, 32)
_MULTI: Final = OpCode.MULTI.value.to_bytes(4, "big", signed=True)
# Bytes of a record that are as much work as a small write: an operation of a multi has about 64.
_BYTES_SHIFT: Final = 8
_MULTI_SHIFT: Final = 6


def work_of(entry: bytes) -> int:
    """What it takes to apply a record, in small writes and without its events."""
    return 1 + (len(entry) >> (_MULTI_SHIFT if entry[_TYPE_AT] == _MULTI else _BYTES_SHIFT))


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
    # Of a txn of very many changes: these, computed, and the body of the reply.
    long_txn: LongTxn | None = None
    reply_body: bytes | None = None
    # What it takes to apply it (commit_turns.py).
    work: int = 1


class PlainWrite(PendingWrite, gc=False, eq=False):
    """A Proposal that goes the fast path (fast_writes.py), and who waits for it in one.

    Its connection refers back to it until it is answered or the connection is gone.
    """

    zxid: Zxid = Zxid(0)
    plain: PlainSet = _NO_SET
    # None: another server's client asked for it.
    connection: Connection | None = None

    @property
    def work(self) -> int:
        """What it takes to apply it (commit_turns.py)."""
        return work_of(self.plain[0])

    @property
    def entry(self) -> LogEntry:
        """The txn; nobody needs it as a record while all goes well."""
        return decode_entry(self.plain[0])


class Append(NamedTuple):
    """A record for the store; they come in zxid order."""

    zxid: Zxid
    entry: bytes
    digest: int | None
