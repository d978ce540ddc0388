"""Damage of every kind A1 to A14, planted into generated ensembles.

Each planter changes one server, `Planted.server`, and says which checks may name it.  It gives None
where the life that it was given does not allow its damage; then another life is drawn.
"""

from __future__ import annotations

import struct
from random import Random

from keepfast.wire import TxnDigest, decode_entry, encode_entry, make_zxid
from tests.pipeline.ensembles import Life, LogFile, Member
from tests.pipeline.planted import (
    Planted,
    Planter,
    others_holding,
    pick,
    planted_by,
    records_of,
    whole_servers,
)
from tests.pipeline.planting_causes import partial_then_snapshot, persisted_planters, trusting
from tests.pipeline.planting_files import (
    foreign_log,
    foreign_snapshot,
    hole_on_most_servers,
    hole_under_fuzzy_snapshot,
    lost_log,
    older_snapshot,
    second_copy_of_log,
)
from tests.pipeline.planting_snapshots import (
    altered_seal,
    altered_snapshot,
    altered_stat,
    altered_timeout,
    bad_form,
    damaged_snapshot,
    ended_session,
    lost_session,
    lost_znode,
    no_base,
    orphan,
    other_membership,
    purge_trap,
)

# -- A1 --------------------------------------------------------------------------------------------


def damaged_record(life: Life) -> Planted | None:
    """Bytes of a record change after they were written."""
    members = [m for m in life.members if any(len(log.entries) > 1 for log in m.logs)]
    if not members:
        return None
    member = life.random.choice(members)
    log = life.random.choice([log for log in member.logs if len(log.entries) > 1])
    index = life.random.randrange(len(log.entries) - 1)  # sound records follow
    offset = log.offset_of(index)
    size = len(log.entries[index][1])
    match life.random.choice(("flip", "mark", "length", "sum", "zeros")):
        case "flip":
            at = offset + 12 + life.random.randrange(size)
            log.patches.append((at, bytes([log.content()[at] ^ 0x55])))
        case "mark":
            log.patches.append((offset + 12 + size, b"X"))
        case "length":
            length = life.random.choice((0x7FFFFFFF, -5, size + 1, 3))
            log.patches.append((offset + 8, struct.pack(">i", length)))
        case "sum":
            log.patches.append(
                (offset + 4, bytes(b ^ 0x11 for b in log.content()[offset + 4 :][:4]))
            )
        case "zeros":
            log.patches.append((offset, bytes(13 + size)))
    return planted_by("A1", member)


def damaged_header(life: Life) -> Planted | None:
    """A log that does not begin as a log."""
    members = [m for m in life.members if m.logs]
    member = life.random.choice(members)
    life.random.choice(member.logs).patches.append((0, b"ZKLX"))
    return planted_by("A1", member)


# -- A2 --------------------------------------------------------------------------------------------


def removed_records(life: Life) -> Planted | None:
    """A hole in a log."""
    picked = pick(life, is_inner=True)
    if picked is None:
        return None
    member, log, index = picked
    del log.entries[index]
    if not log.entries:
        member.logs.remove(log)
    return planted_by("A2", member, "A3 A14")


def misnamed_log(life: Life) -> Planted | None:
    """A log under a name that is not its first record's."""
    members = [m for m in life.members if m.logs]
    member = life.random.choice(members)
    log = life.random.choice(member.logs)
    names = {other.zxid for other in member.logs}
    name = log.zxid + life.random.choice((-1, 1))
    if name in names or name & 0xFFFFFFFF == 0:
        return None
    log.name = name
    return planted_by("A2", member)


def swapped_records(life: Life) -> Planted | None:
    """Two records in the wrong order."""
    picked = pick(life)
    if picked is None:
        return None
    member, log, index = picked
    if index + 1 >= len(log.entries) or log.entries[index + 1][0] != log.entries[index][0] + 1:
        return None
    if index == 0:
        log.name = log.zxid
    log.entries[index], log.entries[index + 1] = log.entries[index + 1], log.entries[index]
    return planted_by("A2", member)


def second_record(life: Life) -> Planted | None:
    """Another record under a zxid that is there already."""
    picked = pick(life)
    if picked is None:
        return None
    member, log, index = picked
    zxid = log.entries[index][0]
    log.entries.insert(index + 1, (zxid, life.stray_entry(zxid, Random(life.seed))))
    return planted_by("A2", member)


# -- A3 --------------------------------------------------------------------------------------------


def _alone(life: Life, *, is_new_epoch: bool) -> tuple[Member, int] | None:
    """A server logs a write alone and dies; the others continue in a new epoch, without a write."""
    whole = whole_servers(life)
    if len(whole) <= life.quorum or not life.history:
        return None
    life.leader = member = life.random.choice(whole)
    life.now += 60
    if is_new_epoch:
        life.epoch += 1
        life.counter = 0
        for one in life.up:
            one.epoch = life.epoch
            one.is_open = False
    life.log_alone(member)
    (zxid,) = member.extra
    life.elect()
    life.now += 60
    return member, zxid


def _rejoin(life: Life, member: Member) -> None:
    member.extra = []
    member.is_up = True
    member.is_open = False
    member.epoch = life.epoch
    member.position = life.zxid
    life.write(life.random.randrange(1, 6))


def stale_after_snap(life: Life) -> Planted | None:
    """SNAP replaces the tree and leaves a record in the log that was never committed."""
    found = _alone(life, is_new_epoch=False)
    if found is None:
        return None
    member, zxid = found
    life.install(member)
    _rejoin(life, member)
    return planted_by("A3", member, kind="stale-record-after-snap", zxid=zxid)


def stale_after_trunc(life: Life) -> Planted | None:
    """TRUNC cuts behind the record that it should have taken away."""
    found = _alone(life, is_new_epoch=True)
    if found is None:
        return None
    member, zxid = found
    member.logs[-1].is_padded = False
    _rejoin(life, member)
    return planted_by("A3", member, kind="stale-record-after-trunc", zxid=zxid)


def stale_served(life: Life) -> Planted | None:
    """A leader with a latent record and a hole under a snapshot sends both to another server."""
    whole = whole_servers(life)
    if len(life.members) < 5 or len(whole) <= life.quorum + 1 or life.version == "3.4":
        return None
    victim = life.random.choice([m for m in whole if m is not life.leader])
    if victim.snapshots and victim.snapshots[victim.base].fuzzy_until > life.zxid:
        return None
    life.stop(victim)
    found = _alone(life, is_new_epoch=True)
    if found is None:
        return None
    source, zxid = found
    stale = source.logs[-1].entries[-1]
    if not any(z == victim.position for log in source.logs for z, _ in log.entries):
        return None  # a leader sends a DIFF only from a zxid that its log has
    life.write(1)
    life.install(source)
    _rejoin(life, source)
    behind = [item for item in life.history if item[0] > source.base]
    for item in [stale, *behind]:
        victim.append(*item, life.now)
    _rejoin(life, victim)
    return planted_by("A3", victim, "A2", kind="stale-record-served-as-committed", zxid=zxid)


def different_record(life: Life) -> Planted | None:
    """Another record under an agreed zxid, with a good checksum."""
    return _replaced(life, pick(life))


def latent_different_record(life: Life) -> Planted | None:
    """The same below the newest snapshot, which hides it from a start."""
    known = dict(life.history)
    found = [
        (member, log, index)
        for member in life.members
        for log in member.logs
        for index, (zxid, raw) in enumerate(log.entries)
        if zxid <= member.base and known.get(zxid) == raw
        if others_holding(life, member, zxid) >= life.quorum
    ]
    return _replaced(life, life.random.choice(found) if found else None)


def _replaced(life: Life, picked: tuple[Member, LogFile, int] | None) -> Planted | None:
    if picked is None:
        return None
    member, log, index = picked
    zxid = log.entries[index][0]
    if sum(z == zxid for z, _ in log.entries) > 1:
        return None
    log.entries[index] = (zxid, life.stray_entry(zxid, Random(life.seed)))
    return planted_by("A3", member, kind="different-records")


# -- A7, A9, A11, A14 ------------------------------------------------------------------------------


def altered_digest(life: Life) -> Planted | None:
    """One server's record states another digest."""
    found = [
        (m, log, index)
        for m, log, index in records_of(life)
        if decode_entry(log.entries[index][1]).digest is not None
    ]
    if not found:
        return None
    member, log, index = life.random.choice(found)
    zxid, raw = log.entries[index]
    entry = decode_entry(raw)
    log.entries[index] = (zxid, encode_entry(entry._replace(digest=TxnDigest(2, 12345))))
    return planted_by("A7", member)


def wrong_epochs(life: Life) -> Planted | None:
    """Epoch files that contradict each other, or the history."""
    member = life.random.choice([m for m in life.members if m.logs])
    match life.random.choice(("order", "behind", "missing", "text")):
        case "order":
            member.accepted = str(member.epoch - 1) if member.epoch > 1 else "0"
        case "behind":
            last = max(member.base, member.logs[-1].entries[-1][0]) >> 32
            if last < 1:
                return None
            member.current = str(last - 1)
        case "missing":
            if life.random.random() < 0.5:
                member.accepted = None
            else:
                member.current = None
        case "text":
            member.current = "seven"
    return planted_by("A9", member)


def log_older_than_snapshot(life: Life) -> Planted | None:
    """SNAP to a zxid below a record of an epoch that nobody else saw."""
    found = _alone(life, is_new_epoch=True)
    if found is None:
        return None
    member, zxid = found
    life.install(member)
    _rejoin(life, member)
    return planted_by("A11", member, zxid=zxid)


def lost_snapshot(life: Life) -> Planted | None:
    """The snapshot that held what the log does not is gone."""
    whole = [m for m in whole_servers(life) if m is not life.leader]
    if len(life.up) <= life.quorum or not whole:
        return None
    member = life.random.choice(whole)
    life.stop(member)
    life.write(4)
    life.install(member)
    zxid = life.zxid
    _rejoin(life, member)
    if len(life.members) - 1 < 2:
        return None
    del member.snapshots[zxid]
    for newer in [z for z in member.snapshots if z > zxid]:
        del member.snapshots[newer]
    begins = member.logs and member.logs[0].zxid == make_zxid(1, 1)
    if not member.snapshots and not begins:
        return None
    return planted_by("A14", member, "A2", kind="lost-snapshot-gap")


def gap_served(life: Life) -> Planted | None:
    """A leader that was caught up by SNAP sends a DIFF from a log with a hole."""
    whole = [m for m in whole_servers(life) if m is not life.leader]
    if len(life.members) < 5 or len(whole) < 2 or len(life.up) - 2 < life.quorum:
        return None
    source, victim = life.random.sample(whole, 2)
    if not source.logs or source.logs[-1].entries[-1][0] != life.zxid:
        return None  # a leader sends a DIFF only from a zxid that its log has
    if any(m.snapshots and m.snapshots[m.base].fuzzy_until > life.zxid for m in (source, victim)):
        return None
    life.stop(source)
    life.stop(victim)
    life.write(4)
    life.install(source)
    _rejoin(life, source)
    for item in [one for one in life.history if one[0] > source.base]:
        victim.append(*item, life.now)
    _rejoin(life, victim)
    return planted_by("A14", victim, "A2", kind="gap-served-as-diff")


def missing_prefix(life: Life) -> Planted | None:
    """3.4 starts on what is left of its logs, without a snapshot."""
    if life.version != "3.4":
        return None
    return no_base(life)


PLANTERS: dict[str, tuple[Planter, ...]] = {
    "A1": (damaged_record, damaged_record, damaged_header),
    "A2": (removed_records, misnamed_log, swapped_records, second_record),
    "A3": (
        *(stale_after_snap, stale_after_trunc, stale_served, different_record),
        *(stale_after_snap, stale_after_trunc, stale_served, latent_different_record),
    ),
    "A4": (damaged_snapshot,),
    "A5": (altered_snapshot,),
    "A6": (lost_znode, altered_stat),
    "A7": (altered_digest, altered_seal),
    "A8": (purge_trap, no_base, missing_prefix),
    "A9": (wrong_epochs,),
    "A10": (orphan, lost_session, ended_session, altered_timeout),
    "A11": (log_older_than_snapshot,),
    "A12": (bad_form,),
    "A13": (other_membership,),
    "A14": (lost_snapshot, gap_served),
    "causes": (
        *persisted_planters((lost_snapshot, gap_served, stale_after_snap, stale_after_trunc)),
        partial_then_snapshot,
        trusting,
    ),
    "files": (
        *(foreign_snapshot, older_snapshot, foreign_log, second_copy_of_log, lost_log),
        *(hole_under_fuzzy_snapshot, hole_on_most_servers),
    ),
}


def damaged(seed: int) -> tuple[Life, Planted]:
    """An ensemble with one planted damage; the seed picks the check, the planter and the life."""
    checks = list(PLANTERS)
    planters = PLANTERS[checks[seed % len(checks)]]
    planter = planters[seed // len(checks) % len(planters)]
    for attempt in range(1000):
        life = Life(seed * 1000 + attempt)
        life.live()
        planted = planter(life)
        if planted is not None:
            return life, planted
    raise AssertionError(f"no life allows {planter.__name__}")
