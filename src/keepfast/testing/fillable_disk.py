"""The real disk, which can be made to appear full."""

from __future__ import annotations

import errno
import os

from keepfast.storage import Buffer, RealDisk, RealWriteFile


class FullableDisk(RealDisk):
    """Behaves as the operating system's disk until `is_full` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def create(self, path: str) -> RealWriteFile:
        self._check(path)
        return _FullableFile(self, super().create(path), path)

    def open_write(self, path: str) -> RealWriteFile:
        return _FullableFile(self, super().open_write(path), path)

    def free_bytes(self, path: str) -> int:
        return 0 if self.is_full else super().free_bytes(path)

    def _check(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class _FullableFile(RealWriteFile):
    """A file that does not grow while its disk is full; overwriting continues, as it does."""

    __slots__ = ("_disk",)

    def __init__(self, disk: FullableDisk, file: RealWriteFile, path: str) -> None:
        super().__init__(os.dup(file.fileno()), path)
        file.close()
        self._disk = disk

    def write_at(self, offset: int, data: Buffer) -> None:
        self._check(offset + len(data))
        super().write_at(offset, data)

    def allocate(self, size: int) -> None:
        self._check(size)
        super().allocate(size)

    def _check(self, end: int) -> None:
        if self._disk.is_full and end > os.fstat(self.fileno()).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
