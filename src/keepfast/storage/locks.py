"""The lock on a data directory: one server, or one tool that changes it, at a time.

Snapshots and logs may be in two directories, and each of them has its own lock file: a second
server that shares only one of the two with the first would otherwise write into live files.
"""

from keepfast.storage.disk import Disk
from keepfast.storage.layout import LOCK_NAME, DataDirectory


def lock_directory(disk: Disk, directory: DataDirectory) -> None:
    """Take the locks of both directories, or none of them.

    Raises BlockingIOError, with the path of the lock that somebody else holds.
    """
    held: list[str] = []
    for path in _lock_paths(directory):
        try:
            disk.lock(path)
        except OSError as error:
            error.filename = path
            for locked in held:
                disk.unlock(locked)
            raise
        held.append(path)


def unlock_directory(disk: Disk, directory: DataDirectory) -> None:
    """Release the locks; harmless if they are not held."""
    for path in reversed(_lock_paths(directory)):
        disk.unlock(path)


def is_locked(disk: Disk, directory: DataDirectory) -> bool:
    """Whether a server, or a tool, holds one of the directories; changes nothing."""
    return any(disk.is_locked(path) for path in _lock_paths(directory))


def _lock_paths(directory: DataDirectory) -> list[str]:
    """In a fixed order, so that of two servers that start simultaneously one gets both."""
    return sorted(f"{place}/{LOCK_NAME}" for place in directory.both)
