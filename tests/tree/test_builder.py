"""Putting a tree together from a snapshot's parts; what is not a tree is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.tree import Tree, TreeBuilder, TreeError, encode_node
from keepfast.wire import OPEN_ACL, READ_ACL, MalformedRecord, Zxid
from tests.tree.copies import builder_for
from tests.tree.model import Op, assert_same, histories, tree_of, write_history
from tests.tree.znode_records import add_node

END = b"\0\0\0\1/"
ZERO = bytes(60)


def stat(**numbers: int) -> bytes:
    names = (
        "czxid",
        "mzxid",
        "ctime",
        "mtime",
        "version",
        "cversion",
        "aversion",
        "owner",
        "pzxid",
    )
    return struct.pack(">qqqqiiiqq", *(numbers.get(name, 0) for name in names))


def rooted() -> TreeBuilder:
    builder = TreeBuilder()
    builder.add_acl(1, READ_ACL)
    add_node(builder, "", b"", -1, ZERO)
    return builder


@settings(max_examples=60)
@given(histories, st.integers(1, 200))
def test_copy_read_in_pieces_of_any_size__is_the_tree(wishes: list[Op], size: int) -> None:
    historian = write_history(wishes)
    tree = tree_of(historian.entries)
    with tree.freeze() as frozen:
        builder = builder_for(frozen)
        raw = b"".join(frozen.node_chunks()) + END + b"the seal"
    waiting = b""
    for start in range(0, len(raw), size):
        waiting += raw[start : start + size]
        waiting = waiting[builder.add_encoded(waiting) :]
        if builder.is_complete:
            waiting += raw[start + size :]
            break
    assert waiting == b"the seal"
    assert builder.node_count == tree.node_count
    assert_same(builder.finish(tree.last_zxid), historian.model)


def test_copy_cut_at_every_byte__only_the_whole_is_complete() -> None:
    with Tree().freeze() as frozen:
        raw = b"".join(frozen.node_chunks()) + END
        for cut in range(len(raw) + 1):
            builder = builder_for(frozen)
            behind = builder.add_encoded(raw[:cut])
            assert builder.is_complete == (cut == len(raw))
            assert builder.add_encoded(raw, behind) == len(raw)
            assert builder.finish(Zxid(0)).digest == frozen.digest


def test_one_by_one__is_the_same_tree() -> None:
    builder = rooted()
    builder.add_session(7, 4000)
    add_node(builder, "/zookeeper", b"", -1, ZERO)
    add_node(builder, "/zookeeper/config", b"", 1, stat(aversion=-1))
    add_node(builder, "/zookeeper/quota", b"", -1, ZERO)
    tree = builder.finish(Zxid(3))
    fresh = Tree()
    fresh.open_session(7, 4000)
    assert (tree.digest, tree.state_digest) == (fresh.digest, fresh.state_digest)
    assert (tree.data_size, tree.node_count) == (fresh.data_size, fresh.node_count)
    assert tree.last_zxid == 3


def test_file_of_3_4__built_in_znodes_are_made() -> None:
    """Without /zookeeper/config, as 3.4 writes it; and with the root alone."""
    builder = rooted()
    add_node(builder, "/zookeeper", b"", -1, ZERO)
    add_node(builder, "/zookeeper/quota", b"", -1, ZERO)
    fresh = Tree()
    for tree in (builder.finish(Zxid(0)), rooted().finish(Zxid(0))):
        assert (tree.digest, tree.state_digest) == (fresh.digest, fresh.state_digest)


def test_kinds_of_owners__are_told_apart() -> None:
    builder = rooted()
    owners = {
        "/session": 0x100001234560000,
        # A session of server 255: the reserved bits are a clock, not zero.
        "/session255": -(1 << 56) | 0x0012_3456_789A_0000,
        "/container": -(1 << 63),
        "/ttl": -(1 << 56) | 5000,
    }
    for path, owner in owners.items():
        add_node(builder, path, None, -1, stat(owner=owner))
    tree = builder.finish(Zxid(1))
    assert tree.ephemerals == {
        owners["/session"]: {"/session"},
        owners["/session255"]: {"/session255"},
    }
    assert tree.containers == {"/container"}
    assert tree.ttls == {"/ttl"}


def test_max_zxid_seen__over_all_but_the_configuration() -> None:
    builder = rooted()
    add_node(builder, "/a", b"", -1, stat(czxid=5, mzxid=9, pzxid=6))
    assert builder.max_zxid_seen == 9
    add_node(builder, "/zookeeper", b"", -1, ZERO)
    add_node(builder, "/zookeeper/config", b"", -1, stat(mzxid=999))
    add_node(builder, "/zookeeper/x", b"", -1, stat(pzxid=12))
    assert builder.max_zxid_seen == 12
    add_node(builder, "/b", b"", -1, stat(pzxid=11))
    assert builder.max_zxid_seen == 12


def test_unused_acls__are_dropped_and_keys_go_on_behind_the_last() -> None:
    builder = rooted()
    builder.add_acl(9, OPEN_ACL)
    add_node(builder, "/a", b"", 1, ZERO)
    tree = builder.finish(Zxid(1))
    assert tree.acls.entries() == {1: READ_ACL}
    assert tree.acls.acquire(OPEN_ACL) == 10


def test_quotas__are_counted_anew() -> None:
    builder = rooted()
    for path, data in (
        ("/p", b"12"),
        ("/p/q", b"345"),
        ("/zookeeper", b""),
        ("/zookeeper/quota", b""),
        ("/zookeeper/quota/p", b""),
        ("/zookeeper/quota/p/zookeeper_limits", b"count=9,bytes=9"),
        ("/zookeeper/quota/p/zookeeper_stats", b"count=77,bytes=77"),
    ):
        add_node(builder, path, data, -1, ZERO)
    tree = builder.finish(Zxid(1))
    node = tree.find("/zookeeper/quota/p/zookeeper_stats")
    assert node is not None
    assert node.data == b"count=2,bytes=5"
    assert tree.quotas == {"/p"}


def test_session_twice__refused() -> None:
    builder = TreeBuilder()
    builder.add_session(1, 2)
    with pytest.raises(TreeError, match="0x1 is there twice"):
        builder.add_session(1, 3)


@pytest.mark.parametrize("key", [1, -1])
def test_acl_key_twice__refused(key: int) -> None:
    with pytest.raises(TreeError, match="twice"):
        rooted().add_acl(key, OPEN_ACL)


@pytest.mark.parametrize(
    ("path", "key", "reason"),
    [
        ("/a/b", -1, "parent"),
        ("/a", 2, "ACL 2"),
        ("", -1, "twice"),
        ("/x", -1, "twice"),
        ("a", -1, "not a path"),
        ("/x/", -1, "not a path"),
    ],
)
def test_node_that_does_not_fit__refused(path: str, key: int, reason: str) -> None:
    builder = rooted()
    add_node(builder, "/x", b"", -1, ZERO)
    with pytest.raises(TreeError, match=reason):
        add_node(builder, path, b"", key, ZERO)


def test_no_root__refused() -> None:
    with pytest.raises(TreeError, match="root"):
        TreeBuilder().finish(Zxid(0))
    with pytest.raises(TreeError, match="parent"):
        add_node(TreeBuilder(), "/a", b"", -1, ZERO)


def lengths(path: int, data: int) -> bytes:
    return struct.pack(">i", path) + b"/a" + struct.pack(">i", data)


@pytest.mark.parametrize(
    "record",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -9) + bytes(200),
        struct.pack(">i", -1 << 31) + bytes(200),
        struct.pack(">i", 2**31 - 1),
        lengths(2, -2),
        lengths(2, -2) + bytes(200),
        lengths(2, 2**31 - 1),
        b"\0\0\0\2/\xff" + struct.pack(">i", -1) + bytes(68),
    ],
)
def test_bytes_that_are_no_record__refused_with_their_offset(record: bytes) -> None:
    builder = rooted()
    node = Tree().find("/zookeeper")
    assert node is not None
    good = encode_node("/good", node)
    with pytest.raises(MalformedRecord) as caught:
        builder.add_encoded(b"skipped" + good + record, len(b"skipped"))
    assert caught.value.offset >= len(b"skipped") + len(good)


@given(st.binary(max_size=300))
def test_arbitrary_bytes__refused_or_incomplete(raw: bytes) -> None:
    try:
        assert 0 <= rooted().add_encoded(raw) <= len(raw)
    except (MalformedRecord, TreeError):
        pass
