"""Txns of many changes: in slices they come to the same as in one piece, on all servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keepfast.tree import Caller, LongTxn, PrepareOptions, ReplayConflict, Tree, is_long, read_long
from keepfast.tree.frozen import FrozenTree, encode_node
from keepfast.tree.node import make_node
from keepfast.tree.pending import sorted_in_slices
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    CheckVersionRequest,
    CloseSessionTxn,
    CreateRequest,
    CreateSessionTxn,
    CreateTxn,
    DeleteRequest,
    Id,
    KeeperError,
    LogEntry,
    MultiOp,
    OpCode,
    SetDataRequest,
    SetDataTxn,
    TxnHeader,
    Zxid,
)
from tests.tree.test_prepare import BOBS_CALLER, OTHER, SESSION, Leader, facts_of, reply_of
from tests.tree.wishes import Wisher

T = TypeVar("T")

ACLS: tuple[AclList, ...] = (
    OPEN_ACL,
    (ACL(31, Id("ip", "127.0.0.0/8")),),
    (ACL(31, Id("world", "anyone")), ACL(1, Id("ip", "10.0.0.0/8"))),
)
PATHS = [f"/{a}{b}{c}" for a in "abc" for b in ("", "/x", "/y") for c in ("", "/1") if b or not c]


def options_of(size: int) -> PrepareOptions:
    return PrepareOptions(is_ttl_enabled=True, slice_size=size)


def finished(slices: Generator[None, None, T]) -> tuple[T, int]:
    """What comes of it, and how many slices it took."""
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value, count + 1
        count += 1


def all_of(tree: Tree) -> list[object]:
    """All that a tree keeps; the keys of its ACLs are its own."""
    facts = [fact for fact in facts_of(tree) if fact is not tree.acls.lists]
    lists = sorted(map(repr, tree.acls.lists.values()))
    return [*facts, lists, znodes_of(tree)]


def znodes_of(tree: Tree) -> dict[str, Any]:
    found = {path: tree.find(path) for path in tree.paths()}
    return {
        path: (node.data, tree.acl_of(node), node.stat, set(node.children or ()))
        for path, node in found.items()
        if node is not None
    }


class LongLeader(Leader):
    """Takes several turns for a txn, and applies earlier ones between them; beside two learners.

    One learner applies each record in one piece, the other one in slices.
    """

    def __init__(self, random: Random, size: int, lag: int) -> None:
        self.random = random
        self.size = size
        self.learner = Tree()
        self.long_txns: dict[int, LongTxn | None] = {}
        self.slices = 0
        self._late: deque[LogEntry] = deque()
        super().__init__(options_of(size), lag)

    def ask(self, type_: int, request: Any, caller: Caller | None = None) -> LogEntry:
        caller = caller or self.caller
        if not self.preparer.is_long(caller, type_, request):
            return super().ask(type_, request, caller)
        self.zxid += 1
        zxid, time_ms = Zxid(self.zxid), 1000 + self.zxid
        slices = self.preparer.prepare_long(caller, self.zxid, zxid, time_ms, type_, request)
        try:
            entry, long_txn = self._make(slices)
        except KeeperError as error:
            return self.refuse(caller, time_ms, error)
        if long_txn is not None and self.random.random() < 0.8:
            self._make(long_txn.compare(self.size))
        self.long_txns[zxid] = long_txn
        self.take_in(entry)
        return entry

    def _make(self, slices: Generator[None, None, T]) -> T:
        while True:
            if self.random.random() < 0.5:
                self.catch_up(max(len(self.waiting) - 1, 0))
            try:
                next(slices)
            except StopIteration as done:
                value: T = done.value
                return value
            self.slices += 1

    def apply(self, entry: LogEntry) -> None:
        for tree in (self.tree, self.learner):
            if not tree.is_frozen and self.random.random() < 0.5:
                tree.thaw_step(self.random.randint(1, 4))
            if self.random.random() < 0.1:
                thaw(tree)
                frozen = tree.freeze()
                check_order(frozen)
                if self.random.random() < 0.5:
                    frozen.close()
        learned = self.twin.apply(entry.header, entry.body)
        long_txn = self.long_txns.pop(entry.header.zxid, None)
        outcomes = [self.preparer.apply(entry, long_txn=long_txn)]
        txn = None
        if is_long(entry, self.size):
            before = all_of(self.learner)
            txn, _ = finished(read_long(self.learner, entry, self.size))
            assert all_of(self.learner) == before
        if txn is None:
            outcomes.append(self.learner.apply(entry.header, entry.body))
        else:
            outcomes.append(txn.install())
        for outcome, tree in zip(outcomes, (self.tree, self.learner), strict=True):
            assert outcome.error == learned.error
            assert outcome.changes == learned.changes
            assert reply_of(outcome) == reply_of(learned)
            assert all_of(tree) == all_of(self.twin)
        for applied in (long_txn, txn):
            while applied is not None and applied.let_go(self.size):
                pass


def check_order(frozen: FrozenTree) -> None:
    """A snapshot is written as it is walked over: each znode after its parent."""
    seen = {""}
    for path, _ in frozen.nodes():
        assert path[: path.rfind("/")] in seen
        seen.add(path if path != "/" else "")


def thaw(tree: Tree) -> None:
    while tree.is_frozen:
        tree.nodes.unfreeze()
    tree.find = tree.nodes.find
    while not tree.thaw_step(1 << 20):
        pass


def fitting_multi(random: Random, leader: Leader, count: int) -> tuple[MultiOp, ...]:
    """Operations most of which fit: on the tree, and on what those before them leave."""
    there = {path for path in PATHS if leader.preparer.find(path) is not None}
    ephemeral: set[str] = set()
    ops: list[MultiOp] = []
    for _ in range(count):
        path = random.choice(PATHS)
        parent = path[: path.rfind("/")]
        has_children = any(other.startswith(f"{path}/") for other in there)
        if path not in there and (not parent or parent in there) and parent not in ephemeral:
            flags = random.choice((0, 0, 1))
            acl = random.choice(ACLS)
            type_ = random.choice((OpCode.CREATE, OpCode.CREATE2))
            data = random.choice((None, b"", b"data"))
            ops.append(MultiOp(type_, CreateRequest(path, data, acl, flags)))
            there.add(path)
            if flags:
                ephemeral.add(path)
        elif path in there and not has_children and random.random() < 0.4:
            ops.append(MultiOp(OpCode.DELETE, DeleteRequest(path, -1)))
            there.discard(path)
            ephemeral.discard(path)
        elif path in there and random.random() < 0.7:
            data = random.choice((None, b"", b"other data"))
            ops.append(MultiOp(OpCode.SET_DATA, SetDataRequest(path, data, -1)))
        elif path in there:
            ops.append(MultiOp(OpCode.CHECK, CheckVersionRequest(path, -1)))
    return tuple(ops)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 20))
# A multi that failed made the end of a session forget an ephemeral of an earlier, pending txn.
@example(323189133, 2, 13)
def test_random_requests_in_slices__same_trees_and_answers(seed: int, size: int, lag: int) -> None:
    random = Random(seed)
    leader = LongLeader(random, size, lag)
    wisher = Wisher(random, is_harmless=False)
    callers = (BOBS_CALLER, Caller(OTHER, (Id("ip", "127.0.0.1"),)))
    leader.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000), callers[1])
    for step in range(40):
        caller = random.choice(callers)
        match random.randrange(12):
            case 0:
                leader.ask(OpCode.CLOSE_SESSION, None, caller)
                leader.ask(OpCode.CREATE_SESSION, CreateSessionTxn(4000 + step), caller)
            case 1 | 2 | 3 | 4 | 5:
                leader.ask(OpCode.MULTI, fitting_multi(random, leader, 12), caller)
            case 6:
                quota = random.choice(("/a", "/a/x"))
                leader.create(f"/zookeeper/quota{quota}")
                leader.create(f"/zookeeper/quota{quota}/zookeeper_limits", data=b"count=9")
                leader.create(f"/zookeeper/quota{quota}/zookeeper_stats", data=b"count=0,bytes=0")
            case _:
                leader.ask(*wisher.wish(), caller)
    leader.catch_up()
    assert leader.preparer.digest == leader.tree.digest


def test_fitting_multis__are_long_and_succeed() -> None:
    """The test above is about what it says."""
    random = Random(1)
    leader = LongLeader(random, 2, 3)
    done = 0
    for _ in range(50):
        entry = leader.ask(OpCode.MULTI, fitting_multi(random, leader, 12))
        done += leader.long_txns.get(entry.header.zxid) is not None
    leader.catch_up()
    assert done > 10
    assert leader.slices > 100


def many_creates(count: int, flags: int = 0) -> tuple[MultiOp, ...]:
    return tuple(
        MultiOp(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN_ACL, flags))
        for number in range(count)
    )


def test_list_that_is_sorted_in_slices__comes_in_order_and_takes_several() -> None:
    texts = [f"/{number}" for number in range(1000)]
    Random(7).shuffle(texts)
    ordered, slices = finished(sorted_in_slices(texts, 10))
    assert list(ordered) == sorted(texts)
    assert slices > 10
    assert list(finished(sorted_in_slices([], 10))[0]) == []


def test_slices__each_is_of_bounded_size() -> None:
    """So many steps, on whatever server: what a slice computes is counted, not timed."""
    leader = Leader(options_of(10))
    ops = many_creates(1000, flags=1)
    slices = leader.preparer.prepare_long(BOBS_CALLER, 1, Zxid(2), 5, OpCode.MULTI, ops)
    (entry, long_txn), made = finished(slices)
    assert made > 1000 / 10 * 2
    _, read = finished(read_long(leader.twin, entry, 10))
    assert read > 1000 / 10 * 2
    assert long_txn is not None
    leader.preparer.apply(entry, long_txn=long_txn)
    leader.twin.apply(entry.header, entry.body)
    slices = leader.preparer.prepare_long(BOBS_CALLER, 1, Zxid(3), 5, OpCode.CLOSE_SESSION, None)
    (entry, _), made = finished(slices)
    assert isinstance(entry.body, CloseSessionTxn)
    assert len(entry.body.paths or ()) == 1000
    assert made > 1000 / 10 * 2
    assert finished(read_long(leader.twin, entry, 10))[1] > 1000 / 10 * 2


@pytest.mark.parametrize("listed", [5, 8])
def test_end_of_a_session_that_does_not_list_all_ephemerals__deletes_them_all(listed: int) -> None:
    """As in one piece: what is not listed goes after what is, in the order of the paths."""
    leader = Leader(options_of(2))
    leader.ask(OpCode.MULTI, many_creates(8, flags=1), BOBS_CALLER)
    leader.catch_up()
    header = TxnHeader(BOBS_CALLER.session_id, 0, Zxid(99), 4000, OpCode.CLOSE_SESSION)
    paths = tuple(f"/n{number}" for number in reversed(range(listed)))
    entry = LogEntry(header, CloseSessionTxn(paths), None)
    txn, _ = finished(read_long(leader.tree, entry, 2))
    assert txn is not None
    outcome = txn.install()
    assert outcome.changes == leader.twin.apply(header, entry.body).changes
    assert len(outcome.changes) == 8
    assert all_of(leader.tree) == all_of(leader.twin)


@pytest.mark.parametrize("change", ["znode", "exists", "stray", "digest", "zxid"])
def test_tree_that_is_another_one__nothing_is_installed(change: str) -> None:
    """Everything is checked before anything changes (R12)."""
    leader = Leader(options_of(2))
    assert leader.create("/a") == 0
    ops = (*many_creates(4), MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"new", -1)))
    slices = leader.preparer.prepare_long(BOBS_CALLER, 9, Zxid(99), 5, OpCode.MULTI, ops)
    (entry, long_txn), _ = finished(slices)
    assert long_txn is not None
    # Compared with the tree as it still is then.
    finished(long_txn.compare(2))
    tree = leader.tree
    header = TxnHeader(SESSION, 1, Zxid(98), 4000, OpCode.SET_DATA)
    digest = tree.digest
    if change == "znode":
        tree.apply(header, SetDataTxn("/a", b"other", 1))
    elif change == "exists":
        header = header._replace(type=OpCode.CREATE)
        tree.apply(header, CreateTxn("/n0", b"", OPEN_ACL, False, 2))
    elif change == "stray":
        # Not even its parent shows it.
        tree.nodes.insert("/n0", make_node(b"", -1, tree.nodes.find("/a").stat))  # type: ignore[union-attr]
        tree.advance(Zxid(98))
    elif change == "zxid":
        tree.advance(Zxid(99))
    # The digest is one check, the znodes themselves are another.
    tree.digest = digest ^ (change == "digest")
    before = all_of(tree)
    with pytest.raises(ReplayConflict, match="another tree"):
        leader.preparer.apply(entry, long_txn=long_txn)
    assert all_of(tree) == before


def test_end_of_a_session__its_znodes_are_gone_at_once_and_freed_in_slices() -> None:
    leader = Leader(options_of(10))
    leader.ask(OpCode.MULTI, many_creates(100, flags=1))
    leader.catch_up()
    tree = leader.tree
    slices = leader.preparer.prepare_long(
        BOBS_CALLER, 1, Zxid(leader.zxid + 1), 5, OpCode.CLOSE_SESSION, None
    )
    (entry, long_txn), _ = finished(slices)
    assert long_txn is not None
    assert finished(long_txn.compare(10))[1] > 1
    leader.preparer.apply(entry, long_txn=long_txn)
    leader.twin.apply(entry.header, entry.body)
    assert all_of(tree) == all_of(leader.twin)
    steps = 0
    while not tree.thaw_step(10):
        steps += 1
    assert steps >= 100 * 2 // 10
    assert tree.nodes.is_plain
    assert all_of(tree) == all_of(leader.twin)


def test_snapshot_that_is_being_taken__does_not_show_it() -> None:
    leader = Leader(options_of(2))
    for path in ("/a", "/b", "/c"):
        assert leader.create(path, data=b"old") == 0
    ops = (
        MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"new", -1)),
        MultiOp(OpCode.DELETE, DeleteRequest("/b", -1)),
        MultiOp(OpCode.CREATE, CreateRequest("/b", b"new", ACLS[1], 0)),
        MultiOp(OpCode.SET_DATA, SetDataRequest("/c", None, -1)),
        *many_creates(4),
    )
    slices = leader.preparer.prepare_long(BOBS_CALLER, 9, Zxid(99), 5, OpCode.MULTI, ops)
    (entry, long_txn), _ = finished(slices)
    with leader.tree.freeze() as frozen:
        expected = {path: encode_node(path, node) for path, node in frozen.nodes()}
        leader.preparer.apply(entry, long_txn=long_txn)
        assert {path: encode_node(path, node) for path, node in frozen.nodes()} == expected
    assert leader.tree.find("/a").data == leader.tree.find("/b").data == b"new"  # type: ignore[union-attr]


@pytest.mark.parametrize("is_last", [False, True])
def test_learner_with_another_tree__refuses_before_anything_changes(is_last: bool) -> None:
    leader = Leader(options_of(2))
    entry = leader.ask(OpCode.MULTI, many_creates(9))
    other = Tree()
    header = TxnHeader(SESSION, 1, Zxid(1), 4000, OpCode.CREATE)
    path = "/n8" if is_last else "/n0"
    made = Leader().ask(OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, 0))
    other.apply(header, made.body)
    before = all_of(other)
    with pytest.raises(ReplayConflict, match="create"):
        finished(read_long(other, entry, 2))
    assert all_of(other) == before


def test_multi_that_fails_late__leaves_nothing_pending() -> None:
    """Also where the tree took, between two slices, what the multi had begun to change."""
    leader = Leader(options_of(2), lag=5)
    assert leader.create("/a") == 0
    ops = (
        MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"never", -1)),
        *many_creates(6),
        MultiOp(OpCode.DELETE, DeleteRequest("/none", -1)),
    )
    leader.zxid += 1
    zxid = Zxid(leader.zxid)
    slices = leader.preparer.prepare_long(BOBS_CALLER, 9, zxid, 5, OpCode.MULTI, ops)
    next(slices)
    leader.catch_up()
    (entry, _), _ = finished(slices)
    leader.take_in(entry)
    leader.catch_up()
    assert leader.preparer.digest == leader.tree.digest
    assert leader.preparer.find("/n0") is None
    found = leader.preparer.find("/a")
    assert found is not None
    assert found.data == b""
    assert not leader.preparer._pending.nodes
    assert leader.code(OpCode.SET_DATA, SetDataRequest("/a", b"later", 0)) == 0
