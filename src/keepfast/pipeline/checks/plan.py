"""What the replay of one ensemble needs to know, and what it gives back: values for the wire.

An executor that replays gets a plan and the paths of files; it does not judge.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.pipeline.checks.agreement import Agreement, Standing
from keepfast.pipeline.checks.view import EnsembleView, ServerView
from keepfast.pipeline.electorate import Electorate
from keepfast.pipeline.findings import TreeDiff
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
class SnapshotPlan:
    """A sound snapshot."""

    server: str
    path: str
    zxid: int
    fuzzy_until: int


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A log as a server reads it: the runs, up to the first bytes that end it."""

    path: str
    last: int
    stop: int  # bytes from this offset on are not read
    reach: int  # the greatest zxid in front of them


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
    is_suspect: bool = False  # something is off with it: replay it by itself


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
    buried: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotConflict:
    """A snapshot that is not what the history makes."""

    server: str
    path: str
    zxid: int
    paths: tuple[str, ...]
    is_certain: bool  # the history has more behind it than the snapshot


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
    writers: tuple[int, ...] = ()  # zxids that made the differing znodes what they are here
    uneven: tuple[str, ...] = ()
    orphans: tuple[tuple[str, int], ...] = ()
    form: tuple[tuple[str, str, str], ...] = ()  # kind, path, text
    membership: str = ""
    undecodable: tuple[tuple[str, int, int], ...] = ()  # path, offset, zxid


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


# -- making a plan ---------------------------------------------------------------------------------


def plan_replay(view: EnsembleView, agreement: Agreement) -> ReplayPlan:
    """The plan for an ensemble whose records were judged."""
    wrong = {(c.zxid, name) for c in agreement.conflicts for name in c.wrong}
    history = _pieces(view, agreement.agreed, wrong)
    snapshots = sorted(
        (
            SnapshotPlan(server.name, snapshot.path, snapshot.zxid, snapshot.fuzzy_until)
            for server in view.servers
            for snapshot in server.snapshots
            if snapshot.is_valid
        ),
        key=lambda s: (s.zxid, s.fuzzy_until, s.server, s.path),
    )
    witnesses: dict[tuple[int, int], int] = {}
    for server in view.servers:
        for join in server.joins:
            if join.opens_epoch and join.proven_from == join.before:
                key = (join.before, join.after)
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
        tuple(_pieces(view, [(i.first, i.last) for i in agreement.of(Standing.BURIED)], wrong)),
    )


def _firsts(view: EnsembleView) -> list[int]:
    return [server.first for server in view.servers if server.first is not None]


def _pieces(
    view: EnsembleView, ranges: list[tuple[int, int]], wrong: set[tuple[int, str]]
) -> list[Piece]:
    """Where the records of ranges can be read, each from a server that has the right one."""
    runs = sorted(
        ((run, log.path, server.name) for server in view.servers for run, log in server.runs),
        key=lambda item: (item[0].first, item[2], item[1]),
    )
    wrong_of: dict[str, list[int]] = {}
    for zxid, name in wrong:
        wrong_of.setdefault(name, []).append(zxid)
    pieces: list[Piece] = []
    for first, last in ranges:
        position = first
        while position <= last:
            best: Piece | None = None
            for run, path, name in runs:
                if run.first > position:
                    break
                reach = min(run.last, last)
                bad = [z for z in wrong_of.get(name, ()) if position <= z <= reach]
                reach = min([reach, *(z - 1 for z in bad)])
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
        if server.name in i.holders and i.standing in (Standing.STALE, Standing.DOUBTFUL)
    ]
    mistaken = sorted((zxid, zxid) for zxid, name in wrong if name == server.name)
    gone = [m for m in agreement.missing if m.server == server.name and m.is_in_force]
    known = [(m.first, m.last) for m in gone if m.is_known]
    return ServerPlan(
        server.name,
        agreement.heads.get(server.name, -1),
        refusal(view, server) is None and server.head >= 0 and not server.is_partial,
        None if base is None else SnapshotPlan(server.name, base.path, base.zxid, base.fuzzy_until),
        tuple(_log_plans(server)),
        tuple(_pieces(view, known, wrong)),
        tuple(_pieces(own, sorted(stale + mistaken), set())),
        bool(gone or stale or mistaken or any(log.bad for log in server.logs)),
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
