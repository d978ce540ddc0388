"""Files in the wrong place: of another ensemble, under another name, or not there at all."""

from __future__ import annotations

from dataclasses import replace

from tests.pipeline.ensembles import Life, LogFile, Member, SnapshotFile
from tests.pipeline.planted import (
    Planted,
    corroborated,
    others_holding,
    pick,
    planted_by,
    with_base,
)


def _other_life(life: Life) -> Life:
    """Another ensemble of the same version."""
    other = Life(life.seed + 1_000_003, life.version)
    other.live()
    return other


def _with_sure_base(life: Life) -> tuple[Member, SnapshotFile] | None:
    member = with_base(life)
    if member is None or not corroborated(life, member, member.snapshots[member.base]):
        return None
    return member, member.snapshots[member.base]


def foreign_snapshot(life: Life) -> Planted | None:
    """The znodes and sessions of another ensemble, under the name of the newest snapshot."""
    found = _with_sure_base(life)
    other = _other_life(life)
    donor = with_base(other)
    if found is None or donor is None:
        return None
    member, snapshot = found
    strange = donor.snapshots[donor.base]
    if len(strange.nodes) < 6:
        return None
    snapshot.head, snapshot.nodes = strange.head, strange.nodes
    return planted_by("files", member, "A5 A6")


def older_snapshot(life: Life) -> Planted | None:
    """The content of an older snapshot under the name of the newest, as from a wrong restore."""
    found = _with_sure_base(life)
    if found is None:
        return None
    member, snapshot = found
    older = member.snapshots[min(member.snapshots)]
    if len(older.nodes) + 2 > len(snapshot.nodes) or snapshot.fuzzy_until > snapshot.zxid:
        return None
    snapshot.head, snapshot.nodes, snapshot.tails = older.head, older.nodes, older.tails
    return planted_by("files", member, "A4 A5 A6")


def foreign_log(life: Life) -> Planted | None:
    """A log of another ensemble in the place of one of the same name."""
    donors = {log.zxid: log for member in _other_life(life).members for log in member.logs}
    found = [
        (member, place)
        for member in life.members
        for place, log in enumerate(member.logs)
        if log.zxid in donors and len(donors[log.zxid].entries) > 1
        if others_holding(life, member, log.zxid) >= life.quorum
    ]
    if not found:
        return None
    member, place = life.random.choice(found)
    member.logs[place] = replace(donors[member.logs[place].zxid])
    return planted_by("files", member, "A2 A3 A14")


def second_copy_of_log(life: Life) -> Planted | None:
    """A log is there twice, under two names."""
    member = life.random.choice([m for m in life.members if m.logs])
    log = life.random.choice(member.logs)
    copy = LogFile(list(log.entries), log.is_padded, log.tail, log.mtime, log.zxid + 3)
    if copy.zxid in {one.zxid for one in member.logs}:
        return None
    member.logs.insert(member.logs.index(log) + 1, copy)
    return planted_by("files", member, "A2")


def lost_log(life: Life) -> Planted | None:
    """A whole log between two others is gone."""
    known = dict(life.history)
    found = [
        (member, log)
        for member in life.members
        for log in member.logs[1:-1]
        if log.zxid > max((s.fuzzy_until for s in member.snapshots.values()), default=-1)
        if all(
            known.get(zxid) == raw and others_holding(life, member, zxid) >= life.quorum
            for zxid, raw in log.entries
        )
    ]
    if not found:
        return None
    member, log = life.random.choice(found)
    member.logs.remove(log)
    return planted_by("files", member, "A2 A3 A14")


def hole_under_fuzzy_snapshot(life: Life) -> Planted | None:
    """A record is gone whose effect the base may show, as it was copied when that was applied."""
    known = dict(life.history)
    found = [
        (member, log, index)
        for member in life.members
        if member.snapshots
        for log in member.logs
        for index, (zxid, raw) in enumerate(log.entries)
        if index and member.base < zxid <= member.snapshots[member.base].fuzzy_until
        if known.get(zxid) == raw and zxid + 1 in known and zxid < member.position
        if others_holding(life, member, zxid) >= life.quorum
    ]
    if not found:
        return None
    member, log, index = life.random.choice(found)
    del log.entries[index]
    return planted_by("files", member, "A2 A14")


def hole_on_most_servers(life: Life) -> Planted | None:
    """A committed record, not the last of its epoch, is gone on two of three servers."""
    picked = pick(life, is_inner=True)
    if picked is None or len(life.members) != 3:
        return None
    member, log, index = picked
    zxid = log.entries[index][0]
    if zxid + 1 not in dict(life.history):
        return None
    second = next(
        (
            (one, place)
            for other in life.members
            if other is not member and other.base < zxid
            for one in other.logs
            for place, (held, _) in enumerate(one.entries)
            if held == zxid and place
        ),
        None,
    )
    if second is None or not index:
        return None
    del log.entries[index]
    del second[0].entries[second[1]]
    return planted_by("files", member, "A2 A3 A14")
