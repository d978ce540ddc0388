"""Ephemeral znodes live exactly as long as their sessions, sessions as long as their clients."""

from __future__ import annotations

from keepfast.sim.checkers.base import Checker
from keepfast.sim.ledger import Ledger, Violation
from keepfast.sim.operations import SessionView
from keepfast.wire import OpCode, ServerId, Zxid, format_zxid


class EphemeralChecker(Checker):
    """No ephemeral znode without its session, at any txn of the order."""

    name = "ephemerals"

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        tree = self.ledger.tree
        for owner in sorted(tree.ephemerals):
            if owner not in tree.sessions:
                paths = ", ".join(sorted(tree.ephemerals[owner]))
                raise Violation(
                    self.name,
                    f"at {format_zxid(zxid)} {paths} outlives its session {format_zxid(owner)}",
                )


class ExpiryChecker(Checker):
    """No session ends whose client is there: while nothing fails, or only its leader sleeps."""

    name = "sessions"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.now_us = 0
        # Since when nothing fails; None: something may.
        self.calm_since_us: int | None = None
        # Sessions whose clients are at servers that work: they must not end, whoever sleeps.
        self.guarded: set[int] = set()
        self._heard: dict[int, tuple[int, int]] = {}

    def on_shown(self, session: SessionView, zxid: int) -> None:
        self._heard[session.session_id] = self.now_us, session.timeout_ms

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        header = self.ledger.decoded[zxid].header
        if header.type != OpCode.CLOSE_SESSION or header.cxid:
            return
        if header.session_id in self.guarded:
            raise Violation(
                self.name,
                f"session {format_zxid(header.session_id)} is ended at {format_zxid(zxid)}: its "
                "leader slept, and its client is at a server that did not",
            )
        if self.calm_since_us is None:
            return
        heard_us, timeout_ms = self._heard.get(header.session_id, (0, 0))
        calm_us = self.now_us - self.calm_since_us
        if calm_us > 2000 * timeout_ms and self.now_us - heard_us < 500 * timeout_ms:
            raise Violation(
                self.name,
                f"session {format_zxid(header.session_id)} is ended at {format_zxid(zxid)}, "
                "and its client is there",
            )


class ExpiredChecker(Checker):
    """A client that is told that its session has ended has really lost it (R15).

    Its end is in the history. A session of one server alone never was in the history; then it must
    not come into it later, nor a znode of its making.
    """

    name = "expired"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.is_on = True
        self._local: set[int] = set()

    def on_expired(self, session: SessionView) -> None:
        session_id = session.session_id
        if session_id in self.ledger.session_ends or not self.is_on:
            return
        if session_id in self.ledger.session_starts:
            raise Violation(
                self.name,
                f"c{session.client} is told that session {format_zxid(session_id)} has ended, and "
                "it lives",
            )
        self._local.add(session_id)

    def on_hung_up(self, session_id: int) -> None:
        """A server has closed the connection of a client it just heard: its session has ended."""
        if session_id not in self.ledger.session_ends:
            raise Violation(
                self.name,
                f"a client of session {format_zxid(session_id)} is hung up on because that has "
                "ended, and it has not",
            )

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        session_id = self.ledger.decoded[zxid].header.session_id
        if session_id in self._local and session_id in self.ledger.tree.sessions:
            raise Violation(
                self.name,
                f"session {format_zxid(session_id)} begins at {format_zxid(zxid)}, after its "
                "client was told that it has ended",
            )
