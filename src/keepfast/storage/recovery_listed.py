"""Recovery of a directory that a manifest describes.

Everything that matters is known: size and CRC of each snapshot, end, last zxid and CRC of each
sealed segment, what each epoch's first record follows.  Only the end of the open segment is open,
and there the watermark says how much of it was acknowledged (R4).
"""

import posixpath

from msgspec.structs import replace

from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import Ending, LogReader
from keepfast.storage.manifest import Manifest, Retired, Seal, SegmentEntry, SnapshotEntry
from keepfast.storage.problems import Problem, Severity, Standing
from keepfast.storage.recovered import (
    HEAL,
    SNAPSHOT_REWRITTEN,
    Recovery,
    doubted,
    problem_of,
    segments_after,
)
from keepfast.storage.replay import Base, Replay
from keepfast.storage.snapshot_file import load_tree
from keepfast.storage.takeover import crc_of, rewritten_entry
from keepfast.storage.watermark import Watermark, is_watermark_intact, read_watermark
from keepfast.tree import Tree
from keepfast.wire import (
    BrokenHistory,
    CorruptLog,
    CorruptSnapshot,
    StorageError,
    Zxid,
    format_zxid,
)

# A group of records is written and fsynced together and is never larger than this (or one record).
GROUP_LIMIT_BYTES = 4 << 20


def recover_listed(
    disk: Disk,
    directory: DataDirectory,
    manifest: Manifest,
    problems: list[Problem],
    full: bool,
) -> Recovery:
    """The state that the manifest's files prove; problems are added to `problems`."""
    degraded = False
    watermark = read_watermark(disk, directory)
    if watermark is not None and watermark.serial > manifest.serial:
        problems.append(_old_manifest(directory, watermark))
        return Recovery(Standing.DAMAGED, manifest=manifest, degraded=True)
    if not manifest.snapshots:
        return Recovery(Standing.EMPTY, manifest=manifest)
    damaged: list[SnapshotEntry] = []
    for entry in reversed(manifest.snapshots):
        try:
            tree, base = load_listed(disk, directory, entry)
        except StorageError as error:
            again = rewritten_entry(disk, directory, entry)
            if again is None:
                problems.append(problem_of(error, "snapshot-damaged", advice=HEAL))
                degraded = True
                damaged.append(entry)
                continue
            problems.append(_rewritten(directory, again))
            manifest = manifest.with_snapshot(again)
            entry = again
            tree, base = load_listed(disk, directory, entry)
        try:
            replay, sealed = _replay(disk, directory, manifest, tree, base, watermark)
        except StorageError as error:
            problems.append(problem_of(error, "history-broken", advice=HEAL))
            return Recovery(Standing.DAMAGED, base=entry, manifest=manifest, degraded=True)
        problems.extend(sealed.notes)
        doubts = _still_unproven(manifest, replay.head)
        problems.extend(doubts)
        if full:
            degraded |= _check_unused(disk, directory, manifest, entry, problems)
        result = Recovery(
            Standing.UNPROVEN if doubts else Standing.WHOLE,
            head=replay.head,
            tree=tree,
            base=entry,
            manifest=sealed.with_segments(manifest),
            degraded=degraded,
            records=replay.applied,
            unconfirmed_from=sealed.unconfirmed_from,
        )
        is_open = any(segment.seal is None for segment in manifest.segments)
        if is_open and not is_watermark_intact(disk, directory):
            return doubted(result, _no_watermark(directory), problems)
        if damaged and result.standing is Standing.WHOLE:
            return replace(result, manifest=_put_aside(result.manifest, damaged))
        return result
    return Recovery(Standing.DAMAGED, manifest=manifest, degraded=True)


def _put_aside(manifest: Manifest, damaged: list[SnapshotEntry]) -> Manifest:
    """The manifest without snapshots that can no longer be read, which are moved aside as evidence.

    An older snapshot and every record after it prove the whole history, so nothing depends on them.
    Under a live name, Apache's purge would count them as recent, and Apache could start on one
    whose damage only our own seal shows.
    """
    names = {entry.name for entry in damaged}
    return replace(
        manifest,
        snapshots=tuple(entry for entry in manifest.snapshots if entry.name not in names),
        retired=(*manifest.retired, *(Retired(name, delete=False) for name in sorted(names))),
    )


def _old_manifest(directory: DataDirectory, watermark: Watermark) -> Problem:
    """Records are written only after the manifest that lists their segment."""
    reason = (
        f"is an old one: records up to {format_zxid(watermark.zxid)} were acknowledged in a "
        "segment that it does not know"
    )
    return Problem(
        "history-broken", Severity.DAMAGE, reason, directory.manifest, None, watermark.zxid, HEAL
    )


def _no_watermark(directory: DataDirectory) -> Problem:
    reason = "is missing or damaged: how far records were acknowledged is not known"
    return Problem("witness-damaged", Severity.DAMAGE, reason, directory.watermark)


def _rewritten(directory: DataDirectory, entry: SnapshotEntry) -> Problem:
    return Problem(
        SNAPSHOT_REWRITTEN,
        Severity.WARNING,
        "another program wrote it anew; by its digests it holds the same state",
        directory.in_snapshots(entry.name),
        zxid=entry.zxid,
    )


def _still_unproven(manifest: Manifest, head: Zxid) -> list[Problem]:
    """What was taken over unproven and was not truncated since."""
    return [
        Problem(
            "unproven",
            Severity.WARNING,
            f"{format_zxid(zxid)} and what follows was taken over although nothing proves it",
            None,
            None,
            zxid,
            "compare zxid and digest with the other servers: keepfast verify on each",
        )
        for zxid in manifest.unproven
        if zxid <= head
    ]


def listed_path(disk: Disk, directory: DataDirectory, entry: SegmentEntry | SnapshotEntry) -> str:
    """Where a listed file is: under its temporary name if a crash came before the rename.

    The temporary name takes precedence: an older file may still have the live name.
    """
    path = directory.path_of(entry.name)
    if entry.staged is not None:
        temporary = posixpath.join(posixpath.dirname(path), entry.staged)
        if disk.exists(temporary):
            return temporary
    return path


def load_listed(disk: Disk, directory: DataDirectory, entry: SnapshotEntry) -> tuple[Tree, Base]:
    """Load a listed snapshot and check it against what the manifest says of it."""
    path = listed_path(disk, directory, entry)
    check_bytes(disk, path, entry)
    tree, info, seen = load_tree(disk, path, entry.name, is_fuzzy=not entry.exact)
    if not entry.exact:
        until = max(entry.zxid, info.digest_zxid or 0, info.last_processed or 0, seen)
        return tree, Base(entry.zxid, Zxid(until), False, path, info.digest, info.digest_zxid)
    for name, found, stated in (
        ("tree digest", tree.digest, entry.digest),
        ("state digest", tree.state_digest, entry.state_digest),
    ):
        if stated is not None and found != stated:
            raise CorruptSnapshot(
                f"{name} is {found:#x} where the manifest says {stated:#x}", path, None, entry.zxid
            )
    if seen > entry.zxid:
        raise CorruptSnapshot(
            f"shows an effect of {format_zxid(seen)}, which is later than its zxid",
            path,
            None,
            entry.zxid,
        )
    return tree, Base(entry.zxid, entry.zxid, True, path)


def check_bytes(disk: Disk, path: str, entry: SnapshotEntry) -> None:
    """Compare size and CRC-32 of a snapshot's file with what was written."""
    try:
        with disk.open_read(path) as file:
            size = file.size()
            if size != entry.size:
                raise CorruptSnapshot(
                    f"has {size} bytes where {entry.size} were written", path, min(size, entry.size)
                )
            crc = crc_of(file)
    except FileNotFoundError as error:
        raise CorruptSnapshot("is missing", path) from error
    except OSError as error:
        raise CorruptSnapshot(f"cannot be read: {error.strerror}", path) from error
    if crc != entry.crc32:
        raise CorruptSnapshot("its bytes are not the ones that were written (CRC-32)", path)


class _Sealed:
    """The segments as they will be listed: all sealed, the last one after its last record."""

    def __init__(self, segments: tuple[SegmentEntry, ...]) -> None:
        self.segments = segments
        self.notes: list[Problem] = []
        self.unconfirmed_from: int | None = None

    def with_segments(self, manifest: Manifest) -> Manifest:
        """The manifest with these segments.

        One that never became part of the history must not keep its live name: what a torn group
        left in it would look like another program's file, or like damage.
        """
        dropped = manifest.segments[len(self.segments) :]
        retired = (*manifest.retired, *(Retired(entry.name, delete=True) for entry in dropped))
        return replace(manifest, segments=self.segments, retired=retired)


def _replay(
    disk: Disk,
    directory: DataDirectory,
    manifest: Manifest,
    tree: Tree,
    base: Base,
    watermark: Watermark | None,
) -> tuple[Replay, _Sealed]:
    replay = Replay(tree, base, known_joins(manifest.segments))
    sealed = _Sealed(manifest.segments)
    for entry in segments_after(manifest.segments, base.zxid):
        path = listed_path(disk, directory, entry)
        try:
            with disk.open_read(path) as file:
                if entry.seal is not None:
                    reader = LogReader(file, entry.start, entry.seal.end)
                    _check_seal(reader, entry.seal, _feed_all(replay, reader, entry, path), path)
                else:
                    reader = LogReader(file, entry.start)
                    _replay_open(replay, reader, entry, path, watermark, sealed)
        except FileNotFoundError as error:
            raise CorruptLog("is missing, although the manifest lists it", path) from error
        except OSError as error:
            raise CorruptLog(f"cannot be read: {error.strerror}", path) from error
    replay.finish()
    if replay.unsettled is not None and not manifest.unproven:
        # Only Apache logs such digests, and its records were adopted as unproven.
        raise replay.unsettled
    return replay, sealed


def known_joins(segments: tuple[SegmentEntry, ...]) -> dict[Zxid, Zxid]:
    """Which record each epoch's first record follows."""
    joins = {entry.first: entry.follows for entry in segments}
    for entry in segments:
        joins.update((join.zxid, join.follows) for join in entry.joins)
    return joins


def _feed_all(replay: Replay, reader: LogReader, entry: SegmentEntry, path: str) -> Zxid:
    """Replay what lies after the head; returns the last zxid of the segment."""
    last = entry.follows
    for frame in reader:
        if last == entry.follows and frame.zxid != entry.first:
            raise CorruptLog(
                f"begins with {format_zxid(frame.zxid)} where the manifest says "
                f"{format_zxid(entry.first)}",
                path,
                frame.offset,
                frame.zxid,
            )
        last = Zxid(frame.zxid)
        if last > replay.head:
            replay.feed(frame, path)
    return last


def check_sealed(disk: Disk, path: str, entry: SegmentEntry, seal: Seal) -> None:
    """Read a sealed segment without replaying it.  Raises CorruptLog, or OSError of the disk."""
    with disk.open_read(path) as file:
        reader = LogReader(file, entry.start, seal.end)
        last = entry.follows
        for frame in reader:
            last = Zxid(frame.zxid)
        _check_seal(reader, seal, last, path)


def _check_seal(reader: LogReader, seal: Seal, last: Zxid, path: str) -> None:
    """Compare a segment that was read with the seal that the manifest has for it."""
    ending = reader.ending
    if ending.offset != seal.end or last != seal.last:
        raise CorruptLog(
            f"{ending.reason or 'ends early'}; it was sealed at offset {seal.end} after "
            f"{format_zxid(seal.last)}",
            path,
            ending.offset,
            last,
        )
    if reader.crc32 != seal.crc32:
        raise CorruptLog("its bytes are not the ones that were sealed (CRC-32)", path)


def _replay_open(
    replay: Replay,
    reader: LogReader,
    entry: SegmentEntry,
    path: str,
    watermark: Watermark | None,
    sealed: _Sealed,
) -> None:
    """Replay the open segment and classify its end."""
    if entry is not sealed.segments[-1]:
        raise BrokenHistory("is open, but it is not the last segment", path)
    last = _feed_all(replay, reader, entry, path)
    ending = reader.ending
    acknowledged = acknowledged_end(entry, watermark)
    if not is_torn_tail(ending, acknowledged):
        raise CorruptLog(
            f"{ending.reason or 'ends early'}; acknowledged up to offset {acknowledged}",
            path,
            ending.offset,
            last,
        )
    if not ending.is_plain:
        sealed.notes.append(
            Problem(
                "torn-tail",
                Severity.NOTE,
                f"{ending.reason}: the end of a write that was never acknowledged",
                path,
                ending.offset,
                last,
                "none needed: it is cut off at the next start",
            )
        )
    if last == entry.follows:
        # Not one record: the segment never became a part of the history.
        sealed.segments = sealed.segments[:-1]
        return
    sealed.unconfirmed_from = acknowledged
    seal = Seal(last, ending.offset, reader.crc32, replay.tree.digest)
    sealed.segments = (*sealed.segments[:-1], replace(entry, seal=seal))


def acknowledged_end(entry: SegmentEntry, watermark: Watermark | None) -> int:
    """Up to where the open segment is known to have been written and fsynced."""
    if watermark is not None and watermark.serial == entry.serial:
        return max(entry.start, watermark.end)
    # Its header was durable before the manifest listed it.
    return entry.start


def is_torn_tail(ending: Ending, acknowledged: int) -> bool:
    """Whether what lies at the end of the open segment may be cut off (R4).

    Only after what was acknowledged, only if lost sectors or a write that stopped early explain
    it (also right before an end mark), and only if nothing sound lies further on than one
    group reaches: a group is not written before the one before it is on the disk.
    """
    if ending.offset < acknowledged:
        return False
    if ending.is_plain:
        return True
    if not (ending.torn or ending.unmarked):
        return False
    return ending.valid_after is None or ending.valid_after - ending.offset <= GROUP_LIMIT_BYTES


def _check_unused(
    disk: Disk,
    directory: DataDirectory,
    manifest: Manifest,
    base: SnapshotEntry,
    problems: list[Problem],
) -> bool:
    """Check the listed files that this recovery did not read; True if one of them is bad."""
    bad = False
    for snapshot in manifest.snapshots:
        if snapshot is base or any(p.file == directory.path_of(snapshot.name) for p in problems):
            continue
        try:
            load_listed(disk, directory, snapshot)
        except StorageError as error:
            problems.append(problem_of(error, "snapshot-damaged"))
            bad = True
    needed = segments_after(manifest.segments, base.zxid)
    for entry in manifest.segments:
        if entry in needed or entry.seal is None:
            continue
        path = listed_path(disk, directory, entry)
        try:
            check_sealed(disk, path, entry, entry.seal)
        except OSError as error:
            problems.append(
                Problem("log-damaged", Severity.DAMAGE, f"cannot be read: {error.strerror}", path)
            )
            bad = True
        except StorageError as error:
            problems.append(problem_of(error, "log-damaged"))
            bad = True
    return bad
