"""Exact truncation: what is left of a history that is cut after a record (rule R5)."""

from msgspec.structs import replace

from keepfast.storage.disk import Disk
from keepfast.storage.history import History
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import LogReader
from keepfast.storage.manifest import Manifest, Seal, SegmentEntry
from keepfast.storage.recovery_listed import recover_listed
from keepfast.wire import BrokenHistory, CorruptLog, Zxid


def cut_segments(history: History, zxid: Zxid) -> tuple[SegmentEntry, ...]:
    """The segments of a history that ends at `zxid`, which it contains."""
    kept: list[SegmentEntry] = []
    for segment in history.manifest.segments:
        if segment.first > zxid:
            continue
        if segment.seal is not None and segment.seal.last <= zxid:
            kept.append(segment)
            continue
        kept.append(_cut(history, segment, zxid))
    return tuple(kept)


def with_fitting_base(disk: Disk, directory: DataDirectory, kept: Manifest, zxid: Zxid) -> Manifest:
    """What a truncation keeps, without snapshots that do not lead to the state at `zxid`.

    A snapshot that Apache wrote may show effects of records that the truncation drops, and even the
    file does not show this for certain: so it is tried, and dropped in favour of the one before it.
    Raises BrokenHistory if none is left.
    """
    manifest = kept
    while manifest.snapshots:
        if manifest.snapshots[-1].exact:
            return manifest
        trial = recover_listed(disk, directory, manifest, [], False)
        if trial.tree is not None and trial.head == zxid:
            return manifest
        manifest = replace(manifest, snapshots=manifest.snapshots[:-1])
    raise BrokenHistory(
        "every snapshot that is left shows effects of records that would be dropped",
        directory.path_of(kept.snapshots[-1].name),
        None,
        zxid,
    )


def _cut(history: History, segment: SegmentEntry, zxid: Zxid) -> SegmentEntry:
    """A segment that ends after `zxid`: its record is looked for, never guessed (R5)."""
    path = history.directory.in_logs(segment.name)
    end = None
    try:
        with history.disk.open_read(path) as file:
            for frame in LogReader(file, segment.start):
                if frame.zxid == zxid:
                    end = frame.end
                    break
            if end is None:
                raise CorruptLog("the record to cut after is not there", path, None, zxid)
            reader = LogReader(file, segment.start, end).drained()
    except OSError as error:
        raise CorruptLog(f"cannot be read: {error.strerror}", path) from error
    joins = tuple(join for join in segment.joins if join.zxid <= zxid)
    return replace(segment, joins=joins, seal=Seal(zxid, end, reader.crc32, None))
