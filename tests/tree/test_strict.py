"""Exact application: what does not fit is refused, and changes nothing (R12)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keepfast.tree import ChangeKind, OpResult, ReplayConflict, Tree, persisted, wire_stat
from keepfast.wire import (
    OPEN_ACL,
    READ_ACL,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    MalformedRecord,
    MultiTxn,
    OpCode,
    SessionId,
    SetACLTxn,
    SetDataTxn,
    Stat,
    SubTxn,
    TxnBody,
    TxnHeader,
    Zxid,
    codec_of,
    encode_txn_body,
)
from tests.tree.model import KINDS, Historian, Op, histories, write_history

SESSION = 0x100001234560000


class Facts(NamedTuple):
    """All of a tree that can be compared."""

    zxid: int
    digest: int
    state_digest: int
    nodes: Mapping[str, tuple[object, ...]]
    sessions: dict[int, int]
    ephemerals: dict[int, set[str]]
    others: tuple[object, ...]


def facts(tree: Tree) -> Facts:
    nodes = {}
    for path in tree.paths():
        node = tree.find(path)
        assert node is not None
        acl = tree.acl_of(node)
        nodes[path] = (node.data, acl, persisted(node), set(node.children or ()))
    return Facts(
        tree.last_zxid,
        tree.digest,
        tree.state_digest,
        nodes,
        dict(tree.sessions),
        {owner: set(paths) for owner, paths in tree.ephemerals.items()},
        (set(tree.containers), set(tree.ttls), set(tree.quotas), tree.data_size, tree.node_count),
    )


class Server:
    """A tree and a zxid that counts up."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.zxid = 0

    def header(self, type_: int, session_id: int = SESSION) -> TxnHeader:
        return TxnHeader(SessionId(session_id), 1, Zxid(self.zxid + 1), 1000 + self.zxid, type_)

    def apply(self, type_: int, body: TxnBody | None, session_id: int = SESSION) -> None:
        self.tree.apply(self.header(type_, session_id), body)
        self.zxid += 1

    def stat(self, path: str) -> Stat:
        node = self.tree.find(path)
        assert node is not None
        return codec_of(Stat).decode(wire_stat(node))


def small_server() -> Server:
    """/a (version 1, two children made), /a/b, /e ephemeral, /c container, /t TTL."""
    server = Server()
    server.apply(OpCode.CREATE_SESSION, CreateSessionTxn(4000))
    server.apply(OpCode.CREATE, CreateTxn("/a", b"1", OPEN_ACL, False, 1))
    server.apply(OpCode.CREATE2, CreateTxn("/a/b", b"", READ_ACL, False, 1))
    server.apply(OpCode.CREATE, CreateTxn("/a/x", b"", OPEN_ACL, False, 2))
    server.apply(OpCode.DELETE, DeleteTxn("/a/x"))
    server.apply(OpCode.SET_DATA, SetDataTxn("/a", b"2", 1))
    server.apply(OpCode.CREATE, CreateTxn("/e", None, OPEN_ACL, True, 2))
    server.apply(OpCode.CREATE_CONTAINER, CreateContainerTxn("/c", b"", OPEN_ACL, 3))
    server.apply(OpCode.CREATE_TTL, CreateTTLTxn("/t", b"", OPEN_ACL, 4, 60_000))
    return server


CONFLICTS: dict[str, tuple[int, TxnBody | None]] = {
    "create exists": (OpCode.CREATE, CreateTxn("/a", b"", OPEN_ACL, False, 5)),
    "create root": (OpCode.CREATE, CreateTxn("/", b"", OPEN_ACL, False, 5)),
    "create empty path": (OpCode.CREATE, CreateTxn("", b"", OPEN_ACL, False, 5)),
    "create relative path": (OpCode.CREATE, CreateTxn("n", b"", OPEN_ACL, False, 5)),
    "create trailing slash": (OpCode.CREATE, CreateTxn("/a/", b"", OPEN_ACL, False, 3)),
    "create without parent": (OpCode.CREATE, CreateTxn("/no/x", b"", OPEN_ACL, False, 1)),
    "create skips a cversion": (OpCode.CREATE2, CreateTxn("/n", b"", OPEN_ACL, False, 6)),
    "create repeats a cversion": (OpCode.CREATE, CreateTxn("/n", b"", OPEN_ACL, False, 4)),
    "create below ephemeral": (OpCode.CREATE, CreateTxn("/e/x", b"", OPEN_ACL, False, 1)),
    "container exists": (OpCode.CREATE_CONTAINER, CreateContainerTxn("/a", b"", OPEN_ACL, 5)),
    "ttl zero": (OpCode.CREATE_TTL, CreateTTLTxn("/n", b"", OPEN_ACL, 5, 0)),
    "ttl too long": (OpCode.CREATE_TTL, CreateTTLTxn("/n", b"", OPEN_ACL, 5, 1 << 40)),
    "delete no node": (OpCode.DELETE, DeleteTxn("/no")),
    "delete with children": (OpCode.DELETE, DeleteTxn("/a")),
    "delete root": (OpCode.DELETE, DeleteTxn("/")),
    "delete empty path": (OpCode.DELETE, DeleteTxn("")),
    "deleteContainer no node": (OpCode.DELETE_CONTAINER, DeleteTxn("/no")),
    "setData no node": (OpCode.SET_DATA, SetDataTxn("/no", b"", 1)),
    "setData skips a version": (OpCode.SET_DATA, SetDataTxn("/a", b"", 3)),
    "setData repeats a version": (OpCode.SET_DATA, SetDataTxn("/a", b"", 1)),
    "setACL no node": (OpCode.SET_ACL, SetACLTxn("/no", OPEN_ACL, 1)),
    "setACL skips a version": (OpCode.SET_ACL, SetACLTxn("/a", OPEN_ACL, 2)),
    "reconfig elsewhere": (OpCode.RECONFIG, SetDataTxn("/a", b"", -1)),
    "close lists missing": (OpCode.CLOSE_SESSION, CloseSessionTxn(("/e", "/no"))),
    "close lists foreign": (OpCode.CLOSE_SESSION, CloseSessionTxn(("/e", "/c"))),
    "close lists twice": (OpCode.CLOSE_SESSION, CloseSessionTxn(("/e", "/e"))),
    "unknown type": (99, DeleteTxn("/c")),
    "check alone": (OpCode.CHECK, CheckVersionTxn("/a", 2)),
    "create with another body": (OpCode.CREATE, DeleteTxn("/c")),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflict__refused_and_nothing_changed(name: str) -> None:
    server = small_server()
    type_, body = CONFLICTS[name]
    before = facts(server.tree)
    with pytest.raises(ReplayConflict) as caught:
        server.apply(type_, body)
    assert caught.value.zxid == 10
    assert "0xa" in str(caught.value)
    assert facts(server.tree) == before


GOOD_FIRST: list[tuple[int, TxnBody]] = [
    (OpCode.CREATE, CreateTxn("/m", b"", READ_ACL, True, 5)),
    (OpCode.SET_DATA, SetDataTxn("/c", b"long data", 1)),
    (OpCode.DELETE, DeleteTxn("/t")),
    (OpCode.CHECK, CheckVersionTxn("/c", 2)),
]
IN_MULTI: dict[str, tuple[int, TxnBody]] = {
    **{
        name: (type_, body)
        for name, (type_, body) in CONFLICTS.items()
        if body is not None
        and type_ not in (OpCode.SET_ACL, OpCode.RECONFIG, OpCode.CLOSE_SESSION, OpCode.CHECK, 99)
        and name != "create with another body"
        and "cversion" not in name
    },
    "check no node": (OpCode.CHECK, CheckVersionTxn("/no", 1)),
    "check another version": (OpCode.CHECK, CheckVersionTxn("/a", 1)),
    "create what was just created": (OpCode.CREATE2, CreateTxn("/m", b"", OPEN_ACL, False, 6)),
    "delete what was just deleted": (OpCode.DELETE, DeleteTxn("/t")),
    "create below what was just deleted": (
        OpCode.CREATE,
        CreateTxn("/t/x", b"", OPEN_ACL, False, 1),
    ),
    "create below a fresh ephemeral": (OpCode.CREATE, CreateTxn("/m/x", b"", OPEN_ACL, False, 1)),
    "set with the version of before": (OpCode.SET_DATA, SetDataTxn("/c", b"", 1)),
    "create with the cversion of before": (
        OpCode.CREATE,
        CreateTxn("/n", b"", OPEN_ACL, False, 5),
    ),
}


def multi(*parts: tuple[int, TxnBody]) -> MultiTxn:
    return MultiTxn(tuple(SubTxn(type_, encode_txn_body(body)) for type_, body in parts))


@pytest.mark.parametrize("name", IN_MULTI)
def test_conflict_in_a_multi_behind_good_operations__nothing_changed(name: str) -> None:
    server = small_server()
    before = facts(server.tree)
    with pytest.raises(ReplayConflict):
        server.apply(OpCode.MULTI, multi(*GOOD_FIRST, IN_MULTI[name]))
    assert facts(server.tree) == before
    # Without the bad one the rest fits: it was the bad one that was refused.
    server.apply(OpCode.MULTI, multi(*GOOD_FIRST))
    assert facts(server.tree) != before


def test_multi_with_a_body_that_cannot_be_read__nothing_changed() -> None:
    server = small_server()
    before = facts(server.tree)
    good = multi(*GOOD_FIRST).txns
    assert good is not None
    for bad in (SubTxn(OpCode.CREATE, b"\0"), SubTxn(OpCode.SET_DATA, None), SubTxn(77, b"")):
        with pytest.raises(MalformedRecord):
            server.apply(OpCode.MULTI, MultiTxn((*good, bad)))
        assert facts(server.tree) == before


def test_multi_that_deletes_a_subtree_and_makes_it_again__fits() -> None:
    server = small_server()
    server.apply(
        OpCode.MULTI,
        multi(
            (OpCode.DELETE, DeleteTxn("/a/b")),
            (OpCode.DELETE, DeleteTxn("/a")),
            (OpCode.CREATE, CreateTxn("/a", b"new", OPEN_ACL, False, 5)),
            (OpCode.CREATE, CreateTxn("/a/b", b"", OPEN_ACL, False, 1)),
            (OpCode.DELETE, DeleteTxn("/a/b")),
            (OpCode.DELETE, DeleteTxn("/a")),
        ),
    )
    assert server.tree.find("/a") is None


def test_multi__one_result_for_each_operation_with_the_stat_of_its_moment() -> None:
    server = small_server()
    header = server.header(OpCode.MULTI)
    outcome = server.tree.apply(
        header,
        multi(
            (OpCode.CREATE, CreateTxn("/m", b"", OPEN_ACL, False, 5)),
            (OpCode.CREATE2, CreateTxn("/m/n", b"12", OPEN_ACL, False, 1)),
            (OpCode.SET_DATA, SetDataTxn("/m", b"123", 1)),
            (OpCode.CHECK, CheckVersionTxn("/m", 2)),
            (OpCode.DELETE, DeleteTxn("/m/n")),
        ),
    )
    kinds = [(change.kind, change.path) for change in outcome.changes]
    assert kinds == [
        (ChangeKind.CREATED, "/m"),
        (ChangeKind.CREATED, "/m/n"),
        (ChangeKind.DATA, "/m"),
        (ChangeKind.DELETED, "/m/n"),
    ]
    assert [result.type for result in outcome.results] == [1, 15, 5, 13, 2]
    assert outcome.results[0] == OpResult(1, 0, "/m")
    child, parent = (
        codec_of(Stat).decode(stat) for _, _, _, stat in outcome.results[1:3] if stat is not None
    )
    assert (child.czxid, child.data_length) == (10, 2)
    assert (parent.version, parent.num_children, parent.cversion) == (1, 1, 1)


def test_failed_multi__changes_nothing_and_tells_who_failed() -> None:
    server = small_server()
    before = facts(server.tree)
    parts = (
        GOOD_FIRST[0],
        (OpCode.ERROR, ErrorTxn(-101)),
        (OpCode.ERROR, ErrorTxn(-2)),
    )
    outcome = server.tree.apply(server.header(OpCode.MULTI), multi(*parts))
    assert outcome.error == -101
    assert [(r.type, r.error) for r in outcome.results] == [(-1, 0), (-1, -101), (-1, -2)]
    assert facts(server.tree) == before._replace(zxid=10)


def test_zxid_that_does_not_rise__refused() -> None:
    server = small_server()
    header = server.header(OpCode.DELETE)
    for zxid in (1, server.zxid):
        with pytest.raises(ReplayConflict, match="already"):
            server.tree.apply(header._replace(zxid=Zxid(zxid)), DeleteTxn("/c"))


def test_error_under_the_zxid_of_the_txn_before__changes_nothing() -> None:
    """Apache 3.9.5 logs one for a request that it cannot decode, a truncated one for instance."""
    server = small_server()
    before = facts(server.tree)
    error = server.header(OpCode.ERROR)._replace(zxid=Zxid(server.zxid))
    assert server.tree.apply(error, ErrorTxn(-5)).error == -5
    assert facts(server.tree) == before
    with pytest.raises(ReplayConflict, match="already"):
        server.tree.apply(error._replace(zxid=Zxid(server.zxid - 1)), ErrorTxn(-5))


@settings(max_examples=100)
@given(histories, st.data())
def test_a_lost_txn__is_refused_or_shows_in_the_digest(
    wishes: list[Op], data: st.DataObject
) -> None:
    """Whatever is lost, nothing is applied by halves after it."""
    entries = write_history(wishes).entries
    lost = data.draw(st.integers(0, len(entries) - 1))
    tree = Tree()
    for index, entry in enumerate(entries):
        if index == lost:
            continue
        before = facts(tree)
        try:
            tree.apply(entry.header, entry.body)
        except ReplayConflict:
            assert facts(tree) == before
            break
    else:
        whole = Tree()
        for entry in entries:
            whole.apply(entry.header, entry.body)
        same = facts(tree)._replace(zxid=0) == facts(whole)._replace(zxid=0)
        assert same == (tree.state_digest == whole.state_digest)


# -- what sound histories hold -------------------------------------------------------------------


def test_close_of_an_unknown_session_and_a_session_opened_again__accepted() -> None:
    server = small_server()
    server.apply(OpCode.CLOSE_SESSION, CloseSessionTxn(()), session_id=77)
    server.apply(OpCode.CREATE_SESSION, CreateSessionTxn(9000))
    assert server.tree.sessions == {SESSION: 9000}


@pytest.mark.parametrize("body", [CloseSessionTxn(("/e",)), CloseSessionTxn(()), None])
def test_close_session__takes_listed_and_other_ephemerals(body: CloseSessionTxn | None) -> None:
    server = small_server()
    server.apply(OpCode.CREATE, CreateTxn("/a/e", None, OPEN_ACL, True, 3))
    outcome = server.tree.apply(server.header(OpCode.CLOSE_SESSION), body)
    assert sorted(change.path for change in outcome.changes) == ["/a/e", "/e"]
    assert server.tree.ephemerals == {}
    assert server.tree.sessions == {}
    assert server.stat("/a").pzxid == 11


def test_create_of_3_3_without_cversion__counts_on() -> None:
    server = small_server()
    server.apply(OpCode.CREATE, CreateTxnV0("/old", b"", None, False))
    assert server.stat("/").cversion == 2 * 5 - 6
    node = server.tree.find("/old")
    assert node is not None
    assert server.tree.acl_of(node) == OPEN_ACL


def test_empty_path__is_the_root() -> None:
    server = small_server()
    server.apply(OpCode.SET_DATA, SetDataTxn("", b"root", 1))
    server.apply(OpCode.SET_ACL, SetACLTxn("", READ_ACL, 1))
    server.apply(OpCode.MULTI, multi((OpCode.SET_DATA, SetDataTxn("", b"again", 2))))
    root = server.tree.find("/")
    assert root is not None
    assert (root.data, server.tree.acl_of(root)) == (b"again", READ_ACL)


def test_versions_wrap__as_3_9_and_as_later_versions_write_them() -> None:
    server = small_server()
    node = server.tree.find("/a")
    assert node is not None

    def set_version(version: int) -> None:
        stat = node.stat
        node.put_stat(stat[:32] + version.to_bytes(4, "big", signed=True) + stat[36:])

    for current, following in ((2**31 - 1, -(2**31)), (-2, -1), (-2, 0)):
        set_version(current)
        server.apply(OpCode.SET_DATA, SetDataTxn("/a", b"", following))
    set_version(-2)
    with pytest.raises(ReplayConflict):
        server.apply(OpCode.SET_DATA, SetDataTxn("/a", b"", 1))


def test_config__any_version_is_taken() -> None:
    server = small_server()
    server.apply(OpCode.RECONFIG, SetDataTxn("/zookeeper/config", b"x", -1))
    server.apply(OpCode.SET_DATA, SetDataTxn("/zookeeper/config", b"y", 7))
    assert server.stat("/zookeeper/config").version == 7


def test_stat__as_clients_see_it() -> None:
    server = small_server()
    # client-protocol: "A fresh root therefore shows -1".
    fresh = Server()
    assert fresh.stat("/").cversion == -1
    assert server.stat("/a") == Stat(2, 6, 1001, 1005, 1, 3, 0, 0, 1, 1, 5)
    assert server.stat("/e").ephemeral_owner == SESSION
    assert server.stat("/e").data_length == 0
    assert server.stat("/c").ephemeral_owner == 0
    assert server.stat("/t").ephemeral_owner == 0


def test_change__carries_the_acls_of_its_moment() -> None:
    server = small_server()
    outcome = server.tree.apply(server.header(OpCode.DELETE), DeleteTxn("/a/b"))
    (change,) = outcome.changes
    assert (change.acl, change.parent_acl) == (READ_ACL, OPEN_ACL)
    # The only znode with that list is gone, and the list with it.
    server.zxid += 1
    server.apply(OpCode.SET_ACL, SetACLTxn("/zookeeper/config", OPEN_ACL, 0))
    assert READ_ACL not in server.tree.acls.lists.values()


def test_historian__writes_all_kinds_of_txns() -> None:
    historian = Historian()
    random = Random(1)
    for _ in range(400):
        op = Op(random.choice(KINDS), random.randrange(10_000), random.randrange(10_000), b"x")
        historian.write(op)
    types = {entry.header.type for entry in historian.entries}
    assert types == {1, 2, 5, 7, 14, 15, 16, 19, 20, 21, -1, -10, -11}
