"""The tables of sessions in snapshots, against the records that begin and end sessions (A10).

A server whose table lacks a session that is open answers its client "expired" when it leads, and
leaves its ephemerals behind.  A table is copied after the snapshot's zxid is read, so it may be of
any moment from right before that record (3.4 applies a record first) to some records later
(`TableCut.until`).  Sessions are independent of each other: a bucket of them has all that records
and tables say about each, so this runs wherever `keyed` work does.

What records do not show is left to the tables: a session without a record, or whose first one is
its end, was open all the time before that, or never was; then tables that differ are a *dispute*,
which a quorum of their servers decides.  A session that most do not know is no more than a note:
Apache keeps those of a TRUNC until they expire.  And after a change of epoch that fewer than two
servers show (an *era* begins) nothing is known of what was before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np

from keepfast.pipeline.agreement.electorate import Electorate
from keepfast.pipeline.decode.gather import Bools, Ints
from keepfast.pipeline.decode.session_rows import SESSION, SessionSaid
from keepfast.pipeline.replay.plan import SessionTrouble, SnapshotPlan

# Of the sessions of one doubt.
_MAX_NAMED = 20
_ABSENT, _UNASKED = -1, -2
_CLOSED, _OPEN, _UNKNOWN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TableCut:
    """The table of a snapshot; records up to `until` may show in it."""

    zxid: int
    until: int
    era: int


class Doubt(IntEnum):
    """What is wrong about a session in a table."""

    MISSING = 0
    ENDED = 1
    TIMEOUT = 2
    UNKNOWN = 3
    DISPUTED = 4


class SessionDoubt(msgspec.Struct, frozen=True):
    """Sessions about which there is one doubt, in one table or between several."""

    doubt: int
    cut: int  # -1: a dispute
    values: list[int]  # of a dispute, by cut: which timeouts are the same; absent, not asked
    count: int
    sessions: list[int]  # the first ones


@dataclass(frozen=True, slots=True)
class _Events:
    """What records say, by session and in order; `code` is the number of the session."""

    code: Ints
    zxid: Ints
    timeout: Ints
    is_begin: Bools
    era: Ints


def doubts_of(
    rows: np.ndarray, cuts: Sequence[TableCut], eras: Ints, *, starts_empty: bool
) -> list[SessionDoubt]:
    """The doubts about all sessions that rows are about; `eras`: the zxids that begin later ones.

    With `starts_empty` no session was open before the first record.
    """
    ids, codes = np.unique(rows["session"], return_inverse=True)
    is_event = rows["said"] != SessionSaid.LISTED
    order = np.lexsort((rows["at"][is_event], codes[is_event]))
    event_rows = rows[is_event][order]
    events = _Events(
        codes[is_event][order],
        event_rows["at"],
        event_rows["timeout"].astype(np.int64),
        event_rows["said"] == SessionSaid.BEGUN,
        np.searchsorted(eras, event_rows["at"], side="right"),
    )
    found: list[SessionDoubt] = []
    # Of those that no table has, there is nothing to ask.
    known = np.unique(codes[~is_event])
    values = np.full((len(known), len(cuts)), _UNASKED, np.int64)
    for number, cut in enumerate(cuts):
        mine = ~is_event & (rows["at"] == number)
        listed = np.full(len(ids), _ABSENT, np.int64)
        listed[codes[mine]] = rows["timeout"][mine]
        is_empty_before = starts_empty and cut.era == 0
        doubts, open_questions = _compared(events, cut, listed, is_empty_before)
        for doubt, is_so in doubts.items():
            found += _doubt(doubt, number, ids[is_so])
        asked = open_questions[known]
        values[asked, number] = listed[known][asked]
    return found + _disputes(ids[known], values)


def _compared(
    events: _Events, cut: TableCut, listed: Ints, is_empty_before: bool
) -> tuple[dict[Doubt, Bools], Bools]:
    """The sessions about which records contradict a table, and those of which they know nothing."""
    count = len(listed)
    counts = (events.era == cut.era) | (events.zxid >= cut.zxid)
    before = counts & (events.zxid < cut.zxid)
    during = counts & (events.zxid >= cut.zxid) & (events.zxid <= cut.until)
    later = counts & (events.zxid > cut.until)

    def named(wanted: Bools) -> Bools:
        marks = np.zeros(count, np.bool_)
        marks[events.code[wanted]] = True
        return marks

    # The last one of each session counts: where a place is named twice, that is what stays.
    last = np.full(count, -1)
    last[events.code[before]] = np.flatnonzero(before)
    first = np.full(count, -1)
    first[events.code[counts][::-1]] = np.flatnonzero(counts)[::-1]
    is_seen = last >= 0
    if len(events.code):
        is_open = is_seen & events.is_begin[last]
        begins = (first >= 0) & events.is_begin[first]
        timeout = events.timeout[last]
    else:
        is_open = begins = np.zeros(count, np.bool_)
        timeout = np.zeros(count, np.int64)
    state = np.where(is_seen, np.where(is_open, _OPEN, _CLOSED), _UNKNOWN)
    state[~is_seen & (begins | is_empty_before)] = _CLOSED
    begun, ended = named(during & events.is_begin), named(during & ~events.is_begin)
    is_listed = listed != _ABSENT
    extra = is_listed & (state == _CLOSED) & ~begun & ~named(later & events.is_begin)
    doubts = {
        Doubt.MISSING: ~is_listed & (state == _OPEN) & ~ended,
        Doubt.ENDED: extra & is_seen,
        Doubt.UNKNOWN: extra & ~is_seen,
        Doubt.TIMEOUT: is_listed & (state == _OPEN) & ~begun & (listed != timeout),
    }
    return doubts, (state == _UNKNOWN) & ~begun & ~ended


def _doubt(doubt: Doubt, cut: int, ids: Ints) -> list[SessionDoubt]:
    if not len(ids):
        return []
    return [SessionDoubt(doubt, cut, [], len(ids), ids[:_MAX_NAMED].tolist())]


def _disputes(ids: Ints, values: Ints) -> list[SessionDoubt]:
    """The sessions that some tables have and others lack, or with another timeout."""
    asked = values != _UNASKED
    high = np.where(asked, values, np.iinfo(np.int64).min).max(axis=1, initial=_UNASKED)
    low = np.where(asked, values, np.iinfo(np.int64).max).min(axis=1, initial=1 << 62)
    patterns: dict[tuple[int, ...], list[int]] = {}
    for row in np.flatnonzero(asked.any(axis=1) & (high != low)).tolist():
        names: dict[int, int] = {_ABSENT: _ABSENT, _UNASKED: _UNASKED}
        # Which are the same, not how long they are: few patterns, whatever clients ask for.
        pattern = tuple(names.setdefault(one, len(names)) for one in values[row].tolist())
        patterns.setdefault(pattern, []).append(int(ids[row]))
    return [
        SessionDoubt(Doubt.DISPUTED, -1, list(pattern), len(some), some[:_MAX_NAMED])
        for pattern, some in patterns.items()
    ]


def merged(doubts: Iterable[SessionDoubt]) -> list[SessionDoubt]:
    """The doubts of all buckets, in an order that does not depend on them."""
    groups: dict[tuple[int, int, tuple[int, ...]], list[SessionDoubt]] = {}
    for one in doubts:
        groups.setdefault((one.doubt, one.cut, tuple(one.values)), []).append(one)
    return [
        SessionDoubt(
            *(doubt, cut, list(values), sum(one.count for one in some)),
            sorted(session for one in some for session in one.sessions)[:_MAX_NAMED],
        )
        for (doubt, cut, values), some in sorted(groups.items())
    ]


def troubles_of(
    doubts: Iterable[SessionDoubt],
    snapshots: Sequence[SnapshotPlan],
    right: set[str],
    electorate: Electorate,
) -> list[SessionTrouble]:
    """What is wrong with the tables of those snapshots whose znodes are right."""
    found: dict[tuple[int, Doubt], list[SessionDoubt]] = {}
    for one in doubts:
        named = [(one.cut, Doubt(one.doubt))]
        if one.doubt == Doubt.DISPUTED:
            named = _decided(one.values, snapshots, right, electorate)
        for cut, doubt in named:
            if snapshots[cut].path in right:
                found.setdefault((cut, doubt), []).append(one)
    return [
        SessionTrouble(
            *(snapshots[cut].server, snapshots[cut].path, snapshots[cut].zxid, doubt.name.lower()),
            sum(one.count for one in some),
            tuple(sorted({session for one in some for session in one.sessions})[:_MAX_NAMED]),
        )
        for (cut, doubt), some in sorted(found.items())
    ]


def _decided(
    values: Sequence[int],
    snapshots: Sequence[SnapshotPlan],
    right: set[str],
    electorate: Electorate,
) -> list[tuple[int, Doubt]]:
    """Who loses a dispute: cuts, and what is wrong with each."""
    groups: dict[int, list[int]] = {}
    for cut, value in enumerate(values):
        if value != _UNASKED and snapshots[cut].path in right:
            groups.setdefault(value, []).append(cut)
    absent = groups.pop(_ABSENT, [])
    listed = [cut for some in groups.values() for cut in some]

    def is_quorum(cuts: Iterable[int]) -> bool:
        return electorate.is_quorum({snapshots[cut].server for cut in cuts})

    found: list[tuple[int, Doubt]] = []
    if absent and listed:
        if is_quorum(listed) and not is_quorum(absent):
            found += [(cut, Doubt.MISSING) for cut in absent]
        else:
            found += [(cut, Doubt.UNKNOWN) for cut in listed]
    winners = [some for some in groups.values() if is_quorum(some)]
    if len(winners) == 1:
        found += [(cut, Doubt.TIMEOUT) for cut in listed if cut not in winners[0]]
    return found


def joined_rows(blobs: Iterable[bytes]) -> np.ndarray:
    """The rows of all blobs."""
    return np.concatenate([np.empty(0, SESSION), *(np.frombuffer(one, SESSION) for one in blobs)])
