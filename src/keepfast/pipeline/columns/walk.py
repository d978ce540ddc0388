"""Following a chain of lengths at many places at once.

Records lie back to back and each says only how long it is, so a reader has to take one after the
other; in Python that costs more than all the rest. Here a chunk is entered at many guessed places,
and one step of numpy moves all walkers ahead together. A guess may be wrong, but it cannot
deceive: a walker counts only if the walker before it arrives exactly where this one began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from keepfast.pipeline.columns.gather import Ints


class Chain(Protocol):
    """Records that lie back to back in a buffer."""

    def step(self, offsets: Ints) -> Ints:
        """The offset behind the record at each offset; -1 where no whole, plausible one begins."""

    def step_one(self, offset: int) -> int:
        """The same for one offset, without the overhead of arrays."""


# With fewer walkers the overhead of a step of numpy is more than all single steps together.
_LEAST_WALKERS = 24


def follow(starts: Ints, end: int, chain: Chain) -> tuple[Ints, int]:
    """Offsets of all records from ``starts[0]`` on, and where the chain stops.

    `starts` ascend; all but the first are guesses. The chain stops at the first offset at or
    behind `end`, or where there is no record.
    """
    if len(starts) < _LEAST_WALKERS:
        return _follow_one_by_one(int(starts[0]), end, chain)
    found, arrived, broken = _run_walkers(starts, end, chain.step)
    if not broken.any() and np.array_equal(arrived[:-1], starts[1:]):
        return (np.concatenate(found) if found else starts[:0]), int(arrived[-1])
    return _join(starts, end, chain, (found, arrived, broken))


def _follow_one_by_one(start: int, end: int, chain: Chain) -> tuple[Ints, int]:
    offsets: list[int] = []
    step, position = chain.step_one, start
    while position < end and (behind := step(position)) >= 0:
        offsets.append(position)
        position = behind
    return np.array(offsets, np.int64), position


def _run_walkers(
    starts: Ints, end: int, step: Callable[[Ints], Ints]
) -> tuple[list[Ints], Ints, Ints]:
    """For each walker: its records, where it arrived, and whether it could not go on there."""
    count = len(starts)
    limits = np.append(starts[1:], end)
    arrived = starts.copy()
    broken = np.zeros(count, np.int64)
    rows: list[Ints] = []
    active = np.flatnonzero(starts < limits)
    while len(active):
        here = arrived[active]
        behind = step(here)
        whole = behind >= 0
        if not whole.all():
            broken[active[~whole]] = 1
            active, here, behind = active[whole], here[whole], behind[whole]
        row = np.full(count, -1, np.int64)
        row[active] = here
        rows.append(row)
        arrived[active] = behind
        active = active[behind < limits[active]]
    if not rows:
        return [], arrived, broken
    table = np.stack(rows, axis=1)
    counts = (table >= 0).sum(axis=1)
    flat = table[table >= 0]
    return np.split(flat, np.cumsum(counts)[:-1]), arrived, broken


def _join(
    starts: Ints, end: int, chain: Chain, walked: tuple[list[Ints], Ints, Ints]
) -> tuple[Ints, int]:
    """The chain where some guesses were wrong, or where it ends early."""
    found, arrived, broken = walked
    walker_at = {int(start): index for index, start in enumerate(starts)}
    pieces: list[Ints] = []
    position = int(starts[0])
    while position < end:
        index = walker_at.get(position)
        if index is not None:
            if found:
                pieces.append(found[index])
            position = int(arrived[index])
            if broken[index]:
                break
            continue
        # Behind a wrong guess: record by record up to the next right one.
        behind = chain.step_one(position)
        if behind < 0:
            break
        pieces.append(np.array([position], np.int64))
        position = behind
    return (np.concatenate(pieces) if pieces else starts[:0]), position
