"""The axis of the lanes: zxids in a width that a person can look at.

Zxids jump by four billion where an epoch begins, and a server may hold a million records of one
epoch and two of the next, and the two are what matters. So the axis is made of *stretches*: zxids
that somebody holds, without the empty ranges between them, which are folded. Inside a stretch the
scale is linear; its width grows with the logarithm of what it holds, so that a short epoch is as
easy to see as a long one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from keepfast.wire import epoch_of

# In units of the axis; the browser scales them to the screen.
_MIN_WIDTH = 60.0
_WIDTH_PER_DOUBLING = 40.0
_FOLD_WIDTH = 18.0
# Empty ranges inside an epoch that are shorter than this part of what is held are not folded.
_SHORT_GAP = 0.25


@dataclass(frozen=True, slots=True)
class AxisStretch:
    """Zxids of one epoch, shown to scale between two points of the axis."""

    first: int
    last: int
    left: float
    right: float

    @property
    def count(self) -> int:
        """How many zxids it has."""
        return self.last - self.first + 1


class Axis:
    """Zxid -> point."""

    def __init__(self, stretches: list[AxisStretch]) -> None:
        """Use `Axis.over`."""
        self.stretches = stretches
        self._firsts = [stretch.first for stretch in stretches]

    @classmethod
    def over(cls, ranges: Iterable[tuple[int, int]]) -> Axis:
        """The axis on which all of `ranges` (first and last zxid) are to be seen.

        A range that reaches from one epoch into another is seen at its two ends only.
        """
        pieces = sorted(piece for first, last in ranges for piece in _pieces(first, last))
        merged: list[tuple[int, int]] = []
        for first, last in pieces:
            if merged and _belongs(merged[-1], first):
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        stretches = []
        left = 0.0
        for first, last in merged:
            width = _MIN_WIDTH + _WIDTH_PER_DOUBLING * math.log2(last - first + 1)
            stretches.append(AxisStretch(first, last, left, left + width))
            left += width + _FOLD_WIDTH
        return cls(stretches)

    @property
    def width(self) -> float:
        """The right end."""
        return self.stretches[-1].right if self.stretches else _MIN_WIDTH

    def left(self, zxid: int) -> float:
        """The left edge of a zxid."""
        return self._point(zxid, 0)

    def right(self, zxid: int) -> float:
        """The right edge of a zxid."""
        return self._point(zxid, 1)

    def _point(self, zxid: int, edge: int) -> float:
        index = bisect_right(self._firsts, zxid) - 1
        if index < 0:
            return 0.0
        stretch = self.stretches[index]
        if zxid > stretch.last:
            # In a fold: in the middle of it, or after everything.
            is_last = index == len(self.stretches) - 1
            return stretch.right + (0 if is_last else _FOLD_WIDTH / 2)
        share = (zxid - stretch.first + edge) / stretch.count
        return stretch.left + (stretch.right - stretch.left) * share


def _pieces(first: int, last: int) -> list[tuple[int, int]]:
    """A range as ranges of single epochs."""
    if last < first:
        first, last = last, first
    if epoch_of(first) == epoch_of(last):
        return [(first, last)]
    return [(first, first), (last, last)]


def _belongs(known: tuple[int, int], first: int) -> bool:
    """Whether a range continues in the same stretch, or too little is missing to fold it."""
    if epoch_of(known[1]) != epoch_of(first):
        return False
    missing = first - known[1] - 1
    held = known[1] - known[0] + 1
    return missing <= max(1, int(held * _SHORT_GAP))
