"""Records compared one by one, where the summaries of servers differ (A3) or overlap (A2).

The comparison runs where the records are read.  What comes back are the differences alone: most
ranges are read again because a server lacks records there, and hold none.

A range is as wide as the buckets of the facts.  A wide one is summed up once more in the narrowest
buckets, and only the records of those that differ are compared one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.scan.facts import Bucket, RecordFacts, buckets_between, record_facts
from keepfast.pipeline.scan.summaries import ScanSummary
from keepfast.pipeline.schemas import BUCKET_BITS

# Of one range.  Where more records differ, all of them do; how many more is said.
MAX_LISTED = 4096

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class RangeOfLog:
    """Bytes of one log that may hold records of a range of zxids."""

    server: str
    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DifferingRecords:
    """A zxid under which servers hold different contents, or state different tree digests.

    Each group are the servers that have the same.
    """

    zxid: int
    contents: Groups = ()
    digests: Groups = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of the comparison of one range, or of all ranges of an ensemble."""

    differing: tuple[DifferingRecords, ...] = ()
    doubled: tuple[tuple[str, int], ...] = ()  # server, and a zxid that it holds in two contents
    # Two servers, the zxids that both hold, and under how many of them the content is the same.
    shared: tuple[tuple[str, str, int, int], ...] = ()
    unlisted: int = 0  # further differences, beyond those that are listed
    unread: tuple[str, ...] = ()  # what could no longer be read, as sentences


def buckets_differ(buckets: Iterable[Bucket]) -> bool:
    """Whether servers hold different records in a range of zxids, by what they add up to."""
    rows = list(buckets)
    if len({(row.count, row.content) for row in rows}) > 1:
        return True
    # A server that writes no digests is none to compare them with.
    return len({(row.digests, row.digest) for row in rows if row.digests}) > 1


def range_of_bucket(bucket: int, bits: int = BUCKET_BITS) -> tuple[int, int]:
    """The first and the last zxid that may be in a bucket."""
    return bucket << bits, ((bucket + 1) << bits) - 1


def compare_range(
    first: int, last: int, sources: Sequence[RangeOfLog], max_listed: int = MAX_LISTED
) -> Compared:
    """Compare the records from the first zxid to the last on all servers.

    No more differences than `max_listed` are listed, and the number of the others is given.
    """
    if first >> BUCKET_BITS == last >> BUCKET_BITS:
        parts: Iterable[Compared] = [_compare_records(first, last, sources)]
    else:
        parts = _compare_buckets(first, last, sources)
    found = Compared()
    for part in parts:
        found = _capped(ComparedSum([found, part]).total(), max_listed)
    return found


def _capped(found: Compared, most: int) -> Compared:
    more = len(found.differing[most:]) + len(found.doubled[most:])
    if not more:
        return found
    return replace(
        found,
        differing=found.differing[:most],
        doubled=found.doubled[:most],
        unlisted=found.unlisted + more,
    )


def _compare_buckets(first: int, last: int, sources: Sequence[RangeOfLog]) -> Iterator[Compared]:
    """Compare a wide range; the records of one narrow bucket are in memory at once."""
    known: Known[ScanSummary] = Known()
    found: dict[int, list[tuple[RangeOfLog, Bucket]]] = {}
    for source in sources:
        try:
            for bucket in buckets_between(source.path, source.start, source.end, known):
                place = replace(source, start=bucket.start, end=bucket.end)
                found.setdefault(bucket.bucket, []).append((place, bucket))
        except OSError as error:
            yield Compared(unread=(_unread(source, error),))
    for key in sorted(found):
        by_server: dict[str, Bucket] = {}
        for source, bucket in found[key]:
            before = by_server.get(source.server)
            by_server[source.server] = bucket if before is None else before.plus(bucket)
        low, high = range_of_bucket(key)
        # What one server holds twice is looked for among its own records.
        if len(by_server) == 1 or buckets_differ(by_server.values()):
            places = [source for source, _ in found[key]]
            yield _compare_records(max(first, low), min(last, high), places)
        else:
            count = next(iter(by_server.values())).count
            pairs = combinations(sorted(by_server), 2)
            yield Compared(shared=tuple((*pair, count, count) for pair in pairs))


def _compare_records(first: int, last: int, sources: Sequence[RangeOfLog]) -> Compared:
    found: dict[int, dict[str, list[RecordFacts]]] = {}
    unread = []
    for source in sources:
        try:
            for row in record_facts(source.path, ((first, last, source.start, source.end),)):
                found.setdefault(row.zxid, {}).setdefault(source.server, []).append(row)
        except OSError as error:
            unread.append(_unread(source, error))
    return replace(_compared(found), unread=tuple(unread))


def _unread(source: RangeOfLog, error: OSError) -> str:
    return f"{source.path} can no longer be read: {error.strerror or error}"


def _compared(found: dict[int, dict[str, list[RecordFacts]]]) -> Compared:
    differing: list[DifferingRecords] = []
    doubled: list[tuple[str, int]] = []
    common: Counter[tuple[str, str]] = Counter()
    equal: Counter[tuple[str, str]] = Counter()
    for zxid, copies in sorted(found.items()):
        doubled += [
            (server, zxid)
            for server, rows in sorted(copies.items())
            if len({row.content for row in rows}) > 1
        ]
        # The first copy counts; a second one on the same server is A2's.
        rows = {server: copies[server][0] for server in sorted(copies)}
        for left, right in combinations(rows, 2):
            common[left, right] += 1
            equal[left, right] += rows[left].content == rows[right].content
        contents = _groups((server, row.content) for server, row in rows.items())
        digests = _groups(
            (server, row.digest) for server, row in rows.items() if row.digest is not None
        )
        if len(contents) > 1 or len(digests) > 1:
            differing.append(DifferingRecords(zxid, contents, digests))
    pairs = tuple((*pair, count, equal[pair]) for pair, count in sorted(common.items()))
    return Compared(tuple(differing), tuple(doubled), pairs)


def _groups(values: Iterable[tuple[str, int]]) -> Groups:
    found: dict[int, list[str]] = {}
    for server, value in values:
        found.setdefault(value, []).append(server)
    return tuple(tuple(servers) for servers in found.values())


@dataclass(slots=True)
class ComparedSum:
    """The comparisons of all ranges of an ensemble, put together."""

    parts: list[Compared] = field(default_factory=list)

    def total(self) -> Compared:
        """All of them as one."""
        shared: dict[tuple[str, str], tuple[int, int]] = {}
        for part in self.parts:
            for left, right, common, equal in part.shared:
                before = shared.get((left, right), (0, 0))
                shared[left, right] = (before[0] + common, before[1] + equal)
        # A range may be in two parts: once because servers differ, once because one holds it twice.
        differing = {one.zxid: one for part in self.parts for one in part.differing}
        return Compared(
            tuple(differing[zxid] for zxid in sorted(differing)),
            tuple(sorted({one for part in self.parts for one in part.doubled})),
            tuple((*pair, *counts) for pair, counts in sorted(shared.items())),
            sum(part.unlisted for part in self.parts),
            tuple(dict.fromkeys(text for part in self.parts for text in part.unread)),
        )
