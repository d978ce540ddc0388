"""Damage of every kind A1 to A14, planted into generated ensembles.

Each planter changes one server, `Planted.server`, and says which checks may name it.  It gives None
where the life that it was given does not allow its damage; then another life is drawn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from keepfast.pipeline.findings import EnsembleResult, Finding, FindingSeverity
from keepfast.tree import CONTAINER_OWNER, Node, encode_node, persisted, with_owner
from keepfast.wire import TxnDigest, decode_entry, encode_entry, make_zxid
from tests.pipeline.ensembles import Life, LogFile, Member, SnapshotFile, packed

_CVERSION, _MZXID, _PZXID = 36, 8, 52


@dataclass(frozen=True, slots=True)
class Planted:
    """What was done, to whom, and how it may be told."""

    check: str  # the check that this is meant for
    server: str
    checks: frozenset[str]  # the checks one of which must name the server above a note
    kind: str = ""  # the kind that must be named, where only one is right
    zxid: int | None = None  # the first divergent zxid, where only one is right

    def found_in(self, result: EnsembleResult) -> list[Finding]:
        """The findings that tell this damage."""
        return [
            finding
            for finding in result.findings
            if finding.severity is not FindingSeverity.NOTE
            and finding.server == self.server
            and finding.check in self.checks
            and (not self.kind or finding.kind == self.kind)
            and (self.zxid is None or finding.first_zxid == self.zxid)
        ]


Planter = Callable[[Life], Planted | None]


def _planted(
    check: str, member: Member, also: str = "", kind: str = "", zxid: int | None = None
) -> Planted:
    return Planted(check, member.name, frozenset([check, *also.split()]), kind, zxid)


# -- choosing --------------------------------------------------------------------------------------


def _others_holding(life: Life, member: Member, zxid: int) -> int:
    return sum(
        any(z == zxid for log in other.logs for z, _ in log.entries)
        for other in life.members
        if other is not member
    )


def _records(life: Life, *, is_inner: bool = False) -> list[tuple[Member, LogFile, int]]:
    """Agreed records behind the newest snapshot of a server that two others hold as well."""
    known = dict(life.history)
    found = []
    for member in life.members:
        in_force = member.in_force()
        for position, (log, index) in enumerate(in_force):
            zxid, raw = log.entries[index]
            if known.get(zxid) != raw or _others_holding(life, member, zxid) < life.quorum:
                continue
            if is_inner and not 0 < position < len(in_force) - 1:
                continue
            if member.snapshots and member.snapshots[member.base].fuzzy_until >= zxid:
                continue
            found.append((member, log, index))
    return found


def _pick(life: Life, *, is_inner: bool = False) -> tuple[Member, LogFile, int] | None:
    found = _records(life, is_inner=is_inner)
    return life.random.choice(found) if found else None


def _with_base(life: Life) -> Member | None:
    found = [m for m in life.members if m.base > 0]
    return life.random.choice(found) if found else None


def _whole(life: Life) -> list[Member]:
    """Servers that are up and have everything."""
    return [m for m in life.up if m.position == life.zxid and not m.extra]


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
    return _planted("A1", member)


def damaged_header(life: Life) -> Planted | None:
    """A log that does not begin as a log."""
    members = [m for m in life.members if m.logs]
    member = life.random.choice(members)
    life.random.choice(member.logs).patches.append((0, b"ZKLX"))
    return _planted("A1", member)


# -- A2 --------------------------------------------------------------------------------------------


def removed_records(life: Life) -> Planted | None:
    """A hole in a log."""
    picked = _pick(life, is_inner=True)
    if picked is None:
        return None
    member, log, index = picked
    del log.entries[index]
    if not log.entries:
        member.logs.remove(log)
    return _planted("A2", member, "A3 A14")


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
    return _planted("A2", member)


def swapped_records(life: Life) -> Planted | None:
    """Two records in the wrong order."""
    picked = _pick(life)
    if picked is None:
        return None
    member, log, index = picked
    if index + 1 >= len(log.entries) or log.entries[index + 1][0] != log.entries[index][0] + 1:
        return None
    if index == 0:
        log.name = log.zxid
    log.entries[index], log.entries[index + 1] = log.entries[index + 1], log.entries[index]
    return _planted("A2", member)


def second_record(life: Life) -> Planted | None:
    """Another record under a zxid that is there already."""
    picked = _pick(life)
    if picked is None:
        return None
    member, log, index = picked
    zxid = log.entries[index][0]
    log.entries.insert(index + 1, (zxid, life.stray_entry(zxid, Random(life.seed))))
    return _planted("A2", member)


# -- A3 --------------------------------------------------------------------------------------------


def _alone(life: Life, *, is_new_epoch: bool) -> tuple[Member, int] | None:
    """A server logs a write alone and dies; the others go on in a new epoch, without a write."""
    whole = _whole(life)
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
    return _planted("A3", member, kind="stale-record-after-snap", zxid=zxid)


def stale_after_trunc(life: Life) -> Planted | None:
    """TRUNC cuts behind the record that it should have taken away."""
    found = _alone(life, is_new_epoch=True)
    if found is None:
        return None
    member, zxid = found
    member.logs[-1].is_padded = False
    _rejoin(life, member)
    return _planted("A3", member, kind="stale-record-after-trunc", zxid=zxid)


def stale_served(life: Life) -> Planted | None:
    """A leader with a latent record and a hole under a snapshot sends both to another server."""
    whole = _whole(life)
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
    return _planted("A3", victim, "A2", kind="stale-record-served-as-committed", zxid=zxid)


def different_record(life: Life) -> Planted | None:
    """Another record under an agreed zxid, with a good checksum."""
    picked = _pick(life)
    if picked is None:
        return None
    member, log, index = picked
    zxid = log.entries[index][0]
    if sum(z == zxid for z, _ in log.entries) > 1:
        return None
    log.entries[index] = (zxid, life.stray_entry(zxid, Random(life.seed)))
    return _planted("A3", member, kind="different-records")


# -- A4, A8 ----------------------------------------------------------------------------------------


def _spoil(life: Life, member: Member, snapshot: SnapshotFile) -> None:
    """Make a file of a snapshot that cannot be read."""
    del member.snapshots[snapshot.zxid]
    content = packed(snapshot.content, member.packing)
    match life.random.choice(("cut", "cut", "empty", "flip", "more")):
        case "cut":
            # Not in the last part: cut right behind a seal it is a whole file of an older format.
            content = content[: life.random.randrange(1, len(content) * 3 // 4)]
        case "empty":
            content = b""
        case "flip":
            at = life.random.randrange(24, len(content) - 8)
            content = content[:at] + bytes([content[at] ^ 0x21]) + content[at + 1 :]
        case "more":
            content += b"more"
    member.raw[f"snapshot.{snapshot.zxid:x}{member.packing}"] = content


def damaged_snapshot(life: Life) -> Planted | None:
    """A snapshot that cannot be read in full."""
    members = [m for m in life.members if m.snapshots]
    if not members:
        return None
    member = life.random.choice(members)
    _spoil(life, member, life.random.choice(list(member.snapshots.values())))
    return _planted("A4", member)


def purge_trap(life: Life) -> Planted | None:
    """The newest three snapshots cannot be read: purge would delete the good one behind them."""
    members = [m for m in life.members if len(m.snapshots) > 3]
    if not members:
        return None
    member = life.random.choice(members)
    for zxid in sorted(member.snapshots)[-3:]:
        _spoil(life, member, member.snapshots[zxid])
    return _planted("A8", member)


def no_base(life: Life) -> Planted | None:
    """No snapshot can be read, and the first log is gone."""
    members = [m for m in life.members if m.snapshots and len(m.logs) > 1]
    if not members:
        return None
    member = life.random.choice(members)
    if member.logs[1].zxid & 0xFFFFFFFF == 1 and member.logs[1].zxid >> 32 <= 1:
        return None
    for snapshot in list(member.snapshots.values()):
        _spoil(life, member, snapshot)
    del member.logs[0]
    return _planted("A8", member, "A2")


# -- A5, A6, A10, A12, A13 -------------------------------------------------------------------------


def _changed(snapshot: SnapshotFile, path: str, record: bytes | None) -> None:
    """Replace or remove a znode; the seals are computed anew."""
    snapshot.nodes = [
        (name, old if name != path else record or b"")
        for name, old in snapshot.nodes
        if name != path or record is not None
    ]


def _plain_nodes(life: Life, snapshot: SnapshotFile) -> list[tuple[str, Node]]:
    """Znodes of the snapshot that are the same in the tree at the end."""
    found = []
    for path, record in snapshot.nodes:
        node = life.tree.find(path)
        if path == "/" or path.startswith("/zookeeper") or node is None:
            continue
        if encode_node(path, node) == record:
            found.append((path, node))
    return found


def _corroborated(life: Life, member: Member, snapshot: SnapshotFile) -> bool:
    """Whether two others, or the whole history, can say what the snapshot should hold."""
    others = [m for m in life.members if m is not member]
    begins = [m for m in others if m.logs and m.logs[0].zxid == make_zxid(1, 1)]
    reach = [m for m in others if m.position >= snapshot.fuzzy_until]
    return bool(begins) and len(reach) >= life.quorum


def altered_snapshot(life: Life) -> Planted | None:
    """A znode in any snapshot gets other data, under a right seal."""
    choices = [
        (m, s)
        for m in life.members
        for s in m.snapshots.values()
        if s.zxid > 0 and _corroborated(life, m, s) and len(s.nodes) > 6
    ]
    if not choices:
        return None
    member, snapshot = life.random.choice(choices)
    paths = [p for p, _ in snapshot.nodes if p != "/" and not p.startswith("/zookeeper")]
    if not paths:
        return None
    path = life.random.choice(paths)
    record = dict(snapshot.nodes)[path]
    size = struct.unpack_from(">i", record, 4 + len(path))[0]
    start = 4 + len(path.encode()) + 4
    data = b"altered" + bytes([life.random.randrange(256)])
    rest = record[start + max(size, 0) :]
    fresh = record[: start - 4] + struct.pack(">i", len(data)) + data + rest
    _changed(snapshot, path, fresh)
    return _planted("A5", member, "A6")


def lost_znode(life: Life) -> Planted | None:
    """A leaf is missing in the snapshot from which a server starts."""
    member = _with_base(life)
    if member is None or not _corroborated(life, member, member.snapshots[member.base]):
        return None
    snapshot = member.snapshots[member.base]
    # One that was created while the snapshot was copied comes back by its record.
    leaves = [
        path
        for path, node in _plain_nodes(life, snapshot)
        if not node.children and persisted(node).czxid <= snapshot.zxid
    ]
    if not leaves:
        return None
    _changed(snapshot, life.random.choice(leaves), None)
    return _planted("A6", member, "A5")


def orphan(life: Life) -> Planted | None:
    """An ephemeral znode whose session is gone."""
    member = _with_base(life)
    if member is None:
        return None
    snapshot = member.snapshots[member.base]
    stat = with_owner(bytes(60), 0xDEAD0000)
    zxid = struct.pack(">q", snapshot.zxid)
    stat = zxid + zxid + stat[16:52] + zxid
    snapshot.nodes.append(("/orphan", encode_node("/orphan", Node(b"", -1, stat))))
    return _planted("A10", member)


def bad_form(life: Life) -> Planted | None:
    """A stat that no sequence of txns makes."""
    member = _with_base(life)
    if member is None:
        return None
    snapshot = member.snapshots[member.base]
    parents = [(p, n) for p, n in _plain_nodes(life, snapshot) if n.children]
    if not parents or snapshot.fuzzy_until > snapshot.zxid:
        return None  # behind a fuzzy one the records that come again put a stat right
    path, node = life.random.choice(parents)
    stat = bytearray(node.stat)
    match life.random.choice(("cversion", "mzxid", "pzxid")):
        case "cversion":
            stat[_CVERSION : _CVERSION + 4] = struct.pack(">i", 0)
        case "mzxid":
            stat[_MZXID : _MZXID + 8] = struct.pack(">q", 0)
        case "pzxid":
            stat[_PZXID : _PZXID + 8] = struct.pack(">q", 0)
    if with_owner(bytes(stat), CONTAINER_OWNER) == bytes(stat):
        return None
    _changed(snapshot, path, encode_node(path, Node(node.data, node.acl, bytes(stat))))
    return _planted("A12", member)


def other_membership(life: Life) -> Planted | None:
    """One server was told of another ensemble."""
    member = _with_base(life)
    if member is None or not life.is_modern:
        return None
    others = [m for m in life.members if m is not member and m.snapshots]
    if len(others) < 2:
        return None
    snapshot = member.snapshots[member.base]
    record = dict(snapshot.nodes).get("/zookeeper/config")
    node = life.tree.find("/zookeeper/config")
    if record is None or node is None:
        return None
    lines = member.config.splitlines()
    if life.random.random() < 0.5:
        del lines[0]
    else:
        lines[0] = lines[0].replace("participant", "observer")
    fresh = Node("\n".join(lines).encode(), node.acl, node.stat)
    _changed(snapshot, "/zookeeper/config", encode_node("/zookeeper/config", fresh))
    return _planted("A13", member)


# -- A7, A9, A11, A14 ------------------------------------------------------------------------------


def altered_digest(life: Life) -> Planted | None:
    """One server's record states another digest."""
    found = [
        (m, log, index)
        for m, log, index in _records(life)
        if decode_entry(log.entries[index][1]).digest is not None
    ]
    if not found:
        return None
    member, log, index = life.random.choice(found)
    zxid, raw = log.entries[index]
    entry = decode_entry(raw)
    log.entries[index] = (zxid, encode_entry(entry._replace(digest=TxnDigest(2, 12345))))
    return _planted("A7", member)


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
    return _planted("A9", member)


def log_older_than_snapshot(life: Life) -> Planted | None:
    """SNAP to a zxid below a record of an epoch that nobody else saw."""
    found = _alone(life, is_new_epoch=True)
    if found is None:
        return None
    member, zxid = found
    life.install(member)
    _rejoin(life, member)
    return _planted("A11", member, zxid=zxid)


def lost_snapshot(life: Life) -> Planted | None:
    """The snapshot that held what the log does not is gone."""
    whole = [m for m in _whole(life) if m is not life.leader]
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
    return _planted("A14", member, "A2", kind="lost-snapshot-gap")


def gap_served(life: Life) -> Planted | None:
    """A leader that was caught up by SNAP sends a DIFF from a log with a hole."""
    whole = [m for m in _whole(life) if m is not life.leader]
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
    return _planted("A14", victim, "A2", kind="gap-served-as-diff")


def missing_prefix(life: Life) -> Planted | None:
    """3.4 starts on what is left of its logs, without a snapshot."""
    if life.version != "3.4":
        return None
    return no_base(life)


PLANTERS: dict[str, tuple[Planter, ...]] = {
    "A1": (damaged_record, damaged_record, damaged_header),
    "A2": (removed_records, misnamed_log, swapped_records, second_record),
    "A3": (stale_after_snap, stale_after_trunc, stale_served, different_record),
    "A4": (damaged_snapshot,),
    "A5": (altered_snapshot,),
    "A6": (lost_znode,),
    "A7": (altered_digest,),
    "A8": (purge_trap, no_base, missing_prefix),
    "A9": (wrong_epochs,),
    "A10": (orphan,),
    "A11": (log_older_than_snapshot,),
    "A12": (bad_form,),
    "A13": (other_membership,),
    "A14": (lost_snapshot, gap_served),
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
