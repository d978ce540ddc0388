"""What the sums of a chain prove: which digests and snapshots are right, and where to look closer.

A range of digests is right if its records change them as their events change the tree.  A snapshot
is right if its sum is that of the state at its zxid; a fuzzy one if what its window did not touch
is, and the rest is as it was at some moment in the window.  Whatever is not right by the sums is no
verdict yet: Apache logs wrong digests in healthy runs, and a snapshot may be ahead without a trace.
It is a range that is replayed on the tree, from the newest snapshot before it that is right to the
first one after it (`replaying`), and that says what is wrong, with whom, and in which znodes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from keepfast.pipeline.replay.digest_sums import chain_trouble
from keepfast.pipeline.replay.plan import Piece, ReplayPlan, SnapshotPlan, digests_at, is_next
from keepfast.pipeline.replay.relational import ChainPlan, ChainSums, LogPart, SnapshotCut
from keepfast.pipeline.replay.session_tables import SessionDoubt, TableCut
from keepfast.storage import replay
from keepfast.wire import MAX_COUNTER, counter_of, epoch_of

_MASK = (1 << 64) - 1
_PART_BYTES = 32 << 20
# A snapshot that was copied while znodes were deleted is ahead without a trace; the range in which
# it is looked at reaches at least so far that the history catches up with it.
_SETTLING_RECORDS = 4096


@dataclass(frozen=True, slots=True)
class ChainProof:
    """One chain: what is right, and the ranges of zxids that have to be looked at."""

    first: int
    last: int
    base: SnapshotPlan | None  # None: the empty tree
    good: tuple[SnapshotPlan, ...]  # by zxid
    trouble: tuple[tuple[int, int], ...]
    records: int
    has_unknown_digests: bool
    config: tuple[int, str] | None = None
    sessions: tuple[int, ...] = ()  # of those that were asked for, named by a record
    seen: tuple[SnapshotPlan, ...] = ()  # those that are looked at with a range in trouble
    tables: tuple[SessionDoubt, ...] = ()
    # That records state at the zxids of snapshots' digests. None: digests are not asked for.
    digests: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class ReplayChain:
    """Records without a hole between them, the snapshots of that time, and the first of those."""

    pieces: tuple[Piece, ...]
    snapshots: tuple[SnapshotPlan, ...]
    base: SnapshotPlan | None


def chains_of(plan: ReplayPlan) -> list[ReplayChain]:
    """The parts of a history without a hole that have something to start from."""
    groups: list[list[Piece]] = []
    for piece in plan.history:
        if groups and is_next(piece.first, groups[-1][-1].last):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    chains = []
    waiting = deque(plan.snapshots)
    for number, group in enumerate(groups):
        first, last = group[0].first, group[-1].last
        starts_empty = plan.starts_empty and number == 0
        own = []
        while waiting and _belongs(waiting[0].zxid, last):
            snapshot = waiting.popleft()
            if starts_empty or snapshot.zxid >= first or is_next(first, snapshot.zxid):
                own.append(snapshot)
        if own or starts_empty:
            base = None if starts_empty else min(own, key=lambda s: (s.zxid, s.fuzzy_until))
            chains.append(ReplayChain(tuple(group), tuple(own), base))
    return chains


def _belongs(zxid: int, last: int) -> bool:
    # The start of an epoch moves the zxid and nothing else.
    return zxid <= last or (counter_of(zxid) == 0 and is_next(zxid + 1, last))


def chain_plans(plan: ReplayPlan) -> list[ChainPlan]:
    """What is summed up for each chain."""
    return [chain_plan(plan, chain) for chain in chains_of(plan)]


def chain_plan(plan: ReplayPlan, chain: ReplayChain) -> ChainPlan:
    """What is summed up for one chain."""
    base = chain.base
    first = 0 if base is None else base.zxid
    parts = [
        part for piece in chain.pieces if piece.last > first for part in _log_parts(piece, first)
    ]
    weak = _weak_joins(plan, chain)
    befores = [before for before, _ in weak]
    cuts = tuple(
        SnapshotCut(
            *(s.path, s.zxid, until_of(s), s.starts),
            TableCut(s.zxid, _table_until(chain, s), bisect_left(befores, s.zxid)),
        )
        for s in chain.snapshots
    )
    sessions = {session for s in chain.snapshots for session in s.sessions}
    return ChainPlan(
        tuple(parts),
        None if base is None else base.path,
        first,
        first + 1 if base is None or base.fuzzy_until == base.zxid else base.fuzzy_until,
        cuts,
        tuple(sorted(sessions)) if base is None else (),
        plan.lists_ephemerals,
        sum(piece.last - max(piece.first, first + 1) + 1 for piece in chain.pieces),
        digests_at(chain.snapshots),
        () if base is None else base.starts,
        0 if base is None else base.znodes,
        tuple(after for _, after in weak),
    )


def _weak_joins(plan: ReplayPlan, chain: ReplayChain) -> list[tuple[int, int]]:
    """The changes of epoch that fewer than two servers show: there records may be missing."""
    shown = {after for _, after in plan.joins}
    return [
        (before.last, piece.first)
        for before, piece in pairwise(chain.pieces)
        if epoch_of(before.last) != epoch_of(piece.first) and piece.first not in shown
    ]


def _table_until(chain: ReplayChain, snapshot: SnapshotPlan) -> int:
    """Up to which record a table of sessions may be ahead."""
    if snapshot.stated is not None and snapshot.stated.is_own:
        # Nothing was applied while it was written, but perhaps a session of what came next.
        return _records_after(chain.pieces, snapshot.zxid, 1)
    after = _records_after(chain.pieces, snapshot.zxid, replay.GRACE)
    return max(after, snapshot.fuzzy_until + replay.GRACE)


def _log_parts(piece: Piece, after: int) -> list[LogPart]:
    starts = range(piece.start, max(piece.end, piece.start + 1), _PART_BYTES)
    low = max(piece.first, after + 1)
    return [
        LogPart(piece.path, start, min(start + _PART_BYTES, piece.end), low, piece.last)
        for start in starts
    ]


def until_of(snapshot: SnapshotPlan) -> int:
    """Up to where a snapshot may be ahead: what was being applied at its end leaves no trace."""
    if snapshot.fuzzy_until == snapshot.zxid:
        return snapshot.zxid
    return snapshot.fuzzy_until + replay.GRACE


def proofs_of(plan: ReplayPlan, sums: Sequence[ChainSums]) -> tuple[ChainProof, ...]:
    """What the sums of all chains of a history prove."""
    chains = chains_of(plan)
    return tuple(
        _proof(chain, chain_plan(plan, chain), found)
        for chain, found in zip(chains, sums, strict=True)
    )


def _proof(chain: ReplayChain, plan: ChainPlan, sums: ChainSums) -> ChainProof:
    trouble = [*chain_trouble(sums.spans, sums.before), *_unread(chain, sums)]
    if sums.odd:
        trouble.append((sums.first_odd, chain.pieces[-1].last))
    good: list[SnapshotPlan] = []
    seen: list[SnapshotPlan] = []
    expected = 0
    for index, (snapshot, cut) in enumerate(zip(chain.snapshots, plan.cuts, strict=True)):
        expected = (expected + int(sums.states[index])) & _MASK
        if _is_right(chain, plan, sums, index, expected):
            good.append(snapshot)
        else:
            seen.append(snapshot)
            trouble.append((snapshot.zxid, cut.until))
    configs = [span.config for span in sums.spans if span.config is not None]
    config = max(configs, default=None)
    return ChainProof(
        chain.pieces[0].first,
        chain.pieces[-1].last,
        chain.base,
        tuple(good),
        tuple(sorted(trouble)),
        sum(span.records for span in sums.spans),
        any(span.has_unknown_digests for span in sums.spans),
        None if config is None else (config[0], config[1].decode("utf-8", "replace")),
        tuple(sorted({session for span in sums.spans for session in span.sessions})),
        tuple(seen),
        tuple(sums.sessions),
        tuple(one for span in sums.spans for one in span.wanted),
    )


def _is_right(
    chain: ReplayChain, plan: ChainPlan, sums: ChainSums, index: int, expected: int
) -> bool:
    snapshot = chain.snapshots[index]
    if snapshot is chain.base:
        # It is what the others are held against; if they differ, they are looked at with it.
        return True
    if snapshot.zxid < plan.exact_from - 1 and chain.base is not None:
        return False  # in the window of the base: nothing is known about that time
    if snapshot.state == expected:
        return True
    window = sums.windows.get(index)
    if snapshot.state is None or window is None or window.is_strange:
        return False
    # What the window did not touch is as at the snapshot's zxid.
    return (snapshot.state - window.total - expected + int(sums.touched[index])) & _MASK == 0


def _unread(chain: ReplayChain, sums: ChainSums) -> list[tuple[int, int]]:
    """Records that can no longer be read, or cannot be decoded: the replay says it in words."""
    reach = max((span.reach for span in sums.spans), default=-1)
    last = chain.pieces[-1].last
    is_lost = bool(sums.problem) or any(s.problem or s.is_undecodable for s in sums.spans)
    if reach < last or is_lost:
        return [(chain.pieces[0].first, last)]
    return []


# -- where to look closer --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CloserLook:
    """A range of the history to be replayed on the tree, from what is proven before it."""

    plan: ReplayPlan
    proven: tuple[SnapshotPlan, ...]  # the one to start from, and then all that support it


def closer_look(plan: ReplayPlan, proof: ChainProof) -> CloserLook:
    """The range of one chain in which something is not right by the sums."""
    first = min(low for low, _ in proof.trouble)
    last = max(high for _, high in proof.trouble)
    before = [s for s in proof.good if until_of(s) < first and s is not proof.base]
    settled = _records_after(plan.history, last, _SETTLING_RECORDS)
    behind = [s for s in proof.good if s.zxid > settled]
    start = before[-1] if before else None
    end = until_of(behind[0]) + 1 if behind else (1 << 63) - 1
    low = -1 if start is None else start.zxid
    proven = () if start is None else (start, *(s for s in before if s is not start))
    return CloserLook(
        replace(
            plan,
            # A right one whose window is not over at the end would only be in the way.
            snapshots=tuple(
                s
                for s in plan.snapshots
                if low < s.zxid <= end and _is_of(s, proof, plan)
                if until_of(s) <= end or s not in proof.good
            ),
            history=tuple(
                replace(piece, first=max(piece.first, low + 1), last=min(piece.last, end))
                for piece in plan.history
                if proof.first <= piece.first <= proof.last and low < piece.last
                if piece.first <= end
            ),
            starts_empty=plan.starts_empty and start is None and proof.base is None,
        ),
        proven,
    )


def _records_after(history: Sequence[Piece], zxid: int, count: int) -> int:
    """The zxid this many records after one; beyond all if there are fewer."""
    at = bisect_right(history, zxid, key=lambda piece: piece.last)
    for piece in islice(history, at, None):
        low = max(piece.first, zxid + 1)
        left = piece.last - low + 1
        if left >= count:
            return low + count - 1
        count -= max(left, 0)
    return (1 << 63) - 1


def _is_of(snapshot: SnapshotPlan, proof: ChainProof, plan: ReplayPlan) -> bool:
    """Whether a snapshot is to be seen with this chain."""
    later = [piece.first for piece in plan.history if piece.first > proof.last]
    is_before_next = not later or snapshot.zxid < min(later) & ~MAX_COUNTER
    return is_before_next and (proof.base is None or snapshot.zxid >= proof.base.zxid)
