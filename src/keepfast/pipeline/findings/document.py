"""What an audit says: findings, coverage, lanes for drawing, verdicts, and their JSON form.

Plain values without Spark: executors make them, the driver sorts and prints them, the report draws
them.  Zxids are integers here and hexadecimal strings in JSON.  Everything is ordered by value,
never by arrival, so that two runs over the same files give the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from keepfast.pipeline.findings.records_named import (
    LackedWrites,
    RecordNote,
    RecordSource,
    time_text,
)
from keepfast.wire import format_zxid

JSON_SCHEMA = "keepfast.audit/1"


class Verdict(Enum):
    """The answer for one ensemble, or for all of them: the gravest one."""

    CONSISTENT = "consistent"  # nothing that was checked contradicts one history
    AT_RISK = "at risk"  # the servers agree, but something is damaged, missing or unsafe
    DIVERGED = "diverged"  # servers hold different histories or states
    UNREADABLE = "unreadable"  # there is nothing to judge


class FindingSeverity(Enum):
    """How much a finding matters; the values are those of the JSON form."""

    NOTE = "note"  # normal, worth knowing
    WARNING = "warning"  # the states agree, but less is safe than it looks
    ERROR = "error"  # wrong data, or a server that cannot come up


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is worth saying about one ensemble."""

    check: str  # "A1" ... "A14"
    kind: str  # a stable word, for example "gap-served-as-diff"
    severity: FindingSeverity
    ensemble: str
    evidence: str  # what was seen, in words
    advice: str = ""  # which replica to believe and what to do
    cause: str = ""  # how this most likely came about
    server: str | None = None  # the one that is wrong; None: no single one
    file: str | None = None
    offset: int | None = None
    first_zxid: int | None = None
    last_zxid: int | None = None
    paths: tuple[str, ...] = ()
    # Whether this is a divergence: servers hold, or would serve, different data.
    is_divergence: bool = False
    first: RecordNote | None = None  # the records of the two zxids, where somebody has them
    last: RecordNote | None = None

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "check": self.check,
            "kind": self.kind,
            "severity": self.severity.value,
            "server": self.server,
            "file": self.file,
            "offset": self.offset,
            "first_zxid": _hex(self.first_zxid),
            "last_zxid": _hex(self.last_zxid),
            "paths": list(self.paths),
            "evidence": self.evidence,
            "advice": self.advice,
            "cause": self.cause,
            "divergence": self.is_divergence,
            "first": self.first and self.first.to_json(),
            "last": self.last and self.last.to_json(),
        }

    @property
    def order(self) -> tuple[object, ...]:
        """Gravest first, then by place: the order of every listing."""
        grave = list(FindingSeverity).index(self.severity)
        return (
            -grave,
            not self.is_divergence,
            # What is lost on all servers, before what is wrong with one.
            self.server is not None,
            int(self.check[1:]),
            self.server or "",
            -1 if self.first_zxid is None else self.first_zxid,
            self.file or "",
            -1 if self.offset is None else self.offset,
            self.kind,
            self.evidence,
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """A range of zxids, and who proves it.

    `proof`: "agreed" (two or more servers hold the same records), "single" (one server only: what
    it says cannot be compared), "snapshot" (no record is left, but snapshots hold its effects),
    "unproven" (nobody can prove it: what happened there is not known).
    """

    first_zxid: int
    last_zxid: int
    proof: str
    servers: tuple[str, ...]
    text: str

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "first_zxid": _hex(self.first_zxid),
            "last_zxid": _hex(self.last_zxid),
            "proof": self.proof,
            "servers": list(self.servers),
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """A range of zxids on a lane.

    `kind`: "run" (records back to back, one per file and epoch), "gap" (explained hole), "hole"
    (unexplained), "stale" (never committed, and a later epoch was agreed without it),
    "uncommitted" (end of the last epoch, on a minority), "damaged" (bytes that are not a record).
    """

    kind: str
    first_zxid: int
    last_zxid: int
    file: str | None = None
    text: str = ""

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "kind": self.kind,
            "first_zxid": _hex(self.first_zxid),
            "last_zxid": _hex(self.last_zxid),
            "file": self.file,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """A snapshot on a lane; `fuzzy_until` is the last zxid of which it shows an effect."""

    zxid: int
    file: str
    is_valid: bool
    fuzzy_until: int
    is_base: bool = False  # the one from which a server started on this directory would replay
    text: str = ""

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "zxid": _hex(self.zxid),
            "file": self.file,
            "valid": self.is_valid,
            "fuzzy_until": _hex(self.fuzzy_until),
            "base": self.is_base,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Lane:
    """One server over the zxids, for drawing."""

    server: str
    first_zxid: int | None  # the least and the greatest zxid that its files know of
    last_zxid: int | None
    spans: tuple[LaneSpan, ...] = ()
    snapshots: tuple[SnapshotMark, ...] = ()
    accepted_epoch: int | None = None
    current_epoch: int | None = None
    diverges_at: int | None = None  # the first zxid at which this server is wrong
    is_observer: bool = False

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "server": self.server,
            "first_zxid": _hex(self.first_zxid),
            "last_zxid": _hex(self.last_zxid),
            "spans": [span.to_json() for span in self.spans],
            "snapshots": [mark.to_json() for mark in self.snapshots],
            "accepted_epoch": self.accepted_epoch,
            "current_epoch": self.current_epoch,
            "diverges_at": _hex(self.diverges_at),
            "observer": self.is_observer,
        }


@dataclass(frozen=True, slots=True)
class ServerZnode:
    """One znode as one server has it."""

    data: str  # a short, printable form
    size: int
    czxid: int
    mzxid: int
    version: int

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "data": self.data,
            "size": self.size,
            "czxid": _hex(self.czxid),
            "mzxid": _hex(self.mzxid),
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class ZnodeDifference:
    """A znode that is not the same on all servers; None: the server does not have it."""

    path: str
    states: tuple[tuple[str, ServerZnode | None], ...]  # by server

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        states = {server: state and state.to_json() for server, state in self.states}
        return {"path": self.path, "states": states}


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """Where the trees differ at the greatest zxid that all of `servers` reach."""

    zxid: int
    servers: tuple[str, ...]
    differences: tuple[ZnodeDifference, ...]
    total: int  # how many differ; `differences` may hold only the first ones

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "zxid": _hex(self.zxid),
            "servers": list(self.servers),
            "total": self.total,
            "differences": [difference.to_json() for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """The audit of one ensemble."""

    name: str
    verdict: Verdict
    servers: tuple[str, ...]
    coverage: tuple[Coverage, ...] = ()
    findings: tuple[Finding, ...] = ()
    lanes: tuple[Lane, ...] = ()
    tree_diff: TreeDiff | None = None
    committed_zxid: int | None = None  # the greatest zxid that a majority holds (A14)
    unchecked: tuple[str, ...] = ()  # what could not be checked, in words; never reads as a pass
    records: int = 0
    size_bytes: int = 0
    lacked: tuple[LackedWrites, ...] = ()  # committed writes that servers do not have
    times: tuple[tuple[int, int], ...] = ()  # some zxids and their times, by zxid
    sources: tuple[RecordSource, ...] = ()  # every record once; for the tables, not in JSON

    @property
    def is_complete(self) -> bool:
        """Whether everything could be checked."""
        return not self.unchecked

    def to_json(self) -> dict[str, object]:
        """The form of `findings.json`."""
        return {
            "name": self.name,
            "verdict": self.verdict.value,
            "servers": list(self.servers),
            "coverage": [coverage.to_json() for coverage in self.coverage],
            "findings": [finding.to_json() for finding in self.findings],
            "lanes": [lane.to_json() for lane in self.lanes],
            "tree_diff": self.tree_diff and self.tree_diff.to_json(),
            "committed_zxid": _hex(self.committed_zxid),
            "unchecked": list(self.unchecked),
            "records": self.records,
            "size_bytes": self.size_bytes,
            "lacked": [one.to_json() for one in self.lacked],
            "times": [
                {"zxid": _hex(zxid), "time": time_text(time_ms)} for zxid, time_ms in self.times
            ],
        }


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The audit of all ensembles."""

    ensembles: tuple[EnsembleResult, ...] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict: what a script wants to know first."""
        found = {ensemble.verdict for ensemble in self.ensembles}
        for verdict in (Verdict.DIVERGED, Verdict.UNREADABLE, Verdict.AT_RISK):
            if verdict in found:
                return verdict
        return Verdict.CONSISTENT if found else Verdict.UNREADABLE

    @property
    def is_complete(self) -> bool:
        """Whether everything could be checked."""
        return all(ensemble.is_complete for ensemble in self.ensembles)

    def to_json(self) -> dict[str, object]:
        """The document of `findings.json`."""
        return {
            "schema": JSON_SCHEMA,
            "verdict": self.verdict.value,
            "ensembles": [ensemble.to_json() for ensemble in self.ensembles],
        }


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of every listing, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: finding.order))


def _hex(zxid: int | None) -> str | None:
    return None if zxid is None else format_zxid(zxid)
