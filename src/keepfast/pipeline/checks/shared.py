"""Checks of the servers against each other: A2 holes, A3, A5, A6, A7, A10, A12, A13 and A14."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keepfast.pipeline.checks.agreement import Agreement, Interval, Missing, Standing
from keepfast.pipeline.checks.local import ERROR, NOTE, WARNING, others_of
from keepfast.pipeline.checks.plan import ReplayOutcome, ServerOutcome, refusal
from keepfast.pipeline.checks.view import EnsembleView, ServerView
from keepfast.pipeline.checks.words import advice_of, cause_of
from keepfast.pipeline.electorate import membership_of, quorums_of
from keepfast.pipeline.facts import LogFacts
from keepfast.pipeline.findings import Finding
from keepfast.quorum import Membership
from keepfast.wire import epoch_of, format_zxid

_NO_ACTION = "Nothing has to be done."


def _range(first: int, last: int) -> str:
    return format_zxid(first) if first == last else f"{format_zxid(first)} to {format_zxid(last)}"


# -- divergence: A2, A3, A6, A14 -------------------------------------------------------------------


class Divergence:
    """Why the state of one server is another one, as its files and its peers' tell."""

    def __init__(
        self,
        view: EnsembleView,
        agreement: Agreement,
        server: ServerView,
        outcome: ServerOutcome,
        wrong_bases: set[str],
    ) -> None:
        self.view = view
        self.agreement = agreement
        self.server = server
        self.outcome = outcome
        self.holes = [m for m in agreement.missing if m.server == server.name and m.is_in_force]
        self.stale = [
            interval
            for interval in agreement.intervals
            if interval.standing in (Standing.STALE, Standing.DOUBTFUL)
            and server.name in interval.holders
            and self._is_in_force(interval)
        ]
        self.conflicts = [
            c for c in agreement.conflicts if server.name in c.wrong and c.zxid > server.base_zxid
        ]
        self.has_wrong_base = server.base is not None and server.base.path in wrong_bases

    def _is_in_force(self, interval: Interval) -> bool:
        """Whether the records come back at a start, or are in the base already."""
        server = self.server
        if any(interval.first <= zxid <= interval.last for zxid in self.outcome.writers):
            return True
        return interval.last > server.base_zxid and not is_waiting(server, interval)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to say; that a server has no base at all is said by A8."""
        if self.server.base is None and refusal(self.view, self.server) is not None:
            return bool(self.conflicts or self.stale)
        return bool(self.outcome.paths or self.holes or self.stale or self.conflicts)

    def finding(self) -> Finding:
        """What happened to this server."""
        check, kind, evidence = self._kind()
        paths = self.outcome.paths
        first = self._first()
        lasts = [m.last for m in self.holes] + [i.last for i in self.stale]
        lasts += [c.zxid for c in self.conflicts]
        if paths:
            noun = "znode differs" if len(paths) == 1 else "znodes differ"
            evidence += f"; {len(paths)} {noun} from the agreed state"
        file, offset = self.server.file_of(first) if first is not None else (None, None)
        if file is None and self.holes:
            file, offset = self.server.file_of(self.holes[0].after)
        if kind == "wrong-snapshot" and self.server.base is not None:
            file, offset = self.server.base.path, None
        doubtful = any(self._is_open(interval) for interval in self.stale)
        serves = refusal(self.view, self.server) is None and not self.server.is_managed
        return Finding(
            *(check, kind, ERROR, self.view.name, evidence),
            advice_of("doubtful" if doubtful else kind, self.server.name, self._believed()),
            cause_of(self._cause(kind)),
            server=self.server.name,
            file=file,
            offset=offset,
            first_zxid=first,
            last_zxid=max([*lasts, first], default=first) if first is not None else None,
            paths=paths,
            is_divergence=serves and bool(paths or self.stale or self.conflicts),
        )

    def _first(self) -> int | None:
        """The first zxid at which the history of this server is another one.

        Of what it lacks, the first that made a difference: sessions that came and went make none.
        """
        touching = self.outcome.first_divergent
        if touching is not None:
            found = [touching]
        else:
            found = [m.first for m in self.holes if m.is_known] or [m.first for m in self.holes]
        found += [i.first for i in self.stale] + [c.zxid for c in self.conflicts]
        return min(found, default=min(self.outcome.writers, default=None))

    def _believed(self) -> list[str]:
        bad = {m.server for m in self.agreement.missing if m.is_in_force}
        bad |= {n for i in self.agreement.of(Standing.STALE) for n in i.holders}
        others = others_of(self.view, self.server.name)
        return [name for name in others if name not in bad] or others

    def _kind(self) -> tuple[str, str, str]:
        """Check, kind and evidence."""
        if self.holes:
            return self._kind_of_hole()
        if self.stale:
            return "A3", *self._kind_of_stale()
        if self.conflicts:
            zxid = self.conflicts[0].zxid
            text = f"its record {format_zxid(zxid)} is not the one that most servers have"
            return "A3", "different-records", text
        if self.has_wrong_base and self.server.base is not None:
            text = f"{self.server.base.path} is not what the records make"
            if self._stale_base():
                text = (
                    f"{self.server.base.path} is the tree at {format_zxid(self.server.base.zxid)}, "
                    "which was never committed, and its log does not hold"
                )
            return "A6", "wrong-snapshot", text
        if any(not bad.is_torn for log in self.server.logs for bad in log.bad):
            return "A6", "record-damaged", "damage in its logs hides records"
        return "A6", "state-differs", "its records agree with the others', its state does not"

    def _cause(self, kind: str) -> str:
        """What of the ways to a kind of failure its files tell of, as a key of `CAUSES`."""
        if self._stale_base():
            return "snapshot-of-stale"
        if kind == "stale-record-after-trunc" and not self._is_cut_behind(self.stale[0]):
            return "trunc-lost"
        if kind == "lost-snapshot-gap":
            hole = self.holes[0]
            # A log is named by the record that it is begun for, before that is written.
            if any(log.zxid == hole.first < _first_of(log) for log in self.server.logs):
                return "record-refused"
            if hole.before == self.server.base_zxid and hole.after == self.server.first:
                return "logs-purged"
        return kind

    def _stale_base(self) -> bool:
        """Whether the snapshot is of a zxid that the others passed over, and nobody's log holds."""
        base = self.server.base
        if not self.has_wrong_base or base is None or self.holes or self.stale or self.conflicts:
            return False
        agreed = self.agreement.agreed
        is_held = any(first <= base.zxid <= last for first, last in agreed)
        is_passed_over = any(
            last < base.zxid and epoch_of(last) == epoch_of(base.zxid) for _, last in agreed
        ) and any(epoch_of(first) > epoch_of(base.zxid) for first, _ in agreed)
        return is_passed_over and not is_held

    def _is_open(self, interval: Interval) -> bool:
        """Whether nothing decides if a record was committed: neither votes nor the states."""
        is_told_by_states = self.has_wrong_base and bool(self.outcome.paths)
        return interval.standing is Standing.DOUBTFUL and not is_told_by_states

    def _kind_of_hole(self) -> tuple[str, str, str]:
        hole = self.holes[0]
        lost = ", ".join(_range(m.first, m.last) for m in self.holes[:4])
        if hole.before == 0 and self.server.base is None:
            lost += " are"
            text = (
                f"no snapshot can be read and the logs begin at {format_zxid(hole.after)}: "
                f"{lost} missing"
            )
            return "A2", "missing-prefix", text
        is_one = len(self.holes) == 1 and hole.first == hole.last
        begin = max(hole.before, self.server.base_zxid) + 1
        if len(self.holes) == 1 and begin < hole.first and epoch_of(begin) == epoch_of(hole.after):
            # The first of them are on no server any more.
            lost, is_one = _range(begin, hole.after - 1), False
        lost += " is" if is_one else " are"
        text = f"hole between {format_zxid(hole.before)} and {format_zxid(hole.after)}: {lost}"
        rotten = [s.path for s in self.server.snapshots if not s.is_valid and hole.first <= s.zxid]
        source = None if rotten else self._source_of(hole)
        if source is not None:
            # A latent one, below the base, came from elsewhere and did nothing.
            came_along = [i for i in self.stale if source in i.holders]
            if any(i.first <= hole.before <= i.last for i in came_along):
                text = (
                    f"{format_zxid(hole.before)} was never committed, and {lost} missing; "
                    f"server {source} has the same record and hole, harmless there under a snapshot"
                )
                return "A3", "stale-record-served-as-committed", text
            text += f" missing; server {source} has the same hole under a snapshot"
            return "A2", "gap-served-as-diff", text
        if any(not b.is_torn for log in self.server.logs for b in log.bad):
            return "A1", "record-damaged", f"{text} hidden by damage"
        if rotten:
            text += f" missing, and {rotten[0]} that held their effects cannot be read"
        else:
            text += f" missing, and no snapshot holds {'its' if is_one else 'their'} effects"
        return "A2", "lost-snapshot-gap", text

    def _source_of(self, hole: Missing) -> str | None:
        """The server whose logs lack the same up to the same record, made up for by a snapshot."""
        for other in self.agreement.missing:
            is_same = other.after == hole.after and other.last == hole.last
            if is_same and other.first <= hole.first and not other.is_in_force:
                return other.server
        return None

    def _kind_of_stale(self) -> tuple[str, str]:
        interval = self.stale[0]
        text = f"{_range(interval.first, interval.last)} was never committed"
        if self._is_open(interval):
            text = (
                f"server {', '.join(sorted(interval.holders))} has "
                f"{_range(interval.first, interval.last)}, server "
                f"{', '.join(sorted(interval.skippers))} passes over it: one of them is wrong"
            )
        elif interval.skippers:
            text += f": {_names(interval.skippers)} agreed on a later epoch without it"
        if self._is_cut_behind(interval):
            return "stale-record-after-trunc", f"{text}; the log was cut right behind it"
        text += "; it is replayed at a start"
        if self._has_snapshot_before(interval):
            return "stale-record-after-snap", text
        return "stale-record-after-trunc", f"{text}, and no SNAP has left a snapshot in front of it"

    def _is_cut_behind(self, interval: Interval) -> bool:
        """Whether a log ends with an interval, without the zeros that are put behind records."""
        return any(
            interval.last == run.last and run.end == log.end and not log.is_padded
            for run, log in self.server.runs
        )

    def _has_snapshot_before(self, interval: Interval) -> bool:
        """Whether a snapshot, even a rotten one, is of the last agreed zxid before an interval.

        A SNAP leaves one there, or the interval would not be replayed behind it.
        """
        before = (last for _, last in self.agreement.agreed if last < interval.first)
        fork = max(before, default=0)
        return any(fork <= s.zxid < interval.first for s in self.server.snapshots)


def _first_of(log: LogFacts) -> int:
    return min((run.first for run in log.runs), default=0)


def _names(servers: frozenset[str]) -> str:
    return ("server " if len(servers) == 1 else "servers ") + ", ".join(sorted(servers))


def is_waiting(server: ServerView, interval: Interval) -> bool:
    """Whether a server stopped right behind an interval and has not been back since.

    What it holds too much is cut when it joins again.
    """
    newer = any(s.zxid > interval.last for s in server.snapshots)
    beyond = any(last > interval.last for _, last in server.spans)
    current = server.epochs.current
    rejoined = current is not None and current > epoch_of(interval.last)
    return not (newer or beyond or rejoined)


def agreement_notes(view: EnsembleView, agreement: Agreement) -> Iterator[Finding]:
    """A3, A14 and A2: what is legal and worth knowing."""
    for interval in agreement.intervals:
        if interval.standing in (Standing.AGREED, Standing.BURIED):
            continue
        for name in sorted(interval.holders):
            yield from _legal(view, interval, view.server(name))
    for gap in agreement.missing:
        if gap.is_in_force and gap.is_known:
            yield Finding(
                *("A14", "lacks-committed", ERROR, view.name),
                f"a majority agreed on {_range(gap.first, gap.last)}; this server goes on behind "
                "it without having it",
                advice_of("lost-snapshot-gap", gap.server, others_of(view, gap.server)),
                server=gap.server,
                first_zxid=gap.first,
                last_zxid=gap.last,
            )
        elif not gap.is_in_force:
            yield Finding(
                *("A2", "explained-gap", NOTE, view.name),
                f"{_range(gap.first, gap.last)} are not in its logs; a later snapshot has their "
                "effects",
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
    """A14: what was agreed on and is lost, because damage ends every log that holds it."""
    buried = agreement.of(Standing.BURIED)
    if not buried:
        return
    holders = frozenset().union(*(interval.holders for interval in buried))
    first, last = buried[0].first, buried[-1].last
    # The damaged record in front of them went the same way.
    hidden = [m.first for m in agreement.missing if m.server in holders and m.after == first]
    is_one = len(holders) == 1
    unread = f", and {_range(min(hidden), first - 1)} cannot be read any more" if hidden else ""
    first = min([first, *hidden])
    yield Finding(
        *("A14", "committed-lost", ERROR, view.name),
        f"{_range(first, last)} were agreed on; damage ends the log in front of them on "
        f"{_names(holders)}, which {'has' if is_one else 'have'} gone on without them, and no "
        f"other server has them{unread}: what they wrote is lost, on all servers alike",
        "Copy the logs before they are purged: what lies behind the damage can be read with "
        "keepfast inspect, and written again by hand after a look at what was written since.",
        cause_of("committed-lost"),
        file=view.server(min(holders)).file_of(buried[0].first)[0],
        first_zxid=first,
        last_zxid=last,
        paths=outcome.buried_paths,
    )


def _legal(view: EnsembleView, interval: Interval, server: ServerView) -> Iterator[Finding]:
    text = _range(interval.first, interval.last)
    if interval.standing is Standing.TAIL or is_waiting(server, interval):
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
            f"cversion, pzxid or sessions are uneven in {len(outcome.uneven_snapshots)} snapshots, "
            "as Apache leaves them behind a fuzzy one",
            _NO_ACTION,
            file=outcome.uneven_snapshots[0],
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


def _sessions(ids: Iterable[int]) -> str:
    names = sorted({f"{id & ((1 << 64) - 1):#x}" for id in ids})
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"session {shown}" if len(names) == 1 else f"{len(names)} sessions ({shown})"


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
