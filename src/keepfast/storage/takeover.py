"""Manifest entries for files that another program wrote, created when a directory is adopted."""

import zlib

from keepfast.storage.disk import Disk, ReadFile
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import LogReader
from keepfast.storage.manifest import Join, Seal, SegmentEntry, SnapshotEntry
from keepfast.storage.replay import Replay
from keepfast.storage.snapshot_file import load_tree
from keepfast.storage.survey import SurveyedRun
from keepfast.tree import Tree
from keepfast.wire import CorruptLog, CorruptSnapshot, StorageError, Zxid

_WINDOW_SIZE = 1 << 20


def crc_of(file: ReadFile) -> int:
    """The CRC-32 of a whole file."""
    crc = 0
    for offset in range(0, file.size(), _WINDOW_SIZE):
        crc = zlib.crc32(file.read_at(offset, _WINDOW_SIZE), crc)
    return crc


def snapshot_entry(
    disk: Disk, directory: DataDirectory, name: str, zxid: Zxid, tree: Tree, exact: bool
) -> SnapshotEntry:
    """Describe a snapshot that was read in full. `tree` counts only if it is exact."""
    path = directory.in_snapshots(name)
    try:
        with disk.open_read(path) as file:
            size, crc = file.size(), crc_of(file)
    except OSError as error:
        raise CorruptSnapshot(f"cannot be read: {error.strerror}", path) from error
    return SnapshotEntry(
        name,
        zxid,
        exact,
        tree.digest if exact else None,
        tree.state_digest if exact else None,
        size,
        crc,
    )


def rewritten_entry(
    disk: Disk, directory: DataDirectory, entry: SnapshotEntry
) -> SnapshotEntry | None:
    """A listed snapshot that another program rewrote, if it holds the same state; else None.

    Apache writes a snapshot whenever it starts.  On a directory whose newest snapshot is at the
    head it overwrites that one, with the same state in other bytes.
    """
    if not entry.exact or entry.digest is None or entry.state_digest is None:
        return None
    try:
        tree, _, seen = load_tree(disk, directory.in_snapshots(entry.name), entry.name)
        found = snapshot_entry(disk, directory, entry.name, entry.zxid, tree, exact=True)
    except StorageError:
        return None
    stated = (entry.digest, entry.state_digest)
    is_same = (found.digest, found.state_digest) == stated and seen <= entry.zxid
    return found if is_same else None


def segment_entries(
    disk: Disk, directory: DataDirectory, runs: list[SurveyedRun], replay: Replay, serial: int
) -> tuple[SegmentEntry, ...]:
    """Describe the runs of a chain; runs that lie back to back in one file become one segment."""
    joins = {join.zxid: join.follows for join in replay.joins}
    entries: list[SegmentEntry] = []
    for group in _adjacent(runs, joins):
        first, last = group[0], group[-1]
        path = directory.in_logs(first.name)
        try:
            with disk.open_read(path) as file:
                reader = LogReader(file, first.start, last.end).drained()
        except OSError as error:
            raise CorruptLog(f"cannot be read: {error.strerror}", path) from error
        head = last.last == replay.head
        entries.append(
            SegmentEntry(
                name=first.name,
                first=first.first,
                follows=joins.get(first.first, Zxid(first.first - 1)),
                follows_digest=None,
                serial=serial + 1 + len(entries),
                start=first.start,
                joins=tuple(Join(run.first, joins[run.first]) for run in group[1:]),
                seal=Seal(last.last, last.end, reader.crc32, replay.tree.digest if head else None),
            )
        )
    return tuple(entries)


def _adjacent(runs: list[SurveyedRun], joins: dict[Zxid, Zxid]) -> list[list[SurveyedRun]]:
    groups: list[list[SurveyedRun]] = []
    for run in runs:
        before = groups[-1][-1] if groups else None
        if (
            before is not None
            and (before.name, before.end) == (run.name, run.start)
            # Not so for records that lie in the file twice.
            and joins.get(run.first) == before.last
        ):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups
