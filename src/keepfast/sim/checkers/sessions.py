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
    """While nothing fails, no session ends whose client is there."""

    name = "sessions"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.now_us = 0
        # Since when nothing fails; None: something may.
        self.calm_since_us: int | None = None
        self._heard: dict[int, tuple[int, int]] = {}

    def on_shown(self, session: SessionView, zxid: int) -> None:
        self._heard[session.session_id] = self.now_us, session.timeout_ms

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        header = self.ledger.decoded[zxid].header
        if header.type != OpCode.CLOSE_SESSION or header.cxid or self.calm_since_us is None:
            return
        heard_us, timeout_ms = self._heard.get(header.session_id, (0, 0))
        calm_us = self.now_us - self.calm_since_us
        if calm_us > 2000 * timeout_ms and self.now_us - heard_us < 500 * timeout_ms:
            raise Violation(
                self.name,
                f"session {format_zxid(header.session_id)} is ended at {format_zxid(zxid)}, "
                "and its client is there",
            )
