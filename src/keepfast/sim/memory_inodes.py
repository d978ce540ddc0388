"""The contents of a `MemoryDisk`: inodes, what of them is durable, and what is still pending.

Theory of operation.  A file has two contents: the cached one, which readers see, and the durable
one, which a crash leaves.  A change goes to the cached content at once and into a list of pending
operations; a sync replays that list over the durable content, a crash replays a part of it.  A
directory likewise has two maps from names to inodes.

A pending write is kept as the image of the whole sectors that it touched, as they looked in the
cache right after it.  That is what a kernel writes back: a sector reaches the disk as it was at
some moment, so a sector holds a later write together with the earlier ones to that same sector,
never a later one without them, while two sectors have nothing to do with each other.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from keepfast.storage import Buffer

SECTOR_BYTES = 512


class Content:
    """Bytes that inodes of several disks may share until one of them changes them.

    Without sharing, each of the thousands of outcomes of one crash would copy every file.
    """

    __slots__ = ("_digest", "data", "is_shared")

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.is_shared = False
        self._digest: bytes | None = None

    def share(self) -> "Content":
        """Share this content with one more owner."""
        self.is_shared = True
        return self

    def to_change(self) -> "Content":
        """A content with these bytes that the caller alone owns and is about to change."""
        if self.is_shared:
            return Content(bytearray(self.data))
        self._digest = None
        return self

    def digest(self) -> bytes:
        """A hash of the bytes, computed once."""
        if self._digest is None:
            self._digest = hashlib.blake2b(self.data, digest_size=16).digest()
        return self._digest


class Write(NamedTuple):
    """A pending write: the sectors from `start`, and the file's size around it."""

    sequence: int
    start: int
    image: bytes
    size_before: int
    size_after: int


class Resize(NamedTuple):
    """A pending truncate or allocate."""

    sequence: int
    size_after: int


FileOperation: TypeAlias = Write | Resize


class Choice(NamedTuple):
    """What a crash left of one pending operation.

    `kept` of a write is a bit mask of its sectors, bit 0 the first; of a cross-directory rename 0,
    `ADDED` or `KEPT`; of all others 0 or `KEPT`.  `size` of a write is the size that the file is
    known to have after it: a size may reach the disk without the bytes, which then read as zeros.
    """

    kept: int
    size: int = 0


KEPT = 1
ADDED = 2
LOST_CHOICE = Choice(0)
KEPT_CHOICE = Choice(KEPT)
ADDED_CHOICE = Choice(ADDED)


def sector_count(write: Write) -> int:
    """How many sectors the write touches, each kept or lost on its own."""
    return (len(write.image) + SECTOR_BYTES - 1) // SECTOR_BYTES


def kept_choice(operation: FileOperation) -> Choice:
    """The choice that loses nothing of the operation."""
    if isinstance(operation, Write):
        return Choice((1 << sector_count(operation)) - 1, operation.size_after)
    return KEPT_CHOICE


def apply_choice(buffer: bytearray, size: int, operation: FileOperation, choice: Choice) -> int:
    """Replay what is left of an operation over `buffer`; returns the file's new size.

    `buffer` may end before or after that size in between: sectors can arrive without the size
    that shows them, and the size without the sectors.  See `fit`.
    """
    if not isinstance(operation, Write):
        if not choice.kept:
            return size
        del buffer[operation.size_after :]
        return operation.size_after
    count = sector_count(operation)
    if choice.kept == (1 << count) - 1:
        _place(buffer, operation.start, operation.image)
    elif choice.kept:
        for index in range(count):
            if choice.kept >> index & 1:
                offset = index * SECTOR_BYTES
                piece = operation.image[offset : offset + SECTOR_BYTES]
                _place(buffer, operation.start + offset, piece)
    return max(size, choice.size)


def _place(buffer: bytearray, start: int, piece: bytes) -> None:
    if len(buffer) < start:
        buffer.extend(bytes(start - len(buffer)))
    end = start + len(piece)
    buffer[start:end] = piece
    if end % SECTOR_BYTES and len(buffer) > end:
        # The file ended here when the sector was written, so the rest of the sector was zeros:
        # a lost truncate brings the old tail back from the next sector on.
        pad_end = min(len(buffer), end + SECTOR_BYTES - end % SECTOR_BYTES)
        buffer[end:pad_end] = bytes(pad_end - end)


def fit(buffer: bytearray, size: int) -> None:
    """Make the buffer as long as the file: cut what no size shows, fill what never arrived."""
    if len(buffer) > size:
        del buffer[size:]
    elif len(buffer) < size:
        buffer.extend(bytes(size - len(buffer)))


class FileInode:
    """One file, under any number of names."""

    __slots__ = ("cached", "durable", "handles", "links", "mtime", "pending")

    def __init__(self, content: Content, mtime: float) -> None:
        self.cached = content
        self.durable = content.share()
        self.pending: list[FileOperation] = []
        self.links = 0
        self.handles = 0
        self.mtime = mtime

    def size(self) -> int:
        """The size that readers see."""
        return len(self.cached.data)

    def write(self, sequence: int, offset: int, data: Buffer) -> None:
        """Change the cached content and remember the sectors that changed."""
        content = self.cached = self.cached.to_change()
        buffer = content.data
        size_before = len(buffer)
        if offset > size_before:
            buffer.extend(bytes(offset - size_before))
        end = offset + len(data)
        buffer[offset:end] = data
        start = offset - offset % SECTOR_BYTES
        with memoryview(buffer) as view:
            image = bytes(view[start : end + -end % SECTOR_BYTES])
        self.pending.append(Write(sequence, start, image, size_before, len(buffer)))

    def resize(self, sequence: int, size: int) -> None:
        """Cut or grow the cached content."""
        content = self.cached = self.cached.to_change()
        fit(content.data, size)
        self.pending.append(Resize(sequence, size))

    def sync(self, count: int | None = None) -> None:
        """Make the first `count` pending operations durable, all of them by default."""
        operations = self.pending if count is None else self.pending[:count]
        if operations:
            content = self.durable = self.durable.to_change()
            _replay(content.data, operations)
        self.pending = self.pending[len(operations) :]

    def lose(self, kept: int) -> None:
        """A sync failed: the first `kept` operations are durable, the others never will be.

        Readers see them all the same, as on Linux: the pages are clean and stay in the cache.
        """
        self.sync(kept)
        self.pending = []

    def drop_cache(self) -> None:
        """Forget what only the cache knew."""
        content = Content(bytearray(self.durable.data))
        _replay(content.data, self.pending)
        self.cached = content

    def surviving(self, choices: tuple[Choice, ...]) -> Content:
        """The content after a crash that left `choices` of the pending operations."""
        if not any(choice.kept or choice.size for choice in choices):
            return self.durable.share()
        buffer = bytearray(self.durable.data)
        size = len(buffer)
        last_resize = max(
            (
                index
                for index, operation in enumerate(self.pending)
                if isinstance(operation, Resize) and choices[index].kept
            ),
            default=-1,
        )
        for index, operation in enumerate(self.pending):
            choice = choices[index]
            if index < last_resize and isinstance(operation, Resize):
                # The inode is one record on the disk: a later state of it includes the earlier
                # changes.  Otherwise truncate and allocate could leave a cut that nobody made.
                choice = KEPT_CHOICE
            size = apply_choice(buffer, size, operation, choice)
        fit(buffer, size)
        return Content(buffer)


def _replay(buffer: bytearray, operations: list[FileOperation]) -> None:
    # `apply_choice` with nothing lost, without building the masks: every sync takes this path.
    size = len(buffer)
    for operation in operations:
        if isinstance(operation, Write):
            _place(buffer, operation.start, operation.image)
            size = max(size, operation.size_after)
        else:
            size = operation.size_after
            del buffer[size:]
    fit(buffer, size)


class DirectoryInode:
    """One directory: its names as programs see them and as a crash leaves them."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}


Inode: TypeAlias = FileInode | DirectoryInode


class LinkOperation(NamedTuple):
    """A pending new name."""

    sequence: int
    directory: DirectoryInode
    name: str
    inode: Inode


class Unlink(NamedTuple):
    """A pending removal of a name; with `inode` only where the name still stands for that one."""

    sequence: int
    directory: DirectoryInode
    name: str
    inode: Inode | None = None


class Rename(NamedTuple):
    """A pending rename."""

    sequence: int
    old_directory: DirectoryInode
    old_name: str
    directory: DirectoryInode
    name: str
    inode: Inode


EntryOperation: TypeAlias = LinkOperation | Unlink | Rename
Entries: TypeAlias = Callable[[DirectoryInode], dict[str, Inode]]


def durable_entries(directory: DirectoryInode) -> dict[str, Inode]:
    """Where `apply_entry` works for a sync; a crash gives it copies instead."""
    return directory.durable


def apply_entry(operation: EntryOperation, kept: int, entries: Entries) -> None:
    """Replay what is left (`Choice.kept`) of an operation on names."""
    if not kept:
        return
    if isinstance(operation, LinkOperation):
        entries(operation.directory)[operation.name] = operation.inode
    elif isinstance(operation, Unlink):
        names = entries(operation.directory)
        if operation.inode is None or names.get(operation.name) is operation.inode:
            names.pop(operation.name, None)
    else:
        entries(operation.directory)[operation.name] = operation.inode
        old_names = entries(operation.old_directory)
        # By inode: where the create of the old name was lost there is nothing to take away, or
        # an older file of that name.
        if kept == KEPT and old_names.get(operation.old_name) is operation.inode:
            del old_names[operation.old_name]


def sync_entries(
    directory: DirectoryInode, operations: list[EntryOperation]
) -> list[EntryOperation]:
    """Make every name in `directory` durable; returns the operations that are still pending.

    A rename between directories adds the new name before it takes the old one away, so syncing
    the old directory makes all of it durable, and syncing the new one leaves the removal open.
    """
    remaining: list[EntryOperation] = []
    for operation in operations:
        if isinstance(operation, Rename):
            if operation.old_directory is directory:
                apply_entry(operation, KEPT, durable_entries)
                continue
            if operation.directory is directory:
                apply_entry(operation, ADDED, durable_entries)
                sequence, old_directory, old_name, *_ = operation
                remaining.append(Unlink(sequence, old_directory, old_name, operation.inode))
                continue
        elif operation.directory is directory:
            apply_entry(operation, KEPT, durable_entries)
            continue
        remaining.append(operation)
    return remaining


def copy_inode(inode: Inode, copies: dict[Inode, Inode]) -> Inode:
    """A copy with all that is pending; `copies` knows the inodes that were copied before."""
    known = copies.get(inode)
    if known is not None:
        return known
    if isinstance(inode, FileInode):
        return copy_file(inode, copies)
    return copy_directory(inode, copies)


def copy_file(inode: FileInode, copies: dict[Inode, Inode]) -> FileInode:
    """See `copy_inode`."""
    known = copies.get(inode)
    if isinstance(known, FileInode):
        return known
    copy = FileInode(inode.cached.share(), inode.mtime)
    copy.durable = inode.durable.share()
    copy.pending = list(inode.pending)
    copy.links = inode.links
    copies[inode] = copy
    return copy


def copy_directory(inode: DirectoryInode, copies: dict[Inode, Inode]) -> DirectoryInode:
    """See `copy_inode`."""
    known = copies.get(inode)
    if isinstance(known, DirectoryInode):
        return known
    copy = DirectoryInode()
    copies[inode] = copy
    copy.cached = {name: copy_inode(below, copies) for name, below in inode.cached.items()}
    copy.durable = {name: copy_inode(below, copies) for name, below in inode.durable.items()}
    return copy


def copy_entry(operation: EntryOperation, copies: dict[Inode, Inode]) -> EntryOperation:
    """The same operation on the copies."""
    directory = copy_directory(operation.directory, copies)
    if isinstance(operation, LinkOperation):
        inode = copy_inode(operation.inode, copies)
        return LinkOperation(operation.sequence, directory, operation.name, inode)
    if isinstance(operation, Unlink):
        target = None if operation.inode is None else copy_inode(operation.inode, copies)
        return Unlink(operation.sequence, directory, operation.name, target)
    return operation._replace(
        directory=directory,
        old_directory=copy_directory(operation.old_directory, copies),
        inode=copy_inode(operation.inode, copies),
    )
