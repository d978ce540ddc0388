"""A sweep: one damage after the other on a directory that is known, and what recovery makes of it.

The judge knows the right state. Every damage has to end in that state or in words; a state that
is wrong, or shorter, under the claim to be whole is what must never be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from keepfast.sim import MemoryDisk
from keepfast.sim.disk_damage import (
    flip_bit,
    path_exists,
    remove_file,
    restore_file,
    sector_count_of,
    swap_files,
    truncate_file,
    zero_sector,
)
from keepfast.storage import DataDirectory, Recovery, Severity, Standing, recover
from keepfast.storage.layout import WATERMARK_NAME
from keepfast.tree import CONFIG


class Facts(NamedTuple):
    """Everything that a server answers or votes by."""

    head: int
    digest: int
    state_digest: int
    sessions: frozenset[tuple[int, int]]
    current_epoch: int | None


class Outcome(Enum):
    RIGHT = "right"
    RIGHT_AND_SAID = "right, damage reported"
    REFUSED = "refused"  # not whole: must not vote
    WRONG_AND_SAID = "wrong, damage reported"
    SILENT = "SILENT WRONG"


class Damage(NamedTuple):
    """One damage; `do` changes the disk, and only the named files."""

    kind: str
    names: tuple[str, ...]
    at: int
    do: Callable[[MemoryDisk], None]

    def __str__(self) -> str:
        return f"{self.kind} {' <-> '.join(self.names)} at {self.at}"


class Verdict(NamedTuple):
    damage: Damage
    outcome: Outcome
    found: Recovery


def facts_of(found: Recovery) -> Facts | None:
    """What recovery found; the tree is unusable afterwards."""
    tree = found.tree
    if tree is None:
        return None
    config = tree.find(CONFIG)
    if config is not None:
        # No txn makes it: Apache writes it at each start, from the file with its settings.
        tree.set_data(CONFIG, config, b"", 0, 0, 0)
    sessions = frozenset(tree.sessions.items())
    return Facts(found.head, tree.digest, tree.state_digest, sessions, found.epochs.current)


def judge(found: Recovery, right: Facts) -> Outcome:
    is_said = any(problem.severity is Severity.DAMAGE for problem in found.problems)
    if found.standing is not Standing.WHOLE:
        return Outcome.REFUSED
    if facts_of(found) == right:
        return Outcome.RIGHT_AND_SAID if is_said else Outcome.RIGHT
    return Outcome.WRONG_AND_SAID if is_said else Outcome.SILENT


@dataclass
class Sweep:
    """Every damage of the list below, each on its own.

    `earlier` is the same directory at an earlier time: a file may come back as it was then.
    """

    disk: MemoryDisk
    directory: DataDirectory
    earlier: MemoryDisk | None = None
    counts: Counter[tuple[str, Outcome]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # Not one file that a server or a crash would still change.
        self.disk.settle()
        found = recover(self.disk, self.directory)
        right = facts_of(found)
        assert found.standing is Standing.WHOLE, found.problems
        assert right is not None
        self.right = right
        self.manifest = found.manifest
        self._files = self.disk.files()

    def run(
        self, damages: Iterator[Damage] | None = None, *, full: bool = False
    ) -> Iterator[Verdict]:
        """Do each damage, recover, judge, and undo it."""
        before = self.disk.fingerprint()
        for damage in damages or self.damages():
            damage.do(self.disk)
            found = recover(self.disk, self.directory, full=full)
            outcome = judge(found, self.right)
            self.counts[damage.kind, outcome] += 1
            yield Verdict(damage, outcome, found)
            for name in damage.names:
                path = self.directory.path_of(name)
                self.disk.put(path, self._files[path])
        assert self.disk.fingerprint() == before

    def damages(self, step: int = 1) -> Iterator[Damage]:
        """All of them; `step`: how far apart damaged bytes are."""
        for name in self.names():
            yield from self.in_bytes(name, step)
        yield from self.of_files()

    def names(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self._files]

    def in_bytes(self, name: str, step: int = 1) -> Iterator[Damage]:
        """Damage inside one file: every byte, every sector, every length (in steps of `step`)."""
        path = self.directory.path_of(name)
        data = self._files[path]
        for at in range(0, len(data), step):
            yield Damage("byte flipped", (name,), at, _doing(_invert, path, at))
            for bit in range(8) if len(data) < 8 else (at * 5 % 8,):
                yield Damage("bit flipped", (name,), at, _doing(flip_bit, path, at, bit))
        # Behind its two slots the watermark is nothing but zeros.
        for at in range(0, len(data), step if name != WATERMARK_NAME else 22):
            yield Damage("file cut", (name,), at, _doing(truncate_file, path, at))
        for index in range(sector_count_of(self.disk, path)):
            yield Damage("sector zeroed", (name,), index * 512, _doing(zero_sector, path, index))
        for junk in (bytes(600), b"\xff" * 600):
            longer = data + junk
            yield Damage("bytes added", (name,), len(data), _doing(MemoryDisk.put, path, longer))

    def of_files(self) -> Iterator[Damage]:
        """Files that are gone, have changed places, or are as they were before."""
        names = self.names()
        for index, name in enumerate(names):
            path = self.directory.path_of(name)
            yield Damage("file removed", (name,), 0, _doing(remove_file, path))
            for other in names[index + 1 :]:
                swap = _doing(swap_files, path, self.directory.path_of(other))
                yield Damage("files swapped", (name, other), 0, swap)
            if self.earlier is not None and path_exists(self.earlier, path):
                restore = _doing(restore_file, path, self.earlier)
                yield Damage("old copy restored", (name,), 0, restore)

    def table(self) -> list[str]:
        """The counts, one line a kind of damage."""
        kinds = dict.fromkeys(kind for kind, _ in self.counts)
        lines = []
        for kind in kinds:
            found = {o.value: self.counts[kind, o] for o in Outcome if self.counts[kind, o]}
            parts = ", ".join(f"{count} {what}" for what, count in found.items())
            lines.append(f"{kind}: {sum(found.values())} ({parts})")
        return lines


def _doing(action: Callable[..., None], *arguments: object) -> Callable[[MemoryDisk], None]:
    return lambda disk: action(disk, *arguments)


def _invert(disk: MemoryDisk, path: str, at: int) -> None:
    data = bytearray(disk.contents(path))
    data[at] ^= 0xFF
    disk.put(path, bytes(data))
