"""Which records are the ensemble's, by the word of all servers (A3, A14).

Theory of operation.  Cut the zxids into *intervals* that each server holds whole or not at all.
Who holds an interval speaks for it.  A server speaks against it if its logs pass over it where
nothing has to be missing: the record after is the first of a later epoch, and no snapshot in
between hides what happened.  The majority decides; where nobody can be outvoted, the interval is
in doubt.  Intervals that nobody passes over are agreed, except at the end of the last epoch: there
a minority may hold what was never committed, and that is legal.  It is no longer legal once that
server took part in a later epoch whose other members continued without it.

The names: *agreed*; *stale*, never committed although a later epoch was committed without it;
*tail*, at the end and on a minority; *doubtful*; and *buried*: committed, and since then after
damage on every server that still holds it, while all of them continued without it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise

from keepfast.pipeline.agreement.comparing import Compared, Groups, buckets_differ
from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.agreement.view import EnsembleView, ServerView, merged
from keepfast.pipeline.scan.facts import Bucket
from keepfast.wire import counter_of, epoch_of

# One record may differ by damage; so many, and not one the same, do not.
_MIN_COMMON = 3


class IntervalStanding(Enum):
    """What an interval is."""

    AGREED = "agreed"
    STALE = "stale"
    TAIL = "tail"
    DOUBTFUL = "doubtful"
    BURIED = "buried"


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of zxids that each server holds whole or not at all."""

    first: int
    last: int
    holders: frozenset[str]
    skippers: frozenset[str]
    standing: IntervalStanding


@dataclass(frozen=True, slots=True)
class Conflict:
    """One zxid under which servers hold different records.

    `right` is empty where no content is held by more servers than every other.
    """

    zxid: int
    right: frozenset[str]
    wrong: frozenset[str]


@dataclass(frozen=True, slots=True)
class DigestConflict:
    """One record of which servers state different tree digests; `wrong` are in the minority."""

    zxid: int
    wrong: frozenset[str]


@dataclass(frozen=True, slots=True)
class Missing:
    """Records that a server does not have although it continues after them.

    `is_in_force`: no snapshot makes up for them, so a start on these files lacks their effects.
    `is_known`: another server has them, so that they were committed.
    """

    server: str
    first: int
    last: int
    before: int  # the record of the server in front; 0 if there is none
    after: int  # the record of the server after
    is_in_force: bool
    is_known: bool


@dataclass(frozen=True)
class Agreement:
    """The judgement on all records of an ensemble."""

    intervals: tuple[Interval, ...]
    conflicts: tuple[Conflict, ...] = ()
    digest_conflicts: tuple[DigestConflict, ...] = ()
    missing: tuple[Missing, ...] = ()
    committed: int | None = None  # the greatest zxid that a majority holds
    heads: dict[str, int] = field(default_factory=dict)  # last agreed zxid that each server holds

    @cached_property
    def agreed(self) -> list[tuple[int, int]]:
        """The agreed history as ranges, with the tails that contradict nothing."""
        wanted = (IntervalStanding.AGREED, IntervalStanding.TAIL)
        return merged((i.first, i.last) for i in self.intervals if i.standing in wanted)

    def of(self, standing: IntervalStanding) -> list[Interval]:
        """The intervals with a standing."""
        return [interval for interval in self.intervals if interval.standing is standing]


# -- the cheap pass --------------------------------------------------------------------------------


def suspicious_buckets(view: EnsembleView) -> list[int]:
    """The buckets in which servers that have records there do not have the same ones."""
    found: dict[int, dict[str, Bucket]] = {}
    for server in view.servers:
        for log in server.logs:
            for bucket in log.buckets:
                of_server = found.setdefault(bucket.bucket, {})
                known = of_server.get(server.name)
                of_server[server.name] = bucket if known is None else known.plus(bucket)
    return sorted(key for key, rows in found.items() if buckets_differ(rows.values()))


@dataclass(frozen=True, slots=True)
class Strangers:
    """Two servers that share zxids and not one record: they are of different ensembles."""

    left: str
    right: str
    odd: str | None  # which of them shares records with fewer of the others, if one does


def strangers(view: EnsembleView, compared: Compared) -> Strangers | None:
    """The first two servers that are of different ensembles, if there are such.

    Two that others connect are not: one of them has a log of another ensemble among its own.
    """
    suspicious = set(suspicious_buckets(view))
    plain = {
        server.name: {b.bucket for log in server.logs for b in log.buckets} - suspicious
        for server in view.servers
    }
    pairs = {(left, right): (common, equal) for left, right, common, equal in compared.shared}

    def is_related(left: str, right: str) -> bool:
        _, equal = pairs.get((left, right)) or pairs.get((right, left)) or (0, 0)
        return bool(equal or plain[left] & plain[right])

    def is_connected(left: str, right: str) -> bool:
        reached, fresh = {left}, {left}
        while fresh:
            fresh = {n for n in plain.keys() - reached if any(is_related(n, one) for one in fresh)}
            reached |= fresh
        return right in reached

    for (left, right), (common, _) in pairs.items():
        if common >= _MIN_COMMON and not is_connected(left, right):
            kin = {
                name: sum(is_related(name, other) for other in plain if other != name)
                for name in (left, right)
            }
            odd = None if kin[left] == kin[right] else min(kin, key=lambda name: kin[name])
            return Strangers(left, right, odd)
    return None


# -- the judgement ---------------------------------------------------------------------------------


def judge(view: EnsembleView, compared: Compared) -> Agreement:
    """Judge all records; `compared` has the differences in the suspicious buckets."""
    conflicts, digest_conflicts = _conflicts(view.electorate, compared)
    intervals = tuple(_with_epochs(view, _intervals(view)))
    agreement = Agreement(intervals)
    missing = [m for server in view.servers for m in _missing(server, agreement)]
    heads = {server.name: _agreed_head(server, agreement) for server in view.servers}
    return Agreement(
        intervals,
        tuple(conflicts),
        tuple(digest_conflicts),
        tuple(missing),
        view.electorate.reached(heads),
        heads,
    )


def _intervals(view: EnsembleView) -> list[Interval]:
    cuts = {edge for s in view.servers for low, high in s.spans for edge in (low, high + 1)}
    # A server may pass over the end of what another one holds in one run.
    cuts |= {join.proven_from + 1 for s in view.servers for join in s.joins if join.opens_epoch}
    ordered = sorted(cuts)
    found = []
    for first, behind in pairwise(ordered):
        last = behind - 1
        holders = frozenset(s.name for s in view.servers if s.holds(first, last))
        if not holders:
            continue
        skippers = frozenset(s.name for s in view.servers if _passes_over(s, first, last))
        found.append(Interval(first, last, holders, skippers, _vote(view, holders, skippers)))
    return found


def _passes_over(server: ServerView, first: int, last: int) -> bool:
    # The one place between its records where the interval would have to be.
    at = bisect_right(server.starts, last)
    if at == len(server.joins):
        return False
    join = server.joins[at]
    return join.opens_epoch and 0 < join.proven_from < first and last < join.after


def _vote(
    view: EnsembleView, holders: frozenset[str], skippers: frozenset[str]
) -> IntervalStanding:
    for_it = view.electorate.support(holders)
    against = view.electorate.support(skippers)
    if not skippers or for_it > against:
        return IntervalStanding.AGREED
    return IntervalStanding.STALE if against > for_it else IntervalStanding.DOUBTFUL


def _with_epochs(view: EnsembleView, intervals: list[Interval]) -> list[Interval]:
    """Look at the ends: a minority alone holds a tail, or something stale."""
    result = []
    for interval in intervals:
        standing = interval.standing
        if standing is IntervalStanding.AGREED and not interval.skippers:
            standing = _standing_at_end(view, interval)
        if standing is IntervalStanding.AGREED and all(
            view.server(name).buries(interval.first, interval.last) for name in interval.holders
        ):
            standing = IntervalStanding.BURIED
        result.append(
            Interval(interval.first, interval.last, interval.holders, interval.skippers, standing)
        )
    return result


def _standing_at_end(view: EnsembleView, interval: Interval) -> IntervalStanding:
    others = [s for s in view.servers if s.name not in interval.holders]
    behind = [s for s in others if s.head < interval.first]
    if view.electorate.is_quorum(interval.holders) or len(behind) != len(others) or not others:
        return IntervalStanding.AGREED
    epoch = epoch_of(interval.first)
    taken_part = [s.epochs.current or 0 for s in view.servers if s.name in interval.holders]
    joined = min(taken_part, default=0)
    if joined > epoch:
        against = [s.name for s in behind if (s.epochs.current or 0) >= joined]
        if view.electorate.is_quorum(against):
            return IntervalStanding.STALE
    return IntervalStanding.TAIL


def _conflicts(
    electorate: Electorate, compared: Compared
) -> tuple[list[Conflict], list[DigestConflict]]:
    """Zxids with different contents, and with different digests, among servers that hold them."""
    conflicts = [
        Conflict(one.zxid, *_majority(electorate, one.contents))
        for one in compared.differing
        if len(one.contents) > 1
    ]
    digest_conflicts = [
        DigestConflict(one.zxid, _majority(electorate, one.digests)[1])
        for one in compared.differing
        if len(one.digests) > 1 and len(one.contents) <= 1
    ]
    return conflicts, digest_conflicts


def _majority(electorate: Electorate, groups: Groups) -> tuple[frozenset[str], frozenset[str]]:
    """The servers with the content that most have, and the others; nobody is right in a tie."""
    first, second, *_ = sorted(map(frozenset, groups), key=electorate.support, reverse=True)
    everybody = frozenset().union(*groups)
    if electorate.support(first) == electorate.support(second):
        return frozenset(), everybody
    return first, everybody - first


# -- what a server lacks ---------------------------------------------------------------------------


def _missing(server: ServerView, agreement: Agreement) -> list[Missing]:
    """The records that a server continues after without having them."""
    found: list[Missing] = []
    if server.is_partial:
        return found
    if server.base is None and server.spans and not server.begins_empty:
        found += _lost_prefix(server, agreement)
    for join in server.joins:
        if join.before == 0:
            # What lies before the first record was purged, or is the base's.
            if server.base is not None and server.base.zxid < join.after:
                found += _hole(server, agreement, server.base.zxid, join.after)
            continue
        found += _hole(server, agreement, join.before, join.after)
    return found


def _lost_prefix(server: ServerView, agreement: Agreement) -> list[Missing]:
    after = server.spans[0][0]
    known = [(a, min(b, after - 1)) for a, b in agreement.agreed if a < after]
    if not known:
        return [Missing(server.name, 0, after - 1, 0, after, True, False)]
    return [Missing(server.name, a, b, 0, after, True, True) for a, b in known]


def _hole(server: ServerView, agreement: Agreement, before: int, after: int) -> list[Missing]:
    """What is missing between two records: agreed ones, or numbers that nobody has."""
    found = []
    known: list[tuple[int, int]] = []
    agreed = agreement.agreed
    at = bisect_right(agreed, (before + 1, -1))
    for first, last in agreed[max(at - 1, 0) :]:
        if first >= after:
            break
        low, high = max(first, before + 1), min(last, after - 1)
        if low <= high:
            known.append((low, high))
    for low, high in known:
        in_force = high > server.base_zxid
        low = max(low, server.base_zxid + 1) if in_force else low
        found.append(Missing(server.name, low, high, before, after, in_force, True))
    for low, high in _numbers_between(before, after):
        if not any(a <= high and low <= b for a, b in known):
            in_force = high > server.base_zxid
            found.append(Missing(server.name, low, high, before, after, in_force, False))
    return found


def _numbers_between(before: int, after: int) -> list[tuple[int, int]]:
    """The zxids that counters alone show to be missing."""
    if epoch_of(before) == epoch_of(after):
        return [(before + 1, after - 1)] if after > before + 1 else []
    start = after - counter_of(after) + 1
    return [(start, after - 1)] if counter_of(after) > 1 else []


def _agreed_head(server: ServerView, agreement: Agreement) -> int:
    """The last zxid of the agreed history that a server holds, by record or by snapshot."""
    head = server.base_zxid
    for low, high in reversed(agreement.agreed):
        at = bisect_right(server.starts, high) - 1
        if high <= head:
            break
        if at >= 0 and server.spans[at][1] >= low:
            return max(head, min(high, server.spans[at][1]))
    return head
