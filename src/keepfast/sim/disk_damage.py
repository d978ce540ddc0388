"""Damage to a `MemoryDisk` at rest: what rot, a failing device or an operator does to files.

Every function first makes all pending operations durable, changes what both readers and a crash
see, and is no disk call.  `earlier` is a `MemoryDisk.clone()` taken before.
"""

import errno
import os
from collections.abc import Callable

from keepfast.sim.memory_disk import MemoryDisk
from keepfast.sim.memory_inodes import SECTOR_BYTES, fit
from keepfast.sim.memory_volume import normalised


def sector_count_of(disk: MemoryDisk, path: str) -> int:
    """How many sectors the file has; the last may be a part of one."""
    return (len(disk.contents(path)) + SECTOR_BYTES - 1) // SECTOR_BYTES


def flip_bit(disk: MemoryDisk, path: str, offset: int, bit: int = 0) -> None:
    """Turn one bit of the byte at `offset` over."""

    def change(data: bytearray) -> None:
        data[_inside(data, offset, path)] ^= 1 << bit

    _change(disk, path, change)


def zero_sector(disk: MemoryDisk, path: str, index: int) -> None:
    """A sector reads as zeros."""

    def change(data: bytearray) -> None:
        start = _inside(data, index * SECTOR_BYTES, path)
        size = len(data[start : start + SECTOR_BYTES])
        data[start : start + size] = bytes(size)

    _change(disk, path, change)


def stale_sector(disk: MemoryDisk, path: str, index: int, earlier: MemoryDisk) -> None:
    """A sector is as it was before: the device lost a write that it had reported as done.

    What the file did not have then reads as zeros; the size stays.
    """
    old = earlier.contents(path) if path_exists(earlier, path) else b""

    def change(data: bytearray) -> None:
        start = _inside(data, index * SECTOR_BYTES, path)
        size = len(data[start : start + SECTOR_BYTES])
        data[start : start + size] = old[start : start + size].ljust(size, b"\0")

    _change(disk, path, change)


def truncate_file(disk: MemoryDisk, path: str, size: int) -> None:
    """The file ends at `size`, or has zeros up to there."""
    _change(disk, path, lambda data: fit(data, size))


def swap_files(disk: MemoryDisk, first: str, second: str) -> None:
    """Two files have changed places."""
    first_data, second_data = disk.contents(first), disk.contents(second)
    _change(disk, first, lambda data: _replace(data, second_data))
    _change(disk, second, lambda data: _replace(data, first_data))


def remove_file(disk: MemoryDisk, path: str) -> None:
    """The file is gone."""
    disk.volume.erase(normalised(path))


def restore_file(disk: MemoryDisk, path: str, earlier: MemoryDisk) -> None:
    """The file is as it was before, from a backup for instance; gone if it did not exist then."""
    if path_exists(earlier, path):
        disk.put(path, earlier.contents(path))
    elif path_exists(disk, path):
        disk.volume.erase(normalised(path))


def set_mtime(disk: MemoryDisk, path: str, seconds: float) -> None:
    """Give the file a time of last change."""
    disk.volume.file(normalised(path)).mtime = seconds


def path_exists(disk: MemoryDisk, path: str) -> bool:
    """Whether there is such a file, without a disk call."""
    try:
        disk.volume.file(normalised(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _inside(data: bytearray, offset: int, path: str) -> int:
    if not 0 <= offset < len(data):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    return offset


def _replace(data: bytearray, new: bytes) -> None:
    data[:] = new


def _change(disk: MemoryDisk, path: str, change: Callable[[bytearray], None]) -> None:
    disk.settle()
    inode = disk.volume.file(normalised(path))
    data = bytearray(inode.cached.data)
    change(data)
    disk.volume.set_content(inode, data)
