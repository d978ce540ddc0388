"""Snapshots with right seals that no server can load, or whose ACLs are gone: never a pass."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_files
from keepfast.pipeline.engine.stages import AuditOptions, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.findings.document import EnsembleResult
from keepfast.pipeline.scan import split_snapshots
from tests.pipeline.ensembles import Life, Member, SnapshotFile
from tests.pipeline.planted import corroborated

Spoil = Callable[[SnapshotFile], bool]


def child_before_parent(snapshot: SnapshotFile) -> bool:
    nodes = snapshot.nodes
    for place, (path, _) in enumerate(nodes[:-1]):
        if path != "/" and nodes[place + 1][0].startswith(path + "/"):
            nodes[place], nodes[place + 1] = nodes[place + 1], nodes[place]
            return True
    return False


def root_last(snapshot: SnapshotFile) -> bool:
    snapshot.nodes.append(snapshot.nodes.pop(0))
    return True


def _of_clients(snapshot: SnapshotFile) -> int | None:
    """The place of the last znode of a client, which has no children."""
    places = [i for i, (p, _) in enumerate(snapshot.nodes) if not p.startswith("/zookeeper")]
    return places[-1] if len(places) > 1 else None


def _with_path(snapshot: SnapshotFile, change: Callable[[bytes], bytes]) -> bool:
    place = _of_clients(snapshot)
    if place is None:
        return False
    path, record = snapshot.nodes[place]
    raw = path.encode()
    fresh = change(raw)
    snapshot.nodes[place] = path, struct.pack(">i", len(fresh)) + fresh + record[4 + len(raw) :]
    return True


def no_slash_in_front(snapshot: SnapshotFile) -> bool:
    return _with_path(snapshot, lambda raw: b"x" + raw[1:])


def slash_at_the_end(snapshot: SnapshotFile) -> bool:
    return _with_path(snapshot, lambda raw: raw + b"/")


def not_utf8(snapshot: SnapshotFile) -> bool:
    return _with_path(snapshot, lambda raw: raw[:-1] + b"\xe7")


def unknown_acl(snapshot: SnapshotFile) -> bool:
    """A znode refers to a list that the table does not have."""
    place = _of_clients(snapshot)
    if place is None:
        return False
    path, record = snapshot.nodes[place]
    tail = len(record) - 68
    snapshot.nodes[place] = path, record[:tail] + struct.pack(">q", 77) + record[tail + 8 :]
    return True


def spoiled(seed: int, spoil: Spoil, *, is_newest: bool) -> tuple[Life, Member]:
    """A life in which one exact snapshot, that others can speak about, was spoiled."""
    for attempt in range(1000):
        life = Life(seed * 1000 + attempt)
        life.live()
        life.end()
        for member in life.members:
            for snapshot in member.snapshots.values():
                is_exact = snapshot.fuzzy_until == snapshot.zxid > 0
                if not is_exact or (snapshot.zxid == member.base) != is_newest:
                    continue
                # Records have to lead on from it.
                is_told = corroborated(life, member, snapshot)
                if is_told and snapshot.zxid + 1 in dict(life.history) and spoil(snapshot):
                    return life, member
    raise AssertionError("no life has such a snapshot")


def audits(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[EnsembleResult]:
    """By the tree, by sums, and by sums with snapshots in parts."""
    results = []
    for records, whole in ((20_000, 1 << 30), (0, 1 << 30), (0, 0)):
        monkeypatch.setattr(split_snapshots, "WHOLE_BYTES", whole)
        monkeypatch.setattr(split_snapshots, "_CUT_BYTES", 600)
        monkeypatch.setattr("keepfast.pipeline.engine.auditing._SMALL_BYTES", 0)
        found = audit_files(run_here, discover([str(root)]), AuditOptions(tree_records=records))
        results.append(found.ensembles[0])
    return results


@pytest.mark.parametrize("is_newest", [True, False], ids=["newest", "older"])
@pytest.mark.parametrize(
    "spoil",
    [child_before_parent, root_last, no_slash_in_front, slash_at_the_end, not_utf8],
    ids=lambda spoil: spoil.__name__,
)
def test_snapshot_that_no_server_loads__is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, is_newest: bool
) -> None:
    life, member = spoiled(1, spoil, is_newest=is_newest)
    life.write_files(tmp_path)
    for result in audits(tmp_path, monkeypatch):
        found = {(finding.kind, finding.server) for finding in result.findings}
        assert ("snapshot-damaged", member.name) in found
        assert not [text for text in result.unchecked if "no longer" in text]


@pytest.mark.parametrize("is_newest", [True, False], ids=["newest", "older"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_acl_that_no_record_brought__is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, is_newest: bool
) -> None:
    life, member = spoiled(seed, unknown_acl, is_newest=is_newest)
    life.write_files(tmp_path)
    kinds = {"snapshot-contradicts-log", "wrong-snapshot", "acl-missing"}
    for result in audits(tmp_path, monkeypatch):
        grave = {(one.kind, one.server) for one in result.findings if one.severity.value != "note"}
        assert grave & {(kind, member.name) for kind in kinds}, result.findings
