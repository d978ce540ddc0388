"""What servers say about themselves in words: mntr, conf and dirs, and series of figures of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from keepfast.client import ServerAddress, ask_word

# Points of a sparkline. At one every two seconds: three minutes.
SERIES_POINTS: Final = 90
_REFUSED: Final = ("is not executed because", "not currently serving")


def ask(address: ServerAddress, word: str, timeout_s: float) -> str:
    """The answer to a four-letter word; "" if it is refused. Raises OSError."""
    answer = ask_word(address, word, timeout_s)
    head = answer[:200]
    return "" if any(text in head for text in _REFUSED) else answer


def monitor_values(answer: str) -> dict[str, str]:
    """The lines of `mntr` by name, without their `zk_`."""
    pairs = (line.partition("\t") for line in answer.splitlines())
    return {name.removeprefix("zk_"): value for name, tab, value in pairs if tab}


def setting_values(answer: str) -> dict[str, str]:
    """The lines of `conf` by name, without the membership."""
    lines = answer.partition("membership:")[0].splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def directory_sizes(answer: str) -> tuple[int, int] | None:
    """The sizes of snapshots and logs that `dirs` reports."""
    sizes = dict(line.partition(": ")[::2] for line in answer.splitlines())
    try:
        return int(sizes["datadir_size"]), int(sizes["logdir_size"])
    except (KeyError, ValueError):
        return None


def number(values: dict[str, str], name: str) -> float | None:
    """A figure of `mntr`; None if the server does not report it."""
    try:
        return float(values[name])
    except (KeyError, ValueError):
        return None


@dataclass(slots=True)
class _Totals:
    """Counters since a server's start, at a moment."""

    time_s: float
    received: float
    requests: float
    latency_ms: float
    written: float | None


@dataclass(slots=True)
class Series:
    """Figures of one server over time: what its counters grew by between two questions."""

    requests: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_POINTS))
    latency: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_POINTS))
    writes: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_POINTS))
    _before: _Totals | None = None

    def miss(self) -> None:
        """The server did not report it."""
        self._before = None
        for points in (self.requests, self.latency, self.writes):
            points.append(None)

    def take(self, now_s: float, values: dict[str, str], zxid: int | None) -> None:
        """Add a point for what `mntr` says now."""
        received = number(values, "packets_received")
        if received is None:
            self.miss()
            return
        requests = _sum(values, "cnt_readlatency", "cnt_updatelatency")
        latency = _sum(values, "sum_readlatency", "sum_updatelatency")
        written = None if zxid is None else float(zxid & 0xFFFFFFFF)
        now = _Totals(now_s, received, requests, latency, written)
        before, self._before = self._before, now
        if before is None or received < before.received:
            # The first look, or the server was started again: nothing to compare with.
            for points in (self.requests, self.latency, self.writes):
                points.append(None)
            return
        seconds = max(now_s - before.time_s, 0.001)
        self.requests.append(round((received - before.received) / seconds, 1))
        done = requests - before.requests
        self.latency.append(round((latency - before.latency_ms) / done, 3) if done > 0 else None)
        has_both = written is not None and before.written is not None
        grown = (written or 0.0) - (before.written or 0.0)
        self.writes.append(round(grown / seconds, 1) if has_both and grown >= 0 else None)

    def document(self) -> dict[str, list[float | None]]:
        """The points, oldest first."""
        return {
            "requests": list(self.requests),
            "latency": list(self.latency),
            "writes": list(self.writes),
        }


def _sum(values: dict[str, str], *names: str) -> float:
    return sum(number(values, name) or 0.0 for name in names)
