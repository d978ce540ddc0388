"""The states of paths, from their events: what each event made of its znode, and what that sums to.

All events of a path are in one place, in order.  The stat after an event is put together from the
last events that set each of its fields; so the CRC of the znode before and after each event is
known for all of them at once, and no tree is built.  Sums over paths then show the tree:

    digests     Apache's tree digest is a sum of CRCs: of all that events change, up to each record,
                it has to be what the digests in the records change.  Compared range by range, with
                a random factor for each record, so that one number speaks for all of a range.
    states      our own digest is such a sum too: the state at the zxid of a snapshot
    windows     a fuzzy snapshot has each znode as it was at some moment while it was copied: the
                states of the paths that changed meanwhile
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.events import (
    EVENT,
    NEXT_CVERSION,
    NO_DIGEST,
    ZNODE,
    Happening,
    Rows,
    parents_of,
)
from keepfast.pipeline.decode.gather import Bools, Ints
from keepfast.pipeline.decode.hashing import Hashes, mixed
from keepfast.pipeline.decode.path_keys import OWN, RESERVED
from keepfast.pipeline.decode.stat_crc import HASHED_STAT, crc_of

RANGE_BITS = 12
_MASK = (1 << 64) - 1
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_BASE = len(Happening)  # the kind of a row that is a znode of the base

WINDOW = np.dtype([("path", "u8"), ("state", "u8")])


def factors(zxids: Ints) -> Hashes:
    """The factor of each record in the sum of its range: odd, so that nothing is lost."""
    return mixed(zxids.astype(np.uint64) * _FACTOR) | np.uint64(1)


@dataclass(frozen=True, slots=True)
class StateCut:
    """A moment at which a snapshot was begun, and until when its content may be ahead."""

    zxid: int
    until: int


@dataclass(frozen=True, slots=True)
class StateChain:
    """A part of the history without a hole, as the reducers see it."""

    first: int  # records up to here are the base's
    exact_from: int  # before this a fuzzy base may be ahead: single states mean nothing


@dataclass(slots=True)
class PathSums:
    """What one bucket of paths sums to."""

    # By part of the log and range of zxids: the sum with factors; part and range as keys.
    keys: NDArray[np.int64]  # two columns
    digests: Hashes
    carried: Hashes  # by part: changes after its last digest
    before: int  # the base, and changes before its window's end
    states: Hashes  # by cut: the changes of our digest since the cut before
    touched: Hashes  # by cut: the state at the cut of the paths that its window touches
    odd: int  # events that do not fit
    first_odd: int


@dataclass
class States:
    """Rows sorted by path and zxid, and the state of the znode after each."""

    rows: Rows
    part: Ints
    is_first: Bools
    is_base: Bools
    stats: NDArray[np.void]
    crc: Hashes  # of the znode; 0 where it is not there
    state: Hashes  # what it adds to our digest
    odd: Bools
    is_there: Bools
    # The rows that say its parent, its ACL and its data.
    born: Ints
    acl: Ints
    data: Ints
    by_time: Ints  # the rows in zxid order

    @cached_property
    def zxid(self) -> Ints:
        """The zxids; those of the base are before all."""
        return np.where(self.is_base, np.int64(-1), self.rows["zxid"])

    @cached_property
    def starts(self) -> Ints:
        """The first row of each path."""
        return np.flatnonzero(self.is_first)

    @cached_property
    def times(self) -> Ints:
        """The zxids in order."""
        return self.zxid[self.by_time]


def path_states(base: Rows, events: Rows, parts: Ints) -> States:
    """The states after all events; `events` are in the order of the history."""
    rows = np.concatenate([_as_events(base), events])
    part = np.concatenate([np.full(len(base), -1), parts])
    order = np.argsort(np.ascontiguousarray(rows["path"]), kind="stable")  # in time, per path
    is_base = order < len(base)
    by_time = np.empty_like(order)
    by_time[order] = np.arange(len(order))
    rows, part = rows.take(order), part[order]
    kind = rows["kind"]
    count = len(rows)
    is_first = np.ones(count, np.bool_)
    is_first[1:] = rows["path"][1:] != rows["path"][:-1]

    def last(wanted: Bools) -> Ints:
        """The row of the same path, up to each, that is one of these; or the path's first."""
        index = np.where(wanted | is_first, np.arange(count), 0)
        return np.maximum.accumulate(index)

    born = is_base | (kind == Happening.CREATED)
    life = last(born | (kind == Happening.DELETED))
    is_there = born[life]
    start = last(born)
    data = last(born | (kind == Happening.DATA))
    acl = last(born | (kind == Happening.ACL))
    child = last(born | (kind == Happening.CHILD_ADDED) | (kind == Happening.CHILD_GONE))
    stats = np.zeros(count, HASHED_STAT)

    def field(name: str, source: Ints, made: Ints) -> Ints:
        """A field of the stats, as the events at `source` made it, or the base has it."""
        found = made[source]
        inherited = np.flatnonzero(is_base[source])
        found[inherited] = base["stat"][name][order[source[inherited]]]
        return found

    zxid, time, value = (np.ascontiguousarray(rows[name]) for name in ("zxid", "time", "value"))
    stats["czxid"] = field("czxid", start, zxid)
    stats["ctime"] = field("ctime", start, time)
    stats["owner"] = field("owner", start, rows["owner"])
    stats["mzxid"] = field("mzxid", data, zxid)
    stats["mtime"] = field("mtime", data, time)
    stats["version"] = field("version", data, np.where(kind == Happening.DATA, value, 0))
    stats["aversion"] = field("aversion", acl, np.where(kind == Happening.ACL, value, 0))
    born_pzxid = field("pzxid", start, zxid)
    stats["pzxid"] = np.where(is_base[child], born_pzxid, np.maximum(zxid[child], born_pzxid))
    born_cversion = field("cversion", start, np.zeros(count, np.int64))
    stats["cversion"] = _cversions(rows, born_cversion, start, last)
    prefix = rows["crc"][data]
    crc = np.where(is_there, crc_of(prefix, stats), 0).astype(np.uint64)
    weight = rows["weight"][acl]
    is_own = rows["marks"] & OWN != 0
    state = np.where(is_there & ~is_own, (crc + np.uint64(1)) * weight, np.uint64(0))
    before = np.roll(is_there, 1) & ~is_first
    odd = ~is_base & np.where(kind == Happening.CREATED, before, ~before)
    is_set = (kind == Happening.DATA) & ~is_own & before
    odd |= is_set & (value != _next_versions(stats["version"]))
    return States(
        *(rows, part, is_first, is_base, stats, crc, state, odd, is_there),
        *(start, acl, data, by_time),
    )


def last_states(states: States) -> Rows:
    """The znodes that are there after all events, as rows that the next events can begin with."""
    last = np.append(states.starts, len(states.rows))[1:] - 1
    last = last[states.is_there[last]]
    rows = np.zeros(len(last), ZNODE)
    rows["path"] = states.rows["path"][last]
    rows["parent"] = states.rows["parent"][states.born[last]]
    rows["weight"] = states.rows["weight"][states.acl[last]]
    rows["crc"] = states.rows["crc"][states.data[last]]
    rows["marks"] = states.rows["marks"][last]
    rows["stat"] = states.stats[last]
    return rows


def _next_versions(versions: Ints) -> Ints:
    """What a setData makes of the version that the row before has."""
    version = np.roll(versions.astype(np.int64), 1)
    # Versions wrap, and newer leaders skip -1.
    wrapped = np.where(version == 2**31 - 1, -(2**31), version + 1)
    return np.where(version == -2, 0, wrapped)


def _as_events(base: Rows) -> Rows:
    rows = np.zeros(len(base), EVENT)
    rows["kind"] = _BASE
    for name in ("path", "weight", "crc", "marks", "parent"):
        rows[name] = base[name]
    rows["owner"] = base["stat"]["owner"]
    return rows


def _cversions(rows: Rows, born: Ints, start: Ints, last: Callable[[Bools], Ints]) -> Ints:
    """The cversions: that of the last child that says one, and one more for each that does not."""
    kind = rows["kind"]
    added = kind == Happening.CHILD_ADDED
    says = added & (rows["value"] != NEXT_CVERSION)
    said = last(says | (start == np.arange(len(rows))))
    told = np.where(says[said] & (said > start), rows["value"][said].astype(np.int64), -(2**31))
    counts = np.cumsum(added & ~says)
    since = counts - counts[np.maximum(said, start)]
    found: Ints = np.maximum(born, told) + since
    return found


# -- ephemerals of sessions that list none ---------------------------------------------------------


def closed_ephemerals(base: Rows, events: Rows, parts: Ints) -> tuple[Rows, Ints]:
    """The deletions that come with the ends of sessions whose records do not list them.

    `events` are creations of ephemerals, deletions, and ends of sessions, in order.
    """
    ends = events["kind"] == Happening.SESSION_GONE
    if not ends.any():
        return events[:0], parts[:0]
    gone = events[ends]
    gone_parts = parts[ends]
    order = np.lexsort((gone["zxid"], gone["owner"]))
    gone, gone_parts = gone[order], gone_parts[order]
    born = np.concatenate([_as_events(base[base["stat"]["owner"] != 0]), events[~ends]])
    born = born[np.argsort(born["path"], kind="stable")]
    is_life = (born["kind"] == Happening.CREATED) | (born["kind"] == _BASE)
    following = np.full(len(born), np.iinfo(np.int64).max)
    same = born["path"][1:] == born["path"][:-1]
    following[:-1][same] = born["zxid"][1:][same]
    rows = np.flatnonzero(is_life & (born["owner"] != 0))
    # The first end of the owner's session after the birth, if the znode is there until then.
    keys = np.stack([gone["owner"], gone["zxid"]], axis=1)
    place = _search(keys, born["owner"][rows], born["zxid"][rows])
    inside = np.minimum(place, len(gone) - 1)
    hit = (place < len(gone)) & (gone["owner"][inside] == born["owner"][rows])
    hit &= gone["zxid"][inside] < following[rows]
    deleted = born[rows[hit]].copy()
    deleted["zxid"], deleted["late"] = gone["zxid"][inside[hit]], gone["late"][inside[hit]]
    deleted["kind"] = Happening.DELETED
    deleted["owner"] = deleted["crc"] = deleted["weight"] = deleted["time"] = 0
    return np.concatenate([deleted, parents_of(deleted)]), np.tile(gone_parts[inside[hit]], 2)


def _search(keys: Ints, owners: Ints, zxids: Ints) -> Ints:
    """The first of the sorted keys after each pair."""
    both = np.concatenate([keys, np.stack([owners, zxids], axis=1)])
    order = np.lexsort((both[:, 1], both[:, 0]))
    # How many keys come before each pair; a pair counts after an equal key.
    is_key = order < len(keys)
    before = np.cumsum(is_key)
    result = np.empty(len(owners), np.int64)
    mine = ~is_key
    result[order[mine] - len(keys)] = before[mine]
    return result


# -- sums ------------------------------------------------------------------------------------------


def sums_of(states: States, chain: StateChain, cuts: Sequence[StateCut], parts: int) -> PathSums:
    """What the states of a bucket sum to."""
    rows = states.rows
    changed = digest_changes(states)
    moved = change_of(states.state, states.is_first)
    zxid = np.where(states.is_base, chain.first, rows["zxid"])
    late = rows["late"]
    due = zxid + late.astype(np.int64)
    is_early = states.is_base | (zxid < chain.exact_from)
    is_open = ~is_early & (late == NO_DIGEST)
    is_due = ~is_early & ~is_open
    # Before the window's end nothing is compared; what is due after it counts as before too.
    # Part and range as one number: pairs are sorted a hundred times more slowly.
    ranges, codes = np.unique(due[is_due] >> RANGE_BITS, return_inverse=True)
    keys, places = np.unique(states.part[is_due] * len(ranges) + codes, return_inverse=True)
    of_part, of_range = np.divmod(keys, max(1, len(ranges)))
    digests = np.zeros(len(keys), np.uint64)
    np.add.at(digests, places, changed[is_due] * factors(due[is_due]))
    carried = np.zeros(parts, np.uint64)
    np.add.at(carried, states.part[is_open], changed[is_open])
    zxids = np.array([cut.zxid for cut in cuts], np.int64)
    sums = np.zeros(len(cuts) + 1, np.uint64)
    np.add.at(sums, np.searchsorted(zxids, zxid), moved)
    odd = states.odd & (zxid > chain.exact_from)
    return PathSums(
        np.stack([of_part, ranges[of_range]], axis=1),
        digests,
        carried,
        int(changed[is_early].sum(dtype=np.uint64)),
        sums[:-1],
        np.zeros(len(cuts), np.uint64),
        int(odd.sum()),
        int(zxid[odd].min()) if odd.any() else np.iinfo(np.int64).max,
    )


def digest_changes(states: States) -> Hashes:
    """What each row changes in Apache's digest, which leaves /zookeeper out."""
    is_reserved = states.rows["marks"] & RESERVED != 0
    return change_of(np.where(is_reserved, np.uint64(0), states.crc), states.is_first)


def change_of(values: Hashes, is_first: Bools) -> Hashes:
    """What each row changes, by the row before of the same path."""
    before = np.roll(values, 1)
    before[is_first] = 0
    return values - before


def window_states(states: States, cut: StateCut) -> tuple[Rows, np.uint64]:
    """The states of all paths that change in the window of a cut, and their sum at the cut.

    A state of 0: the znode is not there.
    """
    low, high = np.searchsorted(states.times, (cut.zxid, cut.until), side="right")
    inside = np.sort(states.by_time[low:high])
    if not len(inside):
        return np.empty(0, WINDOW), np.uint64(0)
    starts = states.starts
    touched = np.unique(np.searchsorted(starts, inside, side="right") - 1)
    ends = np.append(starts, len(states.rows))[touched + 1]
    zxid, state = states.zxid, states.state
    at_cut = np.zeros(len(touched), np.uint64)
    for index, (start, end) in enumerate(zip(starts[touched].tolist(), ends.tolist(), strict=True)):
        # The last row of the path at the cut, if there is one.
        before = start + int(np.searchsorted(zxid[start:end], cut.zxid, side="right"))
        if before > start:
            at_cut[index] = state[before - 1]
    found = np.zeros(len(touched) + len(inside), WINDOW)
    path = states.rows["path"]
    found["path"] = np.concatenate([path[starts[touched]], path[inside]])
    found["state"] = np.concatenate([at_cut, state[inside]])
    return found, np.uint64(at_cut.sum(dtype=np.uint64))
