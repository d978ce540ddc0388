"""A disk in memory that forgets, tears, reorders, fills up and fails, all on purpose.

For tests and for the simulator.  It obeys the four rules of `disk.py` and nothing beyond them;
`memory_crash.py` states and justifies what a power loss may leave.  How it is used:

- *Crash*: run code on a `MemoryDisk`, stop it anywhere, and continue with what a crash left:
  `crash(rng)` for one outcome, `crash_states()` for all of them.  To stop at the n-th call use
  `fail_at(n, PowerLoss())`; to look at the disk around every call of one run set `on_call` and
  take `crash_states()` or `clone()` from there.
- *Faults*: `capacity` (disk full), `inject` (errors and silent rot), `ignored` (a device that
  says yes to a sync and does nothing: a test of crashes that passes with it tests nothing).
- *Damage at rest*: `disk_damage.py`.

Nothing here is random by itself and no clock is read: the same calls give the same disk.  Looking
(`contents`, `files`, `fingerprint`, `clone`, `crash_states`, `used_bytes`) is no disk call, is not
counted and works on a dead disk.  One thread at a time.
"""

import errno
import random
from collections.abc import Callable, Iterator

from keepfast.sim.disk_faults import CallHook, DiskCall, Fault, FaultTable, PowerLoss
from keepfast.sim.memory_crash import ContentMemo, Limits, enumerate_choices, random_choices
from keepfast.sim.memory_inodes import DirectoryInode, FileInode
from keepfast.sim.memory_volume import Volume, fail, normalised
from keepfast.storage import Buffer, ClosedOnExit, Disk, Names


def _no_clock() -> float:
    return 0.0


class _MemoryHandle(ClosedOnExit):
    """An open file of a `MemoryDisk`; it dies with the power."""

    __slots__ = ("_disk", "_inode", "_is_open", "_path", "_volume")

    def __init__(self, disk: "MemoryDisk", inode: FileInode, path: str) -> None:
        self._disk = disk
        self._volume = disk.volume
        self._inode = inode
        self._path = path
        self._is_open = True
        inode.handles += 1

    def _check_open(self) -> None:
        if not self._is_open:
            fail(errno.EBADF, self._path)

    def close(self) -> None:
        # Neither counted nor refused after a power loss: it changes nothing on the disk, and
        # `with` calls it while the loss passes through.
        if self._is_open:
            self._is_open = False
            self._inode.handles -= 1
            self._volume.release(self._inode)


class MemoryReadFile(_MemoryHandle):
    """See `disk.ReadFile`."""

    __slots__ = ()

    def size(self) -> int:
        self._check_open()
        self._disk.begin("file_size", self._path)
        return self._inode.size()

    def read_at(self, offset: int, size: int) -> bytes:
        self._check_open()
        self._disk.begin("read_at", self._path)
        if offset < 0 or size < 0:
            fail(errno.EINVAL, self._path)
        with memoryview(self._inode.cached.data) as view:
            return bytes(view[offset : offset + size])


class MemoryWriteFile(_MemoryHandle):
    """See `disk.WriteFile`."""

    __slots__ = ()

    def write_at(self, offset: int, data: Buffer) -> None:
        self._check_open()
        fault = self._disk.enter("write_at", self._path)
        if offset < 0:
            fail(errno.EINVAL, self._path)
        if fault is not None:
            if not fault.is_silent:
                self._volume.write(self._inode, offset, data[: fault.kept])
                raise fault.error(self._path)
            data = bytearray(data)
            if data:
                data[min(fault.kept, len(data) - 1)] ^= 1
        missing = self._volume.missing_bytes(self._inode, offset + len(data))
        if missing:
            fitting = max(0, len(data) - missing) if self._disk.partial_writes else 0
            self._volume.write(self._inode, offset, data[:fitting])
            fail(errno.ENOSPC, self._path)
        self._volume.write(self._inode, offset, data)
        self._disk.leave("write_at", self._path)

    def allocate(self, size: int) -> None:
        self._resize("allocate", max(size, self._inode.size()))

    def truncate(self, size: int) -> None:
        self._resize("truncate", size)

    def _resize(self, operation: str, size: int) -> None:
        self._check_open()
        self._disk.begin(operation, self._path)
        if size < 0:
            fail(errno.EINVAL, self._path)
        if self._volume.missing_bytes(self._inode, size):
            fail(errno.ENOSPC, self._path)
        self._volume.resize(self._inode, size)
        self._disk.leave(operation, self._path)

    def fsync(self) -> None:
        self._sync("fsync")

    def datasync(self) -> None:
        self._sync("datasync")

    def _sync(self, operation: str) -> None:
        self._check_open()
        fault = self._disk.enter(operation, self._path)
        if fault is not None:
            # Unlike `RealDisk`, a second try on this handle succeeds, as the kernel lets it: code
            # that tries again must be caught by the loss, not saved by the handle.
            self._volume.sync_file(self._inode, fault.kept)
            raise fault.error(self._path)
        if operation not in self._disk.ignored:
            self._volume.sync_file(self._inode)
        self._disk.leave(operation, self._path)


class MemoryDisk:
    """See `disk.Disk` and the module's docstring.

    partial_writes: whether a write that does not fit leaves the part that does.
    ignored: names of sync calls that do nothing and report success.
    on_call: called before and after each disk call; it may look at the disk and raise.
    calls: how many disk calls there were; closing a file is none.
    volume: what lies on the disk, for `disk_damage` and the handles.
    """

    def __init__(self, capacity: int | None = None, clock: Callable[[], float] = _no_clock) -> None:
        self.partial_writes = True
        self.ignored: frozenset[str] = frozenset()
        self.on_call: CallHook | None = None
        self.calls = 0
        self.volume = Volume(capacity, clock)
        self._faults = FaultTable()
        self._is_dead = False
        # No file backs them: a lock is not part of what is on the disk, and ends with a crash.
        self._locks: set[str] = set()

    @property
    def capacity(self) -> int | None:
        """Bytes that all files together may take; None for no limit; may change at any time.

        Every byte of a file's size counts, also those never written.
        """
        return self.volume.capacity

    @capacity.setter
    def capacity(self, capacity: int | None) -> None:
        self.volume.capacity = capacity

    # -- Disk --------------------------------------------------------------------------------

    def make_directory(self, path: str) -> None:
        path = normalised(path)
        self.begin("make_directory", path)
        self.volume.make_directory(path)
        self.leave("make_directory", path)

    def list(self, path: str) -> Names:
        path = normalised(path)
        self.begin("list", path)
        return sorted(self.volume.directory(path).cached)

    def exists(self, path: str) -> bool:
        path = normalised(path)
        self.begin("exists", path)
        return self.volume.find(path) is not None

    def is_directory(self, path: str) -> bool:
        path = normalised(path)
        self.begin("is_directory", path)
        return isinstance(self.volume.find(path), DirectoryInode)

    def size(self, path: str) -> int:
        path = normalised(path)
        self.begin("size", path)
        inode = self.volume.inode(path)
        return inode.size() if isinstance(inode, FileInode) else 0

    def mtime(self, path: str) -> float:
        path = normalised(path)
        self.begin("mtime", path)
        inode = self.volume.inode(path)
        return inode.mtime if isinstance(inode, FileInode) else 0.0

    def create(self, path: str) -> MemoryWriteFile:
        path = normalised(path)
        self.begin("create", path)
        inode = self.volume.create(path)
        self.leave("create", path)
        return MemoryWriteFile(self, inode, path)

    def open_write(self, path: str) -> MemoryWriteFile:
        path = normalised(path)
        self.begin("open_write", path)
        return MemoryWriteFile(self, self.volume.file(path), path)

    def open_read(self, path: str) -> MemoryReadFile:
        path = normalised(path)
        self.begin("open_read", path)
        return MemoryReadFile(self, self.volume.file(path), path)

    def rename(self, old: str, new: str) -> None:
        old, new = normalised(old), normalised(new)
        self.begin("rename", old)
        self.volume.rename(old, new)
        self.leave("rename", old)

    def remove(self, path: str) -> None:
        path = normalised(path)
        self.begin("remove", path)
        self.volume.remove(path)
        self.leave("remove", path)

    def remove_directory(self, path: str) -> None:
        path = normalised(path)
        self.begin("remove_directory", path)
        self.volume.remove_directory(path)
        self.leave("remove_directory", path)

    def fsync_directory(self, path: str) -> None:
        path = normalised(path)
        fault = self.enter("fsync_directory", path)
        directory = self.volume.directory(path)
        if fault is not None:
            self.volume.lose_entries(directory, fault.kept)
            raise fault.error(path)
        if "fsync_directory" not in self.ignored:
            self.volume.sync_directory(directory)
        self.leave("fsync_directory", path)

    def free_bytes(self, path: str) -> int:
        path = normalised(path)
        self.begin("free_bytes", path)
        self.volume.inode(path)
        return self.volume.free_bytes()

    def lock(self, path: str) -> None:
        path = normalised(path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "the lock is held", path)
        self._locks.add(path)

    def unlock(self, path: str) -> None:
        self._locks.discard(normalised(path))

    def is_locked(self, path: str) -> bool:
        return normalised(path) in self._locks

    # -- faults ------------------------------------------------------------------------------

    def fail_at(self, call_number: int, exception: BaseException, after: bool = False) -> None:
        """Raise `exception` before (or after) the call with this number, counted as in `calls`.

        An OSError before a sync loses what that sync was to make durable.  A PowerLoss kills
        the disk.
        """
        self._faults.stop_at(call_number, after, exception)

    def inject(
        self,
        operation: str,
        pattern: str = "*",
        code: int | None = errno.EIO,
        *,
        kept: int = 0,
        times: int | None = 1,
    ) -> None:
        """Make calls of `operation` fail on paths (as opened) that match the shell pattern.

        See `Fault`.  With `code` None a "write_at" flips a bit of byte `kept` and succeeds.
        """
        self._faults.faults.append(Fault(operation, pattern, code, kept, times))

    def heal(self) -> None:
        """End all injected faults and forget the calls to fail at."""
        self._faults = FaultTable()

    def power_off(self) -> None:
        """From now on every call on this disk and its handles raises PowerLoss."""
        self._is_dead = True

    def drop_caches(self) -> None:
        """Read files from the device again: bytes that a failed sync lost are seen to be lost."""
        self.volume.drop_caches()

    def settle(self) -> None:
        """Make everything durable, as if each sync had been called."""
        self.volume.settle()

    def put(self, path: str, data: bytes) -> None:
        """Place a file that has always been there: durable, with its directories, no disk call.

        Everything that is pending becomes durable too.
        """
        self.volume.put(normalised(path), data)

    def copy_in(self, source: Disk, source_path: str, path: str) -> None:
        """Place a copy of a directory of another disk here, as `put` does, with its times."""
        for name in source.list(source_path):
            below, target = f"{source_path}/{name}", f"{path}/{name}"
            if source.is_directory(below):
                self.copy_in(source, below, target)
                continue
            with source.open_read(below) as file:
                self.put(target, file.read_at(0, file.size()))
            self.volume.file(normalised(target)).mtime = source.mtime(below)

    # -- crashes and looking -----------------------------------------------------------------

    def crash(self, rng: random.Random) -> "MemoryDisk":
        """Lose power now: one legal outcome by chance.  This disk is dead afterwards."""
        self.power_off()
        pending = self.volume.pending()
        return self._sibling(self.volume.survivor(pending, random_choices(pending, rng), {}))

    def crash_states(
        self,
        limit_pending: int = 3,
        *,
        limit_sectors: int = 3,
        limit_combinations: int = 4096,
        breadth: int = 16,
        rng: random.Random | None = None,
    ) -> Iterator["MemoryDisk"]:
        """Every outcome of losing power now, each content once; this disk is not changed.

        Complete for up to `limit_pending` pending operations whose writes touch at most
        `limit_sectors` sectors; beyond that a sample, see `memory_crash.enumerate_choices`.
        The disk must not change before the iteration ends.
        """
        pending = self.volume.pending()
        limits = Limits(limit_pending, limit_sectors, limit_combinations, breadth)
        seen: set[str] = set()
        memo: ContentMemo = {}
        for choices in enumerate_choices(pending, limits, rng or random.Random(0)):
            volume = self.volume.survivor(pending, choices, memo)
            fingerprint = volume.fingerprint()
            if fingerprint not in seen:
                seen.add(fingerprint)
                yield self._sibling(volume)

    def pending_count(self) -> int:
        """How many operations a crash now could keep or lose."""
        return len(self.volume.pending())

    def clone(self) -> "MemoryDisk":
        """An independent disk in the same state, pending operations and all.

        It is alive and has no open handles, no hook and no faults but `ignored` and `capacity`.
        """
        disk = self._sibling(self.volume.copy())
        disk.calls = self.calls
        return disk

    def fingerprint(self) -> str:
        """A hash of all names and bytes as a reader sees them now; times are not in it."""
        return self.volume.fingerprint()

    def contents(self, path: str) -> bytes:
        """The bytes of the file as a reader sees them."""
        return bytes(self.volume.file(normalised(path)).cached.data)

    def files(self) -> dict[str, bytes]:
        """All files by path, sorted."""
        found = self.volume.files()
        return {path: bytes(found[path].cached.data) for path in sorted(found)}

    def used_bytes(self) -> int:
        """The bytes that count against `capacity`: all files, also removed ones still open."""
        return self.volume.used_bytes

    def unobserved(self) -> "MemoryDisk":
        """The same files, for a look that no fault strikes and nobody counts."""
        return self._sibling(self.volume)

    def _sibling(self, volume: Volume) -> "MemoryDisk":
        disk = MemoryDisk()
        disk.volume = volume
        disk.partial_writes = self.partial_writes
        disk.ignored = self.ignored
        return disk

    # -- around each call --------------------------------------------------------------------

    def enter(self, operation: str, path: str) -> Fault | None:
        """Count a call, and stop it where that was asked for; returns the fault that strikes it."""
        if self._is_dead:
            raise PowerLoss
        self.calls += 1
        if self.on_call is None and not self._faults:
            return None
        error = self._announce(operation, path, is_after=False)
        if error is not None:
            # Like an injected fault, so that a sync that fails this way loses its bytes too.
            return Fault(operation, path, error.errno, kept=0, times=1, exception=error)
        return self._faults.strike(operation, path)

    def begin(self, operation: str, path: str) -> None:
        """`enter` for a call that does nothing at all when it fails."""
        fault = self.enter(operation, path)
        if fault is not None:
            raise fault.error(path)

    def leave(self, operation: str, path: str) -> None:
        """The call has succeeded."""
        if self.on_call is not None or self._faults:
            error = self._announce(operation, path, is_after=True)
            if error is not None:
                raise error

    def _announce(self, operation: str, path: str, is_after: bool) -> OSError | None:
        try:
            if self.on_call is not None:
                self.on_call(DiskCall(self.calls, operation, path, is_after))
            error = self._faults.stop(self.calls, is_after)
            if error is None or isinstance(error, OSError):
                return error
            raise error
        except PowerLoss:
            self._is_dead = True
            raise
