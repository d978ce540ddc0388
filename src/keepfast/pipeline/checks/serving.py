"""What each server would serve after a start on its files, held against the agreed state (A6).

A start is replayed as Apache does it: the newest sound snapshot, then every record behind it in the
order of the files, whether or not it follows the one before, passing over what does not fit.  That
is how a hole and a record that was never committed become data that clients see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from keepfast.pipeline.checks.plan import (
    Piece,
    ReplayOutcome,
    ReplayPlan,
    ServerOutcome,
    ServerPlan,
    SnapshotPlan,
)
from keepfast.pipeline.checks.replaying import (
    GRACE,
    HistoryReplay,
    Reference,
    Unread,
    apply_leniently,
    entries_of,
    world_of,
)
from keepfast.pipeline.checks.trees import (
    TreeDifference,
    changes_of,
    compare_trees,
    form_problems,
    orphans,
    shared_digest,
    znode_state,
)
from keepfast.pipeline.findings import TreeDiff, ZnodeDifference
from keepfast.pipeline.voters import config_in
from keepfast.storage import Disk, Frame, LogReader, load_tree
from keepfast.tree import CONFIG, Tree
from keepfast.wire import (
    LogEntry,
    MalformedRecord,
    MultiTxn,
    StorageError,
    TxnBody,
    decode_entry,
    decode_txn_body,
    format_zxid,
)

# Servers of small ensembles are all replayed, suspect or not: it costs little.
SMALL_RECORDS = 20_000
_MOST_DIFFERENCES = 1000
_MOST_PROBLEMS = 50


def replay_ensemble(disk: Disk, plan: ReplayPlan, limit: int) -> ReplayOutcome:
    """Replay one ensemble; above `limit` records only the servers that are suspect."""
    unchecked: list[str] = []
    unread = Unread()
    if plan.records <= limit:
        replay = HistoryReplay(disk, plan)
        for entry, _, _ in entries_of(disk, plan.history, unread):
            replay.feed(entry)
        reference = replay.finish()
    else:
        reference = _short_reference(disk, plan, limit, unchecked, unread)
    is_small = plan.records <= SMALL_RECORDS
    suspects = {conflict.server for conflict in reference.conflicts}
    outcomes: list[ServerOutcome] = []
    trees: dict[str, tuple[int, Tree]] = {}
    for server in plan.servers:
        wanted = is_small or server.is_suspect or server.name in suspects
        gone = Unread()
        outcome, tree = _server(disk, plan, server, reference, wanted, gone)
        if gone.gone:
            # Made of a part of the records, it differs for that reason alone.
            outcome, tree = ServerOutcome(server.name), None
        unread.gone += gone.gone
        outcomes.append(outcome)
        if tree is not None and is_small:
            trees[server.name] = (server.head, tree)
        if outcome.compared_at is None and server.serves:
            unchecked.append(f"the state of {server.name} could not be compared with the others")
    diff = _tree_diff(disk, plan, outcomes, trees)
    buried = {
        path
        for entry, _, _ in entries_of(disk, plan.buried, unread)
        for path in touched_paths(entry.body)
    }
    unchecked += reference.unchecked + unread.gone + unread.undecodable
    return ReplayOutcome(
        plan.ensemble,
        tuple(outcomes),
        tuple(reference.conflicts),
        reference.digests,
        diff,
        tuple(dict.fromkeys(unchecked)),
        tuple(dict.fromkeys(reference.uneven)),
        tuple(sorted(buried)),
        tuple(reference.forgotten),
        reference.replayed,
    )


def _short_reference(
    disk: Disk, plan: ReplayPlan, limit: int, unchecked: list[str], unread: Unread
) -> Reference:
    """The end of a history that is too long to be replayed as a whole.

    It begins at the oldest snapshot from which the limit reaches to the end.
    """
    first = 1 << 63
    for snapshot in reversed(plan.snapshots):
        if _records_behind(plan, snapshot.zxid) > limit:
            break
        first = snapshot.zxid
    left_out = [s for s in plan.snapshots if 0 < s.zxid < first]
    if left_out:
        unchecked.append(
            f"{plan.records} records are more than the {limit} that are replayed: "
            f"{len(left_out)} snapshots up to {format_zxid(left_out[-1].zxid)} were read, but not "
            "held against the records"
        )
    short = replace(
        plan,
        snapshots=tuple(s for s in plan.snapshots if s.zxid >= first),
        history=tuple(piece for piece in plan.history if piece.last > first),
        starts_empty=False,
    )
    replay = HistoryReplay(disk, short)
    for entry, _, _ in entries_of(disk, short.history, unread):
        if entry.header.zxid > first:
            replay.feed(entry)
    return replay.finish()


def _records_behind(plan: ReplayPlan, zxid: int) -> int:
    return sum(
        piece.last - max(piece.first, zxid + 1) + 1 for piece in plan.history if piece.last > zxid
    )


# -- one server ------------------------------------------------------------------------------------


def _server(
    disk: Disk,
    plan: ReplayPlan,
    server: ServerPlan,
    reference: Reference,
    is_wanted: bool,
    unread: Unread,
) -> tuple[ServerOutcome, Tree | None]:
    segment = reference.segment_at(server.head)
    if not server.serves:
        return ServerOutcome(server.name), None
    if not is_wanted:
        # Its base is one of the agreed snapshots, or the empty tree, and its records are the agreed
        # ones, all of them: so is what they make.
        is_known = segment is not None or server.base is None or server.base.zxid == 0
        compared = server.head if is_known else None
        return ServerOutcome(server.name, compared), None
    bad: list[tuple[str, int, int]] = []
    tree = served_tree(disk, server, server.head, bad, unread)
    if tree is None:
        return ServerOutcome(server.name), None
    outcome = _examined(server, tree, bad)
    if segment is None:
        return outcome, tree
    agreed = reference_tree(disk, plan, segment.start, server.head, unread)
    if agreed is None:
        return outcome, tree
    difference = _settled_difference(disk, plan, server, tree, agreed, unread)
    writers = {zxid for path in difference.paths for zxid in changes_of(tree, path)}
    first = _first_divergent(disk, server, difference.paths, writers, unread)
    return (
        ServerOutcome(
            server.name,
            server.head,
            difference.paths,
            _first_told_by_stats(tree, agreed, difference.paths) if first is None else first,
            tuple(sorted(writers)),
            difference.uneven,
            outcome.orphans,
            outcome.form,
            outcome.membership,
            outcome.undecodable,
        ),
        tree,
    )


def _examined(server: ServerPlan, tree: Tree, bad: list[tuple[str, int, int]]) -> ServerOutcome:
    """What the tree of one server says by itself (A10, A12, A13)."""
    base = server.base
    is_exact = base is None or base.fuzzy_until <= server.head
    problems = form_problems(tree, server.head, is_exact=is_exact)
    return ServerOutcome(
        server.name,
        orphans=tuple(orphans(tree)[:_MOST_PROBLEMS]) if is_exact else (),
        form=tuple((p.kind, p.path, p.text) for p in problems[:_MOST_PROBLEMS]),
        membership=config_in(tree),
        undecodable=tuple(bad[:_MOST_PROBLEMS]),
    )


def served_tree(
    disk: Disk,
    server: ServerPlan,
    until: int,
    bad: list[tuple[str, int, int]],
    unread: Unread,
) -> Tree | None:
    """The tree after a start, as far as `until`; None if the base can no longer be read."""
    base = server.base
    tree = Tree()
    if base is not None:
        try:
            tree, _, _ = load_tree(disk, base.path, is_fuzzy=True)
        except (StorageError, OSError):
            return None
    after = -1 if base is None else base.zxid
    for path, frame in _own_frames(disk, server, after, unread):
        if frame.zxid > until:
            continue
        try:
            apply_leniently(tree, decode_entry(frame.entry))
        except MalformedRecord:
            bad.append((path, frame.offset, frame.zxid))
    return tree


def _own_frames(
    disk: Disk, server: ServerPlan, after: int, unread: Unread
) -> Iterator[tuple[str, Frame]]:
    for log in server.logs:
        if log.last <= after:
            continue
        last = 0
        try:
            with disk.open_read(log.path) as file:
                for frame in LogReader(file, stop=log.stop):
                    last = max(last, frame.zxid)
                    if frame.zxid > after:
                        yield log.path, frame
        except OSError as error:
            unread.gone.append(f"{log.path} can no longer be read: {error.strerror or error}")
            continue
        if last < log.reach:
            text = f"{log.path} no longer holds {format_zxid(log.reach)}"
            unread.gone.append(text)


def reference_tree(
    disk: Disk, plan: ReplayPlan, start: SnapshotPlan | None, until: int, unread: Unread
) -> Tree | None:
    """The agreed state at a zxid, from the base that is believed."""
    world = world_of(disk, start)
    if world is None:
        return None
    pieces = tuple(
        piece for piece in plan.history if piece.last > world.position and piece.first <= until
    )
    for entry, _, _ in entries_of(disk, pieces, unread):
        if world.position < entry.header.zxid <= until:
            world.apply(entry)
    return world.tree


def _settled_difference(
    disk: Disk, plan: ReplayPlan, server: ServerPlan, tree: Tree, agreed: Tree, unread: Unread
) -> TreeDifference:
    """How the tree of a server differs, given that its snapshot may be ahead of its records.

    Then both go on along the agreed history, as they would in an ensemble, until they are equal,
    or what the snapshot may have held is behind them.
    """
    if shared_digest(tree) == shared_digest(agreed):
        return TreeDifference()
    difference = compare_trees(agreed, tree)
    base = server.base
    if not difference.is_real or base is None:
        return difference
    window = max(base.fuzzy_until - server.head, 0)
    if base.zxid + window + GRACE < server.head:
        return difference
    pieces = tuple(piece for piece in plan.history if piece.last > server.head)
    steps = 0
    for entry, _, _ in entries_of(disk, pieces, unread):
        zxid = entry.header.zxid
        if zxid <= server.head:
            continue
        apply_leniently(tree, entry)
        apply_leniently(agreed, entry)
        if shared_digest(tree) == shared_digest(agreed):
            return TreeDifference()
        steps += zxid > base.fuzzy_until
        if steps > GRACE:
            break
    return compare_trees(agreed, tree)


def _first_divergent(
    disk: Disk, server: ServerPlan, paths: tuple[str, ...], writers: set[int], unread: Unread
) -> int | None:
    """The first record, lacking or too much, that touches a znode that differs.

    One that is too much and lies below the base counts only if a znode of the base comes from it.
    """
    if not paths:
        return None
    wanted = set(paths)
    after = -1 if server.base is None else server.base.zxid
    lacking = entries_of(disk, server.missing, unread)
    extra = entries_of(disk, server.extra, unread)
    found = [
        _first_touching(lacking, wanted, lambda _: True),
        _first_touching(extra, wanted, lambda zxid: zxid > after or zxid in writers),
    ]
    return min((zxid for zxid in found if zxid is not None), default=None)


def _first_told_by_stats(tree: Tree, agreed: Tree, paths: tuple[str, ...]) -> int | None:
    """The first zxid that made a difference, where no record is lacking or too much in the logs.

    The stats of a znode that differs name the record that one side has and the other has not. Where
    they are the same on both sides, it is the record whose value is no longer there.
    """
    found: list[int] = []
    for path in paths:
        here, there = changes_of(tree, path), changes_of(agreed, path)
        found += set(here) - set(there) or set(there) - set(here) or set(here[-1:])
    return min(found, default=None)


def _first_touching(
    entries: Iterator[tuple[LogEntry, Piece, int]],
    wanted: set[str],
    counts: Callable[[int], bool],
) -> int | None:
    for entry, _, _ in entries:
        zxid = entry.header.zxid
        if counts(zxid) and not wanted.isdisjoint(touched_paths(entry.body)):
            return zxid
    return None


def touched_paths(body: TxnBody | None) -> list[str]:
    """The znodes that a record names."""
    if isinstance(body, MultiTxn):
        found: list[str] = []
        for sub in body.txns or ():
            try:
                found += touched_paths(decode_txn_body(sub.type, sub.data))
            except MalformedRecord:
                continue
        return found
    path = getattr(body, "path", None)
    if isinstance(path, str):
        return [path or "/"]
    return [one for one in getattr(body, "paths", None) or () if isinstance(one, str)]


# -- the tree diff ---------------------------------------------------------------------------------


def _tree_diff(
    disk: Disk,
    plan: ReplayPlan,
    outcomes: list[ServerOutcome],
    trees: dict[str, tuple[int, Tree]],
) -> TreeDiff | None:
    """The znodes that differ, as each server has them at the greatest common zxid."""
    paths = sorted({path for outcome in outcomes for path in outcome.paths} - {CONFIG})
    serving = [server for server in plan.servers if server.serves]
    if not paths or not serving:
        return None
    common = min(server.head for server in serving)
    states: dict[str, Tree] = {}
    for server in serving:
        known = trees.get(server.name)
        is_there = known is not None and known[0] == common
        tree = known[1] if known and is_there else served_tree(disk, server, common, [], Unread())
        if tree is not None:
            states[server.name] = tree
    shown = tuple(
        ZnodeDifference(
            path, tuple((name, znode_state(tree, path)) for name, tree in states.items())
        )
        for path in paths[:_MOST_DIFFERENCES]
    )
    return TreeDiff(common, tuple(states), shown, len(paths))
