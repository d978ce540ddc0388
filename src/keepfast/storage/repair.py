"""Repair: keep what is proven, move the rest aside, and report what is lost.

A repair invents nothing.  It ends the history at the last record that is proven (prefix.py), moves
every other data file aside and cuts what follows that record, after putting a copy aside.  No
checksum is recomputed over bytes that failed one, and no base is invented: where nothing is proven,
a repair is refused.

Theory of operation.  `plan_repair` only reads.  It builds the manifest that the directory is to
have, reads the directory as it *would* be through a `PlannedDisk`, and lets recovery judge that: a
plan after which recovery does not find a sound history is never offered.  `apply_repair` writes
copies, then the manifest, then moves and cuts.  The manifest decides: power lost before it is
durable leaves the old directory, power lost after it the repaired one.

What recovery would have adopted as unproven remains so: the manifest lists it as such.

A repair does not restore the vote (R8, R14).  Records after the new head may have been
acknowledged, and a member of an ensemble that voted without them could make the others forget them:
it is marked as one that has to catch up, from a leader whose quorum does not include it, before it
votes again.
"""

import errno
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from keepfast.storage.disk import Disk, ReadFile, directory_of, make_directory_durably
from keepfast.storage.disk_views import PlannedDisk
from keepfast.storage.epochs import read_epochs
from keepfast.storage.layout import (
    ASIDE_NAME,
    MANIFEST_NAME,
    MY_ID_NAME,
    DataDirectory,
    Listing,
    list_directory,
)
from keepfast.storage.live_files import apply_manifest, retire
from keepfast.storage.locks import lock_directory, unlock_directory
from keepfast.storage.manifest import (
    Manifest,
    Retired,
    SegmentEntry,
    SnapshotEntry,
    load_manifest,
    store_manifest,
)
from keepfast.storage.prefix import (
    Prefix,
    Records,
    listed_origins,
    listed_records,
    longest_prefix,
    unlisted_origins,
    unlisted_records,
)
from keepfast.storage.problems import Severity, Standing
from keepfast.storage.recovered import NO_HISTORY, Recovery
from keepfast.storage.recovery import foreign_names, recover
from keepfast.storage.recovery_listed import check_sealed, known_joins, load_listed
from keepfast.storage.snapshot_writer import SnapshotWriter, disk_failure
from keepfast.storage.store_options import DEFAULTS
from keepfast.storage.survey import SurveyedRun
from keepfast.storage.takeover import segment_entries, snapshot_entry
from keepfast.storage.watermark import read_watermark
from keepfast.wire import CorruptManifest, DiskFailed, StorageError, Zxid, format_zxid

_WINDOW_SIZE = 1 << 20


class RepairRefused(StorageError):  # noqa: N818 - a fact, as wire.errors has them
    """A repair that would have to guess; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A log that is shortened; the whole of it is copied aside first."""

    name: str
    end: int  # its size afterwards
    size: int  # its size now


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What a repair does, and what it leaves."""

    before: Recovery
    after: Recovery  # recovery's own verdict on the directory as it will be
    prefix: Prefix
    manifest: Manifest
    moved: tuple[str, ...]  # names of the files that go aside
    copied: tuple[str, ...]  # names of the files of which a copy goes aside
    cuts: tuple[Cut, ...]
    lost: tuple[SurveyedRun, ...]  # sound records that are no longer a part of the history
    acknowledged: Zxid | None  # the last record known to have been acknowledged, if it is lost

    @property
    def gives_up_vote(self) -> bool:
        """Whether this is a member of an ensemble, which has to catch up before it votes again."""
        return self.manifest.repaired_at is not None

    @property
    def generation(self) -> int:
        """Names the folder below keepfast.aside for the files that are moved."""
        return self.manifest.generation


@contextmanager
def hold(disk: Disk, directory: DataDirectory) -> Iterator[None]:
    """Keep servers off the directory; raises RepairRefused if one is running."""
    try:
        lock_directory(disk, directory)
    except BlockingIOError as error:
        raise RepairRefused("a server is running on this directory", error.filename) from error
    try:
        yield
    finally:
        unlock_directory(disk, directory)


def plan_repair(disk: Disk, directory: DataDirectory) -> RepairPlan | Recovery:
    """What a repair would do; a Recovery if there is nothing to repair.

    Raises RepairRefused if nothing is proven, or if what is wrong cannot be put right without
    guessing.
    """
    before = recover(disk, directory, full=True)
    if _is_sound(before):
        return before
    listing = list_directory(disk, directory)
    best = _best_candidate(disk, directory, listing)
    found = best.prefix
    if not isinstance(found, Prefix):
        raise _refused("nothing is proven from which a history could begin", before, found)
    if before.standing is Standing.WHOLE and found.head < before.head:
        # Only files that no start needs are bad, and the proof by all files ends before them.
        raise RepairRefused(
            f"the history is whole up to {format_zxid(before.head)}, and a repair would end it at "
            f"{format_zxid(found.head)}: start the server, and purge after its next snapshots"
        )
    planned = _plan_manifest(disk, directory, listing, found, best.manifest)
    if before.standing is not Standing.WHOLE and _is_member(disk, directory, planned):
        planned = replace(planned, is_catching_up=True, repaired_at=found.head)
    cuts = _cuts(disk, directory, planned)
    copied = tuple(cut.name for cut in cuts)
    if best.manifest is None and disk.exists(directory.manifest):
        copied = (*copied, MANIFEST_NAME)
    after = _after(disk, directory, planned, {cut.name: cut.end for cut in cuts}, best)
    planned = replace(planned, unproven=after.manifest.unproven)
    watermark = read_watermark(disk, directory)
    return RepairPlan(
        before,
        after,
        found,
        planned,
        tuple(retired.name for retired in planned.retired),
        copied,
        cuts,
        _lost(best.records, found.head),
        watermark.zxid if watermark is not None and watermark.zxid > found.head else None,
    )


def _is_member(disk: Disk, directory: DataDirectory, manifest: Manifest) -> bool:
    """Whether the directory is that of a member of an ensemble: others may rely on its acks."""
    facts = (manifest.accepted_epoch, manifest.current_epoch, manifest.ensemble)
    my_id = posixpath.join(posixpath.dirname(directory.snapshots), MY_ID_NAME)
    return any(fact is not None for fact in facts) or disk.exists(my_id)


def _after(
    disk: Disk,
    directory: DataDirectory,
    planned: Manifest,
    sizes: dict[str, int],
    best: "_Candidate",
) -> Recovery:
    """What recovery will report about the repaired directory, now and later."""
    head = best.prefix.head if isinstance(best.prefix, Prefix) else NO_HISTORY
    if not best.is_listed:
        # What is unproven about files that no manifest describes, recovery knows best.
        view = PlannedDisk(disk, directory, planned, sizes, is_listed=False)
        unlisted = recover(view, directory, full=True)
        doubts = {*planned.unproven, *unlisted.manifest.unproven}
        if not _is_sound(unlisted) or unlisted.head != head:
            # It does not read past damage below the base. Digests alone prove what follows; without
            # them it stays in doubt.
            if not planned.snapshots:
                raise _refused("the files alone do not show how to put this right", unlisted)
            if not (isinstance(best.prefix, Prefix) and best.prefix.has_digests):
                doubts.add(head)
        elif not planned.snapshots:
            # The manifest gets its snapshot only when the plan is carried out.
            is_short = planned.is_catching_up and unlisted.standing is Standing.WHOLE
            return replace(unlisted, standing=Standing.CATCHING_UP) if is_short else unlisted
        planned = replace(planned, unproven=tuple(sorted(doubts)))
    view = PlannedDisk(disk, directory, planned, sizes, is_listed=True)
    after = recover(view, directory, full=True)
    if not _is_sound(after) or after.head != head or after.tree is None:
        raise _refused("the files alone do not show how to put this right", after)
    return after


def _is_sound(recovery: Recovery) -> bool:
    sound = (Standing.WHOLE, Standing.UNPROVEN, Standing.CATCHING_UP)
    return recovery.standing in sound and not any(
        problem.severity is Severity.DAMAGE for problem in recovery.problems
    )


def _refused(why: str, recovery: Recovery, error: StorageError | None = None) -> RepairRefused:
    """Why there is no plan: in the words of `error`, or of the damage that recovery found."""
    if error is None:
        damage = [p for p in recovery.problems if p.severity is Severity.DAMAGE]
        if not damage:
            return RepairRefused("there is no history here")
        error = StorageError(damage[-1].reason, damage[-1].file, damage[-1].offset, damage[-1].zxid)
    return RepairRefused(f"{why}: {error.reason}", error.file, error.offset, error.zxid)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The longest proven history, or why there is none."""

    prefix: Prefix | StorageError | None
    manifest: Manifest | None  # the one that is there, if it can be trusted
    is_listed: bool  # it is the history of that manifest
    records: Records  # everything that is sound, in the history or not


def _best_candidate(disk: Disk, directory: DataDirectory, listing: Listing) -> _Candidate:
    everything = unlisted_records(disk, directory, listing)
    try:
        manifest = load_manifest(disk, directory)
    except CorruptManifest:
        manifest = None
    listed: Prefix | StorageError | None = None
    if manifest is not None:
        origins = listed_origins(disk, directory, manifest)
        listed = longest_prefix(origins, listed_records(disk, directory, manifest))
        if not foreign_names(disk, directory, listing, manifest, []):
            return _Candidate(listed, manifest, True, everything)
    found = longest_prefix(unlisted_origins(disk, directory, listing), everything)
    # Files that another program added count where they lead further than what is listed.
    if isinstance(listed, Prefix) and not (isinstance(found, Prefix) and found.head >= listed.head):
        return _Candidate(listed, manifest, True, everything)
    return _Candidate(found, manifest, False, everything)


def _plan_manifest(
    disk: Disk,
    directory: DataDirectory,
    listing: Listing,
    prefix: Prefix,
    manifest: Manifest | None,
) -> Manifest:
    known = manifest or Manifest()
    epochs = read_epochs(disk, directory, manifest, [])
    snapshots, segments = _live(disk, directory, prefix, known)
    live = {entry.name for entry in snapshots} | {entry.name for entry in segments}
    retired = tuple(
        Retired(name, delete=False)
        for name in (*listing.snapshots, *listing.logs)
        if name not in live
    )
    watermark = read_watermark(disk, directory)
    serial = max(known.serial, 0 if watermark is None else watermark.serial)
    return replace(
        known,
        generation=max(known.generation, _last_aside(disk, directory)) + 1,
        # Above everything that a segment or the watermark was ever numbered with.
        serial=max([serial, *(segment.serial for segment in segments)]) + 1,
        accepted_epoch=epochs.accepted,
        current_epoch=epochs.current,
        snapshots=snapshots,
        segments=segments,
        retired=retired,
        unproven=tuple(sorted({*known.unproven, *(join.zxid for join in prefix.replay.unproven)})),
    )


def _live(
    disk: Disk, directory: DataDirectory, prefix: Prefix, known: Manifest
) -> tuple[tuple[SnapshotEntry, ...], tuple[SegmentEntry, ...]]:
    """The files that make up the prefix, with what is sound of the listed ones below it."""
    joins = known_joins(known.segments)
    segments = tuple(
        replace(entry, follows=joins.get(entry.first, entry.follows))
        for entry in segment_entries(disk, directory, prefix.runs, prefix.replay, known.serial)
    )
    listed = {entry.name: entry for entry in known.snapshots}
    base = listed.get(prefix.base_name or "")
    if base is None:
        if prefix.base_name is None:
            return (), segments
        exact = prefix.replay.applied == 0 and prefix.base.fuzzy_until == prefix.base.zxid
        entry = snapshot_entry(
            disk, directory, prefix.base_name, prefix.base.zxid, prefix.tree, exact
        )
        return (entry,), segments
    older = _older_segments(disk, directory, segments, known)
    segments = (*older, *segments)
    start = segments[0].follows if segments else prefix.base.zxid
    snapshots = tuple(
        entry
        for entry in known.snapshots
        if start <= entry.zxid <= prefix.head and (entry is base or _loads(disk, directory, entry))
    )
    return snapshots, segments


def _older_segments(
    disk: Disk, directory: DataDirectory, segments: tuple[SegmentEntry, ...], known: Manifest
) -> list[SegmentEntry]:
    """Listed segments below the prefix that lead to it without a hole."""
    older: list[SegmentEntry] = []
    follows = segments[0].follows if segments else None
    for entry in reversed(known.segments):
        if entry.seal is None or entry.seal.last != follows:
            continue
        try:
            check_sealed(disk, directory.in_logs(entry.name), entry, entry.seal)
        except (OSError, StorageError):
            break
        older.insert(0, entry)
        follows = entry.follows
    return older


def _loads(disk: Disk, directory: DataDirectory, entry: SnapshotEntry) -> bool:
    try:
        load_listed(disk, directory, entry)
    except StorageError:
        return False
    return True


def _last_aside(disk: Disk, directory: DataDirectory) -> int:
    """The greatest generation that put something aside: its folder must not be written to again."""
    numbers = [0]
    for place in directory.both:
        root = posixpath.join(place, ASIDE_NAME)
        if disk.is_directory(root):
            numbers += [int(n[1:]) for n in disk.list(root) if n[:1] == "g" and n[1:].isdecimal()]
    return max(numbers)


def _cuts(disk: Disk, directory: DataDirectory, manifest: Manifest) -> tuple[Cut, ...]:
    """The logs that stay and have more in them than records of the history."""
    ends: dict[str, int] = {}
    for entry in manifest.segments:
        if entry.seal is not None:
            ends[entry.name] = max(ends.get(entry.name, 0), entry.seal.end)
    cuts = []
    for name, end in ends.items():
        with disk.open_read(directory.in_logs(name)) as file:
            size = file.size()
            if any(any(window) for _, window in _windows(file, end)):
                cuts.append(Cut(name, end, size))
    return tuple(cuts)


def _windows(file: ReadFile, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    while window := file.read_at(offset, _WINDOW_SIZE):
        yield offset, window
        offset += len(window)


def _lost(records: Records, head: Zxid) -> tuple[SurveyedRun, ...]:
    """Sound records after the head, file by file."""
    return tuple(
        replace(run, first=Zxid(max(run.first, head + 1)))
        for run in sorted(records.runs, key=lambda run: run.first)
        if run.last > head
    )


def apply_repair(disk: Disk, directory: DataDirectory, plan: RepairPlan) -> Recovery:
    """Carry out a plan that was made under the same `hold`; returns what is there afterwards.

    Power lost in between leaves the directory as it was, or repaired, with some of the files not
    moved yet. Raises DiskFailed, or RepairRefused where the result is not the one that was planned.
    """
    try:
        for name in plan.copied:
            _copy_aside(disk, directory, name, plan.generation)
        manifest = _with_base(disk, directory, plan)
        store_manifest(disk, directory, manifest)
        retire(disk, directory, manifest.retired, manifest.generation)
        for cut in plan.cuts:
            with disk.open_write(directory.in_logs(cut.name)) as file:
                file.truncate(cut.end)
                file.fsync()
        apply_manifest(disk, directory, manifest)
    except OSError as error:
        place = error.filename or directory.snapshots
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RepairRefused("there is no space for the copies", place) from error
        raise disk_failure(error, place) from error
    after = recover(disk, directory, full=True)
    if after.head != plan.after.head or after.standing is not plan.after.standing:
        raise DiskFailed(
            f"the repaired directory is {after.standing.value} at {format_zxid(after.head)}, which "
            "is not what was planned",
            directory.snapshots,
        )
    return after


def _copy_aside(disk: Disk, directory: DataDirectory, name: str, generation: int) -> None:
    """Put a copy of a file aside; durable on return. Zeros are left out, as in the original."""
    target = directory.aside_of(name, generation)
    make_directory_durably(disk, directory_of(target))
    with disk.open_read(directory.path_of(name)) as source, disk.create(target) as copy:
        for offset, window in _windows(source):
            if any(window):
                copy.write_at(offset, window)
        copy.truncate(source.size())
        copy.fsync()
    with disk.open_read(directory.path_of(name)) as source, disk.open_read(target) as copied:
        for one, other in zip(_windows(source), _windows(copied), strict=False):
            if one != other:
                raise OSError(errno.EIO, "reads back other bytes than were written", target)
    disk.fsync_directory(directory_of(target))


def _with_base(disk: Disk, directory: DataDirectory, plan: RepairPlan) -> Manifest:
    """The manifest with a snapshot in it, without which it would stand for an empty directory.

    Where the base is the empty tree, which old servers did not write down, it is the state at the
    head, as `Store.open` does it.
    """
    if plan.manifest.snapshots or plan.after.tree is None:
        return plan.manifest
    writer = SnapshotWriter(
        disk, directory, plan.after.tree.freeze(), DEFAULTS, plan.manifest.serial
    )
    while writer.step():
        pass
    return replace(plan.manifest, snapshots=(writer.complete(),))
