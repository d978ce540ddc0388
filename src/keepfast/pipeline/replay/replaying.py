"""The agreed history replayed once, and every snapshot held against it (A5, A7).

Theory of operation.  Each sound snapshot opens a *world*: a tree that then follows the agreed
records.  A fuzzy snapshot holds effects of records after its zxid, so its world is applied to
idempotently and says nothing until the last zxid that the file shows, and a while longer: what was
being applied when the file was closed leaves no trace.  Two worlds that become equal are one, with
two supporters.  Worlds that never do contradict each other, and the one with more support is
believed: the empty tree at the start of a history; then a world that digests had proven before the
other one came up; then a majority of the servers; then digests in the records, the number of
servers, and the number of snapshots.  So one wrong snapshot is found wherever it lies, and one
right one is enough to continue.  The newest digests alone do not decide: they are those of the
leader, and a server with a wrong tree leads like any other.

A change of epoch that one server alone shows proves little: what it holds before may never have
been committed.  A world that passed such a place and is contradicted only after it is dropped
without a word.  Where a quorum still holds the record before that place, nothing can have been
committed there but what some server still holds: such a world is doubted only by a rival that
these records explain, or that shows a zxid from there (`plan.LoneJoin`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from keepfast.pipeline.agreement.electorate import Electorate, Support
from keepfast.pipeline.replay.lone_joins import CrossedJoin, cross, is_doubted
from keepfast.pipeline.replay.plan import (
    DigestTrouble,
    ForgottenSessions,
    ReplayPlan,
    ServerPlan,
    SnapshotConflict,
    SnapshotPlan,
    digests_at,
    is_next,
)
from keepfast.pipeline.replay.records import apply_leniently, touched_paths
from keepfast.pipeline.replay.trees import (
    compare_trees,
    content_of,
    is_same_content,
)
from keepfast.storage import Disk, load_tree, replay
from keepfast.tree import DIGEST_VERSION, ContainerQuirk, DigestFit, ReplayConflict, Tree
from keepfast.wire import (
    MAX_COUNTER,
    LogEntry,
    OpCode,
    StorageError,
    epoch_of,
)

GRACE = replay.GRACE
# Each world costs a replay of its own; this many contradictions show enough.
_MAX_WORLDS = 6


@dataclass(slots=True)
class ReplayedTree:
    """A tree that follows the history, and who supports it."""

    tree: Tree
    position: int
    fuzzy_until: int
    supporters: list[SnapshotPlan] = field(default_factory=list)
    is_origin: bool = False
    is_proven: bool = False  # by sums over the history before it (`proof`)
    is_weak: bool = False  # passed a change of epoch that nobody else shows
    crossed: list[CrossedJoin] = field(default_factory=list)  # those after what a quorum holds
    matches: int = 0
    first_match: int | None = None  # the first zxid whose digest was that of the tree
    off: list[int] = field(default_factory=list)  # zxids of wrong digests since the last right one
    wrong_digests: int = 0
    first_wrong: int = 0
    last_wrong: int = 0
    behind: int = 0  # records since the end of the fuzzy window
    is_compared: bool = False
    conflicts: list[tuple[int, str]] = field(default_factory=list)
    # Znodes of the newest snapshot here that the history has not had yet, and what they were.
    strange: dict[str, tuple[object, ...] | None] = field(default_factory=dict)
    suspects: list[SnapshotPlan] = field(default_factory=list)  # the snapshots that brought them
    quirk: ContainerQuirk = field(default_factory=ContainerQuirk)

    def apply(self, entry: LogEntry) -> None:
        """One record of the history."""
        header = entry.header
        if epoch_of(header.zxid) != epoch_of(self.position):
            self.quirk.reset()
        try:
            if self.is_exact:
                self.tree.apply(header, entry.body)
            else:
                self.tree.apply_fuzzy(header, entry.body)
        except ReplayConflict as error:
            self.conflicts.append((header.zxid, error.reason))
            apply_leniently(self.tree, entry)
        self.position = max(self.position, header.zxid)
        if self.position >= self.fuzzy_until:
            self.behind += 1
            self._look_at_digest(entry)

    def _look_at_digest(self, entry: LogEntry) -> None:
        fit = self.quirk.judge(self.tree, entry)
        if fit is DigestFit.RIGHT:
            self.matches += 1
            self.first_match = self.first_match or entry.header.zxid
            self.off.clear()
            self.is_weak = False
            self.crossed.clear()
        elif fit is DigestFit.WRONG:
            if self.is_exact:
                self.first_wrong = self.first_wrong or entry.header.zxid
                self.last_wrong = entry.header.zxid
                self.wrong_digests += 1
            self.off.append(entry.header.zxid)

    @property
    def is_exact(self) -> bool:
        """Whether it is the state at its position, and nothing of later records is in it."""
        if self.is_origin or self.matches > 0 or self.behind > GRACE:
            return True
        start = self.supporters[0]
        return self.is_proven and start.fuzzy_until == start.zxid

    @property
    def opened(self) -> int:
        """The zxid of the first snapshot after it."""
        return min((supporter.zxid for supporter in self.supporters), default=0)

    def is_senior_to(self, other: ReplayedTree) -> bool:
        """Whether it was proven to be the state of the ensemble when the other one came up.

        Then the other has something in it that no agreed record put there.
        """
        if self.is_weak or (self.off and self.off[0] <= other.opened):
            return False
        if self.is_origin or self.is_proven:
            return True
        return self.first_match is not None and self.first_match <= other.opened


Weight = tuple[bool, bool, bool, bool, Support, int]


def weight_of(world: ReplayedTree, rivals: list[ReplayedTree], electorate: Electorate) -> Weight:
    """How much supports a world, among others that contradict it.

    A server supports the world of its newest snapshot.
    """
    newest: dict[str, int] = {}
    for one in rivals:
        for supporter in one.supporters:
            newest[supporter.server] = max(newest.get(supporter.server, 0), supporter.zxid)
    servers = {s.server for s in world.supporters if s.zxid == newest.get(s.server, s.zxid)}
    return (
        not world.is_weak,
        not any(one.is_senior_to(world) for one in rivals if one is not world),
        electorate.is_quorum(servers),
        bool(world.matches) and not world.off,
        electorate.support(servers),
        len(world.supporters),
    )


@dataclass(slots=True)
class Segment:
    """A part of the history without a hole, and the world that is believed in it."""

    first: int  # the state is known from here on
    last: int
    start: SnapshotPlan | None  # None: the empty tree


@dataclass(slots=True)
class Reference:
    """What the replay of the history gives."""

    segments: list[Segment] = field(default_factory=list)
    conflicts: list[SnapshotConflict] = field(default_factory=list)
    uneven: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    forgotten: list[ForgottenSessions] = field(default_factory=list)
    digests: DigestTrouble | None = None
    replayed: int = 0
    # Changes of the members by records: zxid and text.
    configs: list[tuple[int, str]] = field(default_factory=list)
    believed: set[str] = field(default_factory=set)  # snapshots of the worlds that are believed
    # What records state at the zxids of the digests in snapshots.
    record_digests: dict[int, int] = field(default_factory=dict)

    def note_unknown_digests(self) -> None:
        """Say that there are digests that only a newer release could compute."""
        text = f"the records' digests of another version than {DIGEST_VERSION} were not checked"
        if text not in self.unchecked:
            self.unchecked.append(text)

    def add(self, closer: Reference) -> None:
        """Take over what a replay of a part of the history found."""
        self.segments += closer.segments
        self.conflicts += closer.conflicts
        self.uneven += closer.uneven
        self.unchecked += closer.unchecked
        self.digests = closer.digests or self.digests
        self.believed |= closer.believed
        self.record_digests |= closer.record_digests
        if closer.forgotten:
            self.forgotten = closer.forgotten

    def config_at(self, server: ServerPlan) -> str:
        """The members as a server has them: those of its base, or as records changed them since."""
        start, text = (-1, "") if server.base is None else (server.base.zxid, server.base.config)
        later = [one for one in self.configs if start < one[0] <= server.head]
        return max(later, default=(start, text))[1]

    def segment_at(self, zxid: int) -> Segment | None:
        """The segment in which the state at a zxid is known."""
        found = [s for s in self.segments if s.first <= zxid <= s.last]
        return found[-1] if found else None


def world_of(disk: Disk, snapshot: SnapshotPlan | None) -> ReplayedTree | None:
    """A world at a snapshot, or at the empty tree; None if it can no longer be read."""
    if snapshot is None:
        return ReplayedTree(Tree(), 0, 0, is_origin=True)
    try:
        tree, _, _ = load_tree(disk, snapshot.path, is_fuzzy=True)
    except (StorageError, OSError):
        return None
    return ReplayedTree(tree, snapshot.zxid, snapshot.fuzzy_until, [snapshot])


class HistoryReplay:
    """Feeds the agreed history to worlds; `finish` gives the reference."""

    def __init__(self, disk: Disk, plan: ReplayPlan, proven: tuple[SnapshotPlan, ...] = ()) -> None:
        """With `proven` it begins at the first of these; all of them support it."""
        self._disk = disk
        self._joins = set(plan.joins)
        self._lone_joins = {(one.before, one.after): one for one in plan.lone_joins}
        self._waiting = list(plan.snapshots)
        self._worlds: list[ReplayedTree] = []
        self._position = -1
        self._reference = Reference()
        self._electorate = plan.electorate
        self._starts_empty = plan.starts_empty
        # Sessions in snapshots before the first record, until a record of theirs comes.
        self._unbegun: dict[SnapshotPlan, set[int]] = {}
        self._digests_at = set(digests_at(plan.snapshots))
        self._explaining: list[int] = []  # the worlds against which strange znodes were held
        if plan.starts_empty and plan.history:
            self._worlds.append(ReplayedTree(Tree(), 0, 0, is_origin=True))
        world = world_of(disk, proven[0]) if proven else None
        if world is not None:
            world.supporters, world.is_proven = list(proven), True
            self._worlds.append(world)
            self._position = world.position

    def feed(self, entry: LogEntry) -> None:
        """The next record of the history."""
        zxid = entry.header.zxid
        self._open_worlds(zxid)
        for sessions in self._unbegun.values():
            sessions.discard(entry.header.session_id)
        self._drop_those_left_behind(zxid)
        for world in self._worlds:
            if zxid <= world.position:
                continue
            if epoch_of(zxid) != epoch_of(world.position):
                self._cross(world, zxid)
            world.apply(entry)
        self._position = zxid
        self._reference.replayed += 1
        if entry.digest is not None and entry.digest.version != DIGEST_VERSION:
            self._reference.note_unknown_digests()
        elif entry.digest is not None and zxid in self._digests_at:
            self._reference.record_digests[zxid] = entry.digest.tree_digest
        if len(self._worlds) > 1:
            if any(world.strange for world in self._worlds):
                self._explain_strange(entry)
            self._merge(is_end=False)

    def _cross(self, world: ReplayedTree, zxid: int) -> None:
        """A world passes the start of an epoch; remember what that leaves in doubt."""
        key = (self._position, zxid)
        if world.position & MAX_COUNTER == 0 or key in self._joins:
            return
        join = self._lone_joins.get(key)
        crossed = None if join is None else cross(self._disk, join, world.tree)
        if crossed is None:
            world.is_weak = True
        else:
            world.crossed.append(crossed)

    def finish(self) -> Reference:
        """After the last record."""
        self._open_worlds(1 << 63)
        self._close(self._worlds)
        self._worlds = []
        self._reference.forgotten = [
            ForgottenSessions(one.server, one.path, one.zxid, tuple(sorted(sessions)))
            for one, sessions in self._unbegun.items()
            if sessions
        ]
        return self._reference

    def _open_worlds(self, zxid: int) -> None:
        """Load the snapshots that lie before a record."""
        while self._waiting and self._waiting[0].zxid < zxid:
            snapshot = self._waiting.pop(0)
            if snapshot.zxid > self._position >= 0 and self._worlds:
                self._advance_to(snapshot.zxid)
            world = world_of(self._disk, snapshot)
            if world is None:
                self._reference.unchecked.append(f"{snapshot.path} can no longer be read")
                continue
            if len(self._worlds) >= _MAX_WORLDS:
                self._merge(is_end=True)
            if len(self._worlds) >= _MAX_WORLDS:
                lightest = min(self._worlds, key=self._weight)
                self._close([*self._worlds], keep=lightest)
                self._worlds.remove(lightest)
            self._note_strange(world)
            if self._starts_empty and self._position < 0:
                self._note_unbegun(world.tree, snapshot, zxid)
            self._worlds.append(world)
            self._merge(is_end=False)

    def _note_strange(self, world: ReplayedTree) -> None:
        """Remember in what a snapshot is ahead of the history, to see whether it gets there.

        A fuzzy snapshot holds znodes as later records made them.  One that the history never has
        was put there by something else, even if a later record covers it up.
        """
        known = next(
            (
                w
                for w in self._worlds
                if w.position == world.position and w.position >= w.fuzzy_until
                if not w.is_weak and not w.crossed
            ),
            None,
        )
        if known is None:
            return
        if known.tree.shared_digest != world.tree.shared_digest:
            paths = compare_trees(known.tree, world.tree).paths
            world.strange = {path: content_of(world.tree, path) for path in paths}
            world.suspects = list(world.supporters)

    def _note_unbegun(self, tree: Tree, snapshot: SnapshotPlan, first: int) -> None:
        """Remember the sessions of a snapshot that is as old as the history.

        Only one at the start of the first record's epoch: Apache keeps sessions over a TRUNC, and
        in a healthy ensemble that cuts off what a minority logged in an epoch before.
        """
        if snapshot.zxid == first & ~MAX_COUNTER:
            self._unbegun[snapshot] = set(tree.sessions)

    def _explain_strange(self, entry: LogEntry) -> None:
        """Strike out what the history has caught up with, by the record that was just applied."""
        known = [w for w in self._worlds if w.position >= w.fuzzy_until]
        # All of it is looked at only where that is more than what a record changes.
        is_new = [id(w) for w in known] != self._explaining
        self._explaining = [id(w) for w in known]
        is_all = is_new or entry.header.type == OpCode.CLOSE_SESSION
        touched = set(touched_paths(entry.body))
        for world in self._worlds:
            others = [w for w in known if w is not world]
            paths = list(world.strange) if is_all else [p for p in touched if p in world.strange]
            for path in paths:
                content = world.strange[path]
                # An ACL that it lacks was new: a record that names the znode brought it.
                if content is not None and content[2] is None and path not in touched:
                    continue
                if any(is_same_content(content_of(w.tree, path), content) for w in others):
                    del world.strange[path]

    def _advance_to(self, zxid: int) -> None:
        """The start of an epoch moves the zxid and nothing else."""
        for world in self._worlds:
            if zxid & MAX_COUNTER == 0 and world.position == self._position:
                world.position = max(world.position, zxid)

    def _drop_those_left_behind(self, zxid: int) -> None:
        """Close the worlds that the history does not lead on from."""
        gone = [w for w in self._worlds if w.position < zxid and not is_next(zxid, w.position)]
        if gone:
            self._close(gone)
            self._worlds = [w for w in self._worlds if not any(w is g for g in gone)]

    def _merge(self, *, is_end: bool) -> None:
        """Unite worlds that are equal, after their windows."""
        index = 0
        while index < len(self._worlds):
            left = self._worlds[index]
            for right in self._worlds[index + 1 :]:
                if self._same(left, right, is_end):
                    self._unite(left, right)
            index += 1

    def _same(self, left: ReplayedTree, right: ReplayedTree, is_end: bool) -> bool:
        if left.position != right.position:
            return False
        if left.position < max(left.fuzzy_until, right.fuzzy_until):
            return False
        if left.tree.shared_digest == right.tree.shared_digest:
            return True
        settled = min(left.behind, right.behind) > GRACE
        if not (is_end or (settled and not (left.is_compared and right.is_compared))):
            return False
        left.is_compared = right.is_compared = True
        difference = compare_trees(left.tree, right.tree)
        if difference.is_real:
            return False
        if difference.uneven:
            # Sessions may differ as well: `session_tables` judges those.
            names = {s.path for s in (left.supporters + right.supporters)}
            self._reference.uneven += sorted(names)
        return True

    def _unite(self, left: ReplayedTree, right: ReplayedTree) -> None:
        if left.strange and right.strange:
            # Two that are ahead by the same: what the history gets to decides on both.
            left.strange |= right.strange
            left.suspects += right.suspects
        else:
            self._report_strange(left)
            self._report_strange(right)
        left.supporters += right.supporters
        left.is_origin |= right.is_origin
        left.is_proven |= right.is_proven
        # Each stands for the other: what they agree on now was reached on two ways.
        left.is_weak = False
        left.crossed.clear()
        left.matches += right.matches
        matched = [zxid for zxid in (left.first_match, right.first_match) if zxid is not None]
        left.first_match = min(matched, default=None)
        if not right.off:
            left.off.clear()
        left.fuzzy_until = min(left.fuzzy_until, right.fuzzy_until)
        self._worlds = [world for world in self._worlds if world is not right]

    def _report_strange(self, world: ReplayedTree) -> None:
        """Report what came to be covered up without ever having been a state of the history."""
        if world.strange:
            for supporter in world.suspects:
                conflict = SnapshotConflict(
                    supporter.server,
                    supporter.path,
                    supporter.zxid,
                    tuple(sorted(world.strange)),
                    is_certain=True,
                )
                self._reference.conflicts.append(conflict)
        world.strange, world.suspects = {}, []

    def _weight(self, world: ReplayedTree) -> Weight:
        return weight_of(world, self._worlds, self._electorate)

    def _close(self, worlds: list[ReplayedTree], keep: ReplayedTree | None = None) -> None:
        """End worlds: believe one, and report the others where they contradict it."""
        if keep is None and len(worlds) == len(self._worlds):
            self._merge(is_end=True)
            worlds = self._worlds
        if not worlds:
            return
        for world in worlds:
            rivals = [one.tree for one in worlds if one.position == world.position]
            world.is_weak |= any(is_doubted(world.tree, world.crossed, one) for one in rivals)
        best = max(worlds, key=self._weight)
        for world in [keep] if keep is not None else worlds:
            if world is best:
                continue
            self._contradict(best, world)
        if keep is not None:
            return
        start = None if best.is_origin else best.supporters[0]
        first = 0 if start is None else start.fuzzy_until
        self._reference.segments.append(Segment(first, best.position, start))
        self._reference.believed |= {supporter.path for supporter in best.supporters}
        if best.wrong_digests:
            is_settled = not best.off
            trouble = DigestTrouble(
                best.first_wrong, best.last_wrong, best.wrong_digests, is_settled
            )
            self._reference.digests = trouble

    def _contradict(self, best: ReplayedTree, world: ReplayedTree) -> None:
        """Report the supporters of a world that is not the believed one."""
        if not world.supporters:
            return
        if world.is_weak and not world.strange:
            for supporter in world.supporters:
                text = (
                    f"{supporter.path} was not checked: between it and the other snapshots an "
                    "epoch begins that one server alone shows"
                )
                self._reference.unchecked.append(text)
            return
        if world.position < world.fuzzy_until or best.position < best.fuzzy_until:
            for supporter in world.supporters:
                text = f"{supporter.path} is ahead of all records: it was not compared"
                self._reference.unchecked.append(text)
            return
        if world.position != best.position:
            for supporter in world.supporters:
                text = f"no records lead from {supporter.path} to another snapshot"
                self._reference.unchecked.append(text)
            return
        difference = compare_trees(best.tree, world.tree)
        is_certain = self._weight(best)[:5] > self._weight(world)[:5]
        for supporter in world.supporters:
            self._reference.conflicts.append(
                SnapshotConflict(
                    supporter.server,
                    supporter.path,
                    supporter.zxid,
                    difference.paths,
                    is_certain,
                )
            )
