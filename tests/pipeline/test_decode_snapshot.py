"""The columnar decoder of snapshots against `storage.load_tree`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from keepfast.pipeline.decode import (
    FileOrigin,
    SnapshotReader,
    open_file,
    snapshots,
    walk,
)
from keepfast.pipeline.schemas import ZNODE_SCHEMA
from keepfast.storage import (
    BytesFile,
    Compression,
    RealDisk,
    SnapshotInfo,
    load_tree,
    snapshot_pieces,
)
from keepfast.storage.compression import packer
from keepfast.tree import CONFIG, AclTable, Tree, persisted
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    CorruptSnapshot,
    CreateTxn,
    Id,
    SessionId,
    TxnHeader,
    make_zxid,
)
from tests.cases import CASES_DIR, case_names

_START = datetime(1970, 1, 1, tzinfo=UTC)


def read(path: Path) -> tuple[list[dict[str, Any]], SnapshotReader]:
    with open_file(str(path)) as file:
        reader = SnapshotReader(file, FileOrigin("e", "s", str(path)))
        rows = [row for batch in reader.batches() for row in batch.to_pylist()]
    return rows, reader


def expected(tree: Tree) -> dict[str, dict[str, Any]]:
    rows = {}
    for path in tree.paths():
        node = tree.find(path)
        assert node is not None
        stat = persisted(node)
        rows[path] = {
            "data": node.data,
            "acl": [
                {"perms": acl.perms, "scheme": acl.id.scheme, "id": acl.id.id}
                for acl in tree.acl_of(node)
            ],
            "czxid": stat.czxid,
            "mzxid": stat.mzxid,
            "pzxid": stat.pzxid,
            "ctime": _START + timedelta(milliseconds=stat.ctime),
            "mtime": _START + timedelta(milliseconds=stat.mtime),
            "version": stat.version,
            "cversion": stat.cversion,
            "aversion": stat.aversion,
            "ephemeral_owner": stat.ephemeral_owner,
        }
    return rows


def check_equal(path: Path) -> None:
    rows, reader = read(path)
    try:
        tree, info, _ = load_tree(RealDisk(), str(path), is_fuzzy=True)
    except CorruptSnapshot as error:
        assert reader.problem == error.reason  # noqa: PT017 - it is about the reader
        assert rows[-1]["problem"] == error.reason  # noqa: PT017
        return
    assert reader.problem is None
    assert reader.info == info
    wanted = expected(tree)
    columns = next(iter(wanted.values()))
    given = {row["path"]: {name: row[name] for name in columns} for row in rows}
    assert len(given) == len(rows) == reader.node_count
    # Loading makes built-in znodes that files of old servers do not have.
    assert {CONFIG, "/zookeeper/quota", "/zookeeper"} >= wanted.keys() - given.keys()
    for name, row in given.items():
        if name.endswith("/zookeeper_stats"):
            # Loading counts quotas anew; the file has what they were while it was written.
            wanted[name]["data"] = row["data"]
        assert row == wanted[name]


@pytest.mark.parametrize("name", case_names())
def test_snapshots_of_apache_servers(name: str) -> None:
    for path in sorted((CASES_DIR / name).glob("*/version-2/snapshot.*")):
        check_equal(path)


def large_tree(count: int, acls: AclTable | None = None) -> Tree:
    tree = Tree(acls=acls)
    choose = random.Random(3)
    for number in range(count):
        zxid = number + 1
        header = TxnHeader(SessionId(7), 0, make_zxid(1, zxid), 1_790_000_000_000 + zxid, 1)
        acl = OPEN_ACL if number % 3 else (ACL(1, Id("ip", f"10.0.0.{number % 9}")),)
        data = choose.choice((None, b"", b"\0\0\0\4/abc", choose.randbytes(choose.randrange(300))))
        path = f"/znode-{number:05d}-é" if number % 7 else f"/znode-{number:05d}"
        tree.apply(header, CreateTxn(path, data, acl, False, number + 1))
    tree.open_session(0x55, 4000)
    return tree


@contextmanager
def snapshot_of(tree: Tree, directory: Path, packing: Compression) -> Iterator[Path]:
    path = directory / f"snapshot.{tree.last_zxid:x}{packing.value}"
    pack = packer(packing)
    with path.open("wb") as file, tree.freeze() as frozen:
        for piece in snapshot_pieces(frozen):
            file.write(pack.pack(piece))
        file.write(pack.finish())
    yield path


@pytest.mark.parametrize("packing", list(Compression))
@pytest.mark.parametrize("window", [8 << 20, 3000])
def test_our_own_snapshots__packed_and_in_small_windows(
    packing: Compression, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "_WINDOW_SIZE", window)
    monkeypatch.setattr(snapshots, "_GUESS_DISTANCE", 500)
    monkeypatch.setattr(walk, "_MIN_WALKERS", 2)
    with snapshot_of(large_tree(700), tmp_path, packing) as path:
        check_equal(path)
        _, reader = read(path)
        assert reader.sessions == {0x55: 4000}


def test_flipped_bytes_and_cuts__are_noticed(tmp_path: Path) -> None:
    with snapshot_of(large_tree(2), tmp_path, Compression.NONE) as path:
        whole = path.read_bytes()
    origin = FileOrigin(file="snapshot.100000002")

    def problem(data: bytes) -> tuple[str | None, SnapshotInfo | None]:
        reader = SnapshotReader(BytesFile(data), origin)
        for batch in reader.batches():
            batch.validate()
        return reader.problem, reader.info

    assert problem(whole)[0] is None
    for place in range(0, len(whole), 3):
        # Version and database id are checked by nobody, but the seals cover them.
        assert problem(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])[0]
        reason, info = problem(whole[:place])
        # Cut right behind a seal it is the file of an older version.
        assert reason is not None or info != problem(whole)[1]


def test_wanted_columns_only(tmp_path: Path) -> None:
    with (
        snapshot_of(large_tree(20), tmp_path, Compression.NONE) as path,
        open_file(str(path)) as file,
    ):
        reader = SnapshotReader(file, FileOrigin("e", "s", str(path)))
        (batch,) = reader.batches(["path", "mzxid"])
    assert batch.schema.names == ["path", "mzxid"]
    whole, _ = read(path)
    assert [row["path"] for row in whole] == batch.column("path").to_pylist()
    assert set(whole[0]) == set(ZNODE_SCHEMA.names)
