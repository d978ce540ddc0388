"""Keyed work in the tasks of a cluster: which blob goes where, and what is done with it there.

Without PySpark: the start of a worker is little else than imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import msgspec

from keepfast.pipeline.engine.task_process import exempt_imports
from keepfast.pipeline.keyed import Keyed, KeyedWork
from keepfast.pipeline.replay.relational import ChainPlan
from keepfast.pipeline.scan.split_snapshots import SnapshotSplit

_TASKS_PER_CORE = 4
# Kind of work -> its type.
_KINDS: dict[str, type[Any]] = {"chain": ChainPlan, "snapshot": SnapshotSplit}
_KIND_OF = {type_: kind for kind, type_ in _KINDS.items()}

# Some parts of one work: its number, and theirs.
MapTask = tuple[int, list[int]]
# A blob, the number of its work and its key; in front of them the number of the task to bring it.
Placed = tuple[int, tuple[int, int, bytes]]
Grouped = Callable[[KeyedWork, int, list[bytes]], Iterator[Keyed]]


@dataclass(frozen=True, slots=True)
class KeyedTasks:
    """Works, as they travel, and how they are divided."""

    works: tuple[bytes, ...]
    firsts: tuple[int, ...]  # the first of the tasks that reduce, by work; and how many there are
    cores: int

    @property
    def reducers(self) -> int:
        """How many tasks reduce: one for each bucket, where hashing would give some several."""
        return self.firsts[-1]

    @property
    def finishers(self) -> int:
        """How many tasks finish."""
        return _TASKS_PER_CORE * self.cores

    def map(self, tasks: Iterable[MapTask], *, is_prelude: bool) -> Iterator[Placed]:
        """The blobs of some parts, for the tasks that reduce."""
        for job, indexes in tasks:
            work = decoded(self.works[job])
            for index in indexes:
                found = work.prelude(index) if is_prelude else work.map(index)
                yield from self._placed(job, found)

    def resolve(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """What the preludes of some buckets mean for all of them."""
        for job, _, blobs in _groups(placed):
            yield from self._placed(job, decoded(self.works[job]).resolve(blobs))

    def reduce(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """What some buckets sum to, for the tasks that finish."""
        for job, key, blobs in _groups(placed):
            for found, blob in decoded(self.works[job]).reduce(key, blobs):
                yield (job + found) % self.finishers, (job, found, blob)

    def finish(self, placed: Iterable[Placed]) -> Iterator[tuple[int, int, list[bytes]]]:
        """What is kept of each work under some keys."""
        for job, key, blobs in _groups(placed):
            yield job, key, decoded(self.works[job]).finish(key, blobs)

    def _placed(self, job: int, found: Iterable[Keyed]) -> Iterator[Placed]:
        for key, blob in found:
            yield self.firsts[job] + max(key, -1) + 1, (job, key, blob)


def tasks_for(works: Sequence[KeyedWork], cores: int) -> KeyedTasks:
    """How works are divided."""
    # One more for what is no bucket.
    firsts = accumulate((work.buckets + 1 for work in works), initial=0)
    return KeyedTasks(tuple(map(encoded, works)), tuple(firsts), cores)


def map_tasks(works: Sequence[KeyedWork], cores: int, *, is_prelude: bool) -> list[MapTask]:
    """The parts of works by tasks, a few tasks for each core.

    Neighbours cost alike, whatever they cost: they go to different tasks.
    """
    size = max(1, sum(len(work.indexes) for work in works) // (_TASKS_PER_CORE * cores))
    tasks = []
    for job, work in enumerate(works):
        if not is_prelude or work.has_prelude:
            count = -(-len(work.indexes) // size)
            tasks += [(job, list(work.indexes[at::count])) for at in range(count)]
    return tasks


def encoded(work: KeyedWork) -> bytes:
    """Work as bytes."""
    return msgspec.msgpack.encode((_KIND_OF[type(work)], msgspec.msgpack.encode(work)))


@lru_cache(maxsize=8)
def decoded(raw: bytes) -> KeyedWork:
    """The work again, in a task; tasks of one process are mostly about the same one."""
    exempt_imports()
    kind, body = msgspec.msgpack.decode(raw, type=tuple[str, bytes])
    found: KeyedWork = msgspec.msgpack.decode(body, type=_KINDS[kind])
    return found


def _groups(placed: Iterable[Placed]) -> Iterator[tuple[int, int, list[bytes]]]:
    groups: dict[tuple[int, int], list[bytes]] = {}
    for _, (job, key, blob) in placed:
        groups.setdefault((job, key), []).append(blob)
    while groups:
        (job, key), blobs = groups.popitem()
        yield job, key, blobs
