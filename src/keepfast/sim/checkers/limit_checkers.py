"""Limits for one client: what is beyond them is refused, and nothing else."""

from __future__ import annotations

from typing import Final

from keepfast.sim.checkers.answers import NOT_LOGGED
from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.sim.operations import Operation, SessionView
from keepfast.wire import CreateMode, CreateRequest, ErrorCode, OpCode, ServerId, Zxid, format_zxid

# What a watch counts beside its path, which is ASCII here.
_WATCH_BYTES: Final = 400
_NO_LIMIT: Final = 1 << 62


class WatchLimitChecker(Checker):
    """A watch is set exactly if it fits into what the watches of a connection may take."""

    name = "watch limit"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.max_bytes = _NO_LIMIT

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        kind, path, error = operation.watch_kind, operation.path, operation.error
        if kind is None or error in NOT_LOGGED:
            return
        taken = [watch.path for watch in session.watches.values()]
        if (kind, path) not in session.watches:
            taken.append(path)
        is_fitting = sum(_WATCH_BYTES + len(each) for each in taken) <= self.max_bytes
        is_missing = error == ErrorCode.NO_NODE and operation.type is OpCode.EXISTS
        is_set, is_refused = not error or is_missing, error == ErrorCode.QUOTA_EXCEEDED
        if (is_set and not is_fitting) or (is_refused and is_fitting):
            raise Violation(
                self.name,
                f"{operation} of c{session.client} is answered by error {error}: with it there "
                f"are {len(taken)} watches, which {'do' if is_fitting else 'do not'} fit",
            )


class EphemeralLimitChecker(Checker):
    """No session has more ephemerals than it may, nor is one refused that it may have."""

    name = "ephemeral limit"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.max_count = _NO_LIMIT
        # Whether nothing else refuses an ephemeral in the same way: a quota, the size of a txn.
        self.is_only_limit = False

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        for session_id, paths in self.ledger.tree.ephemerals.items():
            if len(paths) > self.max_count:
                raise Violation(
                    self.name,
                    f"at {format_zxid(zxid)} session {format_zxid(session_id)} has {len(paths)} "
                    f"ephemerals, and may have {self.max_count}",
                )

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        request = operation.request
        if operation.error != ErrorCode.QUOTA_EXCEEDED or not isinstance(request, CreateRequest):
            return
        if not self.is_only_limit:
            return
        ledger, before = self.ledger, operation.zxid - 1
        states = (ledger.state_at(path, before) for path in ledger.states)
        count = sum(state.owner == operation.session_id for state in states)
        if not CreateMode(request.flags).is_ephemeral or count < self.max_count:
            raise Violation(
                self.name,
                f"{operation} of c{session.client} is refused at {format_zxid(operation.zxid)}, "
                f"when its session has {count} ephemerals, and may have {self.max_count}",
            )
