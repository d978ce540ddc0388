"""Damage to snapshots: files that cannot be read, and whole ones that say something else."""

from __future__ import annotations

import struct

from keepfast.tree import CONTAINER_OWNER, Node, encode_node, make_node, persisted, with_owner
from keepfast.wire import OpCode, decode_entry
from tests.pipeline.ensembles import Life, Member, SnapshotFile, packed
from tests.pipeline.planted import Planted, corroborated, planted_by, with_base

_CVERSION, _MZXID, _PZXID = 36, 8, 52

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
    return planted_by("A4", member)


def purge_trap(life: Life) -> Planted | None:
    """The newest three snapshots cannot be read: purge would delete the good one behind them."""
    members = [m for m in life.members if len(m.snapshots) > 3]
    if not members:
        return None
    member = life.random.choice(members)
    for zxid in sorted(member.snapshots)[-3:]:
        _spoil(life, member, member.snapshots[zxid])
    return planted_by("A8", member)


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
    return planted_by("A8", member, "A2")


# -- A5, A6, A10, A12, A13 -------------------------------------------------------------------------


def _changed(snapshot: SnapshotFile, path: str, record: bytes | None) -> None:
    """Replace or remove a znode; the seals are computed anew."""
    snapshot.nodes = [
        (name, old if name != path else record or b"")
        for name, old in snapshot.nodes
        if name != path or record is not None
    ]


def _plain_nodes(life: Life, snapshot: SnapshotFile) -> list[tuple[str, Node]]:
    """Znodes of the snapshot that are the same in the tree at the end, on every server."""
    found = []
    # What a server has at its end, never committed, would cover the damage up.
    known = {zxid for zxid, _ in life.history}
    tails = {
        getattr(decode_entry(raw).body, "path", None)
        for member in life.members
        for log in member.logs
        for zxid, raw in log.entries
        if zxid not in known
    }
    for path, record in snapshot.nodes:
        node = life.tree.find(path)
        if path == "/" or path.startswith("/zookeeper") or node is None or path in tails:
            continue
        if encode_node(path, node) == record:
            found.append((path, node))
    return found


def altered_snapshot(life: Life) -> Planted | None:
    """A znode in any snapshot gets other data, under a right seal."""
    choices = [
        (m, s)
        for m in life.members
        for s in m.snapshots.values()
        if s.zxid > 0 and corroborated(life, m, s) and len(s.nodes) > 6
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
    return planted_by("A5", member, "A6")


def altered_seal(life: Life) -> Planted | None:
    """A snapshot states another tree digest, or that of another zxid."""
    choices = [
        (m, s)
        for m in life.members
        for s in m.snapshots.values()
        if s.zxid > 0 and corroborated(life, m, s) and s.tails[0]
    ]
    if not choices:
        return None
    member, snapshot = life.random.choice(choices)
    zxid, version, digest = struct.unpack(">qiQ", snapshot.tails[0])
    others = [
        entry.digest.tree_digest
        for _, raw in life.history
        if (entry := decode_entry(raw)).digest is not None
    ]
    if zxid == 0:
        return None
    if life.random.random() < 0.5:
        digest ^= 1 << life.random.randrange(64)
    else:
        digest = life.random.choice([one for one in others if one != digest] or [digest ^ 1])
    snapshot.tails[0] = struct.pack(">qiQ", zxid, version, digest)
    return planted_by("A7", member, kind="snapshot-digest-wrong", zxid=zxid)


def lost_znode(life: Life) -> Planted | None:
    """A leaf is missing in the snapshot from which a server starts."""
    member = with_base(life)
    if member is None or not corroborated(life, member, member.snapshots[member.base]):
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
    return planted_by("A6", member, "A5")


def orphan(life: Life) -> Planted | None:
    """An ephemeral znode whose session is gone."""
    member = with_base(life)
    if member is None:
        return None
    snapshot = member.snapshots[member.base]
    stat = with_owner(bytes(60), 0xDEAD0000)
    zxid = struct.pack(">q", snapshot.zxid)
    stat = zxid + zxid + stat[16:52] + zxid
    snapshot.nodes.append(("/orphan", encode_node("/orphan", make_node(b"", -1, stat))))
    return planted_by("A10", member)


def _sessions_in(snapshot: SnapshotFile) -> tuple[dict[int, int], bytes]:
    """The table of sessions, and what comes after it in the head."""
    (count,) = struct.unpack_from(">i", snapshot.head, 16)
    end = 20 + 12 * count
    return dict(struct.iter_unpack(">qi", snapshot.head[20:end])), snapshot.head[end:]


def _with_table(life: Life, kind: str) -> Planted | None:
    """Change one session in the table of a snapshot that the records of its epoch explain."""
    said = {
        type_: {
            (entry.header.session_id, zxid)
            for zxid, raw in life.history
            if (entry := decode_entry(raw)).header.type == type_
        }
        for type_ in (OpCode.CREATE_SESSION, OpCode.CLOSE_SESSION)
    }
    choices = []
    for member in life.members:
        for snapshot in member.snapshots.values():
            z = snapshot.zxid
            if not corroborated(life, member, snapshot):
                continue
            wanted = OpCode.CLOSE_SESSION if kind == "session-ended" else OpCode.CREATE_SESSION
            named = {s for s, at in said[wanted] if at < z and at >> 32 == z >> 32}
            if kind != "session-ended":
                named &= set(life.tree.sessions)
            choices += [(member, snapshot, session) for session in sorted(named)]
    if not choices:
        return None
    member, snapshot, session = life.random.choice(choices)
    table, rest = _sessions_in(snapshot)
    if kind == "session-missing":
        del table[session]
    else:
        table[session] = table.get(session, 6000) + (kind == "session-timeout")
    head = snapshot.head[:16] + struct.pack(">i", len(table))
    snapshot.head = head + b"".join(struct.pack(">qi", *one) for one in table.items()) + rest
    return planted_by("A10", member, kind=kind)


def lost_session(life: Life) -> Planted | None:
    """A session that is open is not in the table of a snapshot."""
    return _with_table(life, "session-missing")


def ended_session(life: Life) -> Planted | None:
    """A session that ended is in the table of a snapshot."""
    return _with_table(life, "session-ended")


def altered_timeout(life: Life) -> Planted | None:
    """A session has another timeout in the table of a snapshot."""
    return _with_table(life, "session-timeout")


def bad_form(life: Life) -> Planted | None:
    """A stat that no sequence of txns makes."""
    member = with_base(life)
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
    _changed(snapshot, path, encode_node(path, make_node(node.data, node.acl, bytes(stat))))
    return planted_by("A12", member)


def other_membership(life: Life) -> Planted | None:
    """One server was told of another ensemble."""
    member = with_base(life)
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
    fresh = make_node("\n".join(lines).encode(), node.acl, node.stat)
    _changed(snapshot, "/zookeeper/config", encode_node("/zookeeper/config", fresh))
    return planted_by("A13", member)


# In a stat: what clients see, by its place and form.
_STAT_FIELDS = ((0, ">q"), (8, ">q"), (16, ">q"), (24, ">q"), (32, ">i"), (40, ">i"), (44, ">q"))


def altered_stat(life: Life) -> Planted | None:
    """A znode of the base has another time, version, owner or ACL, and the same data."""
    member = with_base(life)
    if member is None or not corroborated(life, member, member.snapshots[member.base]):
        return None
    snapshot = member.snapshots[member.base]
    nodes = _plain_nodes(life, snapshot)
    if not nodes or snapshot.fuzzy_until > snapshot.zxid:
        return None
    path, node = life.random.choice(nodes)
    stat, acl = bytearray(node.stat), node.acl
    acls = [key for key in life.tree.acls.entries() if key != acl]
    field = life.random.choice((*_STAT_FIELDS, None))
    if field is None and acls:
        acl = life.random.choice(acls)
    else:
        offset, form = field or _STAT_FIELDS[0]
        struct.pack_into(form, stat, offset, struct.unpack_from(form, stat, offset)[0] + 1)
    _changed(snapshot, path, encode_node(path, make_node(node.data, acl, bytes(stat))))
    return planted_by("A6", member, "A5")
