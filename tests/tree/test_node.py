"""A znode keeps its parts in one piece; each of them comes back as it was put."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.tree import OPEN_KEY, AclTable, Node, TreeError, encode_node, make_node
from keepfast.wire import OPEN_ACL, READ_ACL

STAT = bytes(range(60))

keys = st.one_of(st.just(OPEN_KEY), st.integers(0, 1000), st.integers(-(2**62), 2**62 - 1))
contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=40))
stats = st.binary(min_size=60, max_size=60)


def parts(node: Node) -> tuple[bytes | None, int, bytes]:
    return node.data, node.acl, node.stat


@given(contents, keys, stats, contents, stats)
def test_parts__are_kept_apart(
    data: bytes | None, key: int, stat: bytes, later: bytes | None, other: bytes
) -> None:
    node = make_node(data, key, stat)
    assert parts(node) == (data, key, stat)
    node.put(later, other)
    assert parts(node) == (later, key, other)
    node.put_stat(stat)
    assert parts(node) == (later, key, stat)


def test_record_of_null_data__has_the_key_that_was_given() -> None:
    tail = (7).to_bytes(8, "big") + STAT
    assert encode_node("/a", make_node(None, 7, STAT)) == b"\0\0\0\2/a\xff\xff\xff\xff" + tail
    assert encode_node("/a", make_node(b"", 7, STAT)) == b"\0\0\0\2/a\0\0\0\0" + tail
    assert encode_node("/a", make_node(b"x", 7, STAT)) == b"\0\0\0\2/a\0\0\0\1x" + tail


def test_children_of_a_loaded_znode__become_a_set_with_the_first_change() -> None:
    node = Node(make_node(b"", OPEN_KEY, STAT).packed, ["/a", "/b"])
    node.changing_children().add("/c")
    node.changing_children().discard("/a")
    assert node.children == {"/b", "/c"}
    childless = make_node(b"", OPEN_KEY, STAT)
    assert childless.changing_children() == set()
    assert childless.children == set()


def test_lists_that_everybody_may_read__are_known_by_the_bytes_of_a_znode() -> None:
    table = AclTable()

    def is_readable(data: bytes | None, key: int) -> bool:
        return make_node(data, key, STAT).packed[-68:-60] in table.world_readable

    assert is_readable(b"", OPEN_KEY)
    # It is not for the fast path: the reply has another form.
    assert not is_readable(None, OPEN_KEY)
    open_key, empty_key = table.acquire(OPEN_ACL), table.acquire(())
    read_key = table.acquire(READ_ACL)
    assert is_readable(b"x", open_key)
    assert is_readable(b"x", read_key)
    # An empty list lets everybody do everything.
    assert is_readable(b"x", empty_key)
    table.release(read_key)
    assert not is_readable(b"x", read_key)


@pytest.mark.parametrize("key", [2**62, -(2**62) - 1, 2**63 - 1, -(2**63)])
def test_key_that_would_look_like_null_data__refused(key: int) -> None:
    with pytest.raises(TreeError, match="no key of an ACL"):
        AclTable().load(key, READ_ACL)
