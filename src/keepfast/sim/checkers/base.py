"""The events that a checker may observe."""

from __future__ import annotations

from keepfast.sim.ledger import Ledger
from keepfast.sim.operations import Operation, SessionView
from keepfast.storage import Recovery, RescuePlan, Standing
from keepfast.tree import Tree
from keepfast.wire import EventType, ServerId, Zxid


class Checker:
    """Observes a run and raises `Violation`. Each method is one kind of event."""

    name = ""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def on_proposed(self, server: ServerId, zxid: Zxid) -> None:
        """A leader made a txn under a zxid that nobody has used before."""

    def on_vouched(self, server: ServerId, zxid: Zxid) -> None:
        """A server is about to say that it holds everything up to `zxid` durably."""

    def on_committed(self, server: ServerId, zxid: Zxid) -> None:
        """A txn was applied for the first time, by this server; the ledger has it."""

    def on_applied(self, server: ServerId, tree: Tree) -> None:
        """A server's tree moved; the ledger has it."""

    def on_opened(self, server: ServerId, recovery: Recovery) -> None:
        """A server read its disk; the ledger still has what it held before."""

    def on_healed(self, server: ServerId, zxid: Zxid) -> None:
        """A server that had lost its history was given a tree by a leader."""

    def on_purged(self, server: ServerId, standing: Standing, recovery: Recovery) -> None:
        """A server has purged; what its data were to it, and what it would find at a start."""

    def on_repaired(self, server: ServerId, recovery: Recovery) -> None:
        """A tool has put the files of a server right; this is what it would find at a start."""

    def on_rescued(self, server: ServerId, plan: RescuePlan, recovery: Recovery) -> None:
        """A rescue was carried out as planned, on a copy of a server's files."""

    def on_answered(self, session: SessionView, operation: Operation) -> None:
        """A client got a reply."""

    def on_shown(self, session: SessionView, zxid: int) -> None:
        """A client saw a zxid of the service, in a reply or an event."""

    def on_event(self, session: SessionView, event: EventType, path: str, zxid: int) -> None:
        """A client was notified of a change."""

    def on_rewatched(self, session: SessionView, zxid: int) -> None:
        """A client that came back has set its watches again, on a server at `zxid`."""

    def on_expired(self, session: SessionView) -> None:
        """A client was told that its session has ended."""
