"""Checkers: what must hold in every run. They see a run from outside and change nothing in it.

What may live here: one class per guarantee of the service. What may not: anything that a server or
the world needs; a world without checkers runs the same.
"""

from __future__ import annotations

from keepfast.quorum import Membership
from keepfast.sim.checkers.agreement import (
    CommitChecker,
    DurabilityChecker,
    MultiChecker,
    PrimaryOrderChecker,
    PurgeChecker,
    SizeChecker,
    StateChecker,
    ToolChecker,
)
from keepfast.sim.checkers.answers import AnswerChecker
from keepfast.sim.checkers.base import Checker
from keepfast.sim.checkers.cleaning_checkers import CleaningChecker, QuotaChecker
from keepfast.sim.checkers.clients import (
    READS,
    ReadChecker,
    SessionOrderChecker,
    SyncChecker,
    WriteChecker,
)
from keepfast.sim.checkers.limit_checkers import EphemeralLimitChecker, WatchLimitChecker
from keepfast.sim.checkers.session_checkers import EphemeralChecker, ExpiredChecker, ExpiryChecker
from keepfast.sim.checkers.watch_checker import LastingWatchChecker, WatchChecker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.sim.operations import Operation, SessionView
from keepfast.storage import Recovery, RescuePlan, Standing
from keepfast.tree import Tree
from keepfast.wire import EventType, ServerId, Zxid

__all__ = [
    "READS",
    "AnswerChecker",
    "Checker",
    "Checkers",
    "CleaningChecker",
    "CommitChecker",
    "DurabilityChecker",
    "EphemeralChecker",
    "EphemeralLimitChecker",
    "ExpiredChecker",
    "ExpiryChecker",
    "LastingWatchChecker",
    "MultiChecker",
    "PrimaryOrderChecker",
    "PurgeChecker",
    "QuotaChecker",
    "ReadChecker",
    "SessionOrderChecker",
    "SizeChecker",
    "StateChecker",
    "SyncChecker",
    "ToolChecker",
    "WatchChecker",
    "WatchLimitChecker",
    "WriteChecker",
]


class Checkers:
    """All checkers of a run, and the ledger that they share; drivers report events to it."""

    def __init__(self, membership: Membership) -> None:
        self.ledger = ledger = Ledger(membership)
        self.commits = CommitChecker(ledger)
        self.expiry = ExpiryChecker(ledger)
        self.expired_sessions = ExpiredChecker(ledger)
        self.multi = MultiChecker(ledger)
        self.quota = QuotaChecker(ledger)
        self.reads = ReadChecker(ledger)
        self.watch_limit = WatchLimitChecker(ledger)
        self.ephemeral_limit = EphemeralLimitChecker(ledger)
        # Server -> the largest txn that it may make.
        self.sizes: dict[ServerId, int] = {}
        self.all: list[Checker] = [
            PrimaryOrderChecker(ledger),
            DurabilityChecker(ledger),
            self.commits,
            StateChecker(ledger),
            SessionOrderChecker(ledger),
            WriteChecker(ledger),
            AnswerChecker(ledger, self.sizes),
            SizeChecker(ledger, self.sizes),
            self.reads,
            SyncChecker(ledger),
            WatchChecker(ledger),
            LastingWatchChecker(ledger),
            self.watch_limit,
            self.ephemeral_limit,
            EphemeralChecker(ledger),
            self.expiry,
            self.expired_sessions,
            CleaningChecker(ledger),
            self.quota,
            self.multi,
            PurgeChecker(ledger),
            ToolChecker(ledger),
        ]

    # -- servers ---------------------------------------------------------------------------------

    def logged(self, server: ServerId, zxid: Zxid, entry: bytes) -> None:
        """A record goes to a server's disk."""
        if self.ledger.logged(server, zxid, entry):
            for checker in self.all:
                checker.on_proposed(server, zxid)

    def proposed(self, server: ServerId, zxid: Zxid, entry: bytes) -> None:
        """A leader sends a record to its followers, before it goes to its own disk."""
        if self.ledger.proposed(server, zxid, entry):
            for checker in self.all:
                checker.on_proposed(server, zxid)

    def vouched(self, server: ServerId, zxid: Zxid) -> None:
        """A server says that it holds everything up to `zxid` durably."""
        for checker in self.all:
            checker.on_vouched(server, zxid)
        self.ledger.vouched(server, zxid)

    def applied(self, server: ServerId, tree: Tree) -> None:
        """A server's tree has moved."""
        self._note_commits(server, tree.last_zxid)
        for checker in self.all:
            checker.on_applied(server, tree)

    def _note_commits(self, server: ServerId, zxid: Zxid) -> None:
        for each in self.ledger.applied(server, zxid):
            for checker in self.all:
                checker.on_committed(server, each)

    def opened(self, server: ServerId, recovery: Recovery) -> None:
        """A server has read its disk."""
        for checker in self.all:
            checker.on_opened(server, recovery)
        shadow = self.ledger.shadow_of(server)
        if recovery.standing is not Standing.WHOLE:
            shadow.vouched, shadow.vouched_epoch = Zxid(-1), -1
        if recovery.tree is None:
            shadow.begin_at(Zxid(-1))
            shadow.durable = shadow.vouched = shadow.agreeing = Zxid(-1)
        elif recovery.head not in shadow.records and recovery.head != shadow.base:
            # A snapshot that it had installed, or files from another time.
            self.installed(server, recovery.head)
        else:
            shadow.cut(recovery.head)
            shadow.durable = recovery.head
        shadow.is_catching_up |= recovery.standing is Standing.CATCHING_UP
        shadow.is_installing = False

    def would_recover(self, server: ServerId, recovery: Recovery) -> None:
        """A server would have read this, had it lost power just now."""
        if not self.ledger.shadow_of(server).is_damaged:
            for checker in self.all:
                checker.on_opened(server, recovery)

    def repaired(self, server: ServerId, recovery: Recovery) -> None:
        """A tool has put a server's files right; this is what it would read now."""
        for checker in self.all:
            checker.on_repaired(server, recovery)

    def rescued(self, server: ServerId, plan: RescuePlan, recovery: Recovery) -> None:
        """A rescue was tried on a copy of a server's files; this is what is in it now."""
        for checker in self.all:
            checker.on_rescued(server, plan, recovery)

    def purged(self, server: ServerId, standing: Standing, recovery: Recovery) -> None:
        """A server has purged; what its data were to it, and what it would read now."""
        for checker in self.all:
            checker.on_purged(server, standing, recovery)

    def given_tree(self, server: ServerId, zxid: Zxid, lacks: bool) -> None:
        """A leader's tree has replaced what a server had.

        If it lacks something the server does not count until it agrees with the leader.
        """
        self.installed(server, zxid)
        shadow = self.ledger.shadow_of(server)
        shadow.is_catching_up, shadow.is_stale, shadow.misled_at = lacks, False, None

    def caught_up(self, server: ServerId) -> None:
        """A server that was given a tree has all that its leader had, and agreed to its epoch."""
        shadow = self.ledger.shadow_of(server)
        if not shadow.is_catching_up:
            return
        shadow.is_catching_up = False
        if shadow.is_damaged:
            shadow.is_damaged = False
            for checker in self.all:
                checker.on_healed(server, shadow.durable)

    def begun(self, server: ServerId) -> None:
        """A server begins a new, empty history."""
        if self.ledger.shadow_of(server).is_damaged:
            raise Violation(
                "standing",
                f"s{server} lost its history, and begins a new one as if it never had one",
            )
        self.installed(server, Zxid(0))

    def installed(self, server: ServerId, zxid: Zxid) -> None:
        """A server's history now begins with a state at `zxid`."""
        shadow = self.ledger.shadow_of(server)
        shadow.begin_at(zxid)
        shadow.durable = zxid
        shadow.vouched = min(shadow.vouched, zxid)
        shadow.agreeing = min(shadow.agreeing, zxid)

    def damaged(self, server: ServerId, *, is_backward: bool = False) -> None:
        """Somebody has changed a server's files behind its back.

        `is_backward`: to what they were at an earlier time, which the server cannot notice.
        """
        shadow = self.ledger.shadow_of(server)
        if shadow.vouched < 0 and shadow.vouched_epoch < 0:
            return  # it has promised nothing to anybody
        if is_backward:
            shadow.vouched, shadow.vouched_epoch = Zxid(-1), -1
        else:
            shadow.is_damaged = True

    # -- clients ---------------------------------------------------------------------------------

    def answered(self, session: SessionView, operation: Operation) -> None:
        """A client got the reply to a request."""
        zxid = Zxid(operation.zxid)
        proposer = self.ledger.proposers.get(zxid)
        if proposer is not None and zxid not in self.ledger.digests and self.commits.is_held(zxid):
            # The server that applied it has left its role at the same moment.
            self._note_commits(proposer, zxid)
        if operation.zxid >= 0:
            self.shown(session, operation.zxid)
        for checker in self.all:
            checker.on_answered(session, operation)

    def shown(self, session: SessionView, zxid: int) -> None:
        """A client saw a zxid."""
        for checker in self.all:
            checker.on_shown(session, zxid)
        session.last_zxid = max(session.last_zxid, zxid)

    def told(self, session: SessionView, event: EventType, path: str, zxid: int) -> None:
        """A client was notified of a change."""
        for checker in self.all:
            checker.on_event(session, event, path, zxid)

    def rewatched(self, session: SessionView, zxid: int, error: int = 0) -> None:
        """A client that came back has set its watches again."""
        if error:
            raise Violation(
                "watches", f"c{session.client} cannot set its watches again: error {error}"
            )
        for checker in self.all:
            checker.on_rewatched(session, zxid)

    def expired(self, session: SessionView) -> None:
        """A client was told that its session has ended."""
        for checker in self.all:
            checker.on_expired(session)
