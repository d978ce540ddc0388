"""Following a chain of lengths at many places at once.

Records lie back to back and each says only how long it is, so a reader has to take one after the
other; in Python that costs more than all the rest. Here a chunk is entered at many guessed places,
and one step of numpy moves all walkers ahead together. A guess may be wrong, but it cannot
deceive: a walker counts only if the walker before it arrives exactly where this one began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from keepfast.pipeline.decode.gather import Ints


class RecordChain(Protocol):
    """Records that lie back to back in a buffer."""

    def step(self, offsets: Ints) -> Ints:
        """The offset after the record at each offset; -1 where no whole, plausible one begins."""

    def step_one(self, offset: int) -> int:
        """The same for one offset, without the overhead of arrays."""


# With fewer walkers the overhead of a step of numpy is more than all single steps together.
_MIN_WALKERS = 24


def follow(starts: Ints, end: int, chain: RecordChain) -> tuple[Ints, int]:
    """Offsets of all records from ``starts[0]`` on, and where the chain stops.

    `starts` ascend; all but the first are guesses. The chain stops at the first offset at or
    after `end`, or where there is not a record.
    """
    if len(starts) < _MIN_WALKERS:
        return _follow_one_by_one(int(starts[0]), end, chain)
    walked = _run_walkers(starts, end, chain.step)
    # The last one ends where the buffer does, mostly in the middle of a record.
    if not walked.broken[:-1].any() and np.array_equal(walked.arrived[:-1], starts[1:]):
        return walked.offsets, int(walked.arrived[-1])
    return _join(starts, end, chain, walked)


def _follow_one_by_one(start: int, end: int, chain: RecordChain) -> tuple[Ints, int]:
    offsets: list[int] = []
    step, position = chain.step_one, start
    while position < end and (behind := step(position)) >= 0:
        offsets.append(position)
        position = behind
    return np.array(offsets, np.int64), position


@dataclass(frozen=True, slots=True)
class _Walked:
    """The offsets that all walkers found, one walker's after those of the one before.

    For each walker: how many it found, where it arrived, and whether it could not continue there.
    """

    offsets: Ints
    counts: Ints
    arrived: Ints
    broken: Ints


def _run_walkers(starts: Ints, end: int, step: Callable[[Ints], Ints]) -> _Walked:
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
        return _Walked(starts[:0], np.zeros(count, np.int64), arrived, broken)
    table = np.stack(rows, axis=1)
    is_found = table >= 0
    return _Walked(table[is_found], is_found.sum(axis=1), arrived, broken)


def _join(starts: Ints, end: int, chain: RecordChain, walked: _Walked) -> tuple[Ints, int]:
    """The chain where some guesses were wrong, or where it ends early."""
    found = np.split(walked.offsets, np.cumsum(walked.counts)[:-1])
    walker_at = {int(start): index for index, start in enumerate(starts)}
    pieces: list[Ints] = []
    position = int(starts[0])
    while position < end:
        index = walker_at.get(position)
        if index is not None:
            pieces.append(found[index])
            position = int(walked.arrived[index])
            if walked.broken[index]:
                break
            continue
        # After a wrong guess: record by record up to the next right one.
        behind = chain.step_one(position)
        if behind < 0:
            break
        pieces.append(np.array([position], np.int64))
        position = behind
    return (np.concatenate(pieces) if pieces else starts[:0]), position
