"""Healthy ensembles with what is rare: none of it may raise an alarm, or end the audit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_here
from keepfast.pipeline.engine.stages import AuditOptions
from keepfast.pipeline.findings.document import FindingSeverity, Verdict
from keepfast.sim import MemoryDisk
from keepfast.storage import load_tree
from keepfast.tree import encode_node, make_node
from keepfast.wire import (
    OPEN_ACL,
    READ_ACL,
    CheckVersionRequest,
    CreateRequest,
    CreateSessionTxn,
    DeleteContainerRequest,
    DeleteRequest,
    MultiOp,
    OpCode,
    SetACLRequest,
    SetDataRequest,
)
from tests.pipeline import ensembles
from tests.pipeline.ensembles import VERSIONS, Life

_LAST_INT = (1 << 31) - 1


def _create(life: Life, path: str, flags: int = 0, session: int | None = None) -> None:
    life.request(OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, flags), session)


def _maybe_snapshot(life: Life) -> None:
    if life.random.random() < 0.4:
        life.snapshot(life.random.choice(life.up))


def multis(life: Life) -> None:
    """Multis of many operations, and such that touch a znode more than once."""
    _create(life, "/m")
    for number in (1, 256, 257):
        paths = [f"/m/{number}-{one}" for one in range(number)]
        creates = [MultiOp(OpCode.CREATE, CreateRequest(p, b"d", OPEN_ACL, 0)) for p in paths]
        life.request(OpCode.MULTI, tuple(creates))
        _maybe_snapshot(life)
        sets = [MultiOp(OpCode.SET_DATA, SetDataRequest(p, p.encode(), 0)) for p in paths]
        deletes = [MultiOp(OpCode.DELETE, DeleteRequest(p, -1)) for p in paths[::2]]
        life.request(OpCode.MULTI, (*sets, *deletes))
    before = life.zxid
    life.request(OpCode.SET_DATA, SetDataRequest("/m", b"one record before the multi", -1))
    fresh = MultiOp(OpCode.CREATE, CreateRequest("/m/x", b"d", OPEN_ACL, 0))
    life.request(
        OpCode.MULTI,
        (
            *(fresh, MultiOp(OpCode.SET_DATA, SetDataRequest("/m/x", b"e", 0))),
            *(MultiOp(OpCode.DELETE, DeleteRequest("/m/x", 1)), fresh),
            MultiOp(OpCode.CHECK, CheckVersionRequest("/m/x", 0)),
        ),
    )
    life.request(OpCode.SET_DATA, SetDataRequest("/m", b"one after it", -1))
    # Named as before the last three, and copied after them.
    snapshot = life.exact(life.up[0], before)
    snapshot.fuzzy_until = life.zxid
    life.store(life.up[0], snapshot)


def counters_that_wrap(life: Life) -> None:
    """Versions and sequence numbers pass 2^31, after a start of all servers from a snapshot."""
    _create(life, "/big")
    node = life.tree.find("/big")
    assert node is not None
    stat = bytearray(node.stat)
    struct.pack_into(">iii", stat, 32, *[_LAST_INT - 2] * 3)
    snapshot = life.exact(life.up[0], life.zxid)
    record = encode_node("/big", make_node(node.data, node.acl, bytes(stat)))
    snapshot.nodes = [(p, record if p == "/big" else old) for p, old in snapshot.nodes]
    disk = MemoryDisk()
    disk.make_directory("/d")
    snapshot.tails = [b""]
    disk.put("/d/snapshot.1", snapshot.content)
    life.tree = load_tree(disk, "/d/snapshot.1", "snapshot.0", is_fuzzy=True)[0]
    life.elect()
    for member in life.members:
        exact = life.exact(member, life.zxid)
        member.logs, member.snapshots, member.is_open = [], {exact.zxid: exact}, False
    for number in range(8):
        # There the leader stops counting: the next name would be there already.
        _create(life, *(("/big/s-", 2) if number < 3 else (f"/big/{number}", 0)))
        life.request(OpCode.SET_DATA, SetDataRequest("/big", b"%d" % number, -1))
        life.request(OpCode.SET_ACL, SetACLRequest("/big", OPEN_ACL, -1))
        _maybe_snapshot(life)


def quotas(life: Life) -> None:
    """Counts of a quota are no records' and differ after a fuzzy snapshot."""
    _create(life, "/q")
    _create(life, "/zookeeper/quota/q")
    for name, data in (("limits", b"count=100,bytes=1000"), ("stats", b"count=1,bytes=0")):
        path = f"/zookeeper/quota/q/zookeeper_{name}"
        life.request(OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, 0))
    for number in range(12):
        _create(life, f"/q/{number}")
        life.request(OpCode.SET_DATA, SetDataRequest(f"/q/{number}", bytes(number), -1))
        _maybe_snapshot(life)
        if number % 3 == 2:
            life.request(OpCode.DELETE, DeleteRequest(f"/q/{number - 1}", -1))


def containers(life: Life) -> None:
    """Containers that come, are emptied, deleted and made again."""
    for _ in range(3):
        life.request(OpCode.CREATE_CONTAINER, CreateRequest("/box", b"", OPEN_ACL, 4))
        for number in range(3):
            _create(life, f"/box/{number}")
            _maybe_snapshot(life)
        for number in range(3):
            life.request(OpCode.DELETE, DeleteRequest(f"/box/{number}", -1))
        _maybe_snapshot(life)
        life.request(OpCode.DELETE_CONTAINER, DeleteContainerRequest(b"/box"))


def lock(life: Life) -> None:
    """One znode is created and deleted again and again, by sessions with every bit in their ids."""
    sessions = (1 << 62, -(1 << 63) + 9, -3, 1 << 56)
    for session in sessions:
        life.request(OpCode.CREATE_SESSION, CreateSessionTxn(6000), session)
    for number in range(20):
        session = sessions[number % 4]
        _create(life, "/lock", flags=1, session=session)
        _maybe_snapshot(life)
        life.request(OpCode.SET_ACL, SetACLRequest("/lock", READ_ACL, -1), session)
        life.request(OpCode.DELETE, DeleteRequest("/lock", -1), session)
    for session in sessions:
        _create(life, f"/of{session & 7}", flags=1, session=session)
        _maybe_snapshot(life)
        life.request(OpCode.CLOSE_SESSION, None, session)


def _assert_no_alarm(life: Life, place: Path) -> None:
    life.write_files(place)
    for records in (20_000, 0):
        options = AuditOptions(tree_records=records)
        (result,) = audit_here([str(place)], options).ensembles
        grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
        assert (result.verdict, grave, result.unchecked) == (Verdict.CONSISTENT, [], ())


@pytest.mark.parametrize(
    ("happens", "version"),
    [
        *((one, v) for one in (multis, counters_that_wrap, quotas, lock) for v in VERSIONS),
        *((containers, v) for v in VERSIONS if v != "3.4"),
    ],
)
def test_what_is_rare__gives_nothing_above_a_note(
    tmp_path: Path, happens: Callable[[Life], None], version: str
) -> None:
    for seed in range(4):
        life = Life(seed, version)
        life.write(5)
        happens(life)
        life.live(6)
        life.end()
        _assert_no_alarm(life, tmp_path / str(seed))


@pytest.mark.parametrize(
    "start_ms", [-(10**10), (1 << 63) - 10**9, 5 - (1 << 63), 253_402_300_799_999]
)
def test_clocks_that_are_wrong__change_nothing(
    tmp_path: Path, start_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensembles, "_START_MS", start_ms)
    for seed in range(3):
        life = Life(seed)
        life.live()
        life.end()
        _assert_no_alarm(life, tmp_path / str(seed))
