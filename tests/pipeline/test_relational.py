"""The relational replay against the tree: znode by znode, digest by digest, finding by finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from keepfast.pipeline import keyed
from keepfast.pipeline.decode.path_keys import path_keys
from keepfast.pipeline.engine.keyed_tasks import tasks_for
from keepfast.pipeline.engine.shuffles import finished_in_columns, keyed_jobs
from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.findings.document import EnsembleResult, Verdict
from keepfast.pipeline.replay import relational
from keepfast.pipeline.replay.digest_sums import chain_trouble
from keepfast.pipeline.replay.relational import (
    ChainPlan,
    ChainSums,
    LogPart,
    SnapshotCut,
    collected,
    sums_here,
)
from keepfast.storage import frame
from keepfast.tree import (
    CONFIG,
    Tree,
    acl_weight,
    counted_crc,
    encode_node,
    make_node,
    with_owner,
)
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_entry,
    encode_entry,
    encode_txn_body,
)
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import LOG_HEADER, VERSIONS, Life, healthy
from tests.pipeline.planting import damaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASK = (1 << 64) - 1
SUMMED = AuditOptions(tree_records=0)


def state_of(tree: Tree) -> int:
    """What the znodes of a tree add up to."""
    total = 0
    for path in tree.paths():
        node = tree.find(path)
        if path != CONFIG and node is not None:
            crc = counted_crc(path, node.data, node.stat)
            total += (crc + 1) * acl_weight(tree.acl_of(node))
    return total & _MASK


def write_log(directory: Path, entries: Iterable[tuple[int, bytes]]) -> LogPart:
    """One log with all records."""
    listed = list(entries)
    path = directory / f"log.{listed[0][0]:x}"
    path.write_bytes(LOG_HEADER + b"".join(frame(entry) for _, entry in listed) + bytes(512))
    return LogPart(str(path), 16, path.stat().st_size, listed[0][0], listed[-1][0])


def plan_of(part: LogPart, cuts: Iterable[int], *, closes_lists: bool = True) -> ChainPlan:
    snapshots = tuple(SnapshotCut("", zxid, zxid) for zxid in cuts)
    return ChainPlan((part,), None, 0, 1, snapshots, (), closes_lists, 1)


def states_at(sums: ChainSums) -> list[int]:
    """The state at each cut."""
    return [int(one) for one in np.cumsum(sums.states, dtype=np.uint64)]


@pytest.mark.parametrize("version", VERSIONS)
def test_random_histories__the_state_at_every_zxid_is_the_trees(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        life = Life(seed, version)
        expected: list[tuple[int, int]] = []
        for _ in range(12):
            life.write(1 + seed * 3)
            expected.append((life.zxid, state_of(life.tree)))
            life.elect()
        part = write_log(tmp_path, life.history)
        plan = plan_of(part, [zxid for zxid, _ in expected], closes_lists=life.has_digests)
        sums = sums_here(plan)
        assert states_at(sums) == [state for _, state in expected], seed
        with monkeypatch.context() as patch:
            # All that is kept between the steps waits in a file.
            patch.setattr(keyed, "MAX_HELD_BYTES", 1000)
            assert sums_here(plan).spans == sums.spans
            assert states_at(sums_here(plan)) == states_at(sums)
        assert sums.odd == 0
        assert sums.spans[0].reach == life.zxid


class Written:
    """A history of bodies, applied to a tree."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.entries: list[tuple[int, bytes]] = []

    def add(self, type_: int, body: TxnBody) -> None:
        zxid = Zxid((1 << 32) + len(self.entries) + 1)
        header = TxnHeader(SessionId(7), 0, zxid, 1_700_000_000_000 + len(self.entries), type_)
        self.tree.apply(header, body)
        # Behind the create record of old there is no room for a digest.
        digest = None if isinstance(body, CreateTxnV0) else TxnDigest(2, self.tree.digest)
        self.entries.append((zxid, encode_entry(LogEntry(header, body, digest))))

    def check(self, directory: Path) -> None:
        sums = sums_here(plan_of(write_log(directory, self.entries), [self.entries[-1][0]]))
        assert states_at(sums) == [state_of(self.tree)]
        assert (sums.odd, chain_trouble(sums.spans, sums.before)) == (0, [])


def test_old_create_record__the_parents_cversion_is_counted(tmp_path: Path) -> None:
    written = Written()
    for name in ("/a", "/b", "/a/c"):
        written.add(OpCode.CREATE, CreateTxnV0(name, b"v", OPEN_ACL, False))
    written.add(OpCode.CREATE, CreateTxn("/d", b"", OPEN_ACL, False, 3))
    written.add(OpCode.CREATE, CreateTxnV0("/e", b"", OPEN_ACL, False))
    written.check(tmp_path)


def test_one_very_hot_path(tmp_path: Path) -> None:
    written = Written()
    written.add(OpCode.CREATE, CreateTxn("/hot", b"", OPEN_ACL, False, 1))
    for version in range(1, 3000):
        written.add(OpCode.SET_DATA, SetDataTxn("/hot", b"%d" % version, version))
    written.check(tmp_path)


def test_multi_of_more_than_256_operations_and_odd_paths(tmp_path: Path) -> None:
    written = Written()
    names = [f"/n{number}" for number in range(300)]
    subs = [
        SubTxn(OpCode.CREATE, encode_txn_body(CreateTxn(name, b"x", OPEN_ACL, False, number + 1)))
        for number, name in enumerate(names)
    ]
    written.add(OpCode.MULTI, MultiTxn(tuple(subs)))
    # A character above U+FFFF, one of two bytes, and paths shorter than a word.
    for number, name in enumerate(("/\N{GRINNING FACE}", "/\xe9", "/x", "/xy")):
        written.add(OpCode.CREATE, CreateTxn(name, b"", OPEN_ACL, False, 301 + number))
    written.add(OpCode.DELETE, DeleteTxn("/x"))
    written.add(OpCode.SET_DATA, SetDataTxn("/", b"root", 1))
    written.check(tmp_path)
    assert len(np.unique(path_keys([b"/x", b"/xy", b"/", b"/xyz"]))) == 4


def test_many_parts_and_spans__digests_chain_over_records_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    for number in range(300):
        # Of the old ones, behind which there is no digest, some end a part, and some a span.
        body = CreateTxnV0 if number % 7 < 3 else CreateTxn
        more = () if body is CreateTxnV0 else (number + 1,)
        written.add(OpCode.CREATE, body(f"/n{number}", b"v" * 20, OPEN_ACL, False, *more))
    whole = write_log(tmp_path, written.entries)
    monkeypatch.setattr(relational, "_SPAN_PARTS", 2)
    for step in (120, 400, 4000):
        starts = range(16, whole.stop, step)
        parts = tuple(replace(whole, start=at, stop=min(at + step, whole.stop)) for at in starts)
        sums = sums_here(replace(plan_of(whole, [whole.last]), parts=parts))
        assert len(sums.spans) > 3
        assert (sums.odd, chain_trouble(sums.spans, sums.before)) == (0, [])
        assert chain_trouble(sums.spans, sums.before + 1) != []
        assert states_at(sums) == [state_of(written.tree)]


def both(root: Path) -> tuple[EnsembleResult, EnsembleResult]:
    (files,) = discover([str(root)])
    return tuple(audit_with(run_here, [files], one)[0] for one in (AuditOptions(), SUMMED))  # type: ignore[return-value]


@pytest.mark.parametrize("name", case_names())
def test_case__sums_and_tree_find_the_same(name: str) -> None:
    on_tree, summed = both(CASES_DIR / name)
    assert summed == on_tree


@pytest.mark.parametrize("seeds", [range(12), range(40, 52)], ids=["0-11", "40-51"])
def test_lives__sums_and_tree_find_the_same(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        for kind, life in (("healthy", healthy(seed)), ("damaged", damaged(seed)[0])):
            on_tree, summed = both(life.write_files(tmp_path / f"{kind}-{seed}"))
            assert summed == on_tree, (kind, seed)


def test_wrong_snapshot_before_the_first_record__is_found(tmp_path: Path) -> None:
    """Above the former limit of the replay nothing was held against it."""
    life = Life(3, "3.9")
    life.write(80)
    victim = life.members[1]
    snapshot = victim.snapshots[0]
    path, record = snapshot.nodes[1]
    snapshot.nodes[1] = (path, record[:-1] + b"\1")  # its pzxid
    extra = b"\0\0\0\5/nope" + b"\0\0\0\1x" + b"\xff" * 8 + bytes(60)
    snapshot.nodes.append(("/nope", extra))
    result = both(life.write_files(tmp_path))[1]
    assert result.verdict in (Verdict.AT_RISK, Verdict.DIVERGED)
    (finding,) = (f for f in result.findings if f.kind == "snapshot-contradicts-log")
    assert (finding.server, finding.paths) == (victim.name, ("/nope",))


@pytest.mark.parametrize("is_orphan", [False, True])
def test_wrong_snapshot_that_a_purged_history_begins_with__its_server_is_compared(
    tmp_path: Path, is_orphan: bool
) -> None:
    """Sums hold all others against it, so it counted as right, and nobody looked at its server."""
    life = Life(3, "3.9")
    life.write(60)
    for member in life.members:
        member.logs, member.is_open = [], False
        member.snapshots = {life.zxid: life.exact(member, life.zxid)}
    life.write(40)
    first, *others = life.members
    for member in others:
        life.store(member, life.exact(member, life.zxid))
    life.write(10)
    snapshot = first.snapshots[first.base]
    place = next(index for index, (path, _) in enumerate(snapshot.nodes) if path.count("/") == 2)
    path = snapshot.nodes[place][0]
    node = life.tree.find(path)
    assert node is not None
    record = encode_node(path, make_node(b"altered", node.acl, node.stat))
    if is_orphan:
        record += encode_node("/lost", make_node(b"", -1, with_owner(bytes(60), 0xDEAD0000)))
    snapshot.nodes[place] = (path, record)
    on_tree, summed = both(life.write_files(tmp_path))
    assert summed == on_tree
    kinds = {f.kind for f in summed.findings if f.server == first.name}
    assert kinds >= {"wrong-snapshot", "snapshot-contradicts-log"}
    assert ("orphan-ephemeral" in kinds) == is_orphan


def test_digest_that_is_off__its_range_alone_is_looked_at(tmp_path: Path) -> None:
    life = Life(8, "3.9")
    for _ in range(5):
        life.write(30)
        life.elect()
    entries = [(zxid, decode_entry(raw)) for zxid, raw in life.history]
    stated = [index for index, (zxid, one) in enumerate(entries) if zxid >> 32 == 3 and one.digest]
    zxid, entry = entries[stated[4]]
    entries[stated[4]] = (zxid, entry._replace(digest=TxnDigest(2, 12345)))
    # Some that the generator puts there by itself are put right.
    tree = Tree()
    for index, (_, one) in enumerate(entries):
        tree.apply(one.header, one.body)
        if one.digest is not None and index != stated[4]:
            entries[index] = (entries[index][0], one._replace(digest=TxnDigest(2, tree.digest)))
    part = write_log(tmp_path, [(at, encode_entry(one)) for at, one in entries])
    sums = sums_here(plan_of(part, []))
    trouble = chain_trouble(sums.spans, sums.before)
    assert trouble == [(entries[stated[0]][0], entries[stated[-1]][0])]


def test_digest_asked_for_where_a_failure_is_logged__is_the_one_before_it(tmp_path: Path) -> None:
    create: tuple[int, TxnBody] = (OpCode.CREATE, CreateTxn("/a", b"", OPEN_ACL, False, 1))
    failure: tuple[int, TxnBody] = (OpCode.ERROR, ErrorTxn(-101))
    change: tuple[int, TxnBody] = (OpCode.SET_DATA, SetDataTxn("/a", b"x", 1))
    stated = {2: 7, 5: 9}
    entries = [
        (
            zxid,
            encode_entry(
                LogEntry(
                    TxnHeader(SessionId(1), 1, Zxid(zxid), 1, type_),
                    body,
                    TxnDigest(2, stated[zxid]) if zxid in stated else None,
                )
            ),
        )
        for zxid, (type_, body) in enumerate([failure, create, failure, change, failure], 1)
    ]
    plan = replace(plan_of(write_log(tmp_path, entries), []), digests_at=(1, 2, 3, 4, 5, 6))
    (span,) = sums_here(plan).spans
    # 1: nothing is stated before it. 4: it changes something, and states nothing. 6: no record.
    assert span.wanted == [(2, 7), (3, 7), (5, 9)]


def test_digests_of_another_version__are_named_as_not_checked(tmp_path: Path) -> None:
    life = Life(8, "3.9")
    life.live(4)
    for log in (log for member in life.members for log in member.logs):
        for index, (zxid, raw) in enumerate(log.entries):
            entry = decode_entry(raw)
            if entry.digest is not None and zxid >> 32 == life.epoch:
                fresh = entry._replace(digest=TxnDigest(3, zxid))
                log.entries[index] = (zxid, encode_entry(fresh))
    for result in both(life.write_files(tmp_path)):
        assert result.verdict is Verdict.CONSISTENT
        assert result.unchecked == (
            "the records' digests of another version than 2 were not checked",
        )


@pytest.mark.spark
@pytest.mark.parametrize("version", ["3.4", "3.9"])
def test_on_spark__the_sums_are_the_same(tmp_path: Path, spark: SparkSession, version: str) -> None:
    life = Life(11, version)
    cuts = []
    for _ in range(6):
        life.write(Random(5).randrange(20, 60))
        cuts.append(life.zxid)
    plan = plan_of(write_log(tmp_path, life.history), cuts, closes_lists=life.has_digests)
    other = replace(plan, cuts=plan.cuts[:1])
    here = [sums_here(plan), sums_here(other)]
    works = (plan, other)
    found = keyed_jobs(spark, works, 2)
    there = [collected(*one) for one in zip(works, found, strict=True)]
    assert list(map(states_at, there)) == list(map(states_at, here))
    assert [one.spans for one in there] == [one.spans for one in here]
    assert [one.before for one in there] == [one.before for one in here]
    # As on Spark Connect, which has no RDDs.
    columns: list[keyed.Found] = [{} for _ in works]
    for job, key, blobs in finished_in_columns(spark, works, tasks_for(works, 2)):
        columns[job][key] = blobs
    assert columns == found
