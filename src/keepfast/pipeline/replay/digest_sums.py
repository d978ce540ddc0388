"""Digests that records state, against what the events of paths change: part by part, span by span.

A *range* is 4,096 zxids, a *part* some bytes of a log, a *span* some parts.  In each range the sum
of what its events change has to be what its digests change, both with a random factor for each
record.  The first range of a span continues from the last digest before the span, which the reader
of the span does not know: so a span says what it would have to be, and `chain_trouble` joins the
spans.  Nobody ever has the ranges of more than one span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from keepfast.pipeline.decode.gather import Ints
from keepfast.pipeline.decode.hashing import Hashes
from keepfast.pipeline.replay.path_states import RANGE_BITS, PathSums, factors

_MASK = (1 << 64) - 1

Ranges = list[tuple[int, int]]


class RangeSum(msgspec.Struct, frozen=True):
    """The digests that the records of a range state."""

    first: int  # the first zxid with a digest
    last: int
    first_digest: int
    last_digest: int
    changes: int  # from each to the next, with factors


class LogSum(msgspec.Struct, frozen=True):
    """What a part of a log states by itself."""

    part: int
    records: int
    reach: int  # its greatest zxid; -1 if it has none
    ranges: list[RangeSum]
    is_undecodable: bool  # some record cannot be decoded
    sessions: list[int]
    config: tuple[int, bytes] | None = None
    problem: str = ""
    has_unknown_digests: bool = False
    wanted: list[tuple[int, int]] = []  # of the zxids that are asked for: zxid and digest


class SpanPaths(msgspec.Struct, frozen=True):
    """What events of one bucket of paths, or of all, change in the parts of a span."""

    parts: bytes  # int64: of each sum, its part and
    ranges: bytes  # int64: its range
    digests: bytes  # uint64: the sum with factors
    first_part: int
    carried: bytes  # uint64, by part from the first one on: changes after its last digest


class RangeLink(msgspec.Struct, frozen=True):
    """The first range of a span: right if `rest` and `factor` times what it starts from cancel."""

    first: int
    last: int
    factor: int
    rest: int


class SpanSum(msgspec.Struct, frozen=True):
    """A span: what its records state, and the ranges that are not right whatever came before."""

    span: int
    records: int
    reach: int
    is_undecodable: bool
    sessions: list[int]
    config: tuple[int, bytes] | None
    problem: str
    trouble: Ranges
    link: RangeLink | None  # None: no digest in it
    last_digest: int | None
    carried: int  # changes after its last digest
    has_unknown_digests: bool
    wanted: list[tuple[int, int]]


def range_sums(zxids: Ints, digests: Hashes) -> list[RangeSum]:
    """The digests of some records, range by range."""
    if not len(zxids):
        return []
    changes = np.zeros(len(zxids), np.uint64)
    changes[1:] = (digests[1:] - digests[:-1]) * factors(zxids[1:])
    starts = np.flatnonzero(np.diff(zxids >> RANGE_BITS, prepend=-1))
    changes[starts] = 0
    ends = np.append(starts[1:], len(zxids)) - 1
    sums = np.add.reduceat(changes, starts)
    return [
        RangeSum(
            *(int(zxids[start]), int(zxids[end])),
            *(int(digests[start]), int(digests[end]), int(total)),
        )
        for start, end, total in zip(starts.tolist(), ends.tolist(), sums.tolist(), strict=True)
    ]


def span_paths(sums: PathSums, first: int, stop: int) -> SpanPaths:
    """What a bucket sums to in the parts from the first one up to another."""
    inside = (sums.keys[:, 0] >= first) & (sums.keys[:, 0] < stop)
    parts, ranges = sums.keys[inside].T
    return SpanPaths(
        parts.tobytes(),
        ranges.tobytes(),
        sums.digests[inside].tobytes(),
        first,
        sums.carried[first:stop].tobytes(),
    )


def span_sum(span: int, logs: Iterable[LogSum], paths: Iterable[SpanPaths]) -> SpanSum:
    """Put together what logs and all buckets of paths say about a span."""
    logs = sorted(logs, key=lambda one: one.part)
    by_range: dict[tuple[int, int], int] = {}
    of_part: dict[int, int] = {}
    for one in paths:
        parts = np.frombuffer(one.parts, np.int64).tolist()
        ranges = np.frombuffer(one.ranges, np.int64).tolist()
        sums = np.frombuffer(one.digests, np.uint64).tolist()
        for part, range_, total in zip(parts, ranges, sums, strict=True):
            by_range[part, range_] = by_range.get((part, range_), 0) + total
        for part, total in enumerate(np.frombuffer(one.carried, np.uint64).tolist()):
            of_part[one.first_part + part] = of_part.get(one.first_part + part, 0) + total
    trouble: Ranges = []
    link: RangeLink | None = None
    before: int | None = None
    carried = 0
    for log in logs:
        for one_range in log.ranges:
            factor = int(factors(np.array([one_range.first]))[0])
            events = by_range.get((log.part, one_range.first >> RANGE_BITS), 0)
            rest = events + factor * (carried - one_range.first_digest) - one_range.changes
            if before is None:
                link = RangeLink(one_range.first, one_range.last, factor, rest & _MASK)
            elif (rest + factor * before) & _MASK:
                _add_range(trouble, one_range.first, one_range.last)
            before, carried = one_range.last_digest, 0
        carried = (carried + of_part.get(log.part, 0)) & _MASK
    return SpanSum(
        span,
        sum(log.records for log in logs),
        max((log.reach for log in logs), default=-1),
        any(log.is_undecodable for log in logs),
        sorted({session for log in logs for session in log.sessions}),
        max((log.config for log in logs if log.config is not None), default=None),
        next((log.problem for log in logs if log.problem), ""),
        trouble,
        link,
        before,
        carried,
        any(log.has_unknown_digests for log in logs),
        [one for log in logs for one in log.wanted],
    )


def _add_range(trouble: Ranges, first: int, last: int) -> None:
    # Where all digests are wrong, that is one range.
    if trouble and (trouble[-1][1] >> RANGE_BITS) + 1 >= first >> RANGE_BITS:
        first = trouble.pop()[0]
    trouble.append((first, last))


def chain_trouble(spans: Sequence[SpanSum], before: int) -> Ranges:
    """The ranges whose digests do not change as the tree does; `before`: where they start from."""
    found: Ranges = []
    for span in spans:
        if span.link is None:
            before = (before + span.carried) & _MASK
            continue
        if (span.link.rest + span.link.factor * before) & _MASK:
            _add_range(found, span.link.first, span.link.last)
        for first, last in span.trouble:
            _add_range(found, first, last)
        before = ((span.last_digest or 0) + span.carried) & _MASK
    return found
