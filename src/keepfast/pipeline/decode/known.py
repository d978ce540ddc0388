"""Stretches of logs that were read already, recognised in the log of another server by their bytes.

The servers of an ensemble hold the same records, and nearly always the same bytes. What was found
out about a stretch of bytes holds for the same bytes elsewhere, so only the first server's have to
be taken apart; comparing with those is many times cheaper, and is no guess: all bytes are compared.

A stretch is a run of records, each directly after the one before, from one multiple of
STRETCH_RECORDS to the next: places that are the same on every server, wherever its files begin.
What is not recognised is read as if nothing were known; results never depend on what is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

STRETCH_RECORDS = 512
# Of larger records each is cheap for its size, and windows would have to grow with them.
LARGEST_STRETCH = 512 << 10
# As much as the largest part of a log that one task reads: then the same part of the next
# server's log finds all of it.
_MAX_BYTES = 96 << 20
_COUNTER_MASK = 0xFFFFFFFF
# Where the zxid stands in a frame, and enough bytes of one that no other begins with them.
_ZXID_OFFSET = 24
_NEEDLE_SIZE = 44
# Stretches of which one may begin in a window.
_MAX_AHEAD = 128

Noted = TypeVar("Noted")


@dataclass(frozen=True, slots=True)
class Stretch(Generic[Noted]):
    """Sound records from the zxid `first` to `last`, back to back, and what was noted of them."""

    first: int
    last: int
    data: bytes
    note: Noted


class Known(Generic[Noted]):
    """The stretches that were read last, up to a limit of bytes."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._stretches: dict[int, Stretch[Noted]] = {}

    def add(self, stretch: Stretch[Noted]) -> None:
        """Keep a whole stretch that is not too large; anything else is passed over."""
        if not is_whole(stretch.first, stretch.last) or len(stretch.data) > LARGEST_STRETCH:
            return
        self._remove(stretch.first)
        self._stretches[stretch.first] = stretch
        self._size += len(stretch.data)
        while self._size > self._max_bytes:
            self._remove(next(iter(self._stretches)))

    def _remove(self, first: int) -> None:
        old = self._stretches.pop(first, None)
        if old is not None:
            self._size -= len(old.data)

    def forget_before(self, zxid: int) -> None:
        """Let go of what begins before a zxid: nobody will ask for it."""
        for first in [first for first in self._stretches if first < zxid]:
            self._remove(first)

    def at_start(self, data: bytes, stop: int, before: int | None) -> Iterator[Stretch[Noted]]:
        """The known stretches with which `data` begins, one after the other, up to `stop`.

        `before` is the zxid of the record in front; after any but the one directly before,
        nothing is recognised.
        """
        offset = 0
        while (stretch := self._stretches.get(zxid_at(data, offset))) is not None:
            end = offset + len(stretch.data)
            if before not in (None, stretch.first - 1) or end > stop:
                return
            if not data.startswith(stretch.data, offset):
                return
            yield stretch
            before, offset = stretch.last, end

    def ahead(self, data: bytes) -> int:
        """Where in `data`, which begins with a record, a known stretch may begin; its end if none.

        A reader that stops there continues with what is known.
        """
        if not self._stretches:
            return len(data)
        start = (zxid_at(data, 0) // STRETCH_RECORDS + 1) * STRETCH_RECORDS
        for first in range(start, start + _MAX_AHEAD * STRETCH_RECORDS, STRETCH_RECORDS):
            stretch = self._stretches.get(first)
            if stretch is not None:
                found = data.find(stretch.data[:_NEEDLE_SIZE], 1)
                return found if found > 0 else len(data)
        return len(data)


def is_whole(first: int, last: int) -> bool:
    """Whether a run of records is a whole stretch.

    Counter 0 is not a record's: what begins with it does not follow anything.
    """
    return (
        first % STRETCH_RECORDS == 0
        and last == first + STRETCH_RECORDS - 1
        and first & _COUNTER_MASK != 0
    )


def zxid_at(data: bytes, offset: int) -> int:
    """The zxid of the frame at an offset; some number if there is none."""
    start = offset + _ZXID_OFFSET
    return int.from_bytes(data[start : start + 8], signed=True)
