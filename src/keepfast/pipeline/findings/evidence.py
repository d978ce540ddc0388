"""The records that findings name, and those that a server lacks: times, operations, people.

Made in two steps, so that the records are read where they lie.  `plan_evidence` says which ones, by
the facts of the files; `read_evidence` reads them; `with_evidence` puts them into the result.  What
can no longer be read is left out: it is no proof of anything, only help for who reads the findings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from keepfast.pipeline.agreement.committed import Agreement, IntervalStanding
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.decode.ops import OP_NAMES
from keepfast.pipeline.findings.divergence import Divergence
from keepfast.pipeline.findings.document import (
    AuditResult,
    EnsembleResult,
    Finding,
    FindingSeverity,
)
from keepfast.pipeline.findings.records_named import LackedWrites, RecordNote
from keepfast.pipeline.replay.plan import Piece, pieces_of
from keepfast.pipeline.replay.records import Unread, entries_of, frames_of, touched_paths
from keepfast.pipeline.scan.facts import LogFacts, RecordRun
from keepfast.pipeline.scan.session_people import People
from keepfast.storage import Disk
from keepfast.wire import LogEntry, MalformedRecord, decode_entry

# Of each server: more than a person reads, and little enough to be sent around.
_MAX_WRITES = 200
_MAX_PATHS = 20
# Of an ensemble: moments for the axis, and records that findings name.
_MAX_TIMES = 400
_MAX_RECORDS = 2000


@dataclass(frozen=True, slots=True)
class LackedRanges:
    """Where the records can be read that a server lacks."""

    server: str | None
    first: int
    last: int
    records: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class EvidencePlan:
    """What is to be read for one ensemble."""

    ensemble: str
    records: tuple[Piece, ...]  # one record each
    lacked: tuple[LackedRanges, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was read."""

    ensemble: str
    records: tuple[RecordNote, ...] = ()
    lacked: tuple[LackedWrites, ...] = ()


def plan_evidence(
    view: EnsembleView,
    agreement: Agreement,
    divergences: Iterable[Divergence],
    result: EnsembleResult,
    *,
    is_brief: bool = False,
) -> EvidencePlan:
    """The records whose times and people belong to a result; brief: without notes and the axis."""
    wanted: dict[int, Piece] = {}
    for finding in result.findings:
        if is_brief and finding.severity is FindingSeverity.NOTE:
            continue
        for zxid in (finding.first_zxid, finding.last_zxid):
            if zxid is not None and len(wanted) < _MAX_RECORDS:
                _want(wanted, view, zxid, finding.server)
    if not is_brief:
        # Findings first: the record under a zxid may not be the same on every server.
        wanted = {piece.first: piece for piece in _moments(view)} | wanted
    records = tuple(wanted[zxid] for zxid in sorted(wanted))
    return EvidencePlan(view.name, records, tuple(_lacked(view, agreement, divergences)))


def _moments(view: EnsembleView) -> list[Piece]:
    """The first record of each run, of which the offset is known, and the last one of all."""
    runs = [(run, log) for server in view.servers for run, log in server.runs]
    found = {
        run.first: Piece(run.first, run.first, log.path, run.start, run.end) for run, log in runs
    }
    starts = [found[zxid] for zxid in sorted(found)]
    step = -(-len(starts) // (_MAX_TIMES - 1)) or 1
    last = max(runs, key=lambda item: item[0].last, default=None)
    return starts[::step] + ([] if last is None else [_piece_of(*last, last[0].last)])


def _want(wanted: dict[int, Piece], view: EnsembleView, zxid: int, server: str | None) -> None:
    if zxid in wanted:
        return
    # The server's own record first: it may be another one than the others have.
    ordered = sorted(view.servers, key=lambda one: one.name != server)
    piece = next((found for one in ordered if (found := _piece_at(one, zxid))), None)
    if piece is not None:
        wanted[zxid] = piece


def _piece_at(server: ServerView, zxid: int) -> Piece | None:
    for run, log in server.runs:
        if run.first <= zxid <= run.last:
            return _piece_of(run, log, zxid)
    return None


def _piece_of(run: RecordRun, log: LogFacts, zxid: int) -> Piece:
    """One record of a run: from the first of its bucket on, if it is not the first of the run."""
    start, end = run.start, run.end
    if zxid != run.first:
        key = zxid >> log.bucket_bits
        bucket = next((one for one in log.buckets if one.bucket == key), None)
        if bucket is not None:
            start, end = max(bucket.start, run.start), min(bucket.end, run.end)
    return Piece(zxid, zxid, log.path, start, end)


def _lacked(
    view: EnsembleView, agreement: Agreement, divergences: Iterable[Divergence]
) -> Iterable[LackedRanges]:
    ranges: dict[str | None, list[tuple[int, int]]] = {}
    for gap in agreement.missing:
        if gap.is_in_force and gap.is_known:
            ranges.setdefault(gap.server, []).append((gap.first, gap.last))
    for one in divergences:
        # What it lacked when its snapshot was written.
        found = [(gap.first, gap.last) for gap in one.below]
        if found:
            ranges.setdefault(one.server.name, []).extend(found)
    lost = [(i.first, i.last) for i in agreement.of(IntervalStanding.BURIED)]
    if lost:
        ranges[None] = lost
    wrong = {(c.zxid, name) for c in agreement.conflicts for name in c.wrong}
    for server in sorted(ranges, key=lambda name: (name is not None, name or "")):
        some = sorted(set(ranges[server]))
        pieces = pieces_of(view, some, wrong)
        if pieces:
            count = sum(last - first + 1 for first, last in some)
            yield LackedRanges(server, some[0][0], some[-1][1], count, tuple(pieces))


# -- reading ---------------------------------------------------------------------------------------


def read_evidence(disk: Disk, plan: EvidencePlan) -> Evidence:
    """Read what was planned, as far as it is still there."""
    notes = [note for piece in plan.records if (note := _first_note(disk, piece)) is not None]
    return Evidence(plan.ensemble, tuple(notes), tuple(_writes(disk, one) for one in plan.lacked))


def _first_note(disk: Disk, piece: Piece) -> RecordNote | None:
    try:
        frame = next(frames_of(disk, piece), None)
        return None if frame is None else _note(decode_entry(frame.entry))
    except (OSError, MalformedRecord):
        return None


def _note(entry: LogEntry) -> RecordNote:
    header = entry.header
    paths = tuple(touched_paths(entry.body))
    op = OP_NAMES.get(header.type, f"type {header.type}")
    return RecordNote(header.zxid, header.time_ms, op, header.session_id, paths[:_MAX_PATHS])


def _writes(disk: Disk, lacked: LackedRanges) -> LackedWrites:
    writes: list[RecordNote] = []
    is_all = True
    for entry, _, _ in entries_of(disk, lacked.pieces, Unread()):
        if touched_paths(entry.body):
            if len(writes) == _MAX_WRITES:
                is_all = False
                break
            writes.append(_note(entry))
    return LackedWrites(
        lacked.server, lacked.first, lacked.last, lacked.records, tuple(writes), is_all
    )


# -- the result ------------------------------------------------------------------------------------


def with_evidence(result: EnsembleResult, evidence: Evidence) -> EnsembleResult:
    """The result with times and records."""
    by_zxid = {note.zxid: note for note in evidence.records}
    return replace(
        result,
        findings=tuple(_with_records(finding, by_zxid) for finding in result.findings),
        lacked=evidence.lacked,
        times=tuple((note.zxid, note.time_ms) for note in evidence.records),
    )


def _with_records(finding: Finding, by_zxid: dict[int, RecordNote]) -> Finding:
    first = None if finding.first_zxid is None else by_zxid.get(finding.first_zxid)
    last = None if finding.last_zxid is None else by_zxid.get(finding.last_zxid)
    return replace(finding, first=first, last=last)


def with_people(result: AuditResult, people: People) -> AuditResult:
    """A result with users and addresses, by the audit logs of the servers."""
    ensembles = tuple(
        replace(
            ensemble,
            findings=tuple(
                replace(one, first=_named(one.first, people), last=_named(one.last, people))
                for one in ensemble.findings
            ),
            lacked=tuple(
                replace(one, writes=tuple(note for w in one.writes if (note := _named(w, people))))
                for one in ensemble.lacked
            ),
        )
        for ensemble in result.ensembles
    )
    return AuditResult(ensembles)


def _named(note: RecordNote | None, people: People) -> RecordNote | None:
    if note is None:
        return None
    person = people.of(note.session_id, note.paths[0] if note.paths else None)
    return replace(note, user=person.user, address=person.address)
