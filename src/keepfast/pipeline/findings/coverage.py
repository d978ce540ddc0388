"""Which zxids are proven by whom, and the lanes that show it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from keepfast.pipeline.agreement.committed import Agreement, Conflict, Interval, IntervalStanding
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.document import Coverage, Finding, Lane, LaneSpan, SnapshotMark
from keepfast.pipeline.findings.records_named import RecordSource
from keepfast.pipeline.replay.plan import Piece, pieces_of
from keepfast.wire import counter_of, epoch_of, follows_in_epoch

_KINDS = {
    IntervalStanding.STALE: "stale",
    IntervalStanding.DOUBTFUL: "stale",
    IntervalStanding.TAIL: "uncommitted",
}
# A lane is for drawing: more spans than this show nothing more.
_MAX_SPANS = 2000


def coverage_of(view: EnsembleView, agreement: Agreement) -> tuple[Coverage, ...]:
    """The ranges of zxids in order, each with the servers whose records prove it."""
    found: list[Coverage] = []
    wanted = (IntervalStanding.AGREED, IntervalStanding.TAIL)
    for start, end, holders, standing in _ranges(agreement):
        if standing not in wanted:
            continue
        servers = tuple(s.name for s in view.servers if s.name in holders)
        proof = "agreed" if len(servers) > 1 else "single"
        last = found[-1] if found else None
        if last and last.servers == servers and follows_in_epoch(start, last.last_zxid):
            found[-1] = _entry(last.first_zxid, end, proof, servers)
        else:
            found.append(_entry(start, end, proof, servers))
    found += _without_records(view, agreement)
    return tuple(sorted(found, key=lambda c: (c.first_zxid, c.last_zxid)))


def sources_of(view: EnsembleView, agreement: Agreement) -> tuple[RecordSource, ...]:
    """Every record of an ensemble once, with all servers that hold it.

    Under a zxid that servers hold in different contents there is one for each server that is in
    the minority.
    """
    wrong = {(c.zxid, name) for c in agreement.conflicts for name in c.wrong}
    ranges = list(_ranges(agreement))
    found = []
    # All at once: the runs of all servers are put in order for it.
    for piece in pieces_of(view, [(first, last) for first, last, _, _ in ranges], wrong):
        at = bisect_right(ranges, piece.first, key=lambda one: one[0]) - 1
        _, _, holders, standing = ranges[at]
        servers = tuple(s.name for s in view.servers if s.name in holders)
        found.append(RecordSource(*_place(piece), servers, standing.value))
    for server in view.servers:
        mistaken = sorted((zxid, zxid) for zxid, name in wrong if name == server.name)
        own = EnsembleView(view.name, (server,))
        found += [
            RecordSource(*_place(piece), (server.name,), "different")
            for piece in pieces_of(own, mistaken, set())
        ]
    return tuple(found)


def _place(piece: Piece) -> tuple[int, int, str, int, int]:
    return piece.first, piece.last, piece.path, piece.start, piece.end


def _ranges(agreement: Agreement) -> Iterator[tuple[int, int, frozenset[str], IntervalStanding]]:
    """The intervals, cut where servers hold something else, each with those that hold the same."""
    conflicts = sorted(agreement.conflicts, key=lambda conflict: conflict.zxid)
    for interval in agreement.intervals:
        for first, last, losers in _between_conflicts(interval, conflicts):
            yield first, last, interval.holders - losers, interval.standing


def _between_conflicts(
    interval: Interval, conflicts: list[Conflict]
) -> Iterator[tuple[int, int, frozenset[str]]]:
    """An interval in ranges, each with those that hold something else there."""
    position = interval.first
    at = bisect_left(conflicts, interval.first, key=lambda conflict: conflict.zxid)
    for conflict in conflicts[at:]:
        if conflict.zxid > interval.last:
            break
        if position < conflict.zxid:
            yield position, conflict.zxid - 1, frozenset()
        yield conflict.zxid, conflict.zxid, conflict.wrong
        position = conflict.zxid + 1
    if position <= interval.last:
        yield position, interval.last, frozenset()


def _entry(first: int, last: int, proof: str, servers: tuple[str, ...]) -> Coverage:
    texts = {
        "agreed": f"{len(servers)} servers hold the same records",
        "single": "one server alone holds these records: nothing contradicts it, nothing proves it",
        "snapshot": "no record is left; snapshots hold the effects",
        "unproven": "nobody holds these records or their effects: what they did is not known",
    }
    return Coverage(first, last, proof, servers, texts[proof])


def _without_records(view: EnsembleView, agreement: Agreement) -> list[Coverage]:
    found = []
    ranges = agreement.agreed
    first = ranges[0][0] if ranges else None
    bases = [s.name for s in view.servers if any(snapshot.is_valid for snapshot in s.snapshots)]
    if first is not None and not (counter_of(first) == 1 and epoch_of(first) <= 1):
        found.append(_entry(0, first - 1, "snapshot" if bases else "unproven", tuple(bases)))
    elif first is None and bases:
        last = max(server.head for server in view.servers)
        found.append(_entry(0, last, "snapshot", tuple(bases)))
    buried = agreement.of(IntervalStanding.BURIED)
    found += [_entry(interval.first, interval.last, "unproven", ()) for interval in buried]
    seen = set()
    for gap in agreement.missing:
        key = (gap.first, gap.last)
        if gap.is_known or gap.before == 0 or key in seen:
            continue
        seen.add(key)
        proof = "unproven" if gap.is_in_force else "snapshot"
        found.append(_entry(gap.first, gap.last, proof, () if gap.is_in_force else (gap.server,)))
    return found


def lanes_of(
    view: EnsembleView, agreement: Agreement, findings: tuple[Finding, ...]
) -> tuple[Lane, ...]:
    """One lane a server."""
    return tuple(_lane(view, agreement, findings, server) for server in view.servers)


def _lane(
    view: EnsembleView,
    agreement: Agreement,
    findings: tuple[Finding, ...],
    server: ServerView,
) -> Lane:
    spans = [LaneSpan("run", run.first, run.last, log.path) for run, log in server.runs]
    for interval in agreement.intervals:
        if interval.standing in _KINDS and server.name in interval.holders:
            path, _ = server.file_of(interval.first)
            spans.append(LaneSpan(_KINDS[interval.standing], interval.first, interval.last, path))
    for gap in agreement.missing:
        if gap.server == server.name:
            kind = "hole" if gap.is_in_force else "gap"
            spans.append(LaneSpan(kind, gap.first, gap.last))
    for log in server.logs:
        for bad in log.bad:
            at = log.zxid if bad.behind is None else bad.behind + 1
            if not bad.is_torn:
                spans.append(LaneSpan("damaged", at, at, log.path, bad.reason))
    marks = tuple(
        SnapshotMark(s.zxid, s.path, s.is_valid, s.fuzzy_until, s is server.base, s.reason)
        for s in server.snapshots
    )
    diverges = [
        finding.first_zxid
        for finding in findings
        if finding.server == server.name and finding.is_divergence and finding.first_zxid
    ]
    known = [span.first_zxid for span in spans] + [mark.zxid for mark in marks]
    return Lane(
        server.name,
        min(known, default=None),
        max([span.last_zxid for span in spans] + [mark.zxid for mark in marks], default=None),
        tuple(sorted(spans, key=lambda s: (s.first_zxid, s.last_zxid, s.kind))[:_MAX_SPANS]),
        marks,
        server.epochs.accepted,
        server.epochs.current,
        min(diverges, default=None),
        server.name in view.observers,
    )
