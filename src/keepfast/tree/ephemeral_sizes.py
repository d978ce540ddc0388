"""The size of a session's list of ephemerals, once all prepared txns are applied.

The txn that ends a session names every ephemeral of it (R12), and has to fit into one record (R13).
So a leader tracks the size of each growing list, without walking it for every create.
"""

from __future__ import annotations

from keepfast.tree.pending import PendingChanges
from keepfast.wire import encode_text

_LENGTH_BYTES = 4


class EphemeralSizes:
    """Bytes of the paths, by session, as a closeSession has them; counted when first asked for."""

    __slots__ = ("_pending", "_steps", "_totals")

    def __init__(self, pending: PendingChanges) -> None:
        self._pending = pending
        self._totals: dict[int, int] = {}
        # What the txn being prepared did, so that a failed multi can be undone.
        self._steps: list[tuple[int, int]] = []

    def begin(self) -> None:
        """The next txn is prepared."""
        if self._steps:
            self._steps.clear()

    def total(self, session_id: int) -> int:
        """The size of all."""
        total = self._totals.get(session_id)
        if total is None:
            total = sum(map(path_size, self._pending.ephemerals(session_id)))
            self._totals[session_id] = total
        return total

    def added(self, session_id: int, path: str) -> None:
        """An ephemeral is created."""
        self._change(session_id, path_size(path))

    def removed(self, session_id: int, path: str) -> None:
        """An ephemeral is deleted."""
        self._change(session_id, -path_size(path))

    def ended(self, session_id: int) -> None:
        """The session is closed."""
        self._totals.pop(session_id, None)

    def roll_back(self) -> None:
        """The txn being prepared is dropped."""
        for session_id, difference in self._steps:
            if session_id in self._totals:
                self._totals[session_id] -= difference
        self._steps.clear()

    def _change(self, session_id: int, difference: int) -> None:
        if session_id in self._totals:
            self._totals[session_id] += difference
            self._steps.append((session_id, difference))


def path_size(path: str) -> int:
    """The bytes of a path in a txn."""
    return _LENGTH_BYTES + (len(path) if path.isascii() else len(encode_text(path)))
