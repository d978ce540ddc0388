"""The inodes of one `MemoryDisk` with their names, their space and all that is pending.

A `Volume` does what it is told and never fails on purpose; counting calls, faults and the power
loss are `MemoryDisk`'s.  Paths here are normalised.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NoReturn

from keepfast.sim.memory_crash import ContentMemo, Pending, outcome, pending_operations
from keepfast.sim.memory_inodes import (
    KEPT,
    Choice,
    Content,
    DirectoryInode,
    EntryOperation,
    FileInode,
    Inode,
    LinkOperation,
    Rename,
    Unlink,
    apply_entry,
    copy_directory,
    copy_entry,
    copy_file,
    durable_entries,
    sync_entries,
)
from keepfast.storage import Buffer

_UNLIMITED_BYTES = 1 << 50


def fail(code: int, path: str) -> NoReturn:
    """Raise the error that a kernel would give."""
    # OSError itself picks FileNotFoundError and its like by the code.
    raise OSError(code, os.strerror(code), path)


@lru_cache(maxsize=4096)
def normalised(path: str) -> str:
    """The path from the root, without empty and "." parts: "a/b" and "/a//b" are one file."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        fail(errno.EINVAL, path)
    return "/" + "/".join(parts)


class Volume:
    """Inodes, names and space of one simulated disk, and what a power loss would take.

    capacity: bytes that all files together may take; None for no limit.
    clock: gives the time of a change.
    used_bytes: the size of all files, removed ones that are still open among them.
    """

    def __init__(self, capacity: int | None, clock: Callable[[], float]) -> None:
        self.capacity = capacity
        self.clock = clock
        self.used_bytes = 0
        self._root = DirectoryInode()
        self._entries: list[EntryOperation] = []
        # A dict for its order: a set of objects would make outcomes depend on addresses.
        self._dirty: dict[FileInode, None] = {}
        self._sequence = 0

    # -- names -------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | None:
        """What `path` stands for, or None."""
        inode: Inode | None = self._root
        if path != "/":
            for name in path.split("/")[1:]:
                if not isinstance(inode, DirectoryInode):
                    return None
                inode = inode.cached.get(name)
        return inode

    def inode(self, path: str) -> Inode:
        """What `path` stands for; an error if that is nothing."""
        inode = self.find(path)
        if inode is None:
            # A path that leads through a file has an error of its own.
            self.place_of(path)
            fail(errno.ENOENT, path)
        return inode

    def file(self, path: str) -> FileInode:
        """The file of this path."""
        inode = self.inode(path)
        if isinstance(inode, DirectoryInode):
            fail(errno.EISDIR, path)
        return inode

    def directory(self, path: str) -> DirectoryInode:
        """The directory of this path."""
        inode = self.inode(path)
        if isinstance(inode, FileInode):
            fail(errno.ENOTDIR, path)
        return inode

    def place_of(self, path: str) -> tuple[DirectoryInode, str]:
        """The directory that holds the last name of `path`, which must be there, and the name."""
        if path == "/":
            fail(errno.EBUSY, path)
        parent, _, name = path.rpartition("/")
        inode: Inode | None = self._root
        for part in parent.split("/")[1:]:
            inode = inode.cached.get(part) if isinstance(inode, DirectoryInode) else inode
        if inode is None:
            fail(errno.ENOENT, path)
        if isinstance(inode, FileInode):
            fail(errno.ENOTDIR, path)
        return inode, name

    def make_directory(self, path: str) -> None:
        """Make the directory and its missing parents."""
        directory = self._root
        for name in path.split("/")[1:] if path != "/" else []:
            below = directory.cached.get(name)
            if below is None:
                below = DirectoryInode()
                self._link(directory, name, below)
            elif isinstance(below, FileInode):
                fail(errno.EEXIST if self.find(path) is below else errno.ENOTDIR, path)
            directory = below

    def create(self, path: str) -> FileInode:
        """A new file, or the old one emptied."""
        inode = self.find(path)
        if inode is None:
            directory, name = self.place_of(path)
            inode = FileInode(Content(bytearray()), self.clock())
            self._link(directory, name, inode)
        elif isinstance(inode, DirectoryInode):
            fail(errno.EISDIR, path)
        else:
            self.resize(inode, 0)
        return inode

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name."""
        # As the kernel does it: both directories first, then what is in them.
        old_directory, old_name = self.place_of(old)
        directory, name = self.place_of(new)
        inode = self.inode(old)
        if new.startswith(f"{old}/"):
            fail(errno.EINVAL, new)
        if old.startswith(f"{new}/"):
            fail(errno.ENOTEMPTY, new)
        target = directory.cached.get(name)
        if target is inode:
            # POSIX: two names of one file, as a crash may leave them, both stay.
            return
        _check_rename(inode, target, new, is_moved=directory is not old_directory)
        del old_directory.cached[old_name]
        directory.cached[name] = inode
        if isinstance(target, FileInode):
            self._unlinked(target)
        self._entries.append(Rename(self._next(), old_directory, old_name, directory, name, inode))

    def remove(self, path: str) -> None:
        """Take a file's name away."""
        inode = self.file(path)
        directory, name = self.place_of(path)
        del directory.cached[name]
        self._unlinked(inode)
        self._entries.append(Unlink(self._next(), directory, name))

    def remove_directory(self, path: str) -> None:
        """Take an empty directory away."""
        if self.directory(path).cached:
            fail(errno.ENOTEMPTY, path)
        directory, name = self.place_of(path)
        del directory.cached[name]
        self._entries.append(Unlink(self._next(), directory, name))

    def sync_directory(self, directory: DirectoryInode) -> None:
        """Make the names in it durable."""
        self._entries = sync_entries(directory, self._entries)

    def lose_entries(self, directory: DirectoryInode, kept: int) -> None:
        """A sync of names failed: some are durable, the others never will be, and all are seen."""
        touching = [
            operation
            for operation in self._entries
            if operation.directory is directory
            or (isinstance(operation, Rename) and operation.old_directory is directory)
        ]
        for operation in touching[:kept]:
            apply_entry(operation, KEPT, durable_entries)
        lost = {operation.sequence for operation in touching}
        self._entries = [item for item in self._entries if item.sequence not in lost]

    def _link(self, directory: DirectoryInode, name: str, inode: Inode) -> None:
        directory.cached[name] = inode
        if isinstance(inode, FileInode):
            inode.links += 1
        self._entries.append(LinkOperation(self._next(), directory, name, inode))

    def _unlinked(self, inode: FileInode) -> None:
        inode.links -= 1
        self.release(inode)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    # -- bytes and space ---------------------------------------------------------------------

    def write(self, inode: FileInode, offset: int, data: Buffer) -> None:
        """Write without asking for room."""
        if len(data):
            self._before_change(inode)
            inode.write(self._next(), offset, data)
            self.used_bytes += inode.size()

    def resize(self, inode: FileInode, size: int) -> None:
        """Cut or grow without asking for room."""
        if size != inode.size():
            self._before_change(inode)
            inode.resize(self._next(), size)
            self.used_bytes += inode.size()

    def _before_change(self, inode: FileInode) -> None:
        self._dirty[inode] = None
        self.used_bytes -= inode.size()
        inode.mtime = self.clock()

    def sync_file(self, inode: FileInode, kept: int | None = None) -> None:
        """Make the pending operations durable; with `kept`, only this many, and lose the rest."""
        if kept is None:
            inode.sync()
        else:
            inode.lose(kept)
        self._dirty.pop(inode, None)

    def free_bytes(self) -> int:
        """The room that is left."""
        if self.capacity is None:
            return _UNLIMITED_BYTES
        return max(0, self.capacity - self.used_bytes)

    def missing_bytes(self, inode: FileInode, size: int) -> int:
        """How many bytes are too few for the file to have this size."""
        growth = size - inode.size()
        return max(0, growth - self.free_bytes()) if growth > 0 else 0

    def release(self, inode: FileInode) -> None:
        """Count the file's bytes as free once neither a name nor a handle is left."""
        if not inode.links and not inode.handles:
            self.used_bytes -= inode.size()

    # -- everything at once ------------------------------------------------------------------

    def settle(self) -> None:
        """Make everything durable."""
        for inode in self._dirty:
            inode.sync()
        self._dirty.clear()
        for operation in self._entries:
            apply_entry(operation, KEPT, durable_entries)
        self._entries.clear()

    def drop_caches(self) -> None:
        """Let readers see what the device has and will get, and no more."""
        for inode in dict.fromkeys(self.files().values()):
            self.used_bytes -= inode.size()
            inode.drop_cache()
            self.used_bytes += inode.size()

    def put(self, path: str, data: bytes) -> None:
        """Place a file, with its directories, that is durable at once."""
        self.settle()
        *parents, name = path.split("/")[1:]
        directory = self._root
        for parent in parents:
            below = directory.cached.setdefault(parent, DirectoryInode())
            if isinstance(below, FileInode):
                fail(errno.ENOTDIR, path)
            directory.durable[parent] = below
            directory = below
        inode = FileInode(Content(bytearray(data)), self.clock())
        inode.links = 1
        directory.cached[name] = directory.durable[name] = inode
        self._measure()

    def erase(self, path: str) -> None:
        """Take a file away, durably."""
        self.settle()
        self.file(path)
        directory, name = self.place_of(path)
        del directory.cached[name]
        directory.durable.pop(name, None)
        self._measure()

    def set_content(self, inode: FileInode, data: bytearray) -> None:
        """Replace what readers and a crash see of the file."""
        self.sync_file(inode)
        self.used_bytes += len(data) - inode.size()
        inode.cached = inode.durable = Content(data).share()

    def files(self) -> dict[str, FileInode]:
        """All files by path."""
        return _files_below(self._root)

    def fingerprint(self) -> str:
        """A hash of all names and bytes as a reader sees them."""
        hasher = hashlib.blake2b(digest_size=16)

        def add(directory: DirectoryInode) -> None:
            for name in sorted(directory.cached):
                inode = directory.cached[name]
                # A name has no NUL, so no two trees give the same stream.
                if isinstance(inode, FileInode):
                    hasher.update(b"%b\0f%b" % (name.encode(), inode.cached.digest()))
                else:
                    hasher.update(b"%b\0d" % name.encode())
                    add(inode)
                    hasher.update(b"\0")

        add(self._root)
        return hasher.hexdigest()

    def copy(self) -> "Volume":
        """An independent volume in the same state, without open handles."""
        volume = Volume(self.capacity, self.clock)
        copies: dict[Inode, Inode] = {}
        volume._root = copy_directory(self._root, copies)
        volume._entries = [copy_entry(operation, copies) for operation in self._entries]
        volume._dirty = {copy_file(inode, copies): None for inode in self._dirty}
        volume._sequence = self._sequence
        volume._measure()
        return volume

    def pending(self) -> list[Pending]:
        """What a crash now may keep or lose, in order."""
        return pending_operations(self._root, self._dirty, self._entries)

    def survivor(
        self, pending: list[Pending], choices: Iterable[Choice], memo: ContentMemo
    ) -> "Volume":
        """What is left when of `pending` (see there) only `choices` came through."""
        volume = Volume(self.capacity, self.clock)
        volume._root = outcome(self._root, pending, choices, memo)
        volume._measure()
        return volume

    def _measure(self) -> None:
        inodes = dict.fromkeys(self.files().values())
        self.used_bytes = sum(inode.size() for inode in inodes)


def _check_rename(inode: Inode, target: Inode | None, path: str, is_moved: bool) -> None:
    if isinstance(inode, FileInode):
        if isinstance(target, DirectoryInode):
            fail(errno.EISDIR, path)
        return
    if is_moved:
        # With names that may be lost one by one, moved directories could end up inside each
        # other.  Storage moves files.
        fail(errno.EXDEV, path)
    if isinstance(target, FileInode):
        fail(errno.ENOTDIR, path)
    if target is not None and target.cached:
        fail(errno.ENOTEMPTY, path)


def _files_below(directory: DirectoryInode, path: str = "") -> dict[str, FileInode]:
    found: dict[str, FileInode] = {}
    for name, inode in directory.cached.items():
        if isinstance(inode, FileInode):
            found[f"{path}/{name}"] = inode
        else:
            found.update(_files_below(inode, f"{path}/{name}"))
    return found
