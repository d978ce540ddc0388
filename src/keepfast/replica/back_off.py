"""How long a member waits before the next election when terms keep failing.

What ends a term immediately ends the next one as well, such as a full disk that cannot store an
epoch: hundreds of terms in a second would keep the others busy, and fill the disk with its log.
"""

from __future__ import annotations

from typing import Final

# Consecutive terms that may fail before the next election has to wait: most failures are transient.
_QUICK_FAILURES: Final = 2
_MAX_DOUBLINGS: Final = 8


class BackOff:
    """Counts the terms in a row that ended before anybody was served."""

    def __init__(self, first_ms: int, max_ms: int) -> None:
        """`first_ms`: the first pause; each later one is twice as long, up to `max_ms`."""
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._failures = 0

    def pause_ms(self, was_serving: bool) -> int:
        """A term has ended: how long to wait."""
        self._failures = 0 if was_serving else self._failures + 1
        if self._failures <= _QUICK_FAILURES:
            return 0
        doublings = min(self._failures - _QUICK_FAILURES - 1, _MAX_DOUBLINGS)
        return min(self._first_ms << doublings, self._max_ms)
