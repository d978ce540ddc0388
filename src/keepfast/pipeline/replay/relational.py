"""The history held against its digests and snapshots by sums over paths, part by part.

    map      a part of a log, or of the base, to events by buckets of paths; digests to sums by span
    reduce   a bucket of paths: the states after all events, and what they sum to
    finish   the sums of a span; a part of a fuzzy snapshot, read again, held against its window

The three know nothing about where they run (`keyed`).  What they give is small: a few numbers for
each span of the logs and for each part of a snapshot.  `proof.py` says what the numbers mean.  No
tree is built, and no record is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from keepfast.pipeline.decode.events import (
    EVENT,
    ZNODE,
    Happening,
    LogEvents,
    Rows,
    SnapshotRows,
    add_frames,
    builtin_rows,
    znode_states,
)
from keepfast.pipeline.decode.frames import Frames, read_frames
from keepfast.pipeline.decode.gather import Bools, Ints, among
from keepfast.pipeline.decode.hashing import Hashes
from keepfast.pipeline.decode.session_rows import listed_sessions, logged_sessions, session_keys
from keepfast.pipeline.files.access import open_file
from keepfast.pipeline.keyed import Found, Keyed, work_here
from keepfast.pipeline.replay.digest_sums import (
    LogSum,
    SpanPaths,
    SpanSum,
    range_sums,
    span_paths,
    span_sum,
)
from keepfast.pipeline.replay.path_states import (
    WINDOW,
    PathSums,
    StateChain,
    StateCut,
    closed_ephemerals,
    path_states,
    sums_of,
    window_states,
)
from keepfast.pipeline.replay.session_tables import (
    SessionDoubt,
    TableCut,
    doubts_of,
    joined_rows,
    merged,
)
from keepfast.wire import CorruptSnapshot

# Keys that are neither a bucket nor a part of a snapshot: what is summed over the whole chain, the
# doubts about sessions, and, from _SPANS on downwards, the spans of the logs.
_TOTALS, _SESSIONS, _SPANS = -1, -2, -3
# Before a blob under the key of a span: whose it is.
_OF_LOG, _OF_PATHS = b"L", b"P"
_SPAN_PARTS = 32
_BUCKET_RECORDS = 400_000
_BUCKET_OF_SESSIONS_RECORDS = 4_000_000
_MASK = (1 << 64) - 1
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class LogPart:
    """A range of bytes of one log, and which of the records that begin in it count."""

    path: str
    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SnapshotCut:
    """A snapshot to be held against the history; its content may be ahead up to `until`."""

    path: str
    zxid: int
    until: int
    starts: tuple[int, ...] = ()  # where its parts begin, if it is read in several
    table: TableCut | None = None  # of its sessions; None: they are not looked at


@dataclass(frozen=True, slots=True)
class WindowCheck:
    """A part of a fuzzy snapshot that is held against its window."""

    cut: int
    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """A part of the history without a hole, what it starts from, and the snapshots in it."""

    parts: tuple[LogPart, ...]  # in order
    base: str | None  # None: the empty tree
    first: int  # the zxid of the base
    exact_from: int
    cuts: tuple[SnapshotCut, ...]  # by zxid
    sessions: tuple[int, ...] = ()  # of which it is asked whether a record names them
    closes_lists: bool = True  # the ends of sessions list their ephemerals (3.6 and later)
    records: int = 0
    digests_at: tuple[int, ...] = ()  # the zxids whose records' digests are asked for
    base_starts: tuple[int, ...] = ()  # where the parts of the base begin
    base_znodes: int = 0
    eras: tuple[int, ...] = ()  # the records that begin an epoch as one server alone shows

    @property
    def indexes(self) -> Sequence[int]:
        """Parts of the base as negative numbers, those of logs from 0 on, then tables of cuts."""
        return range(-max(1, len(self.base_starts)), len(self.parts) + len(self.cuts))

    @property
    def buckets(self) -> int:
        """How many buckets there are: few enough that each is worth a task."""
        return self.path_buckets + self.session_buckets

    @property
    def path_buckets(self) -> int:
        """How many of them are of paths."""
        return max(4, -(-(self.records + self.base_znodes) // _BUCKET_RECORDS))

    @property
    def session_buckets(self) -> int:
        """How many are of sessions; they come after those of paths."""
        return -(-max(1, self.records) // _BUCKET_OF_SESSIONS_RECORDS) if self.cuts else 0

    @property
    def has_prelude(self) -> bool:
        """Whether it has to be found out which ephemerals go with sessions."""
        return not self.closes_lists

    @property
    def checks(self) -> list[WindowCheck]:
        """The parts of fuzzy snapshots; their keys are their places in this list."""
        found = []
        for number, cut in enumerate(self.cuts):
            if cut.until > cut.zxid >= self.exact_from:
                found += [WindowCheck(number, *ends) for ends in ranges_of(cut.starts)]
        return found

    def prelude(self, index: int) -> Iterator[Keyed]:
        """What decides which ephemerals go with sessions that list none."""
        return map_part(self, index, is_closing=True)

    def resolve(self, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """The deletions that come with the ends of sessions."""
        return close_bucket(self, blobs)

    def map(self, index: int) -> Iterator[Keyed]:
        """The events of one part, by bucket, and its own sums."""
        return map_part(self, index)

    def reduce(self, key: int, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """What a bucket of paths sums to, or the doubts about a bucket of sessions."""
        if key < 0:
            return ((key, blob) for blob in blobs)
        if key >= self.path_buckets:
            found = msgspec.msgpack.encode(session_doubts(self, blobs))
            return iter([(_SESSIONS, found)])
        return reduce_bucket(self, blobs)

    def finish(self, key: int, blobs: Iterable[bytes]) -> list[bytes]:
        """The sums of a span, of the chain, or of a part of a snapshot."""
        return [finish(self, key, blobs)]


def ranges_of(starts: Sequence[int]) -> list[tuple[int | None, int | None]]:
    """The parts of a file that begin at these offsets; without one, the file as a whole."""
    return list(pairwise([*starts, None])) if starts else [(None, None)]


class ChainTotals(msgspec.Struct, frozen=True):
    """What is summed over all paths of a chain."""

    before: int  # the base, and changes before its window's end
    states: bytes  # uint64, by cut: the changes of our digest since the cut before
    touched: bytes  # uint64, by cut: the state at the cut of the paths that its window touches
    odd: int  # events that do not fit
    first_odd: int
    problem: str = ""  # of the base


class SnapshotSum(msgspec.Struct, frozen=True):
    """A snapshot, or a part of it, against its window."""

    total: int = 0  # of the znodes that the window touches
    strange: int = 0  # znodes that are as they never were
    needed: int = 0  # znodes of the window that have to be there
    present: int = 0  # of those, the ones that are
    problem: str = ""

    @property
    def is_strange(self) -> bool:
        """Whether some znode is as it never was, or should be there and is not."""
        return bool(self.problem) or self.strange > 0 or self.present != self.needed

    def plus(self, other: SnapshotSum) -> SnapshotSum:
        """This part and another one; both were held against the same window."""
        return SnapshotSum(
            (self.total + other.total) & _MASK,
            self.strange + other.strange,
            max(self.needed, other.needed),
            self.present + other.present,
            self.problem or other.problem,
        )


@dataclass(slots=True)
class ChainSums:
    """All sums of a chain; small, whatever its size."""

    spans: list[SpanSum]  # in order
    before: int
    states: Hashes  # by cut; see `ChainTotals`
    touched: Hashes
    odd: int
    first_odd: int
    problem: str
    windows: dict[int, SnapshotSum]  # by the index of the snapshot
    sessions: list[SessionDoubt]


# -- map -------------------------------------------------------------------------------------------


def map_part(plan: ChainPlan, index: int, *, is_closing: bool = False) -> Iterator[Keyed]:
    """The events of one part, by bucket, and its own sums; a negative index is one of the base.

    `is_closing`: only what decides which ephemerals go with sessions that list none.
    """
    if index < 0:
        try:
            yield from _map_base(plan, index, is_closing)
        except (CorruptSnapshot, OSError) as error:
            # It was sound when it was looked at: gone, or changed since.
            yield _TOTALS, msgspec.msgpack.encode(_no_totals(plan, f"{plan.base}: {error}"))
        return
    if index >= len(plan.parts):
        if not is_closing:
            yield from _map_table(plan, index - len(plan.parts))
        return
    found, summed = read_part(plan, index)
    rows = found.rows()
    yield from _by_bucket(plan, index, rows[about_sessions(rows)] if is_closing else rows)
    if not is_closing:
        yield from _sessions_by_bucket(plan, found.session_rows)
        yield _SPANS - index // _SPAN_PARTS, _OF_LOG + msgspec.msgpack.encode(summed)


def _map_table(plan: ChainPlan, number: int) -> Iterator[Keyed]:
    path = plan.cuts[number].path
    try:
        with open_file(path) as file:
            rows = listed_sessions(file, path, number)
    except (CorruptSnapshot, OSError):
        return  # it was sound when it was looked at; whoever reads its znodes again says so
    yield from _sessions_by_bucket(plan, [rows])


def _sessions_by_bucket(plan: ChainPlan, found: list[np.ndarray]) -> Iterator[Keyed]:
    rows = joined_rows([one.tobytes() for one in found])
    if not plan.cuts or not len(rows):
        return
    bucket = session_keys(rows) % np.uint64(plan.session_buckets)
    for key in np.unique(bucket).tolist():
        yield plan.path_buckets + int(key), rows[bucket == key].tobytes()


def session_doubts(plan: ChainPlan, blobs: Iterable[bytes]) -> list[SessionDoubt]:
    """The doubts about a bucket of sessions, or about all of them."""
    tables = [cut.table or TableCut(_LAST, _LAST, len(plan.eras)) for cut in plan.cuts]
    eras = np.array(plan.eras, np.int64)
    return doubts_of(joined_rows(blobs), tables, eras, starts_empty=plan.base is None)


def session_doubts_here(plan: ChainPlan) -> list[SessionDoubt]:
    """All doubts about the sessions of a chain, computed in this process and without its sums."""
    found: list[Keyed] = []
    for index in range(len(plan.parts) + len(plan.cuts) if plan.cuts else 0):
        if index < len(plan.parts):
            events, _ = read_part(plan, index, is_all=False)
            found += _sessions_by_bucket(plan, events.session_rows)
        else:
            found += _map_table(plan, index - len(plan.parts))
    return merged(session_doubts(plan, [blob for _, blob in found]))


def read_part(plan: ChainPlan, index: int, *, is_all: bool = True) -> tuple[LogEvents, LogSum]:
    """All events of one part of the logs, and what it states by itself; or only its sessions."""
    part = plan.parts[index]
    found = LogEvents()
    reach = -1
    problem = ""
    try:
        with open_file(part.path) as file:
            for item in read_frames(file, part.start, part.stop):
                if isinstance(item, Frames):
                    frames = _wanted(item, part, reach)
                    if len(frames.offsets):
                        found.session_rows.append(logged_sessions(frames))
                        if is_all:
                            add_frames(found, frames, frozenset(plan.sessions))
                        reach = int(frames.headers["zxid"][-1])
    except OSError as error:
        problem = f"{part.path} can no longer be read: {error.strerror or error}"
    return found, _log_sum(plan, index, found, reach, problem)


def about_sessions(rows: Rows) -> Bools:
    """Which events decide about the ephemerals that go with sessions that list none."""
    kind = rows["kind"]
    is_life = (kind == Happening.CREATED) & (rows["owner"] != 0)
    wanted: Bools = (kind == Happening.SESSION_GONE) | (kind == Happening.DELETED) | is_life
    return wanted


def _wanted(frames: Frames, part: LogPart, reach: int) -> Frames:
    """Each zxid once: an error that has no zxid of its own is logged under the one before."""
    zxids = frames.header("zxid")
    fresh = np.diff(zxids, prepend=reach) != 0
    return frames.part(fresh & (zxids >= part.first) & (zxids <= part.last))


def _map_base(plan: ChainPlan, index: int, is_closing: bool) -> Iterator[Keyed]:
    if plan.base is None:
        yield from _by_bucket(plan, index, builtin_rows())
        return
    for rows in snapshot_rows(plan.base, *ranges_of(plan.base_starts)[-1 - index]):
        owned = rows[rows["stat"]["owner"] != 0] if is_closing else rows
        yield from _by_bucket(plan, index, owned)


def _by_bucket(plan: ChainPlan, index: int, rows: Rows) -> Iterator[Keyed]:
    head = index.to_bytes(4, signed=True)
    common = b""
    if rows.dtype == EVENT:
        # An event of every path, in whatever order: the ends of sessions are put in theirs.
        everywhere = rows["kind"] == Happening.SESSION_GONE
        common, rows = rows.compress(everywhere).tobytes(), rows.compress(~everywhere)
    # As short numbers, which are sorted in one pass, whatever the number of buckets.
    count = plan.path_buckets
    bucket = (rows["path"] % np.uint64(count)).astype(np.min_scalar_type(count))
    order = np.argsort(bucket, kind="stable")
    rows, ends = rows.take(order), np.cumsum(np.bincount(bucket, minlength=count)).tolist()
    for key, (start, end) in enumerate(pairwise([0, *ends])):
        if end > start or common:
            yield key, head + rows[start:end].tobytes() + common


def _log_sum(plan: ChainPlan, index: int, found: LogEvents, reach: int, problem: str) -> LogSum:
    zxids = np.concatenate([np.empty(0, np.int64), *found.zxids])
    digests = np.concatenate([np.empty(0, np.uint64), *found.digests])
    counts = zxids >= plan.exact_from
    ranges = range_sums(zxids[counts], digests[counts])
    sessions, is_undecodable = sorted(found.sessions), bool(found.undecodable)
    wanted = _digests_asked(plan, found, zxids, digests, reach)
    return LogSum(
        *(index, found.records, reach, ranges, is_undecodable, sessions),
        *(found.config, problem, found.has_unknown_digests, wanted),
    )


def _digests_asked(
    plan: ChainPlan, found: LogEvents, zxids: Ints, digests: Hashes, reach: int
) -> list[tuple[int, int]]:
    """The digests at the zxids that are asked for, as records state them.

    Records of failures and the like state none; the digest before them is theirs, where nothing
    happened since. Without that, each snapshot that ends with one costs a replay.
    """
    asked = np.array([zxid for zxid in plan.digests_at if zxid <= reach], np.int64)
    place = np.searchsorted(zxids, asked, side="right") - 1
    asked, place = asked[place >= 0], place[place >= 0]
    happened = np.concatenate([np.empty(0, np.int64), *(rows["zxid"] for rows in found.events)])
    since, until = (np.searchsorted(happened, at, side="right") for at in (zxids[place], asked))
    is_known = since == until
    return list(zip(asked[is_known].tolist(), digests[place[is_known]].tolist(), strict=True))


def snapshot_rows(
    path: str, start: int | None = None, stop: int | None = None, wanted: Hashes | None = None
) -> Iterator[Rows]:
    """The znodes of a sound snapshot as rows, some at a time, or of a part of it.

    With `wanted`, sorted keys of paths, not many more than those. Raises CorruptSnapshot.
    """
    with open_file(path) as file:
        found = SnapshotRows(file, path)
        if start is None:
            yield from found.batches(wanted)
        else:
            yield from found.part(start, stop, wanted=wanted)


# -- reduce ----------------------------------------------------------------------------------------


def _gathered(blobs: Iterable[bytes]) -> tuple[Rows, Rows, Ints]:
    """The base and the events of a bucket, in the order of the history, and whose part each is."""
    base = [np.empty(0, ZNODE)]
    events: list[tuple[int, Rows]] = []
    for blob in blobs:
        index = int.from_bytes(blob[:4], signed=True)
        if index < 0:
            base.append(np.frombuffer(blob, ZNODE, offset=4))
        else:
            events.append((index, np.frombuffer(blob, EVENT, offset=4)))
    events.sort(key=lambda item: item[0])
    rows = np.concatenate([np.empty(0, EVENT), *(rows for _, rows in events)])
    parts = np.repeat(
        np.array([index for index, _ in events], np.int64),
        [len(rows) for _, rows in events],
    )
    return np.concatenate(base), rows, parts


def close_bucket(plan: ChainPlan, blobs: Iterable[bytes]) -> Iterator[Keyed]:
    """The deletions in a bucket that come with the ends of sessions, for all buckets."""
    base, events, parts = _gathered(blobs)
    closed, of_parts = closed_ephemerals(base, events, parts)
    for index in np.unique(of_parts).tolist():
        yield from _by_bucket(plan, index, closed[of_parts == index])


def reduce_bucket(plan: ChainPlan, blobs: Iterable[bytes]) -> Iterator[Keyed]:
    """What a bucket of paths sums to, and what it has of the windows of snapshots."""
    base, events, parts = _gathered(blobs)
    ends = events["kind"] == Happening.SESSION_GONE
    bare = int(ends.sum()) if plan.closes_lists else 0
    events, parts = events.compress(~ends), parts[~ends]
    if not plan.closes_lists:
        # What was computed about sessions comes after; bring it where it belongs.
        order = np.argsort(events["zxid"], kind="stable")
        events, parts = events.take(order), parts[order]
    states = path_states(base, events, parts)
    chain = StateChain(plan.first, plan.exact_from)
    cuts = [StateCut(cut.zxid, cut.until) for cut in plan.cuts]
    sums = sums_of(states, chain, cuts, len(plan.parts))
    if bare:
        sums.odd, sums.first_odd = sums.odd + bare, plan.first
    keys: dict[int, list[int]] = {}
    for key, check in enumerate(plan.checks):
        keys.setdefault(check.cut, []).append(key)
    for index, of_parts in keys.items():
        rows, sums.touched[index] = window_states(states, cuts[index])
        if len(rows):
            yield from ((key, rows.tobytes()) for key in of_parts)
    for span in range(-(-len(plan.parts) // _SPAN_PARTS)):
        first = span * _SPAN_PARTS
        paths = span_paths(sums, first, min(first + _SPAN_PARTS, len(plan.parts)))
        yield _SPANS - span, _OF_PATHS + msgspec.msgpack.encode(paths)
    yield _TOTALS, msgspec.msgpack.encode(_totals(sums))


def _totals(sums: PathSums) -> ChainTotals:
    states, touched = sums.states.tobytes(), sums.touched.tobytes()
    return ChainTotals(sums.before, states, touched, sums.odd, sums.first_odd)


def _no_totals(plan: ChainPlan, problem: str = "") -> ChainTotals:
    nothing = bytes(8 * len(plan.cuts))
    return ChainTotals(0, nothing, nothing, 0, _LAST, problem)


# -- finish ----------------------------------------------------------------------------------------


def finish(plan: ChainPlan, key: int, blobs: Iterable[bytes]) -> bytes:
    """Put together what all buckets gave under one key."""
    if key == _TOTALS:
        return msgspec.msgpack.encode(_sum_of_totals(plan, blobs))
    if key == _SESSIONS:
        doubts = [msgspec.msgpack.decode(blob, type=list[SessionDoubt]) for blob in blobs]
        return msgspec.msgpack.encode(merged(one for some in doubts for one in some))
    if key <= _SPANS:
        logs, paths = [], []
        for blob in blobs:
            if blob.startswith(_OF_LOG):
                logs.append(msgspec.msgpack.decode(blob[1:], type=LogSum))
            else:
                paths.append(msgspec.msgpack.decode(blob[1:], type=SpanPaths))
        return msgspec.msgpack.encode(span_sum(_SPANS - key, logs, paths))
    window = np.concatenate([np.frombuffer(blob, WINDOW) for blob in blobs])
    check = plan.checks[key]
    found = check_window(plan.cuts[check.cut].path, window, check.start, check.stop)
    return msgspec.msgpack.encode(found)


def _sum_of_totals(plan: ChainPlan, blobs: Iterable[bytes]) -> ChainTotals:
    before = odd = 0
    states, touched = np.zeros((2, len(plan.cuts)), np.uint64)
    first_odd, problem = _LAST, ""
    for blob in blobs:
        one = msgspec.msgpack.decode(blob, type=ChainTotals)
        before = (before + one.before) & _MASK
        states += np.frombuffer(one.states, np.uint64)
        touched += np.frombuffer(one.touched, np.uint64)
        odd, first_odd = odd + one.odd, min(first_odd, one.first_odd)
        problem = problem or one.problem
    return ChainTotals(before, states.tobytes(), touched.tobytes(), odd, first_odd, problem)


def check_window(
    path: str, window: Rows, start: int | None = None, stop: int | None = None
) -> SnapshotSum:
    """Read a snapshot again, and hold what its window touches against the states that it had."""
    window = np.unique(window)
    touched = np.unique(window["path"])
    needed = np.setdiff1d(touched, window["path"][window["state"] == 0])
    total = strange = present = 0
    try:
        for rows in snapshot_rows(path, start, stop, touched):
            rows = rows.compress(among(rows["path"], touched))
            found = np.zeros(len(rows), WINDOW)
            found["path"], found["state"] = rows["path"], znode_states(rows)
            total += int(found["state"].sum(dtype=np.uint64))
            strange += int((~np.isin(found.view("V16"), window.view("V16"))).sum())
            present += int(among(found["path"], needed).sum())
    except (CorruptSnapshot, OSError) as error:
        return SnapshotSum(problem=f"{path} can no longer be read: {error}")
    return SnapshotSum(total & _MASK, strange, len(needed), present)


def collected(plan: ChainPlan, found: Found) -> ChainSums:
    """The sums of a chain from what came of it."""
    spans: list[SpanSum] = []
    windows: dict[int, SnapshotSum] = {}
    totals = _no_totals(plan)
    sessions: list[SessionDoubt] = []
    for key, (blob,) in found.items():
        if key == _TOTALS:
            totals = msgspec.msgpack.decode(blob, type=ChainTotals)
        elif key == _SESSIONS:
            sessions = msgspec.msgpack.decode(blob, type=list[SessionDoubt])
        elif key <= _SPANS:
            spans.append(msgspec.msgpack.decode(blob, type=SpanSum))
        else:
            cut = plan.checks[key].cut
            one = msgspec.msgpack.decode(blob, type=SnapshotSum)
            windows[cut] = windows[cut].plus(one) if cut in windows else one
    return ChainSums(
        sorted(spans, key=lambda one: one.span),
        totals.before,
        np.frombuffer(totals.states, np.uint64),
        np.frombuffer(totals.touched, np.uint64),
        totals.odd,
        totals.first_odd,
        totals.problem,
        windows,
        sessions,
    )


def sums_here(plan: ChainPlan) -> ChainSums:
    """All sums of a chain, computed in this process."""
    return collected(plan, work_here(plan))
