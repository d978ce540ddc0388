"""How many znodes lie below each one: kept right by every change, and by loading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.tree import NEW_STAT, OPEN_KEY, Tree, TreeBuilder
from keepfast.tree.paths import parent_of
from keepfast.wire import CreateTxn, DeleteTxn, OpCode, SessionId, TxnHeader, Zxid
from tests.tree.znode_records import add_node


def walked(tree: Tree, path: str) -> int:
    node = tree.find(path)
    assert node is not None
    return sum(1 + walked(tree, child) for child in node.children or ())


def check(tree: Tree) -> None:
    for path in list(tree.paths()):
        node = tree.find(path)
        assert node is not None
        assert tree.descendants.count(path, node, tree.find) == walked(tree, path), path


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from("ab"), min_size=1, max_size=4))))
def test_creates_and_deletes__are_counted_and_loading_counts_the_same(
    steps: list[tuple[bool, list[str]]],
) -> None:
    tree = Tree()
    for zxid, (is_create, names) in enumerate(steps, 1):
        path = "/" + "/".join(names)
        node, parent = tree.find(path), tree.find(parent_of(path))
        if is_create and node is None and parent is not None:
            body = CreateTxn(path, b"", None, False, cversion(tree, path) + 1)
            tree.apply(header(zxid, OpCode.CREATE), body)
        elif not is_create and node is not None and not node.children:
            tree.apply(header(zxid, OpCode.DELETE), DeleteTxn(path))
    check(tree)
    builder = TreeBuilder()
    for path in tree.paths():
        add_node(builder, path, b"", OPEN_KEY, NEW_STAT)
    check(builder.finish(Zxid(1)))


def stacked(depth: int) -> Tree:
    """Znodes below each other, and two below the last one."""
    tree = Tree()
    for zxid in range(1, depth + 1):
        tree.apply(header(zxid, OpCode.CREATE), CreateTxn("/a" * zxid, b"", None, False, 1))
    for number, name in enumerate("xy", 1):
        body = CreateTxn("/a" * depth + f"/{name}", b"", None, False, number)
        tree.apply(header(depth + number, OpCode.CREATE), body)
    return tree


@pytest.mark.parametrize("depth", [30, 31, 32, 33, 34, 35, 80])
def test_znodes_stacked_deep__are_counted(depth: int) -> None:
    tree = stacked(depth)
    check(tree)
    builder = TreeBuilder()
    for path in tree.paths():
        add_node(builder, path, b"", OPEN_KEY, NEW_STAT)
    check(builder.finish(Zxid(1)))
    tree.apply(header(depth + 3, OpCode.DELETE), DeleteTxn("/a" * depth + "/x"))
    check(tree)


def test_znodes_stacked_very_deep__keep_no_counts_of_their_own() -> None:
    # What is kept is what a create below them costs.
    assert len(stacked(200).descendants) == len(stacked(100).descendants)


def cversion(tree: Tree, path: str) -> int:
    parent = tree.find(parent_of(path))
    assert parent is not None
    return int.from_bytes(parent.stat[36:40], "big", signed=True)


def header(zxid: int, type_: OpCode) -> TxnHeader:
    return TxnHeader(SessionId(1), 0, Zxid(zxid), 0, type_.value)
