"""Snapshots: read as Apache wrote them, written so that they read the same, refused if cut."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest

from keepfast.sim import MemoryDisk
from keepfast.storage import Compression, RealDisk, load_tree, snapshot_pieces
from keepfast.tree import Tree, make_node
from keepfast.wire import READ_ACL, CorruptSnapshot, Zxid
from tests.cases import CASES_DIR
from tests.storage.directories import line, packed, snapshot_bytes, zxid

HEALTHY = sorted(
    path
    for case in ("healthy-plain-3.4.14", "healthy-plain-3.9.5", "healthy-plain-3.9.5-gz")
    for path in (CASES_DIR / case / "0").rglob("snapshot.*")
)
HISTORY = line("1.1-1.3")


def sample() -> Tree:
    tree = HISTORY.tree_at(zxid("1.3"))
    tree.open_session(0x51, 30_000)
    return tree


def load(data: bytes, name: str = "snapshot.100000003", is_fuzzy: bool = False) -> Tree:
    disk = MemoryDisk()
    disk.put(f"/{name}", data)
    return load_tree(disk, f"/{name}", is_fuzzy=is_fuzzy)[0]


def written(tree: Tree) -> bytes:
    with tree.freeze() as frozen:
        return b"".join(snapshot_pieces(frozen))


def state(tree: Tree) -> tuple[int, int, int, dict[int, int]]:
    return tree.last_zxid, tree.digest, tree.state_digest, tree.sessions


def test_fresh_snapshot__is_what_a_live_server_wrote() -> None:
    data = snapshot_bytes(Tree())
    assert len(data) == 478
    seals = [data[at + 4 : at + 8].hex() for at in (0x19B, 0x1BC, 0x1D1)]
    assert seals == ["b8a23b49", "95b93d59", "bde83f6d"]
    # Ours may have its znodes in another order, and states the digest of the empty tree as well.
    assert len(written(Tree())) == 478
    assert state(load(written(Tree()), "snapshot.0")) == state(load(data, "snapshot.0"))


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("sections", [1, 2, 3])
def test_each_format__same_tree(sections: int, compression: Compression) -> None:
    tree = sample()
    data = packed(snapshot_bytes(tree, sections=sections), compression)
    assert state(load(data, f"snapshot.100000003{compression.value}")) == state(tree)


def test_sections__are_told_apart() -> None:
    disk = MemoryDisk()
    found = []
    for sections in (1, 2, 3):
        disk.put("/snapshot.100000003", snapshot_bytes(sample(), sections=sections))
        found.append(load_tree(disk, "/snapshot.100000003")[1])
    assert [info.digest for info in found] == [None, sample().digest, sample().digest]
    assert [info.last_processed for info in found] == [None, None, zxid("1.3")]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: f"{path.parts[-4]}-{path.name}")
def test_snapshot_of_a_live_server__round_trip(path: Path) -> None:
    tree, info, seen = load_tree(RealDisk(), str(path), is_fuzzy=True)
    again = load(written(tree), f"snapshot.{info.zxid:x}", is_fuzzy=True)
    assert state(again) == state(tree)
    assert seen >= 0
    if info.digest is not None and seen <= info.zxid == info.digest_zxid:
        assert tree.digest == info.digest


@pytest.mark.parametrize("sections", [1, 2, 3])
def test_cut_anywhere__refused_but_for_an_older_format(sections: int) -> None:
    data = snapshot_bytes(sample(), sections=sections)
    # Behind a seal begins a section that older versions did not write.
    wholes = {len(snapshot_bytes(sample(), sections=fewer)) for fewer in range(1, sections)}
    for size in range(len(data)):
        if size in wholes:
            assert state(load(data[:size])) == state(sample())
            continue
        with pytest.raises(CorruptSnapshot):
            load(data[:size])


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY])
def test_packed_and_cut_anywhere__refused(compression: Compression) -> None:
    data = packed(snapshot_bytes(sample()), compression)
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            load(data[:size], f"snapshot.100000003{compression.value}")


def test_any_byte_changed__refused() -> None:
    data = snapshot_bytes(sample())
    for at in range(len(data)):
        for flip in (0xFF, 1 << at % 8):
            with pytest.raises(CorruptSnapshot):
                load(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


def test_bytes_behind_the_last_seal__refused() -> None:
    for more in (b"\0", bytes(600), b"ZKSN"):
        with pytest.raises(CorruptSnapshot, match="after its last seal"):
            load(snapshot_bytes(sample()) + more)


@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0x3FFFFFFF, 0x02345678, -2, -(1 << 31)])
def test_absurd_number_in_any_field__refused_and_memory_is_bounded(claim: int) -> None:
    data = snapshot_bytes(sample())
    tracemalloc.start()
    try:
        for at in range(16, len(data) - 4):
            with pytest.raises(CorruptSnapshot):
                load(data[:at] + struct.pack(">i", claim) + data[at + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_not_a_snapshot__refused() -> None:
    for data in (b"", b"ZKSN", b"ZKLG" + bytes(600), bytes(600), b"\x1f\x8b" + bytes(10)):
        for name in ("snapshot.1", "snapshot.1.gz", "snapshot.1.snappy"):
            with pytest.raises(CorruptSnapshot):
                load(data, name)


def test_missing_file__refused() -> None:
    with pytest.raises(CorruptSnapshot, match="cannot be read"):
        load_tree(MemoryDisk(), "/snapshot.1")


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sections", [2, 3])
def test_older_content_under_a_newer_name__refused(sections: int) -> None:
    """As a copy under the wrong name, or two files that changed places, would have it."""
    data = snapshot_bytes(sample(), sections=sections)
    with pytest.raises(CorruptSnapshot, match="named 0x100000009"):
        load(data, "snapshot.100000009")
    assert load(data, "snapshot.100000002").digest == sample().digest


def test_epoch_begun_without_a_record__older_digest_is_normal() -> None:
    tree = sample()
    load(snapshot_bytes(tree, sections=2), "snapshot.200000000")
    tree.advance(zxid("2.0"))
    load(snapshot_bytes(tree), "snapshot.200000000")


# -- ACLs ----------------------------------------------------------------------------------------


def test_znode_whose_acl_is_not_in_the_table__only_in_a_fuzzy_snapshot() -> None:
    tree = sample()
    node = tree.find("/1.1")
    assert node is not None
    node.packed = make_node(node.data, 7, node.stat).packed
    data = snapshot_bytes(tree)
    with pytest.raises(CorruptSnapshot, match="ACL 7"):
        load(data)
    loaded = load(data, is_fuzzy=True)
    assert loaded.acls.unknown_keys == {7}
    assert loaded.acl_of(loaded.find("/1.1") or node) != READ_ACL
    assert loaded.last_zxid == Zxid(zxid("1.3"))
