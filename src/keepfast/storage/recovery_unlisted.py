"""Recovery of a directory that no manifest describes: Apache's, or ours after Apache used it.

Nothing states which files belong together, so all of them are read: the newest snapshot that can
be read in full is the base, and the records after it must form one chain from it to the end.
Records below the base prove nothing and are not used; a record above it that is not in the chain,
damage that may hide one, and a snapshot of which only the name is left are never skipped.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory, Listing
from keepfast.storage.manifest import Join, Manifest, Retired
from keepfast.storage.problems import Problem, Severity, Standing
from keepfast.storage.recovered import HEAL, Recovery, problem_of, zxid_of_snapshot
from keepfast.storage.replay import Base, Replay
from keepfast.storage.snapshot_file import SnapshotInfo, load_tree
from keepfast.storage.survey import (
    LogSurvey,
    SurveyedRun,
    is_unnumbered,
    read_run,
    survey_log,
)
from keepfast.storage.takeover import segment_entries, snapshot_entry
from keepfast.tree import Tree
from keepfast.wire import (
    BrokenHistory,
    StorageError,
    Zxid,
    counter_of,
    epoch_of,
    format_zxid,
    make_zxid,
)

_EMPTY = Zxid(0)
_FIRST_EPOCH = make_zxid(1, 0)
# File times closer than this say nothing about an order: copying a directory blurs them.
_MTIME_SLACK_SECONDS = 2.0
_COMPARE = "compare zxid and digest with the other servers: keepfast verify on each"


@dataclass(slots=True)
class _Scene:
    """The state shared by successive attempts."""

    disk: Disk
    directory: DataDirectory
    surveys: list[LogSurvey]
    problems: list[Problem]
    # Zxids that unusable snapshots prove to have existed, by their names or contents.
    rotten: set[Zxid] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)  # names of the snapshots that were read

    @property
    def runs(self) -> list[SurveyedRun]:
        """All runs, in zxid order."""
        runs = [run for survey in self.surveys for run in survey.runs]
        return sorted(runs, key=lambda run: (run.first, run.last))


def recover_unlisted(
    disk: Disk,
    directory: DataDirectory,
    listing: Listing,
    manifest: Manifest,
    problems: list[Problem],
    full: bool,
) -> Recovery:
    """The state that the files prove by themselves; problems are added to `problems`.

    `manifest` is the one that was there, if any: its identity and generation are kept.  With
    `full`, snapshots that are not needed are read as well.
    """
    surveys = [survey_log(disk, directory, name) for name in listing.logs]
    scene = _Scene(disk, directory, surveys, problems)
    _report_logs(scene)
    if not listing.snapshots and not scene.runs:
        damaged = any(survey.is_damaged for survey in surveys)
        standing = Standing.DAMAGED if damaged else Standing.EMPTY
        return Recovery(standing, manifest=manifest, adopted=True)
    failures: list[BrokenHistory] = []
    for name in (*reversed(listing.snapshots), None):
        if name is None and not _may_begin_empty(scene):
            break
        attempt = _attempt(scene, name)
        if isinstance(attempt, _Attempt):
            result = _result(scene, listing, manifest, attempt, failures)
            if full:
                _check_unused(scene, listing)
            return result
        if isinstance(attempt, BrokenHistory):
            failures.append(attempt)
    if failures:
        problems.append(problem_of(failures[0], "history-broken", advice=HEAL))
    else:
        problems.append(_no_base(scene, listing))
    return Recovery(Standing.DAMAGED, manifest=manifest, adopted=True, degraded=True)


def _report_logs(scene: _Scene) -> None:
    for survey in scene.surveys:
        ending = survey.ending
        if ending.is_plain:
            continue
        path = scene.directory.in_logs(survey.name)
        if survey.is_damaged:
            follows = ""
            if ending.valid_after is not None:
                follows = f"; sound records follow at offset {ending.valid_after}"
            scene.problems.append(
                Problem(
                    "log-damaged",
                    Severity.DAMAGE,
                    ending.reason + follows,
                    path,
                    ending.offset,
                    survey.last,
                    HEAL,
                )
            )
        else:
            what = "torn tail" if survey.runs else "no record"
            scene.problems.append(
                Problem(
                    "torn-tail",
                    Severity.NOTE,
                    f"{what}: {ending.reason}",
                    path,
                    ending.offset,
                    survey.last,
                    "none needed: a crash explains it",
                )
            )


def _may_begin_empty(scene: _Scene) -> bool:
    """Whether the logs begin where a history begins, so that the empty tree is their base.

    3.4 wrote no snapshot before the first one was due.
    """
    runs = scene.runs
    return bool(runs) and counter_of(runs[0].first) == 1 and epoch_of(runs[0].first) <= 1


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A base from which the records form one chain to the end."""

    name: str | None
    base: Base
    tree: Tree
    replay: Replay
    used: list[SurveyedRun]
    exact: bool
    is_confirmed: bool  # that the base's content is that of its zxid

    @property
    def state(self) -> tuple[int, dict[int, int]]:
        """What distinguishes two states, except /zookeeper/config, which no record changes."""
        return self.tree.digest, self.tree.sessions


def _attempt(scene: _Scene, name: str | None) -> _Attempt | StorageError:
    """Try one snapshot (None: the empty tree) as the base."""
    base = Base(_EMPTY, _EMPTY, exact=True)
    tree = Tree()
    is_confirmed = True
    if name is not None:
        path = scene.directory.in_snapshots(name)
        scene.tried.add(name)
        try:
            tree, info, seen = load_tree(scene.disk, path, is_fuzzy=True)
        except StorageError as error:
            scene.rotten.add(zxid_of_snapshot(name))
            scene.problems.append(_rotten(error))
            return error
        until = Zxid(max(info.zxid, info.digest_zxid or 0, info.last_processed or 0, seen))
        base = Base(info.zxid, until, False, path, info.digest, info.digest_zxid)
        is_confirmed = _states_its_zxid(info, tree, seen)
    try:
        _check_damage(scene, base.zxid)
        replay = Replay(tree, base, None, frozenset(scene.rotten | {base.fuzzy_until}))
        used = _replay_runs(scene, replay, base)
        replay.finish()
        _check_end(scene, replay.head)
    except StorageError as error:
        if name is not None:
            # It can be read: what it shows of later records is as good evidence as its name.
            scene.rotten |= {base.zxid, base.fuzzy_until}
        return error
    exact = replay.applied == 0 and base.fuzzy_until == base.zxid
    is_confirmed |= replay.has_matched
    return _Attempt(name, base, tree, replay, used, exact, is_confirmed)


def _states_its_zxid(info: SnapshotInfo, tree: Tree, seen: int) -> bool:
    """Whether a snapshot's sealed content proves that it is at the zxid of its name.

    3.6 and later write a zxid into the file, which may be one record late; then a znode of the
    record shows that it is in there.  Before the first record the tree is empty.
    """
    stated = max(info.digest_zxid or 0, info.last_processed or 0, seen if info.digest_zxid else 0)
    is_first = info.zxid <= _FIRST_EPOCH and tree.digest == Tree().digest
    return is_first or stated >= info.zxid > 0


def _rotten(error: StorageError) -> Problem:
    return problem_of(error, "snapshot-damaged", advice="keep it as evidence; it is not used")


def _check_end(scene: _Scene, head: Zxid) -> None:
    """Refuse a history that ends before a record that is known to have been there."""
    # The start of an epoch names no record.
    lost = [zxid for zxid in scene.rotten if zxid > head and counter_of(zxid) != 0]
    if lost:
        raise BrokenHistory(
            f"records up to {format_zxid(max(lost))} existed, as a snapshot shows, but the "
            f"records end at {format_zxid(head)}",
            None,
            None,
            head,
        )


def _check_damage(scene: _Scene, base: Zxid) -> None:
    """Refuse damage that may hide records after the base."""
    for index, survey in enumerate(scene.surveys):
        if not survey.is_damaged:
            continue
        following = (other.runs[0].first for other in scene.surveys[index + 1 :] if other.runs)
        if any(first <= base + 1 for first in following):
            continue  # a file after it takes over below the base: nothing needed is hidden
        raise BrokenHistory(
            f"{survey.ending.reason}: records after {format_zxid(base)} may be lost",
            scene.directory.in_logs(survey.name),
            survey.ending.offset,
            survey.last,
        )


def _replay_runs(scene: _Scene, replay: Replay, base: Base) -> list[SurveyedRun]:
    """Replay every record after the base; returns the runs that are part of the chain."""
    used: list[SurveyedRun] = []
    entries: dict[int, bytes] = {}
    doubled = _doubled(scene.runs)
    for run in scene.runs:
        if run.last <= base.zxid:
            # Same epoch, so same leader: these are the records that led to the base.
            if run.last == base.zxid and run.first not in doubled and run.last not in doubled:
                used.append(run)
            continue
        path = scene.directory.in_logs(run.name)
        fresh = False
        for frame in read_run(scene.disk, scene.directory, run):
            if frame.zxid in doubled:
                other = entries.setdefault(frame.zxid, frame.entry)
                if other != frame.entry and not is_unnumbered(frame.entry):
                    raise BrokenHistory(
                        "two logs hold different records under one zxid",
                        path,
                        frame.offset,
                        frame.zxid,
                    )
            if frame.zxid > replay.head:
                replay.feed(frame, path)
                fresh = True
        if fresh:
            used.append(run)
        else:
            scene.problems.append(
                Problem(
                    "duplicate-records",
                    Severity.NOTE,
                    f"repeats {format_zxid(run.first)} to {format_zxid(run.last)} byte for byte",
                    path,
                    run.start,
                    run.first,
                )
            )
    return used


def _doubled(runs: list[SurveyedRun]) -> set[int]:
    """The zxids that lie in more than one run."""
    doubled: set[int] = set()
    reach: SurveyedRun | None = None
    for run in runs:
        if reach is not None and run.first <= reach.last:
            doubled.update(range(run.first, min(run.last, reach.last) + 1))
        if reach is None or run.last > reach.last:
            reach = run
    return doubled


def _result(
    scene: _Scene,
    listing: Listing,
    manifest: Manifest,
    attempt: _Attempt,
    failures: list[BrokenHistory],
) -> Recovery:
    replay = attempt.replay
    doubts = _doubts(scene, attempt, failures)
    if replay.quirks:
        scene.problems.append(
            Problem(
                "apache-container-digest",
                Severity.NOTE,
                f"{replay.quirks} digests are off as Apache writes them for a create2 with the "
                "container flag",
            )
        )
    older = _older_base(scene, listing, attempt, doubts)
    snapshots = tuple(
        snapshot_entry(scene.disk, scene.directory, a.name, a.base.zxid, a.tree, a.exact)
        for a in (older, attempt)
        if a is not None and a.name is not None
    )
    chain = older or attempt
    segments = segment_entries(
        scene.disk, scene.directory, chain.used, chain.replay, manifest.serial
    )
    live = {s.name for s in snapshots} | {s.name for s in segments}
    retired = tuple(
        Retired(name, delete=False)
        for name in (*listing.snapshots, *listing.logs)
        if name not in live
    )
    return Recovery(
        Standing.UNPROVEN if doubts else Standing.WHOLE,
        head=replay.head,
        tree=attempt.tree,
        base=snapshots[-1] if snapshots else None,
        # Each segment took a serial.
        manifest=replace(manifest, serial=manifest.serial + len(segments)).next(
            generation=manifest.generation + 1,
            snapshots=snapshots,
            segments=segments,
            retired=retired,
            unproven=tuple(sorted({*manifest.unproven, *doubts})),
        ),
        degraded=bool(scene.rotten) or any(survey.is_damaged for survey in scene.surveys),
        adopted=True,
        records=replay.applied,
    )


def _doubts(scene: _Scene, attempt: _Attempt, failures: list[BrokenHistory]) -> set[Zxid]:
    """The records from which on nothing is proven; each one is reported."""
    head = attempt.replay.head
    suspects = {p.zxid: p for p in _older_than_base(scene, attempt) if p.zxid is not None}
    doubts = set(suspects)
    for join in attempt.replay.unproven:
        scene.problems.append(_unproven_join(join, suspects.pop(join.zxid, None)))
        doubts.add(join.zxid)
    scene.problems.extend(suspects.values())
    unsettled = attempt.replay.unsettled
    if unsettled is not None:
        scene.problems.append(
            problem_of(unsettled, "unsettled-digest", Severity.WARNING, advice=_COMPARE)
        )
        doubts.add(head)
    for failure in failures:
        # Valid by itself, yet the records do not fit it: there were two histories.
        scene.problems.append(problem_of(failure, "snapshot-contradicted", advice=_COMPARE))
        doubts.add(head)
    for zxid in sorted(zxid for zxid in scene.rotten if zxid > head):
        reason = (
            f"epoch {epoch_of(zxid)} began with a snapshot that cannot be read; that its state was "
            f"the one at {format_zxid(head)} is not proven"
        )
        scene.problems.append(
            Problem("unproven-start", Severity.WARNING, reason, None, None, zxid, _COMPARE)
        )
        doubts.add(head)
    return doubts


def _unproven_join(join: Join, suspect: Problem | None) -> Problem:
    reason = (
        f"{format_zxid(join.zxid)} opens an epoch; that it follows {format_zxid(join.follows)} "
        "is not proven: the records carry no digest"
    )
    if suspect is not None:
        reason += f"; {suspect.reason}"
    return Problem("unproven-join", Severity.WARNING, reason, None, None, join.zxid, _COMPARE)


def _older_base(
    scene: _Scene, listing: Listing, attempt: _Attempt, doubts: set[Zxid]
) -> _Attempt | None:
    """The next older snapshot that can be read, if the same records lead from it to the same state.

    With two of them listed, neither a truncation to before the newer one nor rot in it forces this
    server to fetch everything from a leader.  None is normal: where a leader sent the newer one,
    anything older is not part of this history.  Adds to `doubts` if the two contradict each other,
    or if the newer one needs confirmation by the older one and lacks it.
    """
    older = _next_older(scene, listing, attempt)
    if older is None:
        if not attempt.is_confirmed:
            reason = (
                "nothing in it says of which zxid its content is, no record after it carries a "
                "digest, and no older snapshot leads to the same state"
            )
            _doubt_base(scene, attempt, "unproven-base", reason, doubts)
        return None
    if older.state != attempt.state:
        reason = f"the records lead to another state from here than from {older.name}"
        _doubt_base(scene, attempt, "snapshots-differ", reason, doubts)
        return None
    unproven = {join.zxid for join in attempt.replay.unproven}
    return older if {join.zxid for join in older.replay.unproven} <= unproven else None


def _doubt_base(
    scene: _Scene, attempt: _Attempt, code: str, reason: str, doubts: set[Zxid]
) -> None:
    doubts.add(attempt.replay.head)
    scene.problems.append(
        Problem(code, Severity.WARNING, reason, attempt.base.file, advice=_COMPARE)
    )


def _next_older(scene: _Scene, listing: Listing, attempt: _Attempt) -> _Attempt | None:
    """The next older snapshot that can be read, if records lead from it to the same head."""
    if attempt.name is None:
        return None
    quiet = _Scene(scene.disk, scene.directory, scene.surveys, [])
    for name in reversed(listing.snapshots[: listing.snapshots.index(attempt.name)]):
        older = _attempt(quiet, name)
        scene.tried.add(name)
        if isinstance(older, _Attempt):
            return older if older.replay.head == attempt.replay.head else None
        if isinstance(older, BrokenHistory):
            return None
        scene.problems.append(_rotten(older))
    return None


def _check_unused(scene: _Scene, listing: Listing) -> None:
    """Read the snapshots that were not needed."""
    for name in listing.snapshots:
        if name not in scene.tried:
            try:
                load_tree(scene.disk, scene.directory.in_snapshots(name), is_fuzzy=True)
            except StorageError as error:
                scene.problems.append(_rotten(error))


def _older_than_base(scene: _Scene, attempt: _Attempt) -> list[Problem]:
    """Records of a later epoch than the base in logs that are older than the base's file.

    That is how a record looks that was never committed: the server logged it, was then given a
    snapshot without it, and the log was left as it was.
    """
    if attempt.base.file is None:
        return []
    suspects = []
    disk = scene.disk
    try:
        written = disk.mtime(attempt.base.file)
        for run in attempt.used:
            path = scene.directory.in_logs(run.name)
            later_epoch = epoch_of(run.first) > epoch_of(attempt.base.zxid)
            if later_epoch and disk.mtime(path) + _MTIME_SLACK_SECONDS < written:
                suspects.append(
                    Problem(
                        "log-older-than-snapshot",
                        Severity.WARNING,
                        "the snapshot was written after this log, and without its records: they "
                        "may never have been committed",
                        path,
                        run.start,
                        run.first,
                        _COMPARE,
                    )
                )
    except OSError:
        return []
    return suspects


def _no_base(scene: _Scene, listing: Listing) -> Problem:
    if listing.snapshots:
        reason = f"none of the {len(listing.snapshots)} snapshots can be read in full"
    else:
        first = scene.runs[0].first
        reason = (
            f"the logs begin at {format_zxid(first)} and there is no snapshot: "
            "what came before is lost"
        )
    return Problem("no-base", Severity.DAMAGE, reason, advice=HEAL)
