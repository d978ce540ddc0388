"""What a power loss may leave of a `MemoryDisk`: all outcomes, or one by chance.

The model, and why each part of it is fair:

- *Each sector of a pending write is old or new on its own.*  A device promises no more than its
  sector, and kernel and device reorder whole pages freely.
- *The size may arrive without the bytes, which then read as zeros, and the bytes without the
  size, which nobody sees.*  Journals order metadata; the data goes elsewhere.  A growing write may
  also have grown the file to any sector in between.
- *A truncate or allocate is kept or lost as a whole*, whatever became of the writes around it; a
  kept one brings the earlier ones of its file along, because an inode is one record.  Whatever
  sectors are there, nothing after a kept cut is seen again: file systems zero it.
- *Each operation on names is kept or lost on its own*, in the order of the kept ones.  Journalled
  file systems keep a prefix; POSIX promises nothing, and some file systems have reordered.
- *A rename is atomic*: every file system in use goes to lengths for that.  It does not wait for
  the create of its source (the file then shows up under its new name only) nor for its data (the
  file is then empty, or holds whatever part had arrived).  Between two directories the new name
  comes before the old one goes: after a crash both may be there, never neither.
- *Removal may be lost*, and then the file is back with what of it was durable.

An operation is one call (make_directory: one for each new directory).
"""

import random
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias

from keepfast.sim.memory_inodes import (
    ADDED_CHOICE,
    KEPT_CHOICE,
    LOST_CHOICE,
    SECTOR_BYTES,
    Choice,
    Content,
    DirectoryInode,
    EntryOperation,
    FileInode,
    FileOperation,
    Inode,
    Rename,
    Unlink,
    Write,
    apply_entry,
    kept_choice,
    sector_count,
)


class PendingFile(NamedTuple):
    """A pending operation on a file's content."""

    file: FileInode
    operation: FileOperation


Pending: TypeAlias = PendingFile | EntryOperation
ContentMemo: TypeAlias = dict[tuple[FileInode, tuple[Choice, ...]], Content]


class Limits(NamedTuple):
    """How far `enumerate_choices` goes.

    pending: with at most this many pending operations every combination is given.
    sectors: a write of at most this many sectors is torn in every way, a longer one at its ends
        and in its middle.
    combinations: with more of them than this, as three long writes have, a sample is given.
    breadth: how many prefixes, single losses and random subsets make up that sample.
    """

    pending: int
    sectors: int
    combinations: int
    breadth: int


def pending_operations(
    root: DirectoryInode, dirty: Iterable[FileInode], entries: list[EntryOperation]
) -> list[Pending]:
    """Everything that a crash may keep or lose, in the order in which it was done.

    Files that no outcome can reach are left out: their bytes would multiply equal outcomes.
    """
    reachable = _reachable(root, entries)
    files: list[Pending] = [
        PendingFile(file, operation)
        for file in dirty
        if file in reachable
        for operation in file.pending
    ]
    return sorted([*files, *entries], key=_sequence)


def _sequence(pending: Pending) -> int:
    return pending.operation.sequence if isinstance(pending, PendingFile) else pending.sequence


def _reachable(root: DirectoryInode, entries: list[EntryOperation]) -> set[Inode]:
    found: set[Inode] = {root}
    stack: list[Inode] = [root]
    stack += [entry.inode for entry in entries if not isinstance(entry, Unlink)]
    while stack:
        inode = stack.pop()
        found.add(inode)
        if isinstance(inode, DirectoryInode):
            stack += [below for below in inode.durable.values() if below not in found]
    return found


def outcome(
    root: DirectoryInode,
    pending: list[Pending],
    choices: Iterable[Choice],
    memo: ContentMemo,
) -> DirectoryInode:
    """The root of a new tree of inodes that holds what `choices` left; shares unchanged bytes.

    `memo` saves work between outcomes of the same crash.
    """
    changed: dict[DirectoryInode, dict[str, Inode]] = {}
    kept_of: dict[FileInode, list[Choice]] = {}

    def entries(directory: DirectoryInode) -> dict[str, Inode]:
        if directory not in changed:
            changed[directory] = dict(directory.durable)
        return changed[directory]

    for item, choice in zip(pending, choices, strict=True):
        if isinstance(item, PendingFile):
            kept_of.setdefault(item.file, []).append(choice)
        else:
            apply_entry(item, choice.kept, entries)

    copies: dict[Inode, Inode] = {}

    def copy_file(file: FileInode) -> FileInode:
        key = (file, tuple(kept_of.get(file, ())))
        content = memo.get(key)
        if content is None:
            content = memo[key] = file.surviving(key[1]) if key[1] else file.durable.share()
        return FileInode(content, file.mtime)

    def copy_directory(directory: DirectoryInode) -> DirectoryInode:
        copy = DirectoryInode()
        for name, inode in changed.get(directory, directory.durable).items():
            below = copies.get(inode)
            if below is None:
                if isinstance(inode, FileInode):
                    below = copy_file(inode)
                else:
                    below = copy_directory(inode)
                copies[inode] = below
            if isinstance(below, FileInode):
                below.links += 1
            copy.cached[name] = copy.durable[name] = below
        return copy

    return copy_directory(root)


def enumerate_choices(
    pending: list[Pending], limits: Limits, rng: random.Random
) -> Iterator[list[Choice]]:
    """Outcomes as one choice per operation; some result in the same disk.

    Every combination within the limits.  Beyond them: nothing kept, everything kept, prefixes with
    the next operation torn, everything but one, and random subsets.
    """
    if len(pending) <= limits.pending:
        variants = [_variants(item, limits.sectors) for item in pending]
        is_complete = prod(map(len, variants)) <= limits.combinations
    else:
        is_complete = False
    if is_complete:
        for combination in product(*variants):
            yield list(combination)
        return
    everything = [_everything(item) for item in pending]
    nothing = [LOST_CHOICE] * len(pending)
    yield nothing
    yield everything
    positions = _spread(len(pending), limits.breadth)
    for position in positions:
        for torn in _variants(pending[position], limits.sectors):
            yield [*everything[:position], torn, *nothing[position + 1 :]]
    for position in positions:
        yield [*everything[:position], LOST_CHOICE, *everything[position + 1 :]]
    for _ in range(limits.breadth):
        yield random_choices(pending, rng)


def random_choices(pending: list[Pending], rng: random.Random) -> list[Choice]:
    """One outcome by chance: a prefix with a torn end, or a subset with tears anywhere."""
    if not pending:
        return []
    if rng.random() < 0.5:
        position = rng.randrange(len(pending) + 1)
        choices = [_everything(item) for item in pending[:position]]
        choices += [_random_choice(item, rng) for item in pending[position : position + 1]]
        return choices + [LOST_CHOICE] * (len(pending) - len(choices))
    share = rng.choice((0.1, 0.5, 0.9))
    choices = []
    for item in pending:
        chance = rng.random()
        if chance < 0.1:
            choices.append(_random_choice(item, rng))
        else:
            choices.append(_everything(item) if rng.random() < share else LOST_CHOICE)
    return choices


def _everything(item: Pending) -> Choice:
    return kept_choice(item.operation) if isinstance(item, PendingFile) else KEPT_CHOICE


def _variants(item: Pending, sectors: int) -> list[Choice]:
    if isinstance(item, PendingFile) and isinstance(item.operation, Write):
        return list(_tears(item.operation, sectors))
    if isinstance(item, Rename) and item.directory is not item.old_directory:
        return [LOST_CHOICE, ADDED_CHOICE, KEPT_CHOICE]
    return [LOST_CHOICE, KEPT_CHOICE]


def _random_choice(item: Pending, rng: random.Random) -> Choice:
    if not (isinstance(item, PendingFile) and isinstance(item.operation, Write)):
        return rng.choice(_variants(item, 0))
    write = item.operation
    kept = rng.getrandbits(sector_count(write))
    return Choice(kept, rng.choice(_sizes(write, kept, every_sector=False)))


def _tears(write: Write, sectors: int) -> Iterator[Choice]:
    count = sector_count(write)
    is_short = count <= sectors
    for kept in range(1 << count) if is_short else _long_masks(count):
        for size in _sizes(write, kept, every_sector=is_short):
            yield Choice(kept, size)


def _long_masks(count: int) -> list[int]:
    full = (1 << count) - 1
    places = (0, count // 2, count - 1)
    masks = [0, full]
    masks += [(1 << place) - 1 for place in places]
    masks += [full ^ ((1 << place) - 1) for place in places]
    masks += [full ^ (1 << place) for place in places]
    masks += [1 << place for place in places]
    return list(dict.fromkeys(masks))


def _sizes(write: Write, kept: int, every_sector: bool) -> list[int]:
    """The sizes that the file may be known to have, given the sectors that arrived."""
    if write.size_after <= write.size_before:
        return [0]
    shown = min(write.start + kept.bit_length() * SECTOR_BYTES, write.size_after) if kept else 0
    sizes = [shown, write.size_after]
    if every_sector:
        ends = range(write.start + SECTOR_BYTES, write.size_after, SECTOR_BYTES)
        sizes += [end for end in ends if end > max(shown, write.size_before)]
    return list(dict.fromkeys(sizes))


def _spread(count: int, limit: int) -> list[int]:
    """At most `limit` positions below `count`, evenly, the first and the last among them."""
    if count <= limit:
        return list(range(count))
    return sorted({index * (count - 1) // max(1, limit - 1) for index in range(limit)})
