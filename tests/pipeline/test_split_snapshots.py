"""Snapshots that are read in parts: the same facts as from one piece, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from zlib import adler32

import pytest

from keepfast.pipeline.engine.jobs import SparkRunner
from keepfast.pipeline.engine.stages import AuditOptions, PlacesDisk, audit_with, run_here, views_of
from keepfast.pipeline.files.layout import EnsembleFiles, discover
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.keyed import work_here
from keepfast.pipeline.scan import split_snapshots
from keepfast.pipeline.scan.facts import SnapshotFacts, snapshot_facts
from keepfast.pipeline.scan.split_snapshots import (
    SnapshotSplit,
    adler_joined,
    split_facts,
    split_of,
)
from keepfast.storage import parse_snapshot_name, snapshot_pieces
from keepfast.tree import Tree
from keepfast.wire import OPEN_ACL, CreateTxn, SessionId, TxnHeader, Zxid
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import healthy
from tests.pipeline.planting import damaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMED = AuditOptions(tree_records=0)


def split_at(path: Path, step: int) -> SnapshotSplit:
    zxid = parse_snapshot_name(path.name)
    assert zxid is not None
    status = path.stat()
    starts = tuple(range(0, max(1, status.st_size - step // 2), step))
    return SnapshotSplit(str(path), zxid[0], status.st_size, status.st_mtime, starts)


def in_parts(split: SnapshotSplit) -> SnapshotFacts | None:
    found = split_facts(split, work_here(split))
    return None if found is None else found[0]


def in_one(split: SnapshotSplit) -> SnapshotFacts:
    return snapshot_facts(PlacesDisk(), split.path, split.zxid, split.mtime)


def write(tree: Tree, directory: Path) -> Path:
    path = directory / f"snapshot.{tree.last_zxid:x}"
    with path.open("wb") as file, tree.freeze() as frozen:
        file.writelines(snapshot_pieces(frozen))
    return path


def tree_of(values: dict[str, bytes]) -> Tree:
    tree = Tree()
    for number, (path, data) in enumerate(values.items(), 1):
        header = TxnHeader(SessionId(7), 0, Zxid((1 << 32) + number), 1_700_000_000_000, 1)
        tree.apply(header, CreateTxn(path, data, OPEN_ACL, False, -1))
    return tree


def many(count: int = 3000) -> dict[str, bytes]:
    random = Random(4)
    top = {f"/d{number}": b"" for number in range(10)}
    paths = [f"/d{number % 10}/{'n' * (number % 400)}-{number}" for number in range(count)]
    return top | {path: random.randbytes(random.randrange(300)) for path in paths}


@pytest.mark.parametrize("step", [5000, 20_000, 1 << 20])
def test_parts__give_what_one_piece_gives(tmp_path: Path, step: int) -> None:
    split = split_at(write(tree_of(many()), tmp_path), step)
    whole, found = in_one(split), in_parts(split)
    assert whole.is_valid
    assert found is not None
    assert replace(found, starts=()) == whole
    assert len(found.starts) == len(split.starts)
    assert (found.starts[0], list(found.starts)) == (0, sorted(found.starts))


def test_every_damaged_byte__is_left_to_the_reader_of_one_piece(tmp_path: Path) -> None:
    path = write(tree_of(many(200)), tmp_path)
    raw = path.read_bytes()
    split = split_at(path, 8000)
    for offset in [*range(16, len(raw), len(raw) // 150), *range(len(raw) - 90, len(raw), 3)]:
        path.write_bytes(raw[:offset] + bytes([raw[offset] ^ 0x41]) + raw[offset + 1 :])
        assert in_parts(split) is None, offset
        assert not in_one(split).is_valid
    for size in (len(raw) - 1, len(raw) - 30, len(raw) // 2):
        path.write_bytes(raw[:size])
        assert in_parts(split) is None, size
    path.write_bytes(raw + b"x")
    assert in_parts(split) is None


def test_data_that_looks_like_znodes__cannot_deceive(tmp_path: Path) -> None:
    """A value that holds a part of a snapshot: whoever begins in it, begins at a wrong place."""
    inner = write(tree_of(many(400)), tmp_path).read_bytes()
    path = write(tree_of({"/a": b"1", "/snapshot": inner, "/z": b"2"}), tmp_path)
    split = split_at(path, len(inner) // 3)
    assert len(split.starts) > 2
    assert in_one(split).is_valid
    assert in_parts(split) is None


def test_znode_twice_or_without_its_parent__is_no_tree(tmp_path: Path) -> None:
    znode = b"\0\0\0\5/d%c/%c" + b"\0\0\0\1x" + b"\xff" * 8 + bytes(60)
    path = write(tree_of(many(300)), tmp_path)
    raw = path.read_bytes()
    end = raw.rindex(b"\0\0\0\1/", 0, len(raw) - 60)
    for extra, is_fine in ((b"1c", True), (b"xx", False), (b"1cc", False)):
        records = [znode.replace(b"%c/%c", b"%c/%c" % (extra[:1], one)) for one in _each(extra[1:])]
        content = raw[:end] + b"".join(records) + b"\0\0\0\1/"
        sealed = content + adler32(content).to_bytes(8) + b"\0\0\0\1/"
        path.write_bytes(sealed)
        assert (in_parts(split_at(path, 9000)) is not None) == is_fine, extra


def _each(raw: bytes) -> list[bytes]:
    return [raw[at : at + 1] for at in range(len(raw))]


def test_only_large_files_that_are_not_packed__are_cut() -> None:
    def part(name: str, size: int) -> Part:
        return Part("e", "s", f"/x/{name}", "snapshot", 1, size, 0.0)

    assert split_of(part("snapshot.1", split_snapshots.WHOLE_BYTES)) is None
    assert split_of(part("snapshot.1.gz", 1 << 40)) is None
    split = split_of(part("snapshot.1", 1 << 30))
    assert split is not None
    assert split.starts[0] == 0
    assert len(split.starts) == 16


def test_adler_of_two_pieces() -> None:
    raw = Random(1).randbytes(200_000)
    for cut in (0, 1, 5, 70_000, 199_999):
        joined = adler_joined(adler32(raw[:cut]), adler32(raw[cut:]), len(raw) - cut)
        assert joined == adler32(raw)


@pytest.fixture(name="tiny")
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """All snapshots are large ones."""
    monkeypatch.setattr(split_snapshots, "WHOLE_BYTES", 0)
    monkeypatch.setattr(split_snapshots, "_CUT_BYTES", 300)


def cut_snapshots(ensembles: list[EnsembleFiles]) -> int:
    """How many are read in two parts or more."""
    servers = [server for view in views_of(run_here, ensembles) for server in view.servers]
    return sum(len(snapshot.starts) > 1 for server in servers for snapshot in server.snapshots)


def test_audits_in_parts__find_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    places = [CASES_DIR / name for name in case_names()[::4]]
    for seed in range(4):
        places.append(healthy(seed).write_files(tmp_path / f"healthy-{seed}"))
        places.append(damaged(seed)[0].write_files(tmp_path / f"damaged-{seed}"))
    ensembles = [files for place in places for files in discover([str(place)])]
    whole = audit_with(run_here, ensembles, SUMMED)
    request.getfixturevalue("tiny")
    assert cut_snapshots(ensembles) > 20
    for files, expected in zip(ensembles, whole, strict=True):
        assert audit_with(run_here, [files], SUMMED)[0] == expected, files.name


@pytest.mark.spark
@pytest.mark.usefixtures("tiny")
def test_on_spark__several_ensembles_in_parts_find_the_same(
    tmp_path: Path, spark: SparkSession
) -> None:
    healthy(1).write_files(tmp_path / "healthy")
    damaged(2)[0].write_files(tmp_path / "damaged")
    ensembles = discover([str(tmp_path)])
    assert cut_snapshots(ensembles) > 2
    on_spark = audit_with(SparkRunner(spark), ensembles, SUMMED)
    assert on_spark == audit_with(run_here, ensembles, SUMMED)
