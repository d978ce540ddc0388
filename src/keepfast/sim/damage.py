"""What happens to the files of a stopped server: rot, a failing device, an operator's mistake."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable
from typing import Final

from keepfast.sim import disk_damage
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.storage import (
    SECTOR_SIZE,
    DataDirectory,
    acknowledged_end,
    load_manifest,
    read_watermark,
)
from keepfast.wire import StorageError

# The lock is not a file here; everything else may be damaged.
Damage = Callable[[MemoryDisk, MemoryDisk | None, random.Random], str]


def _files(disk: MemoryDisk) -> list[str]:
    return [path for path, data in disk.files().items() if data]


def _pick(disk: MemoryDisk, rng: random.Random) -> str | None:
    files = _files(disk)
    return rng.choice(files) if files else None


def _known_end(disk: MemoryDisk, path: str) -> int:
    """Up to where a file is known to have been written.

    After that, in the open segment of a server that lost its power, zeros are what the loss of an
    unsynced write leaves: nobody can tell them from rot until the watermark is synced.
    """
    directory = DataDirectory(posixpath.dirname(path), posixpath.dirname(path))
    # Faults are for the server: what waits for its next call must not strike this look.
    disk = disk.unobserved()
    try:
        manifest = load_manifest(disk, directory)
    except StorageError:
        manifest = None
    last = manifest.segments[-1] if manifest is not None and manifest.segments else None
    if last is None or last.seal is not None or last.name != posixpath.basename(path):
        return len(disk.contents(path))
    return acknowledged_end(last, read_watermark(disk, directory))


def flip_bit(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """One bit of one file."""
    path = _pick(disk, rng)
    if path is None:
        return ""
    # Beginnings matter most: the rest of a log may be padding.
    size = len(disk.contents(path))
    offset = rng.randrange(min(size, 1024)) if rng.random() < 0.7 else rng.randrange(size)
    disk_damage.flip_bit(disk, path, offset, rng.randrange(8))
    return f"bit at {offset} of {path} flipped"


def zero_sector(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """One sector reads as zeros."""
    path = _pick(disk, rng)
    if path is None:
        return ""
    index = rng.randrange(disk_damage.sector_count_of(disk, path))
    if index * SECTOR_SIZE >= _known_end(disk, path):
        return ""
    disk_damage.zero_sector(disk, path, index)
    return f"sector {index} of {path} zeroed"


def stale_sector(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """The device lost a write of one sector that it had reported as done."""
    path = _pick(disk, rng)
    if path is None or earlier is None:
        return ""
    index = rng.randrange(disk_damage.sector_count_of(disk, path))
    disk_damage.stale_sector(disk, path, index, earlier)
    return f"sector {index} of {path} stale"


def shorten(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """A file ends early."""
    path = _pick(disk, rng)
    if path is None:
        return ""
    size = rng.randrange(len(disk.contents(path)))
    if size >= _known_end(disk, path):
        return ""
    disk_damage.truncate_file(disk, path, size)
    return f"{path} cut to {size}"


def lose_file(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """A file is gone."""
    path = _pick(disk, rng)
    if path is None:
        return ""
    disk_damage.remove_file(disk, path)
    return f"{path} lost"


def swap_files(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """Two files have changed places."""
    files = _files(disk)
    if len(files) < 2:
        return ""
    first, second = rng.sample(files, 2)
    disk_damage.swap_files(disk, first, second)
    return f"{first} and {second} swapped"


def restore_file(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """One file comes from a backup."""
    path = _pick(disk, rng)
    if path is None or earlier is None:
        return ""
    disk_damage.restore_file(disk, path, earlier)
    return f"{path} restored"


def rot_newest_snapshot(disk: MemoryDisk, earlier: MemoryDisk | None, rng: random.Random) -> str:
    """The snapshot that a start would use first is damaged."""
    snapshots = [path for path in _files(disk) if "/snapshot." in path and "aside" not in path]
    if len(snapshots) < 2:
        return ""  # there would be nothing left to fall back to
    path = max(snapshots, key=lambda path: (len(path), path))
    offset = rng.randrange(len(disk.contents(path)))
    disk_damage.flip_bit(disk, path, offset, rng.randrange(8))
    return f"bit at {offset} of {path} flipped"


# What no server could have vouched for anything with afterwards without noticing.
NOTICEABLE: Final[dict[str, Damage]] = {
    "flip": flip_bit,
    "zero": zero_sector,
    "shorten": shorten,
    "lose": lose_file,
    "swap": swap_files,
    "rot-snapshot": rot_newest_snapshot,
}
# What takes a server back to an earlier, valid state: no server can notice that on its own.
BACKWARD: Final[dict[str, Damage]] = {"stale": stale_sector, "restore-file": restore_file}
