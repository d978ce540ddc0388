"""The one digest that Apache logs wrong is distinguished from all others, however it spreads."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from keepfast.tree import (
    CONTAINER_OWNER,
    ROOT,
    ContainerQuirk,
    DigestFit,
    Tree,
    node_crc,
    parent_of,
    with_owner,
)
from keepfast.wire import (
    OPEN_ACL,
    CreateTxn,
    DeleteTxn,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetDataTxn,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_txn_body,
    encode_txn_body,
)

MODULUS = 1 << 64


class Leader:
    """Apache's leader as far as digests go: it hashes what it has prepared, not what it has.

    `tree` holds all that was prepared. A znode is hashed as a container while the change that made
    it so in the leader's eyes waits to be applied.
    """

    def __init__(self, source: random.Random) -> None:
        self.tree = Tree()
        self._source = source
        self._waiting: dict[str, bool] = {}  # znodes with a waiting change -> as a container
        self._chain: int | None = None  # digest of the last txn, if any waits

    def idle(self) -> None:
        """All is applied."""
        self._waiting.clear()
        self._chain = None

    def apply_some(self) -> None:
        """Some of what waits is applied; what was prepared last is not."""
        for path in list(self._waiting):
            if self._source.random() < 0.5:
                del self._waiting[path]

    def log(self, type_: OpCode, body: TxnBody, as_containers: frozenset[str]) -> LogEntry:
        """Prepare a txn; `as_containers` are those of its creates that had the container flag."""
        zxid = Zxid(self.tree.last_zxid + 1)
        header = TxnHeader(SessionId(7), 0, zxid, 1_700_000_000_000 + zxid, type_.value)
        touched = touched_by(body)
        start = self.tree.digest if self._chain is None else self._chain
        gone = sum(self._hash(path) for path in touched)
        self.tree.apply(header, body)
        for path in touched:
            self._waiting[path] = path in as_containers or self._waiting.get(path, False)
            if self.tree.find(path) is None:
                self._waiting[path] = False
        self._chain = (start - gone + sum(self._hash(path) for path in touched)) % MODULUS
        return LogEntry(header, body, TxnDigest(2, self._chain))

    def _hash(self, path: str) -> int:
        node = self.tree.find(path)
        if node is None:
            return 0
        stat = with_owner(node.stat, CONTAINER_OWNER) if self._waiting.get(path) else node.stat
        return node_crc(path, node.data, stat)


def bodies_of(body: TxnBody) -> list[TxnBody]:
    if isinstance(body, MultiTxn):
        return [decode_txn_body(sub.type, sub.data) for sub in body.txns or ()]
    return [body]


def touched_by(body: TxnBody) -> list[str]:
    paths: dict[str, None] = {}
    for one in bodies_of(body):
        assert isinstance(one, CreateTxn | DeleteTxn | SetDataTxn)
        paths[one.path] = None
        if not isinstance(one, SetDataTxn):
            paths[parent_of(one.path)] = None
    return list(paths)


class History:
    """Random txns on few znodes, so that they often meet one that is taken for a container."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.leader = Leader(self.random)
        self._count = 0

    def next(self) -> LogEntry:
        draw = self.random.random()
        if draw < 0.08:
            self.leader.idle()
        elif draw < 0.3:
            self.leader.apply_some()
        if self.random.random() < 0.1:
            return self._multi()
        type_, body, as_containers = self._one()
        return self.leader.log(type_, body, as_containers)

    def _one(self) -> tuple[OpCode, TxnBody, frozenset[str]]:
        tree = self.leader.tree
        paths = sorted(path for path in tree.paths() if not path.startswith("/zookeeper"))
        path = self.random.choice(paths)
        node = tree.find(path)
        assert node is not None
        draw = self.random.random()
        if draw < 0.4 and path != ROOT and not node.children:
            return OpCode.DELETE, DeleteTxn(path), frozenset()
        if draw < 0.6:
            version = int.from_bytes(node.stat[32:36], "big") + 1
            return OpCode.SET_DATA, SetDataTxn(path, self.random.randbytes(5), version), frozenset()
        self._count += 1
        below = f"{path}/{self._count}".replace("//", "/")
        cversion = int.from_bytes(node.stat[36:40], "big") + 1
        body = CreateTxn(below, self.random.randbytes(5), OPEN_ACL, False, cversion)
        return OpCode.CREATE2, body, frozenset([below] if self.random.random() < 0.3 else [])

    def _multi(self) -> LogEntry:
        """Creates below different parents, so that no one builds on another."""
        subs: list[SubTxn] = []
        flagged: set[str] = set()
        parents: set[str] = set()
        for _ in range(self.random.randrange(1, 4)):
            type_, body, as_containers = self._one()
            if isinstance(body, CreateTxn) and not parents & {parent_of(body.path), body.path}:
                parents |= {parent_of(body.path), body.path}
                flagged |= as_containers
                subs.append(SubTxn(type_, encode_txn_body(body)))
        return self.leader.log(OpCode.MULTI, MultiTxn(tuple(subs)), frozenset(flagged))


def test_every_digest_of_such_a_leader__right_or_explained(tell: Callable[[str], None]) -> None:
    right = explained = 0
    for seed in range(40):
        history = History(seed)
        tree, quirk = Tree(), ContainerQuirk()
        for _ in range(150):
            entry = history.next()
            tree.apply(entry.header, entry.body)
            fit = quirk.judge(tree, entry)
            assert fit is not DigestFit.WRONG, f"seed {seed}, zxid {entry.header.zxid:#x}"
            right += fit is DigestFit.RIGHT
            explained += fit is DigestFit.EXPLAINED
    assert right > 500
    assert explained > 500
    tell(f"{right} digests right, {explained} explained")


@pytest.mark.parametrize("seed", range(20))
def test_another_tree__is_never_explained(seed: int) -> None:
    """From one changed byte on, no digest is accepted: neither as right nor as Apache's own."""
    history = History(seed)
    tree, quirk = Tree(), ContainerQuirk()
    for _ in range(80):
        entry = history.next()
        tree.apply(entry.header, entry.body)
        assert quirk.judge(tree, entry) is not DigestFit.WRONG
    header = TxnHeader(SessionId(7), 0, Zxid(1 << 40), 0, OpCode.CREATE.value)
    tree.apply(header, CreateTxn("/strange", b"", OPEN_ACL, False, -1))
    tree.last_zxid = history.leader.tree.last_zxid

    assert (
        quirk.judge(tree, history.leader.log(OpCode.MULTI, MultiTxn(()), frozenset()))
        is DigestFit.WRONG
    )
