"""Views of a disk: one through which nothing can be written, and one that shows a plan.

`ReadOnlyDisk` is what tools look through that must never change a directory: that they do not is
then no matter of care.  It can report how much was read, and refuses single reads of a
size that only a damaged length field asks for.  `EditedDisk` hides files, cuts them, or shows other
bytes in them.  `PlannedDisk` is the disk as it would be with another manifest in force: what the
manifest retires is out of sight, logs end where they are to be cut, and the manifest itself reads
as the planned one.
"""

import errno
import os
from collections.abc import Callable
from typing import NoReturn

from keepfast.storage.disk import ClosedOnExit, Disk, Names, ReadFile, WriteFile
from keepfast.storage.layout import DataDirectory
from keepfast.storage.manifest import Manifest, encode_manifest

# No record or field of a server comes near this. A damaged length may claim gigabytes, and a file
# with a hole in it may have that many zeros to give.
_LARGEST_READ_BYTES = 256 << 20

# Called with the path of a file and the number of bytes that were just read from it.
OnRead = Callable[[str, int], None]


def ignore_reads(path: str, size: int) -> None:
    """Nobody watches."""


class _ViewedFile(ClosedOnExit):
    """A file of the disk below, cut at `limit`, that reports what is read from it."""

    def __init__(self, file: ReadFile, path: str, on_read: OnRead, limit: int | None) -> None:
        self._file = file
        self._path = path
        self._on_read = on_read
        self._limit = limit

    def size(self) -> int:
        size = self._file.size()
        return size if self._limit is None else min(size, self._limit)

    def read_at(self, offset: int, size: int) -> bytes:
        if self._limit is not None:
            size = max(0, min(size, self._limit - offset))
        if size > _LARGEST_READ_BYTES and self.size() - offset > _LARGEST_READ_BYTES:
            raise OSError(errno.EFBIG, f"a length in it claims {size} bytes", self._path)
        data = self._file.read_at(offset, size)
        self._on_read(self._path, len(data))
        return data

    def close(self) -> None:
        self._file.close()


class BytesFile(ClosedOnExit):
    """A file whose content is in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


class ReadOnlyDisk:
    """A disk on which every change fails with EROFS. See `Disk`."""

    def __init__(self, disk: Disk, on_read: OnRead = ignore_reads) -> None:
        self._disk = disk
        self._on_read = on_read

    def list(self, path: str) -> Names:
        return self._disk.list(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._disk.is_directory(path)

    def size(self, path: str) -> int:
        return self._disk.size(path)

    def mtime(self, path: str) -> float:
        return self._disk.mtime(path)

    def open_read(self, path: str) -> ReadFile:
        return _ViewedFile(self._disk.open_read(path), path, self._on_read, None)

    def free_bytes(self, path: str) -> int:
        return self._disk.free_bytes(path)

    def is_locked(self, path: str) -> bool:
        return self._disk.is_locked(path)

    def make_directory(self, path: str) -> None:
        self._refuse(path)

    def create(self, path: str) -> WriteFile:
        self._refuse(path)

    def open_write(self, path: str) -> WriteFile:
        self._refuse(path)

    def rename(self, old: str, new: str) -> None:
        self._refuse(old)

    def remove(self, path: str) -> None:
        self._refuse(path)

    def remove_directory(self, path: str) -> None:
        self._refuse(path)

    def fsync_directory(self, path: str) -> None:
        self._refuse(path)

    def lock(self, path: str) -> None:
        self._refuse(path)

    def unlock(self, path: str) -> None:
        """Nothing was locked."""

    def _refuse(self, path: str) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class EditedDisk(ReadOnlyDisk):
    """A disk without some of its files, with others cut, and with other contents for some."""

    def __init__(
        self, disk: Disk, hidden: set[str], sizes: dict[str, int], contents: dict[str, bytes]
    ) -> None:
        """All by path; `sizes` cuts a file there."""
        super().__init__(disk)
        self._hidden = hidden
        self._sizes = sizes
        self._contents = contents

    def list(self, path: str) -> Names:
        names = set(super().list(path))
        names -= {p.rpartition("/")[2] for p in self._hidden if p.rpartition("/")[0] == path}
        names |= {p.rpartition("/")[2] for p in self._contents if p.rpartition("/")[0] == path}
        return sorted(names)

    def exists(self, path: str) -> bool:
        return path not in self._hidden and (path in self._contents or super().exists(path))

    def size(self, path: str) -> int:
        with self.open_read(path) as file:
            return file.size()

    def open_read(self, path: str) -> ReadFile:
        if path in self._contents:
            return BytesFile(self._contents[path])
        if path in self._hidden:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        file = self._disk.open_read(path)
        return _ViewedFile(file, path, self._on_read, self._sizes.get(path))


class PlannedDisk(EditedDisk):
    """The disk as a manifest will have it; `cuts` maps logs to the size that they are to have.

    With `is_listed` False there is no manifest: for one that is not complete yet.
    """

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        manifest: Manifest,
        cuts: dict[str, int],
        is_listed: bool,
    ) -> None:
        hidden = {directory.path_of(retired.name) for retired in manifest.retired}
        contents: dict[str, bytes] = {}
        if is_listed:
            contents[directory.manifest] = encode_manifest(manifest)
        else:
            # A watermark alone would say that a manifest was lost.
            hidden |= {directory.manifest, directory.watermark}
        sizes = {directory.in_logs(name): size for name, size in cuts.items()}
        super().__init__(disk, hidden, sizes, contents)
