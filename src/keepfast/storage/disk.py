"""All access to the disk: what storage may ask of it, and the real implementation.

Theory of operation.  Everything that this package knows about durability is in four rules, and
storage may rely on nothing else:

1. What a write, truncate or allocate did to a file is durable once an ``fsync`` or ``datasync``
   of that file, begun after it, has returned.  Until then any part of it may be lost, in any
   order, torn at any sector.
2. What create, rename, remove or make_directory did to a directory is durable once an
   ``fsync_directory`` of that directory, begun after it, has returned.  Until then each of them
   may be lost on its own.  Syncing a file says nothing about its name, and syncing a directory
   says nothing about the bytes in its files.
3. A rename is atomic: no crash shows both the old and the new file under the new name, a mix of
   them, or neither.  It is not ordered after the data of the file that it renames.
4. After a failed fsync nobody knows which of the bytes since the last good one are on the disk,
   and a second fsync does not report it: Linux marks the pages clean and reports the error once.

`sim.MemoryDisk` takes every liberty that these rules leave open; `RealDisk` is the
kernel's files.  Prior art: Pillai et al., "All File Systems Are Not Created Equal" (OSDI 2014)
for rules 1-3; Rebello et al., "Can Applications Recover from fsync Failures?" (ATC 2020) for 4.

Paths are plain ``str`` with "/" between the names.  Every failure is an ``OSError`` with the
errno that a kernel would give, and with the path in ``filename``.
"""

import contextlib
import errno
import fcntl
import os
import posixpath
import stat
from itertools import pairwise
from types import TracebackType
from typing import Protocol, Self, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

# The classes below have a method `list`, which would hide the built-in in their annotations.
Names: TypeAlias = list[str]

_ZEROS = bytes(1 << 20)

# A length field read from a damaged file may claim gigabytes, and the kernel's read wants the
# buffer before it looks for the end of the file.  Reads beyond this ask for the size first.
_LARGE_READ_BYTES = 1 << 20

# macOS: fsync leaves the bytes in the drive's own cache; only this one asks the drive to empty it.
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class OpenFile(Protocol):
    """What every open file has."""

    def close(self) -> None:
        """Release the handle; makes nothing durable.  Closing twice is allowed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class WriteFile(OpenFile, Protocol):
    """A file open for writing.  One writer per file: two handles at a time are not supported."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write all of `data` at `offset`, or raise.

        A gap between the old end and `offset` reads as zeros.  After an error any part of `data`
        may be in the file (disk full: usually a prefix) and the file may have grown: the caller
        truncates before it continues.  After a crash before the next fsync each 512-byte sector of
        it may be old or new, whatever the others are, and the file may be shorter.
        """

    def allocate(self, size: int) -> None:
        """Grow the file to `size` with zeros, on reserved blocks if the disk can; never shrink.

        Writes into the reserved part do not run out of space where the reservation is real; that
        is not so on a copy-on-write disk, so ENOSPC must still be handled.  After an error the
        file may have grown in part.  Not durable before the next fsync.
        """

    def truncate(self, size: int) -> None:
        """Cut the file at `size`, or grow it with unreserved zeros.

        After a crash before the next fsync the old tail may be back, in part or in full.
        """

    def fsync(self) -> None:
        """Make content, size and attributes durable; not the name, see `Disk.fsync_directory`.

        For finished files.  The real disk also drops its cached copy, so that a read-back that
        follows sees the device and not memory.  After an error the bytes since the last good
        fsync may be gone and may still be readable: stop, and start again from what a restart
        reads.
        """

    def datasync(self) -> None:
        """Make content and size durable, but not the timestamps: for a growing log."""


class ReadFile(OpenFile, Protocol):
    """A file open for reading.  It stays readable after its name was removed or replaced."""

    def size(self) -> int:
        """The size now, which a writer may have changed since the file was opened."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read `size` bytes at `offset`; fewer only where the file ends.

        A `size` far beyond the end costs no memory.
        """


class Disk(Protocol):
    """Directories and files.  The module's docstring has the four rules about crashes."""

    def make_directory(self, path: str) -> None:
        """Make `path` and its missing parents; no error if it is there.

        Each new name is durable after `fsync_directory` of the directory above it:
        see `make_directory_durably`.
        """

    def list(self, path: str) -> Names:
        """The names in `path`, files and directories, sorted."""

    def exists(self, path: str) -> bool:
        """Whether `path` is a file or a directory."""

    def is_directory(self, path: str) -> bool:
        """Whether `path` is a directory; False if there is nothing."""

    def size(self, path: str) -> int:
        """The size of the file in bytes."""

    def mtime(self, path: str) -> float:
        """Seconds since 1970 of the last change to the file's content.

        For display and for recognising files of a foreign program; a crash may revert it.
        """

    def create(self, path: str) -> WriteFile:
        """Open a new file, or an existing one emptied.

        Emptying is not atomic with what is written later: to replace a file use `replace_file`.
        The name is durable after `fsync_directory` of its directory.
        """

    def open_write(self, path: str) -> WriteFile:
        """Open an existing file to change it in place."""

    def open_read(self, path: str) -> ReadFile:
        """Open an existing file for reading; a directory, pipe or device is refused."""

    def rename(self, old: str, new: str) -> None:
        """Give the file or directory `old` the name `new`, replacing a file of that name.

        Atomic, and durable after `fsync_directory` of the directory of `new`.  Between two
        directories both must be synced: before, a crash may show the file under both names.
        """

    def remove(self, path: str) -> None:
        """Remove the file.  After a crash before `fsync_directory` it may be back."""

    def remove_directory(self, path: str) -> None:
        """Remove the empty directory; durable after `fsync_directory` of the one above it."""

    def fsync_directory(self, path: str) -> None:
        """Make the names in `path` durable, and what each of them stands for; no file's bytes."""

    def free_bytes(self, path: str) -> int:
        """Bytes that this process may still write to the disk that holds `path`."""

    def lock(self, path: str) -> None:
        """Take the lock that the file `path` stands for, making the file if needed.

        Raises BlockingIOError if another process, or this one, holds it.  The end of the process
        releases it, however it ends; the file stays and says nothing.
        """

    def unlock(self, path: str) -> None:
        """Release a lock; harmless if it is not held."""

    def is_locked(self, path: str) -> bool:
        """Whether anybody holds the lock; changes nothing, and makes no file."""


class ClosedOnExit:
    """Something with a `close`, which the end of a `with` calls."""

    __slots__ = ()

    def close(self) -> None:
        """Release what it holds; closing twice is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _RealHandle(ClosedOnExit):
    """What the two kinds of open file share: the descriptor, its name and its end."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path

    def fileno(self) -> int:
        """The descriptor, as the operating system knows the file."""
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealWriteFile(_RealHandle):
    """A file of the operating system, open for writing.  See `WriteFile`."""

    __slots__ = ("_fsync_failed",)

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, path)
        self._fsync_failed = False

    def write_at(self, offset: int, data: Buffer) -> None:
        try:
            written = os.pwrite(self._descriptor, data, offset)
            if written != len(data):
                self._write_rest(offset, memoryview(data).cast("B"), written)
        except OSError as error:
            error.filename = self._path
            raise

    def _write_rest(self, offset: int, view: memoryview, written: int) -> None:
        # A short write is not an error for the kernel: a signal, a limit, or a disk about to fill
        # up. The next call says which.
        while written < len(view):
            count = os.pwrite(self._descriptor, view[written:], offset + written)
            if count == 0:
                raise OSError(errno.EIO, "the disk accepts no bytes and gives no reason")
            written += count

    def allocate(self, size: int) -> None:
        try:
            old_size = os.fstat(self._descriptor).st_size
            if size <= old_size:
                return
            try:
                self._reserve(old_size, size)
            except OSError:
                # A reservation that failed half-way leaves the file longer, by as much as fitted:
                # exactly the blocks that a full disk now lacks.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, old_size)
                raise
        except OSError as error:
            error.filename = self._path
            raise

    def _reserve(self, old_size: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, old_size, size - old_size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
            else:
                return
        zeros = memoryview(_ZEROS)
        for offset in range(old_size, size, len(zeros)):
            self._write_rest(offset, zeros[: size - offset], 0)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            error.filename = self._path
            raise

    def fsync(self) -> None:
        self._flush(data_only=False)
        if hasattr(os, "posix_fadvise"):
            # Without this a read-back compares memory with itself and proves nothing about the
            # device.  Advice only: where it is refused, the read-back is weaker, not wrong.
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def datasync(self) -> None:
        self._flush(data_only=True)

    def _flush(self, data_only: bool) -> None:
        if self._fsync_failed:
            # The kernel would say yes here, with the bytes gone.
            raise OSError(errno.EIO, "an earlier fsync failed and may have lost bytes", self._path)
        try:
            if _FULL_FSYNC is not None:
                fcntl.fcntl(self._descriptor, _FULL_FSYNC)
            elif data_only and hasattr(os, "fdatasync"):
                os.fdatasync(self._descriptor)
            else:
                os.fsync(self._descriptor)
        except OSError as error:
            self._fsync_failed = True
            error.filename = self._path
            raise


class RealReadFile(_RealHandle):
    """A file of the operating system, open for reading.  See `ReadFile`."""

    __slots__ = ()

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        try:
            if size > _LARGE_READ_BYTES:
                size = max(0, min(size, self.size() - offset))
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            return self._read_rest(offset, size, data)
        except OSError as error:
            error.filename = self._path
            raise

    def _read_rest(self, offset: int, size: int, first: bytes) -> bytes:
        # One call reads at most about 2 GiB, and network file systems may give less than asked.
        parts = [first]
        total = len(first)
        while total < size:
            part = os.pread(self._descriptor, size - total, offset + total)
            if not part:
                break
            parts.append(part)
            total += len(part)
        return b"".join(parts)


class RealDisk:
    """The files of the operating system.  See `Disk`.

    Interrupted calls are repeated by the interpreter itself (PEP 475).
    """

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def list(self, path: str) -> Names:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mtime(self, path: str) -> float:
        return os.stat(path).st_mtime

    def create(self, path: str) -> RealWriteFile:
        return RealWriteFile(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), path)

    def open_write(self, path: str) -> RealWriteFile:
        return RealWriteFile(open_regular(path, os.O_RDWR), path)

    def open_read(self, path: str) -> RealReadFile:
        return RealReadFile(open_regular(path, os.O_RDONLY), path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def fsync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        values = os.statvfs(path)
        return values.f_bavail * values.f_frsize

    def lock(self, path: str) -> None:
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
        if path not in self._locks and self._holds_file(descriptor):
            # A link leads to a file that is locked already, under another name: one lock for both.
            self._locks[path] = descriptor
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._locks[path] = descriptor

    def _holds_file(self, descriptor: int) -> bool:
        """Whether the open file is one that this disk has locked."""
        found = os.fstat(descriptor)
        return any(os.path.samestat(found, os.fstat(held)) for held in self._locks.values())

    def unlock(self, path: str) -> None:
        descriptor = self._locks.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def is_locked(self, path: str) -> bool:
        try:
            descriptor = open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def open_regular(path: str, flags: int) -> int:
    """Open a regular file; anything else is an error instead of a wait without end."""
    # Non-blocking: opening a pipe that nobody writes to would hang the server.
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def directory_of(path: str) -> str:
    """The directory that holds the name of `path`; "." for a bare name."""
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def read_file(disk: Disk, path: str, limit: int) -> bytes:
    """The whole content of a small file.

    A file beyond `limit` bytes is refused with EFBIG before anything of it is read: a damaged or
    foreign file under a known name must not fill the memory.
    """
    with disk.open_read(path) as file:
        size = file.size()
        if size > limit:
            raise OSError(errno.EFBIG, f"{size} bytes where at most {limit} are expected", path)
        return file.read_at(0, size)


def make_directory_durably(disk: Disk, path: str) -> None:
    """Make `path` and its missing parents, and make every name on the way survive a crash.

    Also the names that were there: whoever made them may have been stopped before that, and a
    directory that is not reachable after a crash is lost with all that is in it.
    """
    places = [path]
    while (above := directory_of(places[-1])) != places[-1]:
        places.append(above)
    missing = {place for place in places if not disk.is_directory(place)}
    if missing:
        disk.make_directory(path)
    # From the top: a name below one that is not durable yet is not reachable after a crash.
    for below, place in reversed(list(pairwise(places))):
        # A directory that we may not read is not one that we created.
        unreadable = () if below in missing else (PermissionError,)
        try:
            with contextlib.suppress(*unreadable):
                disk.fsync_directory(place)
        except OSError:
            # The next fsync may succeed although the names are lost: they must not exist when the
            # operation is retried.
            for made in places:
                if made in missing:
                    disk.remove_directory(made)
            raise


def temporary_of(path: str) -> str:
    """The name under which the next content of `path` is written, in the same directory.

    It begins with neither "snapshot" nor "log.": Apache ZooKeeper, and every tool that goes by
    those prefixes, would take a half-written file for a live one.
    """
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f"keepfast.{name}.tmp")


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Make `path` hold exactly `data`, or leave it as it was, whenever power is lost.

    Used for small files that promises depend on: a stale epoch lets this server follow a leader
    it promised to refuse.  Returns only when `data` is durable under `path`.  After an error
    before the rename `path` is as it was and the temporary file is removed if that is possible;
    after one from the rename or the directory's fsync, `path` holds the old or the new content
    and a crash decides which.  Such an error is final and always EIO: a full disk is an ordinary
    condition only where it left nothing in doubt.
    """
    temporary = temporary_of(path)
    try:
        _write_and_check(disk, temporary, data)
    except OSError:
        # A full disk must get its blocks back; the first error is the one to report.
        with contextlib.suppress(OSError):
            disk.remove(temporary)
        raise
    try:
        disk.rename(temporary, path)
        # The new name lives in the directory, not in the file: without this a restart can find
        # the old content.
        disk.fsync_directory(directory_of(path))
    except OSError as error:
        reason = f"replacing the file failed: {error.strerror}"
        raise OSError(errno.EIO, reason, path) from error


def _write_and_check(disk: Disk, path: str, data: bytes) -> None:
    with disk.create(path) as file:
        file.write_at(0, data)
        # Before the rename: the rename may reach the disk first, and a power cut between the two
        # would leave an empty file under the final name.
        file.fsync()
    with disk.open_read(path) as written:
        # One byte more than was written, so that a longer file shows too.
        if written.read_at(0, len(data) + 1) != data:
            raise OSError(errno.EIO, "reads back other bytes than were written", path)
