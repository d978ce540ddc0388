"""Which zxids a history holds: what two servers compare before one catches up from the other (R9).

The same zxid names the same txn everywhere, and a txn has one predecessor, the one that its leader
gave it. So two histories that both hold a zxid agree up to it, and the greatest one that both hold
is the point where they fork. A last zxid alone does not show that point; a chain does.

    on the wire, after the fields that Apache reads
    4   "KFch"
    8   base
    4   number of runs; then each: first (8), last (8)
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from keepfast.wire import MalformedRecord, Zxid, counter_of, epoch_of, follows_in_epoch

_MAGIC: Final = b"KFch"
_HEAD: Final = Struct(">4sqi")
_RUN: Final = Struct(">qq")
# Older runs are left out: a server that forked before them needs a tree anyway.
MAX_RUNS: Final = 256


class Run(NamedTuple):
    """Records of one epoch that directly follow each other."""

    first: Zxid
    last: Zxid


class Chain(NamedTuple):
    """A history: the oldest state that it can reach back to, and the records after it, in order."""

    base: Zxid
    runs: tuple[Run, ...] = ()

    @property
    def head(self) -> Zxid:
        """The last record, or the base if there is none."""
        return self.runs[-1].last if self.runs else self.base

    def holds(self, zxid: Zxid) -> bool:
        """Whether `zxid` is a record of this history, or its base."""
        return zxid == self.base or any(run.first <= zxid <= run.last for run in self.runs)

    def epochs(self) -> set[int]:
        """The epochs of its records; the start of an epoch is not a record."""
        found = {epoch_of(run.first) for run in self.runs}
        return found | {epoch_of(self.base)} if self.base > 0 and counter_of(self.base) else found

    def greatest_up_to(self, zxid: Zxid) -> Zxid | None:
        """The greatest zxid of this history that is not after `zxid`."""
        for run in reversed(self.runs):
            if run.first <= zxid:
                return min(run.last, zxid)
        return self.base if self.base <= zxid else None

    def before_epoch(self, epoch_start: Zxid) -> Zxid | None:
        """What the first record of an epoch follows; None if there is no such record here."""
        before = self.base
        for run in self.runs:
            if run.first == epoch_start + 1:
                return before
            before = run.last
        return None

    def recent(self) -> Chain:
        """The part of the history that is sent to others."""
        if len(self.runs) <= MAX_RUNS:
            return self
        return Chain(self.runs[-MAX_RUNS - 1].last, self.runs[-MAX_RUNS:])


def chain_of(base: Zxid, ranges: Iterable[tuple[Zxid, Zxid]]) -> Chain:
    """The chain of ranges that follow each other, with those of one epoch joined."""
    runs: list[Run] = []
    for first, last in ranges:
        if last <= base:
            continue
        start = max(first, Zxid(base + 1)) if counter_of(base) else first
        if runs and follows_in_epoch(start, runs[-1].last):
            runs[-1] = Run(runs[-1].first, last)
        else:
            runs.append(Run(start, last))
    return Chain(base, tuple(runs))


def last_common(one: Chain, other: Chain) -> Zxid | None:
    """The greatest zxid that both hold; None if they have nothing in common."""
    candidates = {one.base, other.base, one.head, other.head}
    candidates.update(run.last for run in one.runs)
    candidates.update(run.last for run in other.runs)
    common = [zxid for zxid in candidates if one.holds(zxid) and other.holds(zxid)]
    return max(common, default=None)


def encode_chain(chain: Chain) -> bytes:
    """What is sent to a peer."""
    told = chain.recent()
    head = _HEAD.pack(_MAGIC, told.base, len(told.runs))
    return head + b"".join(_RUN.pack(*run) for run in told.runs)


def decode_chain(data: bytes) -> Chain | None:
    """The chain in these bytes; None if the peer sends none."""
    if data[:4] != _MAGIC:
        return None
    if len(data) < _HEAD.size:
        raise MalformedRecord("a chain that is cut short", len(data))
    _, base, count = _HEAD.unpack_from(data)
    if not 0 <= count <= MAX_RUNS or len(data) != _HEAD.size + count * _RUN.size:
        raise MalformedRecord(f"a chain of {count} runs in {len(data)} bytes", _HEAD.size)
    runs = tuple(Run(*pair) for pair in _RUN.iter_unpack(data[_HEAD.size :]))
    last = base
    for run in runs:
        if run.first <= last or run.last < run.first:
            raise MalformedRecord("a chain that is not in order", _HEAD.size)
        last = run.last
    return Chain(base, runs)
