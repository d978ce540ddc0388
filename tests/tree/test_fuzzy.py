"""Copies made while txns continue, as Apache makes them, end in the exact tree."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.tree import ReplayConflict, Tree, TreeBuilder, persisted
from keepfast.wire import (
    OPEN_ACL,
    READ_ACL,
    AclList,
    CloseSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    OpCode,
    SessionId,
    SetACLTxn,
    SetDataTxn,
    StatPersisted,
    TxnBody,
    TxnHeader,
    Zxid,
)
from tests.tree.model import Op, histories, tree_of, write_history
from tests.tree.znode_records import add_node


class Copied:
    """A znode as one moment had it."""

    def __init__(self, tree: Tree, path: str) -> None:
        node = tree.find(path)
        assert node is not None
        self.data = node.data
        self.stat = node.stat
        self.acl = tree.acl_of(node)
        self.children = sorted(node.children or ())


def fuzzy_copy(entries: list[LogEntry], start: int, pauses: list[int]) -> TreeBuilder:
    """What Apache writes if it starts behind entry `start` and a txn comes in at each pause.

    A walk from the root down. Each znode is copied at one moment with the list of its children;
    those that are gone when their turn comes are left out. Sessions and ACLs are those of the
    start; an ACL that came later is in no table.
    """
    tree = tree_of(entries[:start])
    coming = list(entries[start:])
    builder = TreeBuilder(allow_unknown_acls=True)
    for session in tree.sessions.items():
        builder.add_session(*session)
    keys: dict[AclList, int] = {OPEN_ACL: -1}
    for key, acl in tree.acls.entries().items():
        builder.add_acl(key, acl)
        keys[acl] = key
    waiting = ["/"]
    turn = 0
    while waiting:
        path = waiting.pop()
        if tree.find(path) is not None:
            copied = Copied(tree, path)
            key = keys.setdefault(copied.acl, 1000 + len(keys))
            add_node(builder, path, copied.data, key, copied.stat)
            waiting.extend(copied.children)
        for _ in range(pauses[turn % len(pauses)]):
            if coming:
                entry = coming.pop(0)
                tree.apply(entry.header, entry.body)
        turn += 1
    return builder


pauses_lists = st.lists(st.integers(0, 3), min_size=1, max_size=20)


@settings(max_examples=200)
@given(histories, st.data(), pauses_lists)
def test_fuzzy_copy_replayed__is_the_exact_tree(
    wishes: list[Op], data: st.DataObject, pauses: list[int]
) -> None:
    entries = write_history(wishes, is_listing=True).entries
    start = data.draw(st.integers(0, len(entries)))
    exact = tree_of(entries)
    builder = fuzzy_copy(entries, start, pauses)
    tree = builder.finish(Zxid(start))
    for entry in entries[start:]:
        tree.apply_fuzzy(entry.header, entry.body)
    assert tree.digest == exact.digest
    assert tree.state_digest == exact.state_digest
    assert tree.last_zxid == exact.last_zxid
    assert tree.ephemerals == exact.ephemerals
    assert (tree.containers, tree.ttls) == (exact.containers, exact.ttls)
    assert tree.acls.unknown_keys == frozenset()
    for path in exact.paths():
        ours, theirs = tree.find(path), exact.find(path)
        assert ours is not None
        assert theirs is not None
        assert sorted(ours.children or ()) == sorted(theirs.children or ())


@settings(max_examples=150)
@given(histories, st.data())
def test_suffix_replayed_twice__changes_nothing(wishes: list[Op], data: st.DataObject) -> None:
    # With lists: without one, the end of a session does not delete an ephemeral in whose place
    # there is another znode already, and a setData of the first stays on the second.
    entries = write_history(wishes, is_listing=True).entries
    start = data.draw(st.integers(0, len(entries)))
    tree = tree_of(entries)
    before = (tree.digest, tree.state_digest, tree.last_zxid, tree.node_count, tree.data_size)
    for entry in entries[start:]:
        tree.apply_fuzzy(entry.header, entry.body)
    after = (tree.digest, tree.state_digest, tree.last_zxid, tree.node_count, tree.data_size)
    assert after == before


def test_close_without_a_list__ephemerals_not_copied_leave_no_trace() -> None:
    """What servers before 3.6 log does not say which parents changed: their pzxid stays behind."""
    wishes = [Op("open", 0, 0, b""), Op("create", 12, 0, b""), Op("close", 0, 0, b"")]
    entries = write_history(wishes).entries
    assert isinstance(entries[1].body, CreateTxn)
    assert entries[1].body.ephemeral
    assert entries[2].body is None
    exact = tree_of(entries)
    # The root is copied, then the session ends, then it would be the turn of its ephemeral.
    tree = fuzzy_copy(entries, 2, [1]).finish(Zxid(2))
    tree.apply_fuzzy(entries[2].header, entries[2].body)
    assert set(tree.paths()) == set(exact.paths())
    assert tree.digest != exact.digest


class Replica:
    def __init__(self) -> None:
        self.tree = Tree()

    def at(self, zxid: int, type_: int, body: TxnBody | None, session_id: int = 5) -> None:
        header = TxnHeader(SessionId(session_id), 0, Zxid(zxid), 1000 + zxid, type_)
        self.tree.apply_fuzzy(header, body)

    def stat(self, path: str) -> StatPersisted:
        node = self.tree.find(path)
        assert node is not None
        return persisted(node)


def test_create_of_a_znode_that_is_there__acl_and_parent_are_taken_over() -> None:
    replica = Replica()
    replica.at(5, OpCode.CREATE, CreateTxn("/a", b"later", OPEN_ACL, False, 3))
    replica.at(6, OpCode.CREATE2, CreateTxn("/a", b"x", READ_ACL, False, 4))
    node = replica.tree.find("/a")
    assert node is not None
    assert (node.data, replica.tree.acl_of(node)) == (b"later", READ_ACL)
    # Apache does this for type 1 alone and then differs from its peers.
    assert (replica.stat("/").cversion, replica.stat("/").pzxid) == (4, 6)


def test_older_create_and_delete__do_not_set_the_parent_back() -> None:
    replica = Replica()
    replica.at(9, OpCode.CREATE, CreateTxn("/a", b"", OPEN_ACL, False, 7))
    replica.at(3, OpCode.CREATE, CreateTxn("/b", b"", OPEN_ACL, False, 4))
    replica.at(4, OpCode.DELETE, DeleteTxn("/b"))
    assert (replica.stat("/").cversion, replica.stat("/").pzxid) == (7, 9)
    assert replica.tree.last_zxid == 9


def test_delete_of_a_missing_znode__raises_the_parents_pzxid() -> None:
    replica = Replica()
    replica.at(3, OpCode.DELETE, DeleteTxn("/no"))
    assert replica.stat("/").pzxid == 3


def test_delete_of_a_znode_with_later_children__takes_them_too() -> None:
    replica = Replica()
    for zxid, path in ((5, "/a"), (6, "/a/b"), (7, "/a/b/c"), (8, "/a/d")):
        replica.at(zxid, OpCode.CREATE, CreateTxn(path, b"", OPEN_ACL, True, -1))
    replica.at(3, OpCode.DELETE, DeleteTxn("/a"))
    assert replica.tree.node_count == 4
    assert replica.tree.ephemerals == {}


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (OpCode.CREATE, CreateTxn("/no/x", b"", OPEN_ACL, False, 1)),
        (OpCode.DELETE, DeleteTxn("/no/x")),
        (OpCode.DELETE, DeleteTxn("/")),
        (OpCode.SET_DATA, SetDataTxn("/no", b"", 1)),
        (OpCode.SET_ACL, SetACLTxn("/no", OPEN_ACL, 1)),
        (OpCode.CLOSE_SESSION, CloseSessionTxn(("/no/x",))),
        (OpCode.CLOSE_SESSION, None),
        (OpCode.ERROR, ErrorTxn(-101)),
    ],
)
def test_what_has_no_place__is_ignored(type_: int, body: TxnBody | None) -> None:
    replica = Replica()
    before = (replica.tree.digest, replica.tree.state_digest)
    replica.at(3, type_, body)
    assert (replica.tree.digest, replica.tree.state_digest) == before
    assert replica.tree.last_zxid == 3


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (OpCode.CREATE, CreateTxn("x", b"", OPEN_ACL, False, 1)),
        (OpCode.CREATE, CreateTxn("/x/", b"", OPEN_ACL, False, 1)),
        (OpCode.CREATE, CreateTxn("", b"", OPEN_ACL, False, 1)),
        (OpCode.CREATE_TTL, CreateTTLTxn("/x", b"", OPEN_ACL, 1, -1)),
        (99, DeleteTxn("/x")),
    ],
)
def test_what_no_copy_explains__is_refused(type_: int, body: TxnBody) -> None:
    with pytest.raises(ReplayConflict):
        Replica().at(3, type_, body)


def test_unknown_acl__denies_everything_until_a_txn_brings_it() -> None:
    builder = TreeBuilder(allow_unknown_acls=True)
    stat = struct.pack(">qqqqiiiqq", 7, 7, 1, 1, 0, 0, 0, 0, 7)
    add_node(builder, "", b"", -1, bytes(60))
    add_node(builder, "/a", b"", 44, stat)
    tree = builder.finish(Zxid(6))
    node = tree.find("/a")
    assert node is not None
    assert [entry.perms for entry in tree.acl_of(node)] == [0]
    assert tree.acls.unknown_keys == {44}
    header = TxnHeader(SessionId(1), 0, Zxid(7), 1, OpCode.CREATE)
    tree.apply_fuzzy(header, CreateTxn("/a", b"", READ_ACL, False, 1))
    assert tree.acl_of(node) == READ_ACL
    assert tree.acls.unknown_keys == frozenset()
