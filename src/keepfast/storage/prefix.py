"""The longest history that the files prove, even where they do not prove all of it.

Recovery is all or nothing: a directory with a hole is refused, because a server must not pass
over what may be missing.  Two questions need less: what was the tree at an earlier zxid, and which
part of a damaged history can be kept?  Both are answered by a *prefix*: a base that can be read in
full, and the records after it up to the last one that is proven.

A prefix never reaches past a hole, a record that does not fit, a wrong digest or unreadable bytes.
Where a record contradicts the tree, the join before it is in doubt as well, unless a digest proved
it in between: the prefix then ends before that join.  Valid records after damage count again from
where they directly follow what is proven, which they do if the damage is below the base.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory, Listing, list_directory, parse_log_name
from keepfast.storage.log_file import HEADER_SIZE, Ending, Frame, LogReader
from keepfast.storage.manifest import Manifest, SegmentEntry, load_manifest
from keepfast.storage.recovered import zxid_of_snapshot
from keepfast.storage.recovery import foreign_names
from keepfast.storage.recovery_listed import is_torn_tail, known_joins, listed_path, load_listed
from keepfast.storage.replay import Base, Replay
from keepfast.storage.snapshot_file import load_tree
from keepfast.storage.survey import SurveyedRun, is_unnumbered, runs_of
from keepfast.storage.watermark import read_watermark
from keepfast.tree import Tree
from keepfast.wire import (
    BrokenHistory,
    CorruptLog,
    StorageError,
    Zxid,
    counter_of,
    epoch_of,
    follows_in_epoch,
    format_zxid,
)

NO_LIMIT = Zxid((1 << 63) - 1)


class Gap(NamedTuple):
    """A place at which records may be hidden: no join may pass over it."""

    hidden: Zxid  # the first zxid that it may hide
    error: StorageError


@dataclass(frozen=True, slots=True)
class Records:
    """Every sound record that lies in the files of a directory, and the places that are not."""

    disk: Disk
    directory: DataDirectory
    runs: list[SurveyedRun] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def from_base(self, base: Zxid) -> Iterator[tuple[Frame, SurveyedRun]]:
        """Records in zxid order, from the run on that leads to `base` or after it.

        Raises the error of a gap where passing over it would skip what it hides.
        """
        last = base
        for run in sorted(self.runs, key=lambda run: (run.first, run.last)):
            if run.last < base or (run.last <= last and last != base):
                continue
            for frame in self._read(run):
                if frame.zxid > last:
                    if not follows_in_epoch(frame.zxid, last):
                        self._check_gaps(last, frame.zxid)
                    last = Zxid(frame.zxid)
                yield frame, run
        self._check_gaps(last, NO_LIMIT)

    def _read(self, run: SurveyedRun) -> Iterator[Frame]:
        path = self.directory.in_logs(run.name)
        try:
            with self.disk.open_read(path) as file:
                yield from LogReader(file, run.start, run.end)
        except OSError as error:
            raise CorruptLog(f"cannot be read: {error.strerror}", path) from error

    def _check_gaps(self, last: int, following: int) -> None:
        for gap in self.gaps:
            if last < gap.hidden < following:
                raise gap.error

    def first_conflict(self) -> StorageError | None:
        """The first zxid under which two files hold different records."""
        conflicts = []
        reach: SurveyedRun | None = None
        for run in sorted(self.runs, key=lambda run: (run.first, run.last)):
            if reach is not None and run.first <= reach.last:
                conflicts.extend(self._compare(reach, run))
            if reach is None or run.last > reach.last:
                reach = run
        return min(conflicts, key=lambda error: error.zxid or 0, default=None)

    def _compare(self, one: SurveyedRun, other: SurveyedRun) -> list[StorageError]:
        # Apache may log a failed write under the zxid of the record before it: no second version.
        entries = {
            frame.zxid: frame.entry
            for frame in self._read(one)
            if frame.zxid >= other.first and not is_unnumbered(frame.entry)
        }
        for frame in self._read(other):
            if is_unnumbered(frame.entry):
                continue
            if entries.get(frame.zxid, frame.entry) != frame.entry:
                path = self.directory.in_logs(other.name)
                reason = "two logs hold different records under one zxid"
                return [BrokenHistory(reason, path, frame.offset, frame.zxid)]
        return []


class Stretches:
    """Reads one log past its damaged places and collects runs and gaps."""

    def __init__(self, records: Records, name: str) -> None:
        self._records = records
        self._name = name
        self._path = records.directory.in_logs(name)
        self._last: Zxid | None = None

    def read(
        self,
        start: int = HEADER_SIZE,
        stop: int | None = None,
        is_end: Callable[[Ending], bool] = lambda ending: ending.is_explained,
    ) -> tuple[Ending, int]:
        """Read all stretches, up to an ending that `is_end`; returns the last ending and CRC-32.

        What is not an end is recorded as a gap.
        """
        try:
            with self._records.disk.open_read(self._path) as file:
                while True:
                    reader = LogReader(file, start, stop)
                    self._collect(reader)
                    ending = reader.ending
                    if is_end(ending):
                        return ending, reader.crc32
                    self.gap(ending.reason or "ends early", ending.offset)
                    if ending.valid_after is None:
                        return ending, reader.crc32
                    start = ending.valid_after
        except OSError as error:
            self.gap(f"cannot be read: {error.strerror}", None)
            return Ending(0, "cannot be read"), 0

    @property
    def last(self) -> Zxid | None:
        """The last sound record."""
        return self._last

    def gap(self, reason: str, offset: int | None, hidden: Zxid | None = None) -> None:
        """Note a place that may hide records, by default after the last sound one."""
        if hidden is None:
            named = parse_log_name(self._name)
            hidden = (named or Zxid(0)) if self._last is None else Zxid(self._last + 1)
        error = CorruptLog(reason, self._path, offset, self._last)
        self._records.gaps.append(Gap(hidden, error))

    def _collect(self, reader: LogReader) -> None:
        for run in runs_of(self._name, reader):
            self._last = run.last
            self._records.runs.append(run)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A proven state, and why the history ends there."""

    base_name: str | None  # None: the empty tree
    base: Base
    replay: Replay
    runs: list[SurveyedRun]  # where its records lie; the last one ends at the head
    # What lies after the last record; None if there is nothing, or nothing that was asked for.
    stop: StorageError | None = None
    is_contradicted: bool = False  # by the record after it: one of the two is wrong
    has_digests: bool = False  # its records carry digests, which prove the base as well

    @property
    def head(self) -> Zxid:
        """The last zxid of the prefix."""
        return self.replay.head

    @property
    def tree(self) -> Tree:
        """The state at the head."""
        return self.replay.tree


@dataclass(frozen=True, slots=True)
class Origin:
    """A base from which a history may begin; `load` loads it as often as needed."""

    name: str | None
    zxid: Zxid
    load: Callable[[], tuple[Tree, Base]]
    joins: dict[Zxid, Zxid] | None
    known_zxids: frozenset[Zxid]

    def prefix(
        self, records: Records, until: Zxid, shown: frozenset[Zxid] = frozenset()
    ) -> Prefix | StorageError:
        """The longest proven history on this base, or why there is none.

        `shown` are zxids of which a newer base shows an effect: no join may jump over them.
        """
        known = self.known_zxids | shown
        try:
            walk, base = self._walk(records, until, known)
            if walk.end is None:
                return walk.stop or BrokenHistory(
                    "the snapshot holds effects of records that are not there", base.file
                )
            stop, is_contradicted = walk.stop, walk.is_contradicted
            if stop is not None or walk.end != walk.replay.head:
                # The tree may have changed after the end: once more, and no further.
                walk, base = self._walk(records, walk.end, known)
        except StorageError as error:
            return error
        if stop is None and until == NO_LIMIT:
            stop = _missing_end(known, walk.replay.head)
        return Prefix(
            *(self.name, base, walk.replay, walk.runs(), stop, is_contradicted, walk.has_digests)
        )

    def shows(self) -> set[Zxid]:
        """The last zxid of which the base shows an effect, if it can be read."""
        try:
            return {self.load()[1].fuzzy_until}
        except StorageError:
            return set()

    def _walk(self, records: Records, until: Zxid, known: frozenset[Zxid]) -> tuple["_Walk", Base]:
        tree, base = self.load()
        replay = Replay(tree, base, self.joins, known | {base.fuzzy_until})
        walk = _Walk(replay)
        walk.follow(records.from_base(base.zxid), records.directory, until)
        return walk, base


def _missing_end(known: frozenset[Zxid], head: Zxid) -> StorageError | None:
    """The error for a snapshot that shows that records after the head existed."""
    # The start of an epoch names no record.
    lost = [zxid for zxid in known if zxid > head and counter_of(zxid) != 0]
    if not lost:
        return None
    reason = f"records up to {format_zxid(max(lost))} existed, as a snapshot shows"
    return BrokenHistory(f"{reason}, but the records end at {format_zxid(head)}", zxid=head)


class _Walk:
    """One replay, as far as it goes."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.stop: StorageError | None = None
        self.is_contradicted = False
        self._reached = replay.head if self._may_end() else None
        self._proven = self._reached  # the same, with no join in doubt
        self._before_join = self._reached
        self.has_digests = False
        self._trail: list[tuple[SurveyedRun, Zxid, int]] = []

    @property
    def end(self) -> Zxid | None:
        """The last zxid that is proven; None if not even the base is."""
        if self.stop is None or not self.replay.unproven:
            return self._reached
        if self.has_digests:
            return self._proven
        return self._before_join if self.is_contradicted else self._reached

    def runs(self) -> list[SurveyedRun]:
        """Where the records lie that lead to the head."""
        return [
            SurveyedRun(run.name, run.first, last, run.start, end) for run, last, end in self._trail
        ]

    def follow(
        self, frames: Iterable[tuple[Frame, SurveyedRun]], directory: DataDirectory, until: Zxid
    ) -> None:
        """Replay records up to `until`, or to the first that cannot be replayed."""
        try:
            for frame, run in frames:
                if frame.zxid > until:
                    break
                if frame.zxid > self.replay.head:
                    self._feed(frame, directory.in_logs(run.name))
                elif self.replay.applied:
                    continue  # a second copy of a record
                elif self._trail and self._trail[-1][0] is not run:
                    self._trail.clear()  # another run leads to the base as well: one is enough
                self._note(frame, run)
        except StorageError as error:
            self.stop = error
            return
        try:
            self.replay.finish()
        except BrokenHistory as error:
            # A record does not fit, and nothing after it showed that only the base was ahead.
            self.stop, self.is_contradicted = error, True

    def _feed(self, frame: Frame, path: str) -> None:
        replay = self.replay
        head, joins = replay.head, len(replay.joins)
        if not follows_in_epoch(frame.zxid, head):
            self._before_join = self._reached
        try:
            entry = replay.feed(frame, path)
        except BrokenHistory:
            # Raised before the join was recorded, it is a hole; after that, a misfit.
            is_hole = len(replay.joins) == joins and not follows_in_epoch(frame.zxid, head)
            self.is_contradicted = not is_hole
            raise
        self.has_digests |= entry.digest is not None
        if self._may_end():
            self._reached = replay.head
            if not replay.unproven:
                self._proven = self._reached

    def _note(self, frame: Frame, run: SurveyedRun) -> None:
        entry = (run, Zxid(frame.zxid), frame.end)
        if self._trail and self._trail[-1][0] is run:
            self._trail[-1] = entry
        else:
            self._trail.append(entry)

    def _may_end(self) -> bool:
        """Whether the state right now is exact, so that a history may end here."""
        try:
            self.replay.finish()
        except BrokenHistory:
            return False
        return True


def longest_prefix(
    origins: Iterable[Origin], records: Records, until: Zxid = NO_LIMIT
) -> Prefix | StorageError | None:
    """The prefix that reaches furthest, not beyond `until`; the newest base that does.

    None if there is no base at all; an error says why the newest one is unusable.
    """
    conflict = records.first_conflict()
    limit = until if conflict is None else Zxid(min(until, (conflict.zxid or 0) - 1))
    best: Prefix | None = None
    shown: set[Zxid] = set()
    failure: StorageError | None = None
    for origin in origins:
        if origin.zxid > limit:
            continue
        found = origin.prefix(records, limit, frozenset(shown))
        if isinstance(found, Prefix) and found.base_name is None and not found.replay.applied:
            # Without a record that starts from it, the empty tree would be an invented base.
            found = found.stop or BrokenHistory("there is no snapshot and no record to begin with")
        if isinstance(found, StorageError):
            failure = failure or found
            shown |= origin.shows()
            continue
        shown.add(found.base.fuzzy_until)
        if best is None or found.head > best.head:
            best = found
        if not found.is_contradicted:
            break  # an older base meets the same hole, or the same end
    if best is None:
        return failure or conflict
    if best.stop is None and limit != until:
        return replace(best, stop=conflict)
    return best


def unlisted_origins(disk: Disk, directory: DataDirectory, listing: Listing) -> list[Origin]:
    """The bases of a directory that no manifest describes, newest first.

    The empty tree is one where the logs begin as a history does: see recovery_unlisted.
    """
    zxids = {zxid_of_snapshot(name) for name in listing.snapshots}

    def load(path: str) -> tuple[Tree, Base]:
        tree, info, seen = load_tree(disk, path, is_fuzzy=True)
        until = max(info.zxid, info.digest_zxid or 0, info.last_processed or 0, seen)
        return tree, Base(info.zxid, Zxid(until), False, path, info.digest, info.digest_zxid)

    origins = []
    for name in reversed(listing.snapshots):
        zxid, path = zxid_of_snapshot(name), directory.in_snapshots(name)
        # A snapshot's name alone proves that this server once had that state.
        known = frozenset(other for other in zxids if other > zxid)
        origins.append(Origin(name, zxid, partial(load, path), None, known))
    first = min(
        (zxid for zxid in map(parse_log_name, listing.logs) if zxid is not None), default=None
    )
    if first is not None and counter_of(first) == 1 and epoch_of(first) <= 1:
        base = Base(Zxid(0), Zxid(0), exact=True)
        known = frozenset(zxid for zxid in zxids if zxid > 0)
        origins.append(Origin(None, Zxid(0), lambda: (Tree(), base), None, known))
    return origins


def unlisted_records(disk: Disk, directory: DataDirectory, listing: Listing) -> Records:
    """Every sound record of all logs."""
    records = Records(disk, directory)
    for name in listing.logs:
        Stretches(records, name).read()
    return records


def listed_origins(disk: Disk, directory: DataDirectory, manifest: Manifest) -> list[Origin]:
    """The snapshots that the manifest lists, newest first; each is checked against it."""
    joins = known_joins(manifest.segments)
    return [
        Origin(
            entry.name,
            entry.zxid,
            partial(load_listed, disk, directory, entry),
            joins,
            frozenset(),
        )
        for entry in reversed(manifest.snapshots)
    ]


def listed_records(disk: Disk, directory: DataDirectory, manifest: Manifest) -> Records:
    """Every sound record of the segments that the manifest lists."""
    records = Records(disk, directory)
    watermark = read_watermark(disk, directory)
    for entry in manifest.segments:
        acknowledged = watermark.end if watermark and watermark.serial == entry.serial else 0
        _read_segment(records, entry, listed_path(disk, directory, entry), acknowledged)
    return records


def _read_segment(records: Records, entry: SegmentEntry, path: str, acknowledged: int) -> None:
    stretches = Stretches(records, entry.name)
    runs, gaps = len(records.runs), len(records.gaps)
    if not records.disk.exists(path):
        stretches.gap("is missing, although the manifest lists it", None, entry.first)
        return
    seal = entry.seal
    if seal is None:
        stretches.read(entry.start, None, lambda ending: is_torn_tail(ending, acknowledged))
        return
    ending, crc = stretches.read(entry.start, seal.end)
    if len(records.gaps) > gaps:
        return
    if stretches.last != seal.last or ending.offset != seal.end:
        stretches.gap(ending.reason or "ends early", ending.offset)
    elif crc != seal.crc32:
        # Every record is valid by itself, yet these are not the bytes that were written: nothing
        # shows which of them is wrong.
        del records.runs[runs:]
        reason = "its bytes are not the ones that were sealed (CRC-32)"
        stretches.gap(reason, None, entry.first)


def prefix_of(
    disk: Disk, directory: DataDirectory, until: Zxid = NO_LIMIT
) -> Prefix | StorageError | None:
    """The longest history of a directory, not beyond `until`; see `longest_prefix`.

    Raises StorageError if the directory cannot be listed or its manifest cannot be trusted.
    """
    listing = list_directory(disk, directory)
    manifest = load_manifest(disk, directory)
    if manifest is None or foreign_names(disk, directory, listing, manifest, []):
        origins = unlisted_origins(disk, directory, listing)
        return longest_prefix(origins, unlisted_records(disk, directory, listing), until)
    origins = listed_origins(disk, directory, manifest)
    return longest_prefix(origins, listed_records(disk, directory, manifest), until)
