"""Checks of each server by itself: A1 damage, A2 names and order, A4, A8, A9 and A11."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.pipeline.agreement.committed import Agreement, IntervalStanding
from keepfast.pipeline.agreement.comparing import Compared
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.advice import advice_of, cause_of
from keepfast.pipeline.findings.document import Finding, FindingSeverity
from keepfast.pipeline.replay.plan import refusal
from keepfast.pipeline.scan.facts import LogFacts
from keepfast.wire import epoch_of, format_zxid

NOTE, WARNING, ERROR = FindingSeverity.NOTE, FindingSeverity.WARNING, FindingSeverity.ERROR
# Apache's default of autopurge.snapRetainCount, and its least.
_KEPT_SNAPSHOTS = 3
# File times closer than this say nothing about an order: copying a directory blurs them.
_MTIME_SLACK_SECONDS = 2.0
_NO_ACTION = "Nothing has to be done."


def others_of(view: EnsembleView, server: str) -> list[str]:
    """The other servers that have a state."""
    return [s.name for s in view.servers if s.name != server and s.head >= 0]


# -- A1 --------------------------------------------------------------------------------------------


def unreadable_files(view: EnsembleView) -> Iterator[Finding]:
    """A1: what could not be looked at; that is no fault of the data."""
    for server in view.servers:
        for path, zxid, error in server.unread:
            yield Finding(
                *("A1", "file-unreadable", NOTE, view.name, error),
                "Give the audit the right to read the file, or copy it again.",
                server=server.name,
                file=path,
                first_zxid=zxid,
            )


def record_damage(view: EnsembleView) -> Iterator[Finding]:
    """A1: bytes that are not a record."""
    for server in view.servers:
        for log in server.logs:
            for bad in log.bad:
                yield _damage(view, server, log, bad.offset)


def _damage(view: EnsembleView, server: ServerView, log: LogFacts, offset: int) -> Finding:
    bad = next(b for b in log.bad if b.offset == offset)
    if bad.is_torn and offset == 0 < log.size and _is_opened(server, log):
        return Finding(
            *("A1", "log-without-header", WARNING, view.name),
            f"{bad.reason}: a server of Apache's does not start on a log without its header",
            "Move the file out of the directory before the next start: it holds no record. "
            "A crash leaves such a file if the log was just begun.",
            server=server.name,
            file=log.path,
            offset=offset,
        )
    if bad.is_torn:
        return Finding(
            *("A1", "torn-tail", NOTE, view.name, f"torn tail: {bad.reason}"),
            _NO_ACTION + " A crash explains it.",
            server=server.name,
            file=log.path,
            offset=offset,
            last_zxid=bad.behind,
        )
    following = min((run.first for run in log.runs if run.start > offset), default=None)
    is_latent = max((r.last for r in log.runs), default=log.zxid) <= server.base_zxid
    evidence = bad.reason
    if bad.valid_after is not None:
        evidence += f"; sound records follow at offset {bad.valid_after}"
    return Finding(
        *("A1", "record-damaged", WARNING if is_latent else ERROR, view.name, evidence),
        advice_of("record-damaged", server.name, others_of(view, server.name)),
        cause_of("record-damaged"),
        server=server.name,
        file=log.path,
        offset=offset,
        first_zxid=None if bad.behind is None else bad.behind + 1,
        last_zxid=None if following is None else following - 1,
    )


def _is_opened(server: ServerView, log: LogFacts) -> bool:
    """Whether an Apache server opens a log when it starts: its base may end inside the first."""
    below = [one.zxid for one in server.logs if one.zxid <= server.base_zxid]
    return not server.is_managed and log.zxid >= max(below, default=0)


# -- A2 --------------------------------------------------------------------------------------------


def names_and_order(view: EnsembleView, compared: Compared) -> Iterator[Finding]:
    """A2: names that lie, records out of order, records that are there twice."""
    for server in view.servers:
        for log in server.logs:
            if log.runs and log.runs[0].first != log.zxid:
                first = log.runs[0].first
                yield Finding(
                    *("A2", "misnamed-log", WARNING, view.name),
                    f"its first record is {format_zxid(first)}: a server looks for records by the "
                    "names of files and may pass over these",
                    "Compare with a backup; a file under a wrong name was renamed or copied.",
                    server=server.name,
                    file=log.path,
                    first_zxid=first,
                )
        yield from _order(view, server, [z for name, z in compared.doubled if name == server.name])


def overlaps(server: ServerView) -> list[tuple[int, int]]:
    """The zxids that a server holds more than once."""
    found = []
    reach = -1
    for first, last in sorted((run.first, run.last) for run, _ in server.runs):
        if first <= reach:
            found.append((first, min(last, reach)))
        reach = max(reach, last)
    return found


def _order(view: EnsembleView, server: ServerView, conflicting: list[int]) -> Iterator[Finding]:
    doubled = overlaps(server)
    for first, last in doubled:
        differ = any(first <= zxid <= last for zxid in conflicting)
        path, _ = server.file_of(first)
        yield Finding(
            *("A2", "conflicting-duplicates" if differ else "duplicate-records"),
            ERROR if differ and last > server.base_zxid else WARNING if differ else NOTE,
            view.name,
            "its logs hold different records under one zxid"
            if differ
            else "its logs hold the same records twice",
            advice_of("", server.name, others_of(view, server.name)) if differ else _NO_ACTION,
            server=server.name,
            file=path,
            first_zxid=first,
            last_zxid=last,
        )
    reach = -1
    for run, log in server.runs:
        if run.last < reach and not any(a <= run.first <= b for a, b in doubled):
            yield Finding(
                *("A2", "records-out-of-order", WARNING, view.name),
                f"records up to {format_zxid(reach)} lie before {format_zxid(run.first)}",
                advice_of("", server.name, others_of(view, server.name)),
                server=server.name,
                file=log.path,
                offset=run.start,
                first_zxid=run.first,
                last_zxid=run.last,
            )
        reach = max(reach, run.last)


# -- A4 and A8 -------------------------------------------------------------------------------------


def snapshot_validity(view: EnsembleView) -> Iterator[Finding]:
    """A4: snapshots that cannot be read in full, and files that were never finished."""
    for server in view.servers:
        newest = server.snapshots[-1] if server.snapshots else None
        for snapshot in server.snapshots:
            if snapshot.is_valid or snapshot.error:
                continue
            is_growing = view.is_live and snapshot is newest
            kind = "snapshot-empty" if snapshot.size == 0 else "snapshot-damaged"
            yield Finding(
                *("A4", kind, NOTE if is_growing else WARNING, view.name),
                snapshot.reason
                + ("; the server may be writing it right now" if is_growing else ""),
                "Keep it as evidence, out of version-2: purge counts it as a good one. Then make "
                "sure that the server takes a whole snapshot.",
                "A crash or a full disk while it was written, or a power cut before it was durable",
                server=server.name,
                file=snapshot.path,
                offset=snapshot.offset,
                first_zxid=snapshot.zxid,
            )
        for path in server.temporaries:
            yield Finding(
                *("A4", "temporary-file", NOTE, view.name, "a file that was never finished"),
                _NO_ACTION,
                server=server.name,
                file=path,
            )


def recovery_paths(view: EnsembleView) -> Iterator[Finding]:
    """A8: whether a start finds a base, and whether purge would take it away."""
    for server in view.servers:
        reason = None if server.is_partial else refusal(view, server)
        if server.base is None and server.spans and not server.begins_empty and reason:
            yield Finding(
                *("A8", "no-valid-snapshot", ERROR, view.name),
                f"{_count(len(server.snapshots), 'snapshot')}, none of which can be read, and the "
                f"logs begin at {format_zxid(server.spans[0][0])}: the server does not start, or "
                "with snapshot.trust.empty only, and then without what was before",
                advice_of("no-valid-snapshot", server.name, others_of(view, server.name)),
                cause_of("no-valid-snapshot"),
                server=server.name,
                file=server.snapshots[-1].path if server.snapshots else None,
                last_zxid=server.spans[0][0] - 1,
            )
        if server.base is None or len(server.snapshots) <= _KEPT_SNAPSHOTS:
            continue
        if server.base not in server.snapshots[-_KEPT_SNAPSHOTS:]:
            yield Finding(
                *("A8", "purge-would-delete-base", WARNING, view.name),
                f"the newest {_KEPT_SNAPSHOTS} snapshots cannot be read; purge would keep them and "
                "delete the last good one",
                "Stop purge on this server and move the unreadable snapshots out of version-2.",
                cause_of("no-valid-snapshot"),
                server=server.name,
                file=server.base.path,
                first_zxid=server.base.zxid,
            )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- A9 --------------------------------------------------------------------------------------------


def epoch_files(view: EnsembleView) -> Iterator[Finding]:
    """A9: accepted is at least current, which is at least the epoch of the last zxid."""
    expects = any(
        s.epochs.current is not None or s.epochs.accepted is not None for s in view.servers
    )
    for server in view.servers:
        epochs = server.epochs
        for name, value in (("acceptedEpoch", epochs.accepted), ("currentEpoch", epochs.current)):
            if value == -1:
                yield _epoch(view, server, "epoch-unreadable", f"{name} holds no number")
            elif value is None and expects and server.head >= 0:
                yield _epoch(view, server, "epoch-missing", f"{name} is missing")
        accepted, current = epochs.accepted, epochs.current
        head = 0 if server.head < 0 else epoch_of(server.head)
        if accepted not in (None, -1) and current not in (None, -1):
            if (accepted or 0) < (current or 0):
                text = f"the accepted epoch {accepted} is below the current epoch {current}"
                yield _epoch(view, server, "epoch-order", text)
            if head > (current or 0) and not (server.is_managed and head <= (accepted or 0)):
                text = (
                    f"the history reaches {format_zxid(server.head)}, beyond the current epoch "
                    f"{current}"
                )
                yield _epoch(view, server, "epoch-order", text)
        for path in epochs.leftovers:
            yield Finding(
                *("A9", "epoch-leftover", NOTE, view.name, "left over from a change of epoch"),
                _NO_ACTION,
                server=server.name,
                file=path,
            )


def _epoch(view: EnsembleView, server: ServerView, kind: str, text: str) -> Finding:
    return Finding(
        *("A9", kind, ERROR, view.name, text),
        f"Do not write the number by hand: a promise that is forgotten lets two leaders in. Start "
        f"server {server.name} empty and let the leader fill it.",
        "A change by hand, a restored backup of single files, or a lost write",
        server=server.name,
        last_zxid=server.head if server.head >= 0 else None,
    )


# -- A11 -------------------------------------------------------------------------------------------


def order_on_disk(view: EnsembleView, agreement: Agreement) -> Iterator[Finding]:
    """A11: the base was written after a log whose records, of a later epoch, it does not have."""
    for server in view.servers:
        base = server.base
        if base is None:
            continue
        for run, log in server.runs:
            is_later = run.first > base.zxid and epoch_of(run.first) > epoch_of(base.zxid)
            if not is_later or log.mtime + _MTIME_SLACK_SECONDS >= base.mtime:
                continue
            standing = _standing_of(agreement, run.first)
            is_alone = len(view.servers) == 1
            if standing is IntervalStanding.AGREED and not is_alone:
                continue
            is_wrong = standing in (IntervalStanding.STALE, IntervalStanding.DOUBTFUL)
            yield Finding(
                *("A11", "log-older-than-snapshot", ERROR if is_wrong else NOTE, view.name),
                f"{base.path} was written after this log, and without its records: they may never "
                "have been committed",
                advice_of("stale-record-after-snap", server.name, others_of(view, server.name)),
                cause_of("stale-record-after-snap"),
                server=server.name,
                file=log.path,
                offset=run.start,
                first_zxid=run.first,
                last_zxid=run.last,
            )


def _standing_of(agreement: Agreement, zxid: int) -> IntervalStanding | None:
    for interval in agreement.intervals:
        if interval.first <= zxid <= interval.last:
            return interval.standing
    return None
