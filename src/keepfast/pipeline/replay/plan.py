"""What the replay of one ensemble needs to know, and what it gives back: values for the wire.

An executor that replays gets a plan and the paths of files; it does not judge.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

from keepfast.pipeline.agreement.committed import Agreement, IntervalStanding, Missing
from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.agreement.view import EnsembleView, ServerView
from keepfast.pipeline.findings.document import TreeDiff
from keepfast.pipeline.scan.facts import RecordRun, SnapshotFacts
from keepfast.tree import DIGEST_VERSION
from keepfast.wire import follows_in_epoch


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of the agreed history and where they can be read."""

    first: int
    last: int
    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StatedDigest:
    """The tree digest that a snapshot states; `is_own`: it is that of its znodes, at its zxid."""

    zxid: int
    digest: int
    version: int
    is_own: bool


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """A sound snapshot."""

    server: str
    path: str
    zxid: int
    fuzzy_until: int
    state: int | None = None  # what its znodes add up to, as `path_states` sums it
    sessions: tuple[int, ...] = ()  # of one at the start of an epoch
    config: str = ""  # the text that names the members, of a base
    starts: tuple[int, ...] = ()  # where its parts begin, if it is read in several
    znodes: int = 0
    stated: StatedDigest | None = None


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A log as a server reads it: the runs, up to the first bytes that end it."""

    path: str
    last: int
    stop: int  # bytes from this offset on are not read
    reach: int  # the greatest zxid before them


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """One server: what it would serve, and up to where that can be compared."""

    name: str
    head: int  # the last agreed zxid that it has
    serves: bool  # it would come up on these files
    base: SnapshotPlan | None
    logs: tuple[LogPlan, ...]
    # Ranges to look through for the first record that made a difference.
    missing: tuple[Piece, ...] = ()
    extra: tuple[Piece, ...] = ()
    # Agreed records that it lacks below its base: they count only if the base lacks them too.
    latent: tuple[Piece, ...] = ()
    is_suspect: bool = False  # something is off with it: replay it by itself


@dataclass(frozen=True, slots=True)
class LoneJoin:
    """A change of epoch that one server alone shows, after a record that a quorum still holds.

    Whatever was committed between the two was logged by one of those that hold the record before
    it, since two quorums share a server. So `between`, what any server holds there, is all that a
    tree which passed this place may lack.
    """

    before: int
    after: int
    between: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """One ensemble."""

    ensemble: str
    servers: tuple[ServerPlan, ...]
    snapshots: tuple[SnapshotPlan, ...]  # of all servers, by zxid
    history: tuple[Piece, ...]  # in order
    joins: tuple[tuple[int, int], ...]  # changes of epoch that two or more servers show
    starts_empty: bool  # the history begins with its first record
    records: int
    electorate: Electorate
    lists_ephemerals: bool = True  # records that end sessions do so: 3.6 and later
    buried: tuple[Piece, ...] = ()
    lone_joins: tuple[LoneJoin, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotConflict:
    """A snapshot that is not what the history makes."""

    server: str
    path: str
    zxid: int
    paths: tuple[str, ...]
    is_certain: bool  # the history has more after it than the snapshot


@dataclass(frozen=True, slots=True)
class ForgottenSessions:
    """Sessions in a snapshot that lies before all records, and that no record began."""

    server: str
    path: str
    zxid: int
    sessions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DigestTrouble:
    """Digests in the records that are not those of the tree."""

    first: int
    last: int
    count: int
    is_settled: bool  # a later digest was right


@dataclass(frozen=True, slots=True)
class ServerOutcome:
    """What the replay found about one server."""

    name: str
    compared_at: int | None = None  # None: its state could not be compared
    paths: tuple[str, ...] = ()  # znodes that differ from the agreed state
    first_divergent: int | None = None
    # Of records that it lacks or has too much: the first of each range that touches those znodes.
    touching: tuple[int, ...] = ()
    writers: tuple[int, ...] = ()  # zxids that made the differing znodes what they are here
    uneven: tuple[str, ...] = ()
    orphans: tuple[tuple[str, int], ...] = ()
    form: tuple[tuple[str, str, str], ...] = ()  # kind, path, text
    membership: str = ""
    undecodable: tuple[tuple[str, int, int], ...] = ()  # path, offset, zxid


@dataclass(frozen=True, slots=True)
class WrongDigest:
    """A snapshot that states another tree digest than the history has at that zxid."""

    server: str
    path: str
    zxid: int
    at: int
    stated: int
    right: int


@dataclass(frozen=True, slots=True)
class SessionTrouble:
    """A snapshot whose table of sessions is not what the records make."""

    server: str
    path: str
    zxid: int
    doubt: str  # missing, ended, timeout or unknown
    count: int
    sessions: tuple[int, ...]  # the first ones


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What the replay of one ensemble found."""

    ensemble: str
    servers: tuple[ServerOutcome, ...] = ()
    snapshot_conflicts: tuple[SnapshotConflict, ...] = ()
    digests: DigestTrouble | None = None
    tree_diff: TreeDiff | None = None
    unchecked: tuple[str, ...] = ()
    uneven_snapshots: tuple[str, ...] = ()
    buried_paths: tuple[str, ...] = ()  # what buried records wrote
    forgotten: tuple[ForgottenSessions, ...] = ()
    replayed: int = 0
    wrong_digests: tuple[WrongDigest, ...] = ()
    session_tables: tuple[SessionTrouble, ...] = ()


# -- making a plan ---------------------------------------------------------------------------------


def plan_replay(view: EnsembleView, agreement: Agreement) -> ReplayPlan:
    """The plan for an ensemble whose records were judged."""
    wrong = {(c.zxid, name) for c in agreement.conflicts for name in c.wrong}
    history = pieces_of(view, agreement.agreed, wrong)
    snapshots = sorted(
        (
            snapshot_plan(server, snapshot)
            for server in view.servers
            for snapshot in server.snapshots
            if snapshot.is_valid
        ),
        key=lambda s: (s.zxid, s.fuzzy_until, s.server, s.path),
    )
    witnesses: dict[tuple[int, int], int] = {}
    for server in view.servers:
        for join in server.joins:
            if join.opens_epoch:
                # By the record in front, or by a snapshot of its zxid.
                key = (join.proven_from, join.after)
                witnesses[key] = witnesses.get(key, 0) + 1
    return ReplayPlan(
        view.name,
        tuple(_server_plan(view, agreement, server, wrong) for server in view.servers),
        tuple(snapshots),
        tuple(history),
        tuple(sorted(key for key, count in witnesses.items() if count > 1)),
        any(s.begins_empty and s.first == min(_firsts(view)) for s in view.servers),
        sum(piece.last - piece.first + 1 for piece in history),
        view.electorate,
        all(log.has_digests for server in view.servers for log in server.logs if log.records),
        tuple(
            pieces_of(
                view, [(i.first, i.last) for i in agreement.of(IntervalStanding.BURIED)], wrong
            )
        ),
        tuple(
            _lone_join(view, agreement, *key)
            for key, count in sorted(witnesses.items())
            if count == 1 and _is_held_by_quorum(view, key[0])
        ),
    )


def _is_held_by_quorum(view: EnsembleView, zxid: int) -> bool:
    """Whether a quorum holds a record, in logs that hide nothing of what came next."""
    holders = [
        server.name
        for server in view.servers
        if server.holds(zxid, zxid) and not server.is_partial
        if all(bad.is_torn for log in server.logs for bad in log.bad)
    ]
    return view.electorate.is_quorum(holders)


def _lone_join(view: EnsembleView, agreement: Agreement, before: int, after: int) -> LoneJoin:
    at = bisect_right(agreement.intervals, before, key=lambda interval: interval.first)
    found: list[tuple[int, int]] = []
    for interval in islice(agreement.intervals, at, None):
        if interval.first >= after:
            break
        found.append((interval.first, interval.last))
    return LoneJoin(before, after, tuple(pieces_of(view, found, set())))


def snapshot_plan(server: ServerView, snapshot: SnapshotFacts) -> SnapshotPlan:
    """What the replay knows about a snapshot."""
    return SnapshotPlan(
        server.name,
        snapshot.path,
        snapshot.zxid,
        snapshot.fuzzy_until,
        snapshot.state,
        snapshot.sessions,
        starts=snapshot.starts,
        znodes=snapshot.znodes,
        stated=_stated(snapshot),
    )


def _stated(snapshot: SnapshotFacts) -> StatedDigest | None:
    if snapshot.digest_zxid is None or snapshot.digest is None:
        return None
    is_exact = snapshot.digest_zxid == snapshot.zxid == snapshot.fuzzy_until
    is_own = is_exact and snapshot.digest == snapshot.own_digest
    version = snapshot.digest_version or DIGEST_VERSION
    return StatedDigest(snapshot.digest_zxid, snapshot.digest, version, is_own)


def digests_at(snapshots: Iterable[SnapshotPlan]) -> tuple[int, ...]:
    """The zxids at which the history has to say what the tree's digest was.

    Those for which snapshots state one that their own znodes do not prove.
    """
    return tuple(sorted({s.stated.zxid for s in snapshots if s.stated and not s.stated.is_own}))


def _firsts(view: EnsembleView) -> list[int]:
    return [server.first for server in view.servers if server.first is not None]


def pieces_of(
    view: EnsembleView, ranges: list[tuple[int, int]], wrong: set[tuple[int, str]]
) -> list[Piece]:
    """Where the records of ranges can be read, each from a server that has the right one."""
    runs = sorted(
        ((run, log.path, server.name) for server in view.servers for run, log in server.runs),
        key=lambda item: (item[0].first, item[2], item[1]),
    )
    wrong_of: dict[str, list[int]] = {}
    for zxid, name in sorted(wrong):
        wrong_of.setdefault(name, []).append(zxid)
    pieces: list[Piece] = []
    waiting = 0
    # Those that may hold the position; it only ever moves ahead, and so do they.
    near: list[tuple[RecordRun, str, str]] = []
    for first, last in ranges:
        position = first
        while position <= last:
            while waiting < len(runs) and runs[waiting][0].first <= position:
                near.append(runs[waiting])
                waiting += 1
            near = [item for item in near if item[0].last >= position]
            best: Piece | None = None
            for run, path, name in near:
                bad = wrong_of.get(name, [])
                at = bisect_left(bad, position)
                reach = min(run.last, last, bad[at] - 1 if at < len(bad) else last)
                if reach >= position and (best is None or reach > best.last):
                    best = Piece(position, reach, path, run.start, run.end)
            if best is None:
                position += 1  # under this zxid no server is right
                continue
            pieces.append(best)
            position = best.last + 1
    return pieces


def _server_plan(
    view: EnsembleView,
    agreement: Agreement,
    server: ServerView,
    wrong: set[tuple[int, str]],
) -> ServerPlan:
    base = server.base
    own = EnsembleView(view.name, (server,))
    stale = [
        (i.first, i.last)
        for i in agreement.intervals
        if server.name in i.holders
        and i.standing in (IntervalStanding.STALE, IntervalStanding.DOUBTFUL)
    ]
    mistaken = sorted((zxid, zxid) for zxid, name in wrong if name == server.name)
    gone = [m for m in agreement.missing if m.server == server.name and m.is_in_force]
    known = [(m.first, m.last) for m in gone if m.is_known]
    latent = [(m.first, m.last) for m in holes_below(server, agreement)]
    return ServerPlan(
        server.name,
        agreement.heads.get(server.name, -1),
        (refusal(view, server) is None or trusts_empty(view, server, agreement))
        and server.head >= 0
        and not server.is_partial,
        None if base is None else replace(snapshot_plan(server, base), config=base.config),
        tuple(_log_plans(server)),
        tuple(pieces_of(view, known, wrong)),
        tuple(pieces_of(own, sorted(stale + mistaken), set())),
        tuple(pieces_of(view, sorted(latent), wrong)),
        bool(gone or stale or mistaken or any(log.bad for log in server.logs))
        or server.is_disordered
        or (base is not None and base.is_odd),
    )


def _log_plans(server: ServerView) -> list[LogPlan]:
    plans = []
    for log in server.logs:
        if log.runs:
            stop = min((bad.offset for bad in log.bad), default=log.end)
            reach = max((run.last for run in log.runs if run.start < stop), default=0)
            plans.append(LogPlan(log.path, max(run.last for run in log.runs), stop, reach))
    return plans


def refusal(view: EnsembleView, server: ServerView) -> str | None:
    """Why a server would not come up on these files; None if it would."""
    for log in server.logs:
        last = max((run.last for run in log.runs), default=log.zxid)
        for bad in log.bad:
            if bad.stops_server and last > server.base_zxid:
                return f"{log.path} at {bad.offset}: {bad.reason}"
    if server.base is None and server.spans and not server.begins_empty and is_modern(view):
        return "no snapshot can be read, and the logs do not begin with the first record"
    if server.is_managed and not server.spans and server.base is None:
        return "the manifest lists nothing that is there"
    return None


def trusts_empty(view: EnsembleView, server: ServerView, agreement: Agreement) -> bool:
    """Whether a server must be running with `snapshot.trust.empty`, on a part of the data.

    3.5 and later do not start on logs without a snapshot. One that has kept up with the others
    although it has none did start.
    """
    is_without_base = server.base is None and bool(server.spans) and not server.begins_empty
    committed = agreement.committed
    return (
        is_without_base
        and is_modern(view)
        and not server.is_managed
        and not any(bad.stops_server for log in server.logs for bad in log.bad)
        and committed is not None
        and agreement.heads.get(server.name, -1) >= committed
    )


def holes_below(server: ServerView, agreement: Agreement) -> list[Missing]:
    """What a server lacked when its base was written, if the base turns out to lack it too.

    Holes that no older sound snapshot makes up for; and what lies before its logs, where there are
    partial snapshots and no sound one that old: it may have started without a base once.
    """
    base, first = server.base, server.first
    if base is None or first is None:
        return []
    older = [s.zxid for s in server.snapshots if s.is_valid and s.zxid < base.zxid]
    found: list[Missing] = []
    is_partial = any(not s.is_valid and s.zxid < base.zxid for s in server.snapshots)
    if is_partial and not older and not server.begins_empty and first <= base.zxid:
        found += [
            Missing(server.name, low, min(high, first - 1), 0, first, False, True)
            for low, high in agreement.agreed
            if low < first
        ]
    for hole in agreement.missing:
        if hole.server == server.name and hole.is_known and not hole.is_in_force:
            floor = max((zxid for zxid in older if zxid < hole.after), default=-1)
            if floor < hole.last:
                found.append(replace(hole, first=max(hole.first, floor + 1)))
    return found


def is_modern(view: EnsembleView) -> bool:
    """Whether 3.5 or later wrote the files: those do not start on logs without a snapshot."""
    return any(
        server.has_digests or any(s.config for s in server.snapshots) for server in view.servers
    )


def is_next(zxid: int, position: int) -> bool:
    """Whether a record may follow a state: the next of its epoch, or the first of a later one."""
    return follows_in_epoch(zxid, position) or (
        zxid & 0xFFFFFFFF == 1 and zxid >> 32 > position >> 32
    )
