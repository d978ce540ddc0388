"""The tree against a naive model that computes everything from scratch."""

from __future__ import annotations

from hypothesis import given, settings

from keepfast.tree import Tree
from tests.tree.model import Historian, Op, assert_same, histories


def test_fresh_tree__is_the_empty_tree_of_apache() -> None:
    tree = Tree()
    # storage-format: "empty tree (root and /zookeeper, all zero stats) = 1371985504".
    assert tree.digest == 1371985504
    assert_same(tree, Historian().model)


@settings(max_examples=200)
@given(histories)
def test_random_history__tree_equals_the_model_after_each_txn(wishes: list[Op]) -> None:
    historian, tree = Historian(), Tree()
    for op in wishes:
        entry = historian.write(op)
        outcome = tree.apply(entry.header, entry.body)
        assert entry.digest is not None
        assert tree.digest == entry.digest.tree_digest
        assert tree.state_digest == historian.model.state_digest()
        assert tree.last_zxid == entry.header.zxid
        if op.kind in ("error", "failed multi"):
            assert outcome.error < 0
            assert not outcome.changes
    assert_same(tree, historian.model)
