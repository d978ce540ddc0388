"""Makes a directory agree with its manifest by completing what a crash left undone.

Each step is safe to repeat, and none of them decides anything: the manifest has decided.
"""

import contextlib
import posixpath
from collections.abc import Iterable

from keepfast.storage.disk import Disk, directory_of, make_directory_durably
from keepfast.storage.layout import (
    ACCEPTED_EPOCH_NAME,
    ASIDE_NAME,
    CURRENT_EPOCH_NAME,
    DataDirectory,
)
from keepfast.storage.manifest import Manifest, Retired, SegmentEntry, SnapshotEntry
from keepfast.storage.recovered import Recovery
from keepfast.storage.recovery_listed import listed_path
from keepfast.storage.watermark import update_watermark, watermark_of

_WINDOW_SIZE = 1 << 20


def apply_manifest(disk: Disk, directory: DataDirectory, manifest: Manifest) -> None:
    """Rename staged files, remove retired ones, cut the tail, remove leftovers."""
    entries: tuple[SegmentEntry | SnapshotEntry, ...] = (*manifest.snapshots, *manifest.segments)
    for entry in entries:
        publish(disk, directory, entry)
    retire(disk, directory, manifest.retired, manifest.generation)
    if manifest.segments:
        cut_tail(disk, directory, manifest.segments[-1])
    remove_temporaries(disk, directory)


def publish(disk: Disk, directory: DataDirectory, entry: SegmentEntry | SnapshotEntry) -> None:
    """Give a staged file its live name; durable on return."""
    if entry.staged is None:
        return
    path = directory.path_of(entry.name)
    temporary = posixpath.join(directory_of(path), entry.staged)
    if disk.exists(temporary):
        disk.rename(temporary, path)
    # Even if it has its name already: a crash may have come between the rename and this.
    disk.fsync_directory(directory_of(path))


def retire(
    disk: Disk, directory: DataDirectory, retired: Iterable[Retired], generation: int
) -> None:
    """Move retired files aside, or delete them; durable on return."""
    touched = set()
    for entry in retired:
        path = directory.path_of(entry.name)
        # Even if it is gone: a killed process may have left the removal in the kernel's cache.
        touched.add(directory_of(path))
        if not disk.exists(path):
            continue
        if entry.delete:
            disk.remove(path)
            continue
        aside = directory.aside_of(entry.name, generation)
        if directory_of(aside) not in touched:
            make_directory_durably(disk, directory_of(aside))
        disk.rename(path, aside)
        if disk.exists(path):
            # A crash inside an earlier attempt can leave the file under both names, and then a
            # rename from one to the other does nothing (POSIX).
            disk.remove(path)
        touched.add(directory_of(aside))
    for place in sorted(touched):
        disk.fsync_directory(place)


def cut_tail(disk: Disk, directory: DataDirectory, entry: SegmentEntry) -> None:
    """Cut what lies after the last record of a sealed segment; durable on return.

    A torn record there would stop Apache from starting, and a record that a truncation dropped
    would come back to life under it.
    """
    if entry.seal is None:
        return
    path = directory.path_of(entry.name)
    if not disk.exists(path):
        return
    size = disk.size(path)
    with disk.open_write(path) as file:
        if size > entry.seal.end:
            file.truncate(entry.seal.end)
        # Even if it is short enough: a killed process may have left the cut in memory only.
        file.fsync()


def make_durable(disk: Disk, directory: DataDirectory, recovery: Recovery) -> None:
    """Make durable what recovery read.

    It may have been in memory only, if the last process was killed; from now on this server vouches
    for it.  Takes no space, except on a copy-on-write disk.
    """
    manifest = recovery.manifest
    if recovery.tree is None:
        for place in directory.both:
            disk.fsync_directory(place)
        remove_temporaries(disk, directory)
    elif recovery.has_foreign_files:
        confirm_files(disk, directory, manifest)
    elif recovery.unconfirmed_from is not None:
        confirm_tail(disk, directory, manifest.segments[-1], recovery.unconfirmed_from)
        known = watermark_of(manifest)
        if known is not None:
            update_watermark(disk, directory, known)


def confirm_tail(disk: Disk, directory: DataDirectory, entry: SegmentEntry, start: int) -> None:
    """Make durable what recovery read from a segment at or after `start`.

    The last process wrote these bytes; it ended before it knew whether they are on the disk, or
    after it learned that they are not: after a failed fsync the kernel still shows them and does
    not write them again.  So they are written once more.  Without this a manifest could vouch for
    records that the next power loss takes away.
    """
    if entry.seal is None:
        return
    path = listed_path(disk, directory, entry)
    with disk.open_read(path) as source, disk.open_write(path) as target:
        for offset in range(start, entry.seal.end, _WINDOW_SIZE):
            size = min(_WINDOW_SIZE, entry.seal.end - offset)
            target.write_at(offset, source.read_at(offset, size))
        target.fsync()


def confirm_files(disk: Disk, directory: DataDirectory, manifest: Manifest) -> None:
    """Make durable the files of another program, which may never have been fsynced.

    Apache does not fsync its snapshots: the one that a history is about to depend on may so far
    exist in memory only (the field report `unsynced-snapshot`).
    """
    paths = [directory.path_of(name) for name in sorted(manifest.names())]
    paths += [directory.in_snapshots(name) for name in (ACCEPTED_EPOCH_NAME, CURRENT_EPOCH_NAME)]
    for path in paths:
        if disk.exists(path):
            with disk.open_write(path) as file:
                file.fsync()
    for place in directory.both:
        disk.fsync_directory(place)


def remove_temporaries(disk: Disk, directory: DataDirectory) -> None:
    """Remove our own unfinished files; somebody else's are left alone."""
    for place in directory.both:
        for name in disk.list(place):
            if name.startswith("keepfast.") and name.endswith(".tmp"):
                disk.remove(posixpath.join(place, name))


def remove_aside(disk: Disk, directory: DataDirectory, keep_generation: int) -> list[str]:
    """Delete what earlier generations put aside; returns the paths that went."""
    removed = []
    for place in directory.both:
        root = posixpath.join(place, ASIDE_NAME)
        if not disk.is_directory(root):
            continue
        for name in disk.list(root):
            if name == f"g{keep_generation}":
                continue
            inner = posixpath.join(root, name)
            for file in disk.list(inner):
                path = posixpath.join(inner, file)
                disk.remove(path)
                removed.append(path)
            with contextlib.suppress(OSError):
                disk.remove_directory(inner)
        disk.fsync_directory(root)
    return removed
