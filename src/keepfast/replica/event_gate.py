"""Who waits while the events of a txn with very many changes are sent.

The tree has the txn, but its events go out a few in each turn (events.py). No client may see the
new state before it is notified of what it watches. So one that watches something that the txn
changed, or may do so, is not answered until the last of the events is sent. Others continue, and
are *spared*: what they watch from now on is watched in the new state, and these events are not for
them. No further txn is applied meanwhile (commit_turns.py), so that events keep their order.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from keepfast.replica.connection import Connection
from keepfast.tree import WatchTable

_NOTHING: Final[frozenset[str]] = frozenset()


class EventGate:
    """Holds up the clients that are owed events of one txn. One that is held up is stalled."""

    __slots__ = ("_above", "_paths", "_stalled", "_watches", "held", "spared")

    def __init__(
        self, watches: WatchTable[Connection], stalled: dict[Connection, None], paths: Set[str]
    ) -> None:
        """`paths`: the znodes that the txn changed, and their parents."""
        self._watches = watches
        self._stalled = stalled
        self._paths = paths
        # These and what is above them, once that is known.
        self._above: Set[str] | None = None
        self.held: dict[Connection, None] = {}
        self.spared: dict[Connection, None] = {}

    def holds(self, connection: Connection) -> bool:
        """Whether a client has to wait, and is stalled now."""
        if connection in self.spared:
            return False
        if not self._watches.may_concern(connection, self._paths, self._above):
            self.spared[connection] = None
            self.held.pop(connection, None)
            return False
        self.held[connection] = None
        self._stalled[connection] = None
        connection.is_stalled = True
        connection.free_until = -1
        return True

    def refine(self, above: Set[str]) -> None:
        """All that a recursive watch can be on to be concerned; before, each of them is."""
        self._above = above

    def open(self) -> dict[Connection, None]:
        """Nothing is owed any more; returns the clients that waited."""
        self._paths = self._above = _NOTHING
        held, self.held = self.held, {}
        return held
