"""Lists of children: right after every change, and kept in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.replica.child_lists import ChildLists, encode_children
from keepfast.replica.unfinished import UnfinishedError
from keepfast.tree import Caller, Preparer, Tree
from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    CreateSessionTxn,
    CreateTxn,
    DeleteRequest,
    DeleteTxn,
    GetChildrenResponse,
    MultiOp,
    OpCode,
    SessionId,
    TxnHeader,
    Zxid,
    decode,
)

CALLER = Caller(SessionId(7))


class Leader:
    """A tree that changes by requests."""

    def __init__(self) -> None:
        self.tree = Tree()
        self._preparer = Preparer(self.tree)
        self._zxid = 0
        self.ask(OpCode.CREATE_SESSION, CreateSessionTxn(1000))

    def ask(self, op: OpCode, request: object) -> None:
        self._zxid += 1
        entry = self._preparer.prepare(CALLER, 0, Zxid(self._zxid), 0, op.value, request)
        self._preparer.apply(entry)

    def create(self, path: str) -> None:
        self.ask(OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, 0))


def names(lists: ChildLists, tree: Tree, path: str) -> list[str]:
    node = tree.find(path)
    assert node is not None
    return sorted(decode(GetChildrenResponse, lists.of(tree, path, node)).children or ())


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans(), st.booleans()), max_size=40))
def test_list_after_every_change__is_that_of_the_tree(
    steps: list[tuple[str, bool, bool]],
) -> None:
    leader, lists = Leader(), ChildLists()
    leader.create("/p")
    there: set[str] = set()
    for name, as_multi, freezes in steps:
        path = f"/p/{name}"
        frozen = leader.tree.freeze() if freezes else None
        op, request = OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, 0)
        remove = DeleteRequest(path, -1)
        if as_multi and name not in there:
            # Comes and goes in one txn.
            ops = (MultiOp(op.value, request), MultiOp(OpCode.DELETE.value, remove))
            leader.ask(OpCode.MULTI, ops)
        elif name in there:
            leader.ask(OpCode.DELETE, remove)
            there.discard(name)
        else:
            leader.ask(op, request)
            there.add(name)
        assert names(lists, leader.tree, "/p") == sorted(there)
        if frozen is not None:
            frozen.close()
            while not leader.tree.thaw_step(1):
                pass
    assert names(lists, leader.tree, "/p") == sorted(there)


def test_list_of_unchanged_children__is_the_same_object() -> None:
    leader, lists = Leader(), ChildLists()
    leader.create("/a")
    node = leader.tree.find("/")
    assert node is not None
    assert lists.of(leader.tree, "/", node) is lists.of(leader.tree, "/", node)


@given(st.sets(st.text("aäß-€0123456789", min_size=1, max_size=6), max_size=150))
def test_many_names__of_all_lengths_and_alphabets(given_names: set[str]) -> None:
    for path in ("/", "/a", "/a/a"):
        prefix = "/" if path == "/" else path + "/"
        encoded = encode_children(path, [prefix + name for name in sorted(given_names)])
        assert set(decode(GetChildrenResponse, encoded).children or ()) == given_names


def test_names_that_hold_the_parents_path__are_left_alone() -> None:
    paths = [f"/a/xa{number:04d}" for number in range(100)]
    encoded = encode_children("/a", paths)
    assert sorted(decode(GetChildrenResponse, encoded).children or ()) == [p[3:] for p in paths]


def test_more_than_is_kept__is_still_right() -> None:
    leader, lists = Leader(), ChildLists()
    for number in range(5000):
        leader.create(f"/n{number}")
        leader.create(f"/n{number}/c")
        assert names(lists, leader.tree, f"/n{number}") == ["c"]


def test_long_list_of_a_learner__follows_the_records_of_its_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keepfast.replica.child_lists._SLICE", 10)
    tree, lists = Tree(), ChildLists()

    def apply(zxid: int, type_: OpCode, body: CreateTxn | DeleteTxn) -> None:
        tree.apply(TxnHeader(CALLER.session_id, 0, Zxid(zxid), 0, type_.value), body)

    for number in range(1, 26):
        apply(number, OpCode.CREATE, CreateTxn(f"/c{number}", b"", OPEN_ACL, False, number))
    for _ in range(2):
        with pytest.raises(UnfinishedError):
            names(lists, tree, "/")
    assert len(names(lists, tree, "/")) == 26
    apply(26, OpCode.CREATE, CreateTxn("/new", b"", OPEN_ACL, False, 26))
    apply(27, OpCode.DELETE, DeleteTxn("/c3"))
    expected = {"zookeeper", "new", *(f"c{number}" for number in range(1, 26))} - {"c3"}
    assert names(lists, tree, "/") == sorted(expected)
