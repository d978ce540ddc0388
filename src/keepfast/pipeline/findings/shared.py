"""Checks of the servers against each other: A2 holes, A3, A5, A6, A7, A10, A12, A13 and A14."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keepfast.pipeline.agreement.committed import Agreement, Interval, IntervalStanding
from keepfast.pipeline.agreement.electorate import membership_of, quorums_of
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.advice import advice_of, cause_of
from keepfast.pipeline.findings.divergence import is_waiting, names_of, range_of
from keepfast.pipeline.findings.document import Finding
from keepfast.pipeline.findings.local import ERROR, NOTE, WARNING, others_of
from keepfast.pipeline.replay.plan import (
    ReplayOutcome,
)
from keepfast.quorum import Membership
from keepfast.wire import epoch_of, format_zxid

_NO_ACTION = "Nothing has to be done."


def agreement_notes(view: EnsembleView, agreement: Agreement) -> Iterator[Finding]:
    """A3, A14 and A2: what is legal and worth knowing."""
    for interval in agreement.intervals:
        if interval.standing in (IntervalStanding.AGREED, IntervalStanding.BURIED):
            continue
        for name in sorted(interval.holders):
            yield from _legal(view, interval, view.server(name))
    for gap in agreement.missing:
        if gap.is_in_force and gap.is_known:
            yield Finding(
                *("A14", "lacks-committed", ERROR, view.name),
                f"it lacks the committed {range_of(gap.first, gap.last)} and continues after that",
                advice_of("lost-snapshot-gap", gap.server, others_of(view, gap.server)),
                server=gap.server,
                first_zxid=gap.first,
                last_zxid=gap.last,
            )
        elif not gap.is_in_force:
            yield Finding(
                *("A2", "explained-gap", NOTE, view.name),
                f"its logs lack {range_of(gap.first, gap.last)}; a later snapshot has the effects",
                _NO_ACTION + " The server was caught up by SNAP.",
                server=gap.server,
                first_zxid=gap.first,
                last_zxid=gap.last,
            )
    committed = agreement.committed
    for server in view.servers:
        head = agreement.heads.get(server.name, -1)
        if committed is not None and 0 <= head < committed:
            yield Finding(
                *("A14", "behind", NOTE, view.name),
                f"it ends at {format_zxid(head)}; a majority holds {format_zxid(committed)}",
                "Nothing, if the server is stopped: it catches up when it starts.",
                server=server.name,
                first_zxid=head + 1,
                last_zxid=committed,
            )


def buried_records(
    view: EnsembleView, agreement: Agreement, outcome: ReplayOutcome
) -> Iterator[Finding]:
    """A14: what was committed and is lost, because damage ends every log that holds it."""
    buried = agreement.of(IntervalStanding.BURIED)
    if not buried:
        return
    holders = frozenset().union(*(interval.holders for interval in buried))
    first, last = buried[0].first, buried[-1].last
    # The damaged record before them went the same way.
    hidden = [m.first for m in agreement.missing if m.server in holders and m.after == first]
    is_one = len(holders) == 1
    unread = f", and {range_of(min(hidden), first - 1)} cannot be read any more" if hidden else ""
    first = min([first, *hidden])
    yield Finding(
        *("A14", "committed-lost", ERROR, view.name),
        f"{range_of(first, last)} were committed; damage ends the log before them on "
        f"{names_of(holders)}, which {'has' if is_one else 'have'} gone on without them, and no "
        f"other server has them{unread}: what they wrote is lost, on all servers alike",
        "Copy the logs before they are purged: what lies after the damage can be read with "
        "keepfast inspect, and written again by hand after a look at what was written since.",
        cause_of("committed-lost"),
        file=view.server(min(holders)).file_of(buried[0].first)[0],
        first_zxid=first,
        last_zxid=last,
        paths=outcome.buried_paths,
    )


def latent_differences(view: EnsembleView, agreement: Agreement) -> Iterator[Finding]:
    """A3: records that are not the others', below a snapshot: `Divergence` has the later ones."""
    for server in view.servers:
        latent = [
            conflict
            for conflict in agreement.conflicts
            if server.name in conflict.wrong and conflict.zxid <= server.base_zxid
        ]
        if not latent:
            continue
        zxid = latent[0].zxid
        more = f", and {len(latent) - 1} more are not either" if latent[1:] else ""
        path, offset = server.file_of(zxid)
        yield Finding(
            *("A3", "different-records", WARNING, view.name),
            f"its record {format_zxid(zxid)} is not the one that other servers have{more}; a start "
            "does not replay it, as a later snapshot has its effects",
            advice_of("different-records", server.name, others_of(view, server.name)),
            cause_of("different-records"),
            server=server.name,
            file=path,
            offset=offset,
            first_zxid=zxid,
            last_zxid=latent[-1].zxid,
        )


def _legal(view: EnsembleView, interval: Interval, server: ServerView) -> Iterator[Finding]:
    text = range_of(interval.first, interval.last)
    if interval.standing is IntervalStanding.TAIL or is_waiting(server, interval):
        yield Finding(
            *("A3", "uncommitted-tail", NOTE, view.name),
            f"{text} at the end of its log is on a minority: perhaps not committed",
            "Nothing: it is committed or cut when the server joins again.",
            server=server.name,
            first_zxid=interval.first,
            last_zxid=interval.last,
        )
    elif interval.last <= server.base_zxid:
        yield Finding(
            *("A3", "latent-uncommitted", NOTE, view.name),
            f"{text} was never committed; it lies below the newest snapshot and is not replayed",
            "Harmless as long as this snapshot is whole, and unless this log is sent to others: "
            "when there is time, start the server empty once.",
            server=server.name,
            first_zxid=interval.first,
            last_zxid=interval.last,
        )


# -- A5, A7 ----------------------------------------------------------------------------------------


def snapshot_conflicts(view: EnsembleView, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A5: snapshots that are not what the records make."""
    for conflict in outcome.snapshot_conflicts:
        server = view.server(conflict.server)
        is_base = server.base is not None and server.base.path == conflict.path
        noun = "znode is" if len(conflict.paths) == 1 else "znodes are"
        text = f"{len(conflict.paths)} {noun} not as the records make them"
        if not conflict.is_certain:
            text = (
                f"it and the other snapshots contradict each other in {len(conflict.paths)} znodes"
            )
        yield Finding(
            *("A5", "snapshot-contradicts-log", ERROR if is_base else WARNING, view.name, text),
            advice_of("wrong-snapshot", conflict.server, others_of(view, conflict.server)),
            cause_of("wrong-snapshot"),
            server=conflict.server,
            file=conflict.path,
            first_zxid=conflict.zxid,
            paths=conflict.paths,
        )
    if outcome.uneven_snapshots:
        yield Finding(
            *("A5", "uneven-stat", NOTE, view.name),
            f"cversion or pzxid are uneven in {len(outcome.uneven_snapshots)} snapshots, "
            "as Apache leaves them after a fuzzy one",
            _NO_ACTION,
            file=outcome.uneven_snapshots[0],
        )


def stated_digests(view: EnsembleView, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A7: the digests that snapshots state."""
    for wrong in outcome.wrong_digests:
        yield Finding(
            *("A7", "snapshot-digest-wrong", WARNING, view.name),
            f"it states the tree digest {wrong.stated:#x} for {format_zxid(wrong.at)}, where the "
            f"records make {wrong.right:#x}; its znodes are right",
            advice_of("wrong-snapshot", wrong.server, others_of(view, wrong.server)),
            cause_of("record-damaged"),
            server=wrong.server,
            file=wrong.path,
            first_zxid=wrong.at,
            last_zxid=wrong.at,
        )


def digests(view: EnsembleView, agreement: Agreement, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A7: digests in the records against the tree, and against each other."""
    for conflict in agreement.digest_conflicts:
        for name in sorted(conflict.wrong):
            path, offset = view.server(name).file_of(conflict.zxid)
            yield Finding(
                *("A7", "digest-differs", WARNING, view.name),
                "its record states another tree digest than the others' record",
                advice_of("record-damaged", name, others_of(view, name)),
                cause_of("record-damaged"),
                server=name,
                file=path,
                offset=offset,
                first_zxid=conflict.zxid,
                last_zxid=conflict.zxid,
            )
    trouble = outcome.digests
    if trouble is None:
        return
    is_shared = len(view.servers) > 1
    text = f"{trouble.count} digests in the records are not those of the tree"
    text += "; all servers share them" if is_shared else ""
    text += "; a later one is right again" if trouble.is_settled else ""
    yield Finding(
        *("A7", "digest-mismatch", NOTE if is_shared or trouble.is_settled else WARNING),
        view.name,
        text,
        "Nothing: Apache logs such digests in healthy runs too."
        if is_shared
        else "Audit this server together with the others of its ensemble.",
        first_zxid=trouble.first,
        last_zxid=trouble.last,
    )


# -- A10, A12, A13 ---------------------------------------------------------------------------------


def forgotten_sessions(view: EnsembleView, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A10: sessions from a history that is gone, in snapshots older than all that is there."""
    for one in outcome.forgotten:
        yield Finding(
            *("A10", "history-forgotten", WARNING, view.name),
            f"a snapshot from before the first record holds {_sessions(one.sessions)}, which no "
            f"record began: epoch {epoch_of(one.zxid):#x} had another history before this one",
            advice_of("history-forgotten", one.server, others_of(view, one.server)),
            cause_of("history-forgotten"),
            server=one.server,
            file=one.path,
            first_zxid=one.zxid + 1,
        )


_TABLES = {
    "missing": "lacks {}, open then by the records: a server that leads with it answers those "
    "clients that they have expired",
    "ended": "holds {}, ended before by the records",
    "timeout": "has another timeout than the records for {}",
    "unknown": "holds {}, which no record began and most others do not know; Apache keeps such "
    "after a TRUNC",
}


def session_tables(view: EnsembleView, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A10: the tables of sessions in snapshots."""
    for one in outcome.session_tables:
        is_note = one.doubt == "unknown"
        names = _sessions(one.sessions, one.count)
        yield Finding(
            *("A10", f"session-{one.doubt}", NOTE if is_note else WARNING, view.name),
            f"its table of sessions {_TABLES[one.doubt].format(names)}",
            f"{_NO_ACTION} It ends by itself."
            if is_note
            else advice_of("wrong-snapshot", one.server, others_of(view, one.server)),
            "" if is_note else cause_of("wrong-snapshot"),
            server=one.server,
            file=one.path,
            first_zxid=one.zxid,
        )


def _sessions(ids: Iterable[int], count: int = 0) -> str:
    names = sorted({f"{id & ((1 << 64) - 1):#x}" for id in ids})
    count = max(count, len(names))
    shown = ", ".join(names[:5]) + (", ..." if count > 5 else "")
    return f"session {shown}" if count == 1 else f"{count} sessions ({shown})"


def tree_checks(view: EnsembleView, outcome: ReplayOutcome) -> Iterator[Finding]:
    """A10 and A12 for each server's tree, and what no server could decode."""
    for server in outcome.servers:
        if server.orphans:
            owners = _sessions(session for _, session in server.orphans)
            yield Finding(
                *("A10", "orphan-ephemeral", WARNING, view.name),
                f"{len(server.orphans)} ephemeral znodes belong to {owners}, not there any more",
                "Delete them by hand after a look at who made them: no session end will.",
                server=server.name,
                paths=tuple(path for path, _ in server.orphans),
            )
        for kind in sorted({kind for kind, _, _ in server.form}):
            of_kind = [(path, text) for one, path, text in server.form if one == kind]
            yield Finding(
                *("A12", kind, WARNING, view.name, f"{of_kind[0][0]}: {of_kind[0][1]}"),
                advice_of("wrong-snapshot", server.name, others_of(view, server.name)),
                server=server.name,
                paths=tuple(path for path, _ in of_kind),
            )
        if server.uneven:
            yield Finding(
                *("A12", "uneven-stat", NOTE, view.name),
                f"cversion or pzxid of {len(server.uneven)} znodes are not those of the others",
                _NO_ACTION,
                server=server.name,
            )
        for path, offset, zxid in server.undecodable:
            yield Finding(
                *("A1", "record-undecodable", ERROR, view.name),
                "its checksum is right, but it is no transaction",
                advice_of("record-damaged", server.name, others_of(view, server.name)),
                cause_of("record-damaged"),
                server=server.name,
                file=path,
                offset=offset,
                first_zxid=zxid,
                last_zxid=zxid,
            )


def configuration(
    view: EnsembleView, agreement: Agreement, outcome: ReplayOutcome
) -> Iterator[Finding]:
    """A13: the membership as each server has it."""
    found = {s.name: membership_of(s.membership) for s in outcome.servers}
    known = {name: membership for name, membership in found.items() if membership is not None}
    versions = {name: membership.version for name, membership in known.items()}
    newest = max(versions.values(), default=0)
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, membership in known.items():
        if versions[name] == newest:
            groups.setdefault(quorums_of(membership), []).append(name)
        elif agreement.heads.get(name, -1) >= newest:
            yield Finding(
                *("A13", "membership-old", WARNING, view.name),
                f"its membership is of version {versions[name]:#x}, the others' of {newest:#x}",
                "Restart the server with the configuration file that the others have.",
                server=name,
            )
    if len(groups) < 2:
        return
    ordered = sorted(groups.values(), key=lambda names: (-len(names), names))
    for names in ordered[1:]:
        for name in names:
            yield Finding(
                *("A13", "membership-differs", WARNING, view.name),
                f"it counts {_members(known[name])} as members with their roles; "
                f"{', '.join(ordered[0])} count {_members(known[ordered[0][0]])}",
                "Give all servers the same configuration: two memberships have two majorities.",
                server=name,
            )


def _members(membership: Membership) -> str:
    """The members in words: observers are marked, and so are groups and weights, if there are."""
    in_group = {id: group for group, ids in membership.groups for id in ids}
    words = []
    for member in membership.members:
        id = member.server_id
        if id in membership.observers:
            words.append(f"{id} (observer)")
        elif id in in_group:
            words.append(f"{id} (group {in_group[id]}, weight {membership.weight(id)})")
        else:
            words.append(str(id))
    return ", ".join(words)


def roles(view: EnsembleView) -> Iterator[Finding]:
    """A13: what is not known about who votes."""
    if view.electorate.note and len(view.servers) > 1:
        yield Finding(
            *("A13", "roles-unknown", NOTE, view.name, view.electorate.note),
            "Nothing, if there are no observers. If there are, put zoo.cfg and myid beside the "
            "version-2 of each server: an observer's word then counts for nothing in a majority.",
        )
