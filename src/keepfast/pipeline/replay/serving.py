"""What each server would serve after a start on its files, held against the agreed state (A6).

A start is replayed as Apache does it: the newest sound snapshot, then every record after it in the
order of the files, whether or not it follows the one before, passing over what does not fit.  That
is how a hole and a record that was never committed become data that clients see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from keepfast.pipeline.agreement.voters import config_in
from keepfast.pipeline.findings.document import TreeDiff, ZnodeDifference
from keepfast.pipeline.replay.plan import (
    ForgottenSessions,
    Piece,
    ReplayOutcome,
    ReplayPlan,
    ServerOutcome,
    ServerPlan,
    SessionTrouble,
    SnapshotPlan,
)
from keepfast.pipeline.replay.proof import ChainProof, chain_plan, chains_of, closer_look
from keepfast.pipeline.replay.records import (
    Unread,
    apply_leniently,
    entries_of,
    touched_paths,
)
from keepfast.pipeline.replay.relational import session_doubts_here
from keepfast.pipeline.replay.replaying import (
    GRACE,
    HistoryReplay,
    Reference,
    Segment,
)
from keepfast.pipeline.replay.session_tables import SessionDoubt, troubles_of
from keepfast.pipeline.replay.stated_digests import reference_world, wrong_digests
from keepfast.pipeline.replay.trees import (
    TreeDifference,
    changes_of,
    compare_trees,
    form_problems,
    orphans,
    owners_of,
    znode_state,
)
from keepfast.storage import Disk, Frame, LogReader, load_tree
from keepfast.tree import CONFIG, Tree
from keepfast.wire import (
    MAX_COUNTER,
    LogEntry,
    MalformedRecord,
    StorageError,
    decode_entry,
    format_zxid,
)

_MAX_DIFFERENCES = 1000
_MAX_PROBLEMS = 50


def replay_ensemble(
    disk: Disk, plan: ReplayPlan, proofs: tuple[ChainProof, ...] | None
) -> ReplayOutcome:
    """Replay one ensemble: all of it on the tree, or only what the sums do not prove."""
    unchecked: list[str] = []
    unread = Unread()
    if proofs is None:
        reference = _replayed(disk, plan, (), unread)
    else:
        reference = _proven_reference(disk, plan, proofs, unread)
    # Servers of small ensembles are all replayed, suspect or not: it costs little.
    is_small = proofs is None
    right = {s.path for proof in proofs or () for s in proof.good} | set(reference.uneven)
    # The base of a chain counts as right until others contradict it.
    right -= {conflict.path for conflict in reference.conflicts}
    tables = _session_tables(plan, proofs, reference)
    # A server that lacks a session has orphans once records make ephemerals of it.
    lacking = {table.path for table in tables if table.doubt == "missing"}
    outcomes: list[ServerOutcome] = []
    trees: dict[str, tuple[int, Tree]] = {}
    for server in plan.servers:
        has_right_base = server.base is None or server.base.path in right - lacking
        wanted = is_small or server.is_suspect or not has_right_base
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
    digests = wrong_digests(disk, plan, reference, unread)
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
        tuple(digests),
        tuple(tables),
    )


def _session_tables(
    plan: ReplayPlan, proofs: tuple[ChainProof, ...] | None, reference: Reference
) -> list[SessionTrouble]:
    """What is wrong with the tables of sessions in snapshots whose znodes are right."""
    right = reference.believed - {conflict.path for conflict in reference.conflicts}
    found: list[SessionTrouble] = []
    for number, chain in enumerate(chains_of(plan)):
        if proofs is not None:
            doubts: Sequence[SessionDoubt] = proofs[number].tables
        else:
            doubts = session_doubts_here(chain_plan(plan, chain))
        found += troubles_of(doubts, chain.snapshots, right, plan.electorate)
    return found


def _replayed(
    disk: Disk, plan: ReplayPlan, proven: tuple[SnapshotPlan, ...], unread: Unread
) -> Reference:
    replay = HistoryReplay(disk, plan, proven)
    for entry, _, _ in entries_of(disk, plan.history, unread):
        replay.feed(entry)
    return replay.finish()


def _proven_reference(
    disk: Disk, plan: ReplayPlan, proofs: tuple[ChainProof, ...], unread: Unread
) -> Reference:
    """What the sums prove, and what a replay on the tree says where they do not."""
    reference = Reference(replayed=sum(proof.records for proof in proofs))
    for proof in proofs:
        start = 0 if proof.base is None else proof.base.fuzzy_until
        # A snapshot at the start of an epoch may be of a later zxid than all records.
        last = max([proof.last, *(s.zxid for s in proof.good)])
        reference.segments.append(Segment(start, last, proof.base))
        # Close to a head, the nearest right snapshot spares the records before it.
        reference.segments += [
            Segment(max(s.fuzzy_until + GRACE, start), last, s) for s in proof.good
        ]
        if proof.digests is not None:
            reference.believed |= {s.path for s in proof.good}
            reference.record_digests |= dict(proof.digests)
        reference.configs += [proof.config] if proof.config else []
        reference.forgotten += _forgotten(plan, proof)
        if proof.has_unknown_digests:
            reference.note_unknown_digests()
        if proof.trouble:
            look = closer_look(plan, proof)
            reference.add(_replayed(disk, look.plan, look.proven, unread))
    known = {s.path for proof in proofs for s in (*proof.good, *proof.seen)}
    for snapshot in plan.snapshots:
        if snapshot.path not in known:
            text = f"{snapshot.path} was not checked: no records lead from it or to it"
            reference.unchecked.append(text)
    return reference


def _forgotten(plan: ReplayPlan, proof: ChainProof) -> list[ForgottenSessions]:
    if proof.base is not None or not plan.starts_empty:
        return []
    start = proof.first & ~MAX_COUNTER
    return [
        ForgottenSessions(s.server, s.path, s.zxid, tuple(sorted(left)))
        for s in plan.snapshots
        if s.zxid == start and (left := set(s.sessions) - set(proof.sessions))
    ]


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
        is_known = segment is not None
        compared = server.head if is_known else None
        return ServerOutcome(server.name, compared, membership=reference.config_at(server)), None
    bad: list[tuple[str, int, int]] = []
    tree = served_tree(disk, server, server.head, bad, unread)
    if tree is None:
        return ServerOutcome(server.name), None
    outcome = _examined(server, tree, bad)
    if segment is None:
        return outcome, tree
    world = reference_world(disk, plan, segment.start, server.head, unread)
    if world is None:
        return outcome, tree
    agreed = world.tree
    difference = _settled_difference(disk, plan, server, tree, agreed, unread)
    writers = {path: set(changes_of(tree, path)) for path in difference.paths}
    floor = _floor(plan, server, {conflict.path for conflict in reference.conflicts})
    touching = _touching(disk, server, (tree, agreed), writers, floor, unread)
    first = min(touching, default=None)
    return (
        ServerOutcome(
            server.name,
            server.head,
            difference.paths,
            _first_told_by_stats(tree, agreed, difference.paths) if first is None else first,
            tuple(sorted(touching)),
            tuple(sorted(set().union(*writers.values()))),
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
        orphans=tuple(orphans(tree)[:_MAX_PROBLEMS]) if is_exact else (),
        form=tuple((p.kind, p.path, p.text) for p in problems[:_MAX_PROBLEMS]),
        membership=config_in(tree),
        undecodable=tuple(bad[:_MAX_PROBLEMS]),
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


def _settled_difference(
    disk: Disk, plan: ReplayPlan, server: ServerPlan, tree: Tree, agreed: Tree, unread: Unread
) -> TreeDifference:
    """How the tree of a server differs, given that its snapshot may be ahead of its records.

    Then both continue along the committed history, as they would in an ensemble, until they are
    equal, or past what the snapshot may have held.
    """
    if tree.shared_digest == agreed.shared_digest:
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
        if tree.shared_digest == agreed.shared_digest:
            return TreeDifference()
        steps += zxid > base.fuzzy_until
        if steps > GRACE:
            break
    return compare_trees(agreed, tree)


def _floor(plan: ReplayPlan, server: ServerPlan, wrong: set[str]) -> int:
    """The zxid up to which a server had the right tree: that of its newest snapshot which is right.

    -1 if it has none.
    """
    own = [s for s in plan.snapshots if s.server == server.name and s.path not in wrong]
    base = -1 if server.base is None else server.base.zxid
    return max((s.zxid for s in own if s.zxid <= base), default=-1)


def _touching(
    disk: Disk,
    server: ServerPlan,
    trees: tuple[Tree, Tree],
    writers: dict[str, set[int]],
    floor: int,
    unread: Unread,
) -> set[int]:
    """Of the records that it lacks or has too much, the first of each range on a differing znode.

    `writers`: the differing znodes, and which records made them what they are here. A record below
    the base counts only if the base is wrong; if it is too much, also where a znode comes from it.
    A range that is too much does not count for a znode that comes from another such range: a SNAP
    in between can have undone it.
    """
    is_wrong = server.base is not None and floor < server.base.zxid
    found: set[int | None] = set()
    wanted = _wanted(trees, writers)
    for piece in (*server.missing, *(server.latent if is_wrong else ())):
        found.add(_first_touching(entries_of(disk, (piece,), unread), wanted, lambda _: True))
    sources = {
        path: [piece for piece in server.extra if any(piece.first <= z <= piece.last for z in made)]
        for path, made in writers.items()
    }
    all_writers: set[int] = set().union(*writers.values())
    for piece in server.extra:
        open_paths = [path for path, those in sources.items() if piece in those or not those]
        entries = entries_of(disk, (piece,), unread)
        found.add(
            _first_touching(
                entries, _wanted(trees, open_paths), lambda z: z > floor or z in all_writers
            )
        )
    return {zxid for zxid in found if zxid is not None}


def _wanted(trees: tuple[Tree, Tree], paths: Iterable[str]) -> set[str]:
    """Znodes, and the sessions that own one of them: see `touched_paths`."""
    paths = tuple(paths)
    return {*paths, *(f"{owner:#x}" for owner in owners_of(trees, paths))}


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
        if counts(zxid) and not wanted.isdisjoint(touched_paths(entry.body, entry.header)):
            return zxid
    return None


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
        for path in paths[:_MAX_DIFFERENCES]
    )
    return TreeDiff(common, tuple(states), shown, len(paths))
