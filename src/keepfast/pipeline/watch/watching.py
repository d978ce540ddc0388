"""A watch: look, confirm, notify, wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event

from keepfast.pipeline.files.layout import PlaceError, local_path
from keepfast.pipeline.findings.document import AuditResult, Finding
from keepfast.pipeline.watch.alerts import FindingChange, OpenFindings, grave
from keepfast.pipeline.watch.checkpoint import Checkpoint
from keepfast.pipeline.watch.rounds import PlacesLooks
from keepfast.pipeline.watch.tracked import ReadCounts, TrackedFiles
from keepfast.wire import KeepfastError

# Against bit rot: so much in each look, and everything once a day.
_MIN_AGAIN_BYTES = 4 << 20
_AGAIN_S = 24 * 3600
# Between the two looks that open a finding: longer than servers take to finish what they do.
_MAX_DOUBT_S = 5.0
_MIN_SETTLE_S = 2.0


class WatchRefused(KeepfastError):  # noqa: N818 - a refusal
    """What cannot be watched; `str()` is the sentence."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What is watched, and how."""

    places: tuple[str, ...]
    checkpoint: str
    every_s: float = 10.0
    webhook: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What one look gave."""

    result: AuditResult
    changes: tuple[FindingChange, ...]
    open: tuple[tuple[float, Finding], ...]  # since when
    counts: ReadCounts
    seconds: float
    cpu_seconds: float
    untold: str | None  # why the webhook could not be notified
    unseen: str | None = None  # why there was nothing to look at: then it is the last result


class Watching:
    """Looks at places again and again."""

    def __init__(self, options: WatchOptions) -> None:
        """Raises CheckpointBusy or CheckpointUnusable."""
        _check_places(options)
        self._options = options
        self._checkpoint = Checkpoint(options.checkpoint)
        settle_s = max(options.every_s, _MIN_SETTLE_S)
        self._files = TrackedFiles(self._checkpoint, settle_s)
        self._watch = PlacesLooks(options.places, self._checkpoint, self._files)
        self._findings = OpenFindings(self._checkpoint, options.webhook)
        self._last: Look | None = None

    def close(self) -> None:
        """End; the checkpoint stays."""
        self._checkpoint.close()

    def look(self, is_over: Event) -> Look | None:
        """Look once, and once more before anything is reported; None if the end came first.

        Raises PlaceError, at the first look only: a directory that is emptied and filled again, as
        people do with a server that is wrong, must not end a watch.
        """
        try:
            looked = self._looked(is_over)
        except PlaceError as error:
            if self._last is None:
                raise
            return replace(self._last, changes=(), cpu_seconds=0.0, unseen=str(error))
        self._last = looked or self._last
        return looked

    def _looked(self, is_over: Event) -> Look | None:
        options = self._options
        started, cpu = time.monotonic(), time.process_time()
        with self._checkpoint.changing():
            share = self._files.size * options.every_s / _AGAIN_S
            self._files.read_again(max(_MIN_AGAIN_BYTES, int(share)))
        results = self._watch.look()
        first = set(grave(results))
        new = self._findings.new_in(results)
        if new:
            if is_over.wait(min(_MAX_DOUBT_S, options.every_s / 2)):
                return None
            self._watch.doubt(new, 3 * options.every_s + _MAX_DOUBT_S)
            results = self._watch.look()
        changes = self._findings.update(results, lambda key: key in first)
        return Look(
            AuditResult(tuple(results)),
            tuple(changes),
            tuple(self._findings.listed()),
            self._files.counts,
            time.monotonic() - started,
            time.process_time() - cpu,
            self._findings.tell(),
        )

    def run(self, is_over: Event, told: Callable[[Look], None]) -> None:
        """Look every few seconds until the end comes."""
        while not is_over.is_set():
            due = time.monotonic() + self._options.every_s
            look = self.look(is_over)
            if look is None:
                return
            told(look)
            is_over.wait(max(0.0, due - time.monotonic()))


def _check_places(options: WatchOptions) -> None:
    """Nothing is written where servers write."""
    checkpoint = local_path(options.checkpoint)
    for place in options.places:
        for part in (place, *place.split(":")):
            if checkpoint.startswith(local_path(part).rstrip("/") + "/"):
                raise WatchRefused(
                    f"{options.checkpoint} lies in {part}, which is watched; name a checkpoint "
                    "elsewhere"
                )
