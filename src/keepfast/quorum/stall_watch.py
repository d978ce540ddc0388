"""Whether a leader's own disk stores what it proposes.

A leader commits nothing that it has not durably itself. When its fsync hangs, its followers still
hear it and wait: nobody would write for as long as it hangs, so it has to let another one lead.
"""

from __future__ import annotations

from keepfast.quorum.quorum_options import QuorumOptions
from keepfast.wire import Zxid

_NONE = Zxid(-1)


class StallWatch:
    """Follows the oldest record that is proposed and not durable here."""

    def __init__(self, options: QuorumOptions) -> None:
        # It is over within `sync_ms`, as with a peer that is silent; a tick goes into noticing it.
        self._patience_ms = max(options.sync_ms - options.tick_ms, options.sync_ms // 2)
        self._oldest = _NONE
        self._since_ms = 0

    def is_stalled(self, oldest: Zxid | None, durable: Zxid, now_ms: int) -> bool:
        """Whether the disk has kept the oldest proposal waiting for too long; ask at each tick."""
        if oldest is None or oldest <= durable:
            self._oldest = _NONE
        elif oldest != self._oldest:
            self._oldest, self._since_ms = oldest, now_ms
        return self._oldest >= 0 and now_ms - self._since_ms >= self._patience_ms
