"""The lanes of one ensemble as the page's script draws them: points on the axis, and texts."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.pipeline.findings.document import EnsembleResult, Finding, Lane
from keepfast.pipeline.findings.records_named import RecordNote, time_text
from keepfast.pipeline.report.axis import Axis
from keepfast.wire import counter_of, epoch_of, format_zxid

# What is drawn to scale; a hole may be larger than all that is there, and is seen by its ends.
_HELD = frozenset(("run", "stale", "uncommitted", "damaged"))


def axis_of(result: EnsembleResult) -> Axis:
    """The axis on which everything that the lanes and findings name can be seen."""
    return Axis.over(_ranges(result))


def _ranges(result: EnsembleResult) -> Iterator[tuple[int, int]]:
    for lane in result.lanes:
        for span in lane.spans:
            if span.kind in _HELD:
                yield span.first_zxid, span.last_zxid
            else:
                yield span.first_zxid, span.first_zxid
                yield span.last_zxid, span.last_zxid
        for mark in lane.snapshots:
            yield mark.zxid, mark.zxid
            if mark.fuzzy_until > mark.zxid:
                yield mark.fuzzy_until, mark.fuzzy_until
        for zxid in (lane.first_zxid, lane.last_zxid, lane.diverges_at):
            if zxid is not None:
                yield zxid, zxid
    if result.committed_zxid is not None:
        yield result.committed_zxid, result.committed_zxid
    if result.tree_diff is not None:
        yield result.tree_diff.zxid, result.tree_diff.zxid


def drawing_of(result: EnsembleResult, axis: Axis) -> dict[str, object]:
    """All that the script needs; positions are rounded to keep the file small."""
    flagged = {
        finding.server
        for finding in result.findings
        if finding.severity.value != "note" and finding.server is not None
    }
    divergences = [lane.diverges_at for lane in result.lanes if lane.diverges_at is not None]
    first = min(divergences, default=None)
    return {
        "width": _round(axis.width),
        "stretches": [
            [
                epoch_of(stretch.first),
                counter_of(stretch.first),
                stretch.count,
                _round(stretch.left),
                _round(stretch.right),
            ]
            for stretch in axis.stretches
        ],
        "lanes": [_lane(lane, axis, lane.server in flagged) for lane in result.lanes],
        "committed": _point(axis, result.committed_zxid),
        "compared": _point(axis, result.tree_diff.zxid if result.tree_diff else None),
        "times": [
            [_round(axis.left(zxid)), format_zxid(zxid), text]
            for zxid, time_ms in result.times
            if (text := time_text(time_ms)) is not None
        ],
        "records": [
            [
                _round(axis.left(note.zxid)),
                _round(axis.right(note.zxid)),
                f"{format_zxid(note.zxid)} {note.text}",
            ]
            for note in _named(result)
        ],
        "divergence": None if first is None else [_round(axis.left(first)), format_zxid(first)],
    }


def _named(result: EnsembleResult) -> list[RecordNote]:
    """The records that findings above a note name, and the first that servers lack."""
    found = [
        note
        for finding in result.findings
        for note in (finding.first, finding.last)
        if note is not None and finding.severity.value != "note"
    ]
    found += [write for one in result.lacked for write in one.writes]
    return [note for _, note in sorted({note.zxid: note for note in found}.items())]


def _lane(lane: Lane, axis: Axis, is_flagged: bool) -> dict[str, object]:
    return {
        "name": lane.server,
        "flagged": is_flagged or lane.diverges_at is not None,
        "observer": lane.is_observer,
        "epochs": [lane.accepted_epoch, lane.current_epoch],
        "spans": [
            [
                span.kind,
                _round(axis.left(span.first_zxid)),
                _round(axis.right(span.last_zxid)),
                format_zxid(span.first_zxid),
                format_zxid(span.last_zxid),
                span.file or "",
                span.text,
            ]
            for span in lane.spans
        ],
        "snapshots": [
            [
                _round(axis.right(mark.zxid)),
                _round(axis.right(mark.fuzzy_until)),
                mark.is_valid,
                mark.is_base,
                format_zxid(mark.zxid),
                mark.file,
                mark.text,
            ]
            for mark in lane.snapshots
        ],
        "diverges": _left_point(axis, lane.diverges_at),
    }


def place_of(finding: Finding, axis: Axis) -> tuple[float, float] | None:
    """Where on the axis a finding is; None if it names no zxid."""
    first, last = finding.first_zxid, finding.last_zxid
    if first is None and last is None:
        return None
    low = first if first is not None else last
    high = last if last is not None else first
    if low is None or high is None:
        return None
    return _round(axis.left(low)), _round(axis.right(high))


def _point(axis: Axis, zxid: int | None) -> list[object] | None:
    return None if zxid is None else [_round(axis.right(zxid)), format_zxid(zxid)]


def _left_point(axis: Axis, zxid: int | None) -> list[object] | None:
    return None if zxid is None else [_round(axis.left(zxid)), format_zxid(zxid)]


def _round(value: float) -> float:
    # Enough for a hundred million records in one stretch, and no digit more: the file is small.
    return round(value, 6)
