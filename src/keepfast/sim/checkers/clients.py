"""The guarantees to clients: linearizable writes, reads in session order."""

from __future__ import annotations

from typing import Any, Final

from keepfast.sim.checkers.answers import NOT_LOGGED
from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation, ZnodeState
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

READS: Final = frozenset(
    (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)
)
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
        if operation.type in READS:
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

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        if operation.type not in READS or operation.error in NOT_LOGGED:
            return
        if counter_of(operation.zxid) and operation.zxid not in self.ledger.digests:
            self._complain(session, operation, "a state that is not in the agreed order")
        state = self.ledger.state_at(operation.path, operation.zxid)
        if operation.error:
            if operation.error != ErrorCode.NO_NODE or state.stat is not None:
                self._complain(session, operation, f"error {operation.error}")
            return
        if state.stat is None:
            self._complain(session, operation, "a znode that does not exist")
        self._compare(session, operation, state)

    def _compare(self, session: SessionView, operation: Operation, state: ZnodeState) -> None:
        reply = operation.reply
        if operation.type is OpCode.GET_DATA and reply.data != state.data:
            self._complain(session, operation, f"data {reply.data!r} instead of {state.data!r}")
        if operation.type in (OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2):
            names = {child.rpartition("/")[2] for child in state.children}
            if set(reply.children) != names or len(reply.children) != len(names):
                self._complain(session, operation, f"children {sorted(reply.children)}")
        if operation.type is not OpCode.GET_CHILDREN and reply.stat != _STAT.decode(
            state.stat or b""
        ):
            self._complain(session, operation, f"{reply.stat}")

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
