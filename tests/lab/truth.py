"""What the audit has to say about what a play left, by what its servers did and answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keepfast.lab import ScenarioEnding, ScenarioOutcome
from keepfast.pipeline.findings.document import EnsembleResult, FindingSeverity, Verdict
from keepfast.storage import LogReader, RealDisk
from tests.pipeline.test_audit_cases import audited

# What the first record holds that a server lacks, or has too much.
_FIRST_OF_MANY = "00000000xxxxxxxx"
FIRST_RECORD = {
    "snap-keeps-stale-log": "never-agreed",
    "unsynced-snapshot": _FIRST_OF_MANY,
    "trunc-misses-record": "never-agreed-2",
    "diff-over-gap": _FIRST_OF_MANY,
    "snap-replays-stale-log": "never-agreed-2",
    "trunc-keeps-snapshot": "never-agreed",
    "interrupted-trunc": "never-agreed",
    "memory-ahead-of-disk": "not-on-every-disk",
    "hole-at-start": "lost-with-its-log",
    "purge-leaves-hole": "written-later",
    "digest-stops-nothing": "what-was-written",
    "zeroed-record": "acknowledged-b",
}
# Lost on all servers: who shows it, and what was lost as far as it can be known. What the record of
# /b held reads as zeros, and is cut off on the third. A wiped majority makes the third one cut off
# all that it has, from the first record of the epoch on; a session stays in its snapshot.
_LOST: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "zeroed-record": (None, ("/c",)),
    "wiped-majority": ("3", ()),
}
_FIRST_OF_ALL = 0x100000001
# Files that were damaged by hand, on servers that rightly do not start on them.
_DAMAGED = {"zeroed-record": {"record-damaged", "lacks-committed"}}


@dataclass
class Witness:
    """Listens to a play, and looks up the zxid of a record before anything happens to it."""

    folder: Path
    name: str
    zxid: int | None = None
    _seen: dict[Path, int] = field(default_factory=dict)

    def step(self, text: str) -> None:
        """Look for it, where it was not found yet."""
        wanted = FIRST_RECORD.get(self.name)
        if wanted is None or self.zxid is not None:
            return
        found = []
        for path in self.folder.glob("data/*/version-2/log.*"):
            try:
                with RealDisk().open_read(str(path)) as file:
                    found += [one.zxid for one in LogReader(file) if wanted.encode() in one.entry]
            except FileNotFoundError:
                pass  # a server that runs has purged it since it was listed
        self.zxid = min(found, default=None)

    def state(self, answers: Mapping[int, str]) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Named:
    """What is wrong, where and since when."""

    verdict: Verdict
    kind: str = ""
    server: str | None = None
    zxid: int | None = None
    paths: tuple[str, ...] = ()

    def __str__(self) -> str:
        zxid = "-" if self.zxid is None else hex(self.zxid)
        words = (self.verdict.value, self.kind or "-", self.server or "-", zxid)
        return " ".join((*words, ",".join(self.paths) or "-"))


def expected(outcome: ScenarioOutcome, zxid: int | None) -> Named:
    """By the answers: who differs from most, and in which znodes."""
    name, kind = outcome.scenario.name, outcome.scenario.kind
    if outcome.release.name == "keepfast":
        return Named(Verdict.AT_RISK if name in _DAMAGED else Verdict.CONSISTENT)
    if outcome.ending is ScenarioEnding.REFUSED:
        return Named(Verdict.AT_RISK, kind, str(outcome.silent[0]))
    if outcome.ending is ScenarioEnding.LOST:
        who, lost = _LOST[name]
        return Named(Verdict.AT_RISK, kind, who, zxid or _FIRST_OF_ALL, lost)
    wrong: set[int] = set()
    paths = []
    for path, answers in outcome.values.items():
        usual = Counter(answers.values()).most_common(1)[0][0]
        others = {id for id, answer in answers.items() if answer != usual}
        wrong |= others
        paths += [path] if others else []
    server = "/".join(map(str, sorted(wrong)))
    return Named(Verdict.DIVERGED, kind, server, zxid, tuple(sorted(paths)))


def named(outcome: ScenarioOutcome) -> Named:
    """What the audit says, without Spark: the finding that is listed first."""
    places = [Path(place) for place in outcome.places]
    result = audited(*(place for place in places if (place / "version-2").exists()))
    grave = _grave(result)
    if outcome.release.name == "keepfast" and grave <= _DAMAGED.get(outcome.scenario.name, set()):
        return Named(result.verdict)
    if not grave:
        return Named(result.verdict)
    first = result.findings[0]
    return Named(result.verdict, first.kind, first.server, first.first_zxid, first.paths)


def _grave(result: EnsembleResult) -> set[str]:
    return {f.kind for f in result.findings if f.severity is not FindingSeverity.NOTE}
