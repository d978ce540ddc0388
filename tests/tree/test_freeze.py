"""A frozen tree is exactly the tree of one moment, whatever is written meanwhile."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.tree import Tree, encode_node
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    DeleteTxn,
    InvariantViolation,
    OpCode,
    SessionId,
    TxnBody,
    TxnHeader,
    Zxid,
)
from tests.tree.copies import assert_copy, builder_for, read_records
from tests.tree.model import Historian, Op, assert_same, histories, ops


def assert_parents_first(tree: Tree) -> None:
    seen: set[str] = set()
    for path in tree.paths():
        assert path == "/" or (path.rpartition("/")[0] or "/") in seen
        seen.add(path)


def reloaded(tree: Tree) -> Tree:
    """The same tree, from its own snapshot."""
    with tree.freeze() as frozen:
        builder = builder_for(frozen)
        for chunk in frozen.node_chunks():
            builder.add_encoded(chunk)
        zxid = frozen.zxid
    return builder.finish(zxid)


@settings(max_examples=150)
@given(
    histories,
    st.lists(st.tuples(ops, st.booleans()), min_size=10, max_size=60),
    histories,
    st.booleans(),
)
def test_writes_during_a_freeze__the_copy_is_the_moment_of_the_freeze(
    before: list[Op], during: list[tuple[Op, bool]], after: list[Op], is_loaded: bool
) -> None:
    historian, tree = Historian(), Tree()

    def write(op: Op) -> None:
        entry = historian.write(op)
        tree.apply(entry.header, entry.body)
        assert tree.digest == historian.model.digest()
        assert tree.state_digest == historian.model.state_digest()

    for op in before:
        write(op)
    if is_loaded:
        # Znodes that were loaded keep their children in another way, until the first change.
        tree = reloaded(tree)
        assert_same(tree, historian.model)
    frozen = tree.freeze()
    moment = copy.deepcopy(historian.model)
    chunks = frozen.node_chunks(max_nodes=2)
    read = []
    for op, is_walked in during:
        write(op)
        if is_walked:
            read.append(next(chunks, b""))
    assert_same(tree, historian.model)
    read.extend(chunks)
    assert_copy(frozen, read_records(read), moment)

    frozen.close()
    for op in after:
        write(op)
        tree.thaw_step(1)
    assert_same(tree, historian.model)
    while not tree.thaw_step(2):
        pass
    assert_same(tree, historian.model)
    assert_parents_first(tree)


@settings(max_examples=60)
@given(st.lists(histories, min_size=2, max_size=4))
def test_freeze_again_and_again__each_copy_loads_as_its_moment(rounds: list[list[Op]]) -> None:
    historian, tree = Historian(), Tree()
    for wishes in rounds:
        for op in wishes[::2]:
            entry = historian.write(op)
            tree.apply(entry.header, entry.body)
        # Nothing thaws in between: freeze() has to do it.
        with tree.freeze() as frozen:
            moment = copy.deepcopy(historian.model)
            for op in wishes[1::2]:
                entry = historian.write(op)
                tree.apply(entry.header, entry.body)
            builder = builder_for(frozen)
            for chunk in frozen.node_chunks(max_nodes=3):
                assert builder.add_encoded(chunk) == len(chunk)
        assert_same(builder.finish(frozen.zxid), moment)
    assert_same(tree, historian.model)


class Writer:
    """Applies creates and deletes to a tree; all below the root."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.zxid = 0

    def apply(self, type_: int, body: TxnBody) -> None:
        self.zxid += 1
        header = TxnHeader(SessionId(1), 1, Zxid(self.zxid), 5, type_)
        self.tree.apply(header, body)

    def create(self, path: str) -> None:
        self.apply(OpCode.CREATE, CreateTxn(path, b"", OPEN_ACL, False, -1))

    def delete(self, path: str) -> None:
        self.apply(OpCode.DELETE, DeleteTxn(path))


def test_parent_and_child_deleted_and_created_again_during_a_freeze__parent_stays_first() -> None:
    writer = Writer()
    for path in ("/a", "/a/b"):
        writer.create(path)
    with writer.tree.freeze():
        writer.delete("/a/b")
        writer.delete("/a")
        # A new child of a new znode, deleted and made again after its parent.
        for path in ("/n", "/n/x"):
            writer.create(path)
        writer.delete("/n/x")
        writer.delete("/n")
        for path in ("/m", "/a", "/n", "/n/x", "/a/b"):
            writer.create(path)
    while not writer.tree.thaw_step(1):
        pass
    assert_parents_first(writer.tree)


def test_create_while_thawing_below_a_parent_not_moved_yet__parent_stays_first() -> None:
    writer = Writer()
    with writer.tree.freeze():
        for path in ("/a", "/b", "/b/c", "/b/c/d"):
            writer.create(path)
    assert not writer.tree.thaw_step(1)
    writer.create("/b/c/d/e")
    while not writer.tree.thaw_step(1):
        pass
    assert_parents_first(writer.tree)


def test_tombstone_reused_while_thawing__new_znode_does_not_take_its_place() -> None:
    writer = Writer()
    for path in ("/z", "/q", "/q/p"):
        writer.create(path)
    with writer.tree.freeze():
        # In the overlay: /z first, so that one step moves it and nothing else.
        writer.delete("/z")
        writer.delete("/q/p")
    assert not writer.tree.thaw_step(1)
    # /q goes to the end, while the tombstone of /q/p still has its old place before it.
    writer.delete("/q")
    writer.create("/q")
    writer.create("/q/p")
    while not writer.tree.thaw_step(1):
        pass
    assert_parents_first(writer.tree)


def test_second_freeze_while_frozen__refused() -> None:
    tree = Tree()
    frozen = tree.freeze()
    with pytest.raises(InvariantViolation):
        tree.freeze()
    with pytest.raises(InvariantViolation):
        tree.thaw_step(1)
    frozen.close()
    frozen.close()
    assert tree.thaw_step(1)


def test_is_frozen__until_the_copy_is_closed() -> None:
    tree = Tree()
    states = [tree.is_frozen]
    with tree.freeze():
        states.append(tree.is_frozen)
    states.append(tree.is_frozen)
    assert states == [False, True, False]


def test_walk_over_a_closed_copy__refused() -> None:
    frozen = Tree().freeze()
    chunks = frozen.node_chunks(max_nodes=1)
    next(chunks)
    frozen.close()
    with pytest.raises(InvariantViolation):
        next(chunks)
    with pytest.raises(InvariantViolation):
        frozen.nodes()


def test_chunks__bounded_by_znodes_and_by_bytes() -> None:
    writer = Writer()
    for number in range(20):
        path = f"/n{number}"
        writer.apply(OpCode.CREATE, CreateTxn(path, b"x" * 100, OPEN_ACL, False, -1))
    with writer.tree.freeze() as frozen:
        assert all(len(read_records([chunk])) <= 5 for chunk in frozen.node_chunks(max_nodes=5))
        chunks = list(frozen.node_chunks(max_bytes=500))
        assert len(chunks) > 4
        assert all(len(chunk) < 500 + 200 for chunk in chunks)
        assert len(read_records(chunks)) == 24


def test_chunks_of_plain_and_of_rare_znodes__the_records_of_all() -> None:
    data = {"/plain": b"x" * 100, "/empty": b"", "/null": None, "/large": b"y" * 5000, "/ö": b"z"}
    for odd in (None, *data):
        writer = Writer()
        for number in range(12):
            path, value = f"/n{number}", b"%d" % number
            if number == 7 and odd is not None:
                path, value = odd, data[odd]  # type: ignore[assignment]
            writer.apply(OpCode.CREATE, CreateTxn(path, value, OPEN_ACL, False, -1))
        with writer.tree.freeze() as frozen:
            expected = b"".join(encode_node(path, node) for path, node in frozen.nodes())
            for size in (1, 4, 1000):
                assert b"".join(frozen.node_chunks(max_nodes=size)) == expected
