"""Work that is mapped in parts, grouped by keys, and put together: wherever that is done.

    map      one part of the input to blobs under keys; keys from 0 on are buckets
    reduce   all blobs of one bucket to blobs under other keys; what is not a bucket passes
    finish   all blobs under one key to the few that the caller gets

The three keep no state and see their own blobs alone, so that Spark can run them anywhere
(`engine.shuffles`); `work_here` runs them in this process.  Blobs under a key come in any order.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

# What `work_here` keeps in memory between its steps.
MAX_HELD_BYTES = 256 << 20

Keyed = tuple[int, bytes]
Found = dict[int, list[bytes]]


class KeyedWork(Protocol):
    """A plain value that knows how its parts are done."""

    @property
    def indexes(self) -> Sequence[int]:
        """The parts, neighbours beside each other."""

    @property
    def buckets(self) -> int:
        """How many buckets there are: few enough that each is worth a task."""

    @property
    def has_prelude(self) -> bool:
        """Whether `prelude` and `resolve` come first: their blobs are reduced with the others."""

    def prelude(self, index: int) -> Iterator[Keyed]:
        """What has to be known of a part beforehand, by bucket."""

    def resolve(self, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """What the prelude of one bucket means for all of them."""

    def map(self, index: int) -> Iterator[Keyed]:
        """The blobs of one part."""

    def reduce(self, key: int, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """What becomes of all blobs under a key."""

    def finish(self, key: int, blobs: Iterable[bytes]) -> list[bytes]:
        """What the caller gets under a key."""


class _Grouped:
    """Blobs by key; what does not fit into memory waits in a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._blobs: dict[int, list[bytes | tuple[int, int]]] = {}
        self._held = 0

    def add(self, found: Iterable[Keyed]) -> None:
        """Take blobs."""
        for key, blob in found:
            place: bytes | tuple[int, int] = blob
            if self._held + len(blob) > MAX_HELD_BYTES:
                place = self._file.seek(0, os.SEEK_END), len(blob)
                self._file.write(blob)
            else:
                self._held += len(blob)
            self._blobs.setdefault(key, []).append(place)

    def taken(self) -> Iterator[tuple[int, list[bytes]]]:
        """Each key and its blobs, which are forgotten then."""
        for key in sorted(self._blobs):
            blobs = [self._read(one) for one in self._blobs.pop(key)]
            yield key, blobs

    def _read(self, place: bytes | tuple[int, int]) -> bytes:
        if isinstance(place, bytes):
            return place
        self._file.seek(place[0])
        return self._file.read(place[1])


def work_here(work: KeyedWork) -> Found:
    """Do all of it in this process, in bounded memory."""
    with TemporaryFile(prefix="keepfast-") as file:
        grouped, reduced = _Grouped(file), _Grouped(file)
        if work.has_prelude:
            known = _Grouped(file)
            for index in work.indexes:
                known.add(work.prelude(index))
            for _, blobs in known.taken():
                grouped.add(work.resolve(blobs))
        for index in work.indexes:
            grouped.add(work.map(index))
        for key, blobs in grouped.taken():
            reduced.add(work.reduce(key, blobs))
        return {key: work.finish(key, blobs) for key, blobs in reduced.taken()}
