"""The guarantees to clients: linearizable writes, reads in session order."""

from __future__ import annotations

from typing import Any, Final

from keepfast.sim.checkers.answers import NOT_LOGGED
from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.sim.operations import Operation, SessionView
from keepfast.wire import (
    ErrorCode,
    ErrorTxn,
    MultiTxn,
    OpCode,
    Stat,
    codec_of,
    counter_of,
    decode_txn_body,
    format_zxid,
)

_ZNODE_READS: Final = frozenset(
    (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)
)
READS: Final = _ZNODE_READS | {
    OpCode.MULTI_READ,
    OpCode.GET_EPHEMERALS,
    OpCode.GET_ALL_CHILDREN_NUMBER,
}
# Answered from the tree: no txn is made of them.
_UNLOGGED: Final = READS | {OpCode.ADD_WATCH, OpCode.REMOVE_WATCHES}
_STAT: Final = codec_of(Stat)


class SessionOrderChecker(Checker):
    """A session never goes back in time, whichever servers it talks to."""

    name = "session order"

    def on_shown(self, session: SessionView, zxid: int) -> None:
        if zxid < session.last_zxid:
            raise Violation(
                self.name,
                f"c{session.client} saw {format_zxid(session.last_zxid)} and is now shown "
                f"{format_zxid(zxid)}",
            )


class WriteChecker(Checker):
    """Writes are linearizable: their order is that of their zxids, and it respects real time.

    Each answer is that of the agreed txn: nothing is acknowledged that is not in the order.
    """

    name = "linearizable writes"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        # Session -> where its last read was. It was sent before what is answered after it.
        self._read_at: dict[int, int] = {}

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        if operation.type in _UNLOGGED:
            self._read_at[operation.session_id] = operation.zxid
            return
        zxid = operation.zxid
        if operation.type is OpCode.SYNC:
            return
        if operation.error in NOT_LOGGED or self._is_local_end(operation):
            return
        entry = self.ledger.decoded.get(zxid)  # type: ignore[call-overload]
        if entry is None:
            raise Violation(
                self.name,
                f"c{session.client} is told that {operation} is done under {format_zxid(zxid)}, "
                "which is not in the agreed order",
            )
        header = entry.header
        if (header.session_id, header.cxid) != (operation.session_id, operation.xid):
            raise Violation(
                self.name,
                f"c{session.client} is told that {operation} is {format_zxid(zxid)}, which is "
                "another txn",
            )
        if zxid <= operation.floor_zxid:
            raise Violation(
                self.name,
                f"{operation} of c{session.client} got {format_zxid(zxid)}, below "
                f"{format_zxid(operation.floor_zxid)}, which was answered before it was asked for",
            )
        if zxid <= self._read_at.get(operation.session_id, -1):
            raise Violation(
                self.name,
                f"{operation} of c{session.client} is {format_zxid(zxid)}, which a read that was "
                "sent before it has shown",
            )
        expected = _error_of(entry.body)
        if operation.type is not OpCode.MULTI and expected != operation.error:
            raise Violation(
                self.name,
                f"{operation} of c{session.client} is answered by {operation.error}, and the "
                f"agreed txn says {expected}",
            )
        if operation.type is OpCode.MULTI:
            self._check_multi(session, operation, entry.body)

    def _is_local_end(self, operation: Operation) -> bool:
        """Whether it ends a session that only its server knew: no txn says so."""
        starts = self.ledger.session_starts
        return operation.type is OpCode.CLOSE_SESSION and operation.session_id not in starts

    def _check_multi(self, session: SessionView, operation: Operation, body: Any) -> None:
        """All of a multi, or nothing."""
        failed = isinstance(body, ErrorTxn) or (
            isinstance(body, MultiTxn) and any(sub.type == OpCode.ERROR for sub in body.txns or ())
        )
        told = operation.error != 0 or any(r.err for r in operation.reply or ())
        if failed != told:
            raise Violation(
                self.name,
                f"a multi of c{session.client} is said to have "
                f"{'failed' if told else 'succeeded'}, and its txn to the contrary",
            )


class ReadChecker(Checker):
    """A read shows a znode exactly as the agreed txns made it, at the zxid that the reply names."""

    name = "reads"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        # Reads that one request may consist of.
        self.max_multi_reads = 1 << 62

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        if operation.type not in READS or operation.error in NOT_LOGGED:
            return
        if counter_of(operation.zxid) and operation.zxid not in self.ledger.digests:
            self._complain(session, operation, "a state that is not in the agreed order")
        what = self._difference(operation)
        if what:
            self._complain(session, operation, what)

    def _difference(self, operation: Operation) -> str:
        """In what a reply is not the state at its zxid; empty: it is."""
        zxid, error, reply = operation.zxid, operation.error, operation.reply
        if operation.type is OpCode.MULTI_READ:
            return self._multi_difference(operation)
        if operation.type is OpCode.GET_EPHEMERALS:
            prefix = operation.request.prefix_path or ""
            owned = {
                path
                for path in self._existing(zxid)
                if path.startswith(prefix)
                and self.ledger.state_at(path, zxid).owner == operation.session_id
            }
            is_same = not error and sorted(reply.ephemerals) == sorted(owned)
            return "" if is_same else f"error {error}, {reply} instead of {sorted(owned)}"
        if operation.type is OpCode.GET_ALL_CHILDREN_NUMBER and not error:
            above = operation.path.rstrip("/") + "/"
            count = sum(path.startswith(above) and path != above for path in self._existing(zxid))
            if reply.total_number != count:
                return f"{reply.total_number} children instead of {count}"
        if error == ErrorCode.QUOTA_EXCEEDED and operation.watch_kind is not None:
            return ""  # see WatchLimitChecker
        return self._znode_difference(operation.type, operation.path, zxid, error, reply)

    def _existing(self, zxid: int) -> list[str]:
        ledger = self.ledger
        return [path for path in ledger.states if ledger.state_at(path, zxid).stat is not None]

    def _multi_difference(self, operation: Operation) -> str:
        asked, results = operation.request, operation.reply or ()
        if len(asked) > self.max_multi_reads:
            is_refused = operation.error == ErrorCode.MARSHALLING_ERROR
            return "" if is_refused else f"{len(asked)} of {self.max_multi_reads} reads"
        if operation.error or len(results) != len(asked):
            return f"error {operation.error} and {len(results)} of {len(asked)} results"
        for read, (type_, reply, error) in zip(asked, results, strict=True):
            if type_ != (OpCode.ERROR if error else read.type):
                return f"a result of type {type_}"
            what = self._znode_difference(
                OpCode(read.type), read.request.path, operation.zxid, error, reply
            )
            if what:
                return f"{read.request.path} with {what}"
        return ""

    def _znode_difference(self, type_: OpCode, path: str, zxid: int, error: int, reply: Any) -> str:
        state = self.ledger.state_at(path, zxid)
        if error:
            is_so = error == ErrorCode.NO_NODE and state.stat is None
            return "" if is_so else f"error {error}"
        if state.stat is None:
            return "a znode that does not exist"
        if type_ is OpCode.GET_DATA and reply.data != state.data:
            return f"data {reply.data!r} instead of {state.data!r}"
        if type_ in (OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2):
            names = {child.rpartition("/")[2] for child in state.children}
            if set(reply.children) != names or len(reply.children) != len(names):
                return f"children {sorted(reply.children)}"
        stat = getattr(reply, "stat", None)
        if stat is not None and stat != _STAT.decode(state.stat):
            return f"{stat}"
        return ""

    def _complain(self, session: SessionView, operation: Operation, what: str) -> None:
        raise Violation(
            self.name,
            f"c{session.client} reads {operation} at {format_zxid(operation.zxid)} and is shown "
            f"{what}",
        )


class SyncChecker(Checker):
    """After a sync a client sees every write that was answered, to anybody, before it asked."""

    name = "sync"

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        if operation.type is not OpCode.SYNC or operation.error or operation.is_read_only:
            return
        if operation.zxid < operation.floor_zxid:
            raise Violation(
                self.name,
                f"the sync of c{session.client} ends at {format_zxid(operation.zxid)}, and "
                f"{format_zxid(operation.floor_zxid)} was answered before it began",
            )


def _error_of(body: Any) -> int:
    if isinstance(body, ErrorTxn):
        return body.err
    if isinstance(body, MultiTxn):
        for sub in body.txns or ():
            if sub.type == OpCode.ERROR:
                failure = decode_txn_body(sub.type, sub.data)
                if isinstance(failure, ErrorTxn) and failure.err:
                    return failure.err
    return 0
