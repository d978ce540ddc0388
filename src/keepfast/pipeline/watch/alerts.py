"""Findings that open and close, with their times, and who is notified of it.

A finding opens when two looks, one shortly after the other, both have it: servers are written to
while they are looked at.  It closes when a look does not have it any more.  Both are noted in the
checkpoint in one transaction with what the webhook is to be sent; that is sent again until somebody
takes it.
"""

from __future__ import annotations

import http.client
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec

from keepfast.pipeline.findings.document import EnsembleResult, Finding, FindingSeverity
from keepfast.pipeline.watch.checkpoint import Checkpoint

SCHEMA = "keepfast.watch/1"
_WEBHOOK_S = 5.0
# In one look: one that does not answer must not hold up the others.
_MAX_TOLD = 20
# Checks about one file: two of them are two findings.
_OF_FILES = ("A1", "A4", "A5", "A11")


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding that opened or closed."""

    event: Literal["opened", "closed"]
    finding: Finding
    opened: float
    closed: float | None = None

    def to_json(self) -> dict[str, object]:
        """What a line of --json and the webhook say."""
        return {
            "schema": SCHEMA,
            "event": self.event,
            "ensemble": self.finding.ensemble,
            "opened": text_of(self.opened),
            "closed": None if self.closed is None else text_of(self.closed),
            "finding": self.finding.to_json(),
        }


def text_of(seconds: float) -> str:
    """A wall time as everything here prints it."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def grave(results: Sequence[EnsembleResult]) -> dict[str, Finding]:
    """The findings above notes, by what makes them the same one in the next look."""
    found: dict[str, Finding] = {}
    for result in results:
        for finding in result.findings:
            if finding.severity is not FindingSeverity.NOTE:
                file = finding.file if finding.check in _OF_FILES else None
                parts = (finding.ensemble, finding.check, finding.kind, finding.server, file)
                found.setdefault("\t".join(part or "" for part in parts), finding)
    return found


@dataclass(slots=True)
class OpenFindings:
    """The findings that are open."""

    checkpoint: Checkpoint
    webhook: str | None
    _open: dict[str, tuple[int, float, Finding]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._load()

    def _load(self) -> None:
        self._open = {
            key: (number, opened, msgspec.msgpack.decode(value, type=Finding))
            for number, key, opened, _, value in self.checkpoint.findings(is_open=True)
        }

    def new_in(self, results: Sequence[EnsembleResult]) -> list[Finding]:
        """The findings of a look that are not open yet."""
        return [finding for key, finding in grave(results).items() if key not in self._open]

    def listed(self) -> list[tuple[float, Finding]]:
        """What is open, and since when; gravest first."""
        found = [(opened, finding) for _, opened, finding in self._open.values()]
        return sorted(found, key=lambda one: (one[1].ensemble, one[1].order))

    def update(
        self, results: Sequence[EnsembleResult], confirmed: Callable[[str], bool]
    ) -> list[FindingChange]:
        """Open and close by a look; only what is `confirmed` opens."""
        now = time.time()
        seen = grave(results)
        changes: list[FindingChange] = []
        with self.checkpoint.changing():
            for key, (number, opened, last) in self._open.items():
                finding = seen.get(key, last)
                closed = None if key in seen else now
                if finding != last or closed is not None:
                    self.checkpoint.change_finding(number, msgspec.msgpack.encode(finding), closed)
                if closed is not None:
                    changes.append(FindingChange("closed", finding, opened, closed))
            for key, finding in seen.items():
                if key not in self._open and confirmed(key):
                    self.checkpoint.open_finding(key, now, msgspec.msgpack.encode(finding))
                    changes.append(FindingChange("opened", finding, now))
            if self.webhook is not None:
                for change in changes:
                    self.checkpoint.add_alert(msgspec.json.encode(change.to_json()))
        self._load()
        return changes

    def tell(self) -> str | None:
        """Deliver pending alerts to the webhook; returns why that failed."""
        if self.webhook is None:
            return None
        for number, value in self.checkpoint.alerts()[:_MAX_TOLD]:
            problem = _post(self.webhook, bytes(value))
            if problem is not None:
                return problem
            with self.checkpoint.changing():
                self.checkpoint.drop_alert(number)
        return None


def _post(url: str, body: bytes) -> str | None:
    """Send one alert; returns why that failed."""
    headers = {"Content-Type": "application/json", "User-Agent": "keepfast-watch"}
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_WEBHOOK_S):
            return None
    except (OSError, http.client.HTTPException) as error:
        return f"{url} could not be notified: {error}"
