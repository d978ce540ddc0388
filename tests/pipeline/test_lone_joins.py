"""What speaks against a tree that passed a change of epoch which one server alone shows."""

from __future__ import annotations

import pytest

from keepfast.pipeline.replay.lone_joins import CrossedJoin, is_doubted
from keepfast.pipeline.replay.plan import LoneJoin
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    DeleteTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnBody,
    TxnHeader,
    Zxid,
    make_zxid,
)

BEFORE, AFTER = make_zxid(1, 4), make_zxid(2, 1)
TYPES = {CreateTxn: OpCode.CREATE, DeleteTxn: OpCode.DELETE, SetDataTxn: OpCode.SET_DATA}
HISTORY: dict[int, TxnBody] = {
    make_zxid(1, 1): CreateTxn("/a", b"1", OPEN_ACL, False, 1),
    make_zxid(1, 2): CreateTxn("/b", b"2", OPEN_ACL, False, 2),
    make_zxid(1, 3): CreateTxn("/c", b"3", OPEN_ACL, False, 3),
    BEFORE: CreateTxn("/d", b"4", OPEN_ACL, False, 4),
    AFTER: CreateTxn("/e", b"5", OPEN_ACL, False, 5),
}


def tree_of(records: dict[int, TxnBody]) -> Tree:
    tree = Tree()
    for zxid, body in sorted(records.items()):
        header = TxnHeader(SessionId(7), 1, Zxid(zxid), 1000, TYPES[type(body)])
        tree.apply_fuzzy(header, body)
    return tree


LEFT_OUT = make_zxid(1, 5)


@pytest.mark.parametrize(
    ("rival", "left_out", "expected"),
    [
        ({LEFT_OUT: SetDataTxn("/a", b"x", 1)}, {"/a"}, True),
        ({LEFT_OUT: SetDataTxn("/a", b"x", 1)}, set(), True),
        ({LEFT_OUT: DeleteTxn("/a")}, {"/a"}, True),
        ({LEFT_OUT: DeleteTxn("/a")}, set(), False),
        ({make_zxid(2, 2): SetDataTxn("/a", b"x", 1)}, {"/b"}, False),
    ],
    ids=[
        "a record that it left out explains the rival",
        "the rival shows a zxid that nobody holds any more",
        "a deletion that it left out explains the rival",
        "a deletion that nobody holds",
        "a later change",
    ],
)
def test_rival__is_weighed_by_what_the_join_may_hide(
    rival: dict[int, TxnBody], left_out: set[str], expected: bool
) -> None:
    crossed = [CrossedJoin(LoneJoin(BEFORE, AFTER, ()), frozenset(left_out))]
    assert is_doubted(tree_of(HISTORY), crossed, tree_of({**HISTORY, **rival})) is expected


def test_rival_that_lacks_the_beginning__is_explained_by_no_join() -> None:
    late = {zxid: body for zxid, body in HISTORY.items() if zxid >= AFTER}
    crossed = [CrossedJoin(LoneJoin(BEFORE, AFTER, ()), frozenset({"/a"}))]
    assert not is_doubted(tree_of(HISTORY), crossed, tree_of(late))


def test_tree_that_passed_no_such_join__is_not_doubted() -> None:
    assert not is_doubted(tree_of(HISTORY), [], tree_of({}))
