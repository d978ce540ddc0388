"""Recovery of a directory that a server writes to: up to a point that was complete when we looked.

Files are read one after another, and all of them may change: a record may be half-written, a
snapshot unfinished, a segment listed that did not exist a moment ago. So the directory is read
through a view that is fixed first, in an order in which each part is at least as new as what refers
to it: the watermark, the manifest, the names, and then the end of the log that grows, after its
last complete record. What still goes wrong (a file was purged or renamed in between) goes wrong
elsewhere the next time; only what is wrong at the same place in every attempt is damage.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from keepfast.storage.disk import Disk, Names, read_file
from keepfast.storage.disk_views import EditedDisk
from keepfast.storage.in_use import (
    DirectoryUse,
    Fingerprint,
    fingerprint,
    open_files,
    use_of,
)
from keepfast.storage.layout import (
    DataDirectory,
    list_directory,
    parse_log_name,
    parse_snapshot_name,
)
from keepfast.storage.log_file import Ending, LogReader
from keepfast.storage.manifest import Manifest, decode_manifest
from keepfast.storage.problems import Severity, Standing
from keepfast.storage.recovered import Recovery
from keepfast.storage.recovery import recover
from keepfast.storage.recovery_listed import listed_path
from keepfast.wire import CorruptManifest, StorageError

_ATTEMPTS: Final = 8
# Consecutive attempts that must find the same damage.
_AGREEING: Final = 3
_PAUSE_SECONDS: Final = 0.1
_SCANS: Final = 20
_SMALL_FILE_BYTES: Final = 64 << 20


class LiveRecovery(NamedTuple):
    """What was found, the view that it was found through, and who uses the directory."""

    recovery: Recovery
    view: Disk
    use: DirectoryUse


class _FixedView(EditedDisk):
    """A disk as it was when the view was made: its names, small files, and ends of logs."""

    def __init__(
        self,
        disk: Disk,
        names: dict[str, Names],
        hidden: set[str],
        sizes: dict[str, int],
        contents: dict[str, bytes],
    ) -> None:
        super().__init__(disk, hidden, sizes, contents)
        self._names = names

    def list(self, path: str) -> Names:
        names = self._names.get(path)
        if names is None:
            return self._disk.list(path)
        return [name for name in names if f"{path}/{name}" not in self._hidden]


def recover_in_use(disk: Disk, directory: DataDirectory, *, full: bool) -> LiveRecovery:
    """Recover a directory as `recover` does, whether a server runs on it or not.

    If one does, the result holds up to its head, and says nothing about what is being written.
    Changes nothing. Raises StorageError if the directory cannot be listed, or its manifest cannot
    be read.
    """
    use = use_of(disk, directory)
    if not use:
        before = fingerprint(disk, directory)
        recovery = recover(disk, directory, full=full)
        if before == fingerprint(disk, directory):
            return LiveRecovery(recovery, disk, use)
        use = DirectoryUse(is_changing=True)
    return _recover_live(disk, directory, use, full=full)


def _recover_live(
    disk: Disk, directory: DataDirectory, use: DirectoryUse, *, full: bool
) -> LiveRecovery:
    """Recover a directory in use, in as many attempts as it takes."""
    earlier: list[frozenset[tuple[str, str | None, int | None]]] = []
    for attempt in range(_ATTEMPTS):
        view = _fixed_view(disk, directory)
        found = LiveRecovery(recover(view, directory, full=full), view, use)
        damage = frozenset(
            (problem.code, problem.file, problem.offset)
            for problem in found.recovery.problems
            if problem.severity is Severity.DAMAGE
        )
        if not damage and found.recovery.standing is not Standing.DAMAGED:
            break
        earlier.append(damage)
        if len(earlier) >= _AGREEING and len(set(earlier[-_AGREEING:])) == 1:
            break
        if attempt + 1 < _ATTEMPTS:
            time.sleep(_PAUSE_SECONDS)
    return found


def _fixed_view(disk: Disk, directory: DataDirectory) -> _FixedView:
    while True:
        first = fingerprint(disk, directory)
        contents: dict[str, bytes] = {}
        hidden: set[str] = set()
        # The watermark refers to a manifest that existed before it, and that one to its files.
        for path in (directory.watermark, directory.manifest):
            try:
                contents[path] = read_file(disk, path, _SMALL_FILE_BYTES)
            except FileNotFoundError:
                hidden.add(path)
            except OSError as error:
                raise StorageError(f"cannot be read: {error.strerror}", path) from error
        names = {place: disk.list(place) for place in directory.both}
        if contents.get(directory.manifest, b"") == _content(disk, directory.manifest):
            break
    hidden |= _unfinished(disk, directory, first)
    manifest = _manifest(contents, directory)
    sizes: dict[str, int] = {}
    for path in _growing(disk, directory, manifest, names):
        end = _complete_end(disk, path)
        if end is not None:
            sizes[path] = end
    return _FixedView(disk, names, hidden, sizes, contents)


def _content(disk: Disk, path: str) -> bytes:
    try:
        return read_file(disk, path, _SMALL_FILE_BYTES)
    except OSError:
        return b""


def _manifest(contents: dict[str, bytes], directory: DataDirectory) -> Manifest | None:
    data = contents.get(directory.manifest)
    try:
        return None if data is None else decode_manifest(data, directory.manifest)
    except CorruptManifest:
        return None


def _unfinished(disk: Disk, directory: DataDirectory, first: Fingerprint) -> set[str]:
    """Snapshots that are being written: Apache does that under their final names."""
    second, is_open = fingerprint(disk, directory), open_files(directory)
    return {
        path
        for path in second
        if parse_snapshot_name(path.rpartition("/")[2]) is not None
        and (path in is_open or first.get(path) != second[path])
    }


def _growing(
    disk: Disk, directory: DataDirectory, manifest: Manifest | None, names: dict[str, Names]
) -> list[str]:
    """The logs that somebody may be writing to."""
    if manifest is not None:
        known = {segment.name for segment in manifest.segments}
        foreign = [name for name in names[directory.logs] if parse_log_name(name) is not None]
        if set(foreign) <= known | {retired.name for retired in manifest.retired}:
            opened = (segment for segment in manifest.segments if segment.seal is None)
            return [listed_path(disk, directory, segment) for segment in opened]
    logs = list_directory(disk, directory).logs
    return [directory.in_logs(name) for name in logs[-1:]]


def _complete_end(disk: Disk, path: str) -> int | None:
    """Where the last complete record of a log ends; None: what is after it does not change."""
    last: Ending | None = None
    agreeing = 0
    for _ in range(_SCANS):
        try:
            with disk.open_read(path) as file:
                ending = LogReader(file).drained().ending
        except OSError:
            return None
        if ending.is_plain:
            return ending.offset
        agreeing = agreeing + 1 if ending == last else 0
        if agreeing >= _AGREEING:
            return None
        last = ending
        time.sleep(_PAUSE_SECONDS / 2)
    return None if last is None else last.offset
