"""A tree that is too simple to be wrong, and histories that fit it.

The model keeps plain numbers in a dict and computes the digests from all znodes, by the words of
the format's description. It shares no code with the package under test but the txn records.
"""

from __future__ import annotations

import copy
import hashlib
import struct
import zlib
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from keepfast.tree import Tree, persisted
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    READ_ACL,
    AclList,
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTTLTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    Id,
    LogEntry,
    MultiTxn,
    OpCode,
    SessionId,
    SetACLTxn,
    SetDataTxn,
    StatPersisted,
    SubTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    encode_txn_body,
)

MODULUS = 1 << 64
CONTAINER = -(1 << 63)
TTL = -(1 << 56)
BUILT_IN = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")
ACLS: tuple[AclList | None, ...] = (
    OPEN_ACL,
    READ_ACL,
    (ACL(31, Id("digest", "bob:secret")), ACL(1, Id("ip", "127.0.0.1"))),
    None,
)
START_MS = 1_700_000_000_000


@dataclass
class ModelNode:
    """One znode as a bag of numbers."""

    data: bytes | None
    acl: AclList
    czxid: int = 0
    mzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    cversion: int = 0
    aversion: int = 0
    owner: int = 0
    pzxid: int = 0

    def stat(self) -> StatPersisted:
        return StatPersisted(
            *(self.czxid, self.mzxid, self.ctime, self.mtime),
            *(self.version, self.cversion, self.aversion, self.owner, self.pzxid),
        )

    def crc(self, path: str) -> int:
        zxids = struct.pack(">qqq", self.czxid, self.mzxid, self.pzxid)
        times = struct.pack(">qq", self.ctime, self.mtime)
        versions = struct.pack(">iii", self.version, self.cversion, self.aversion)
        name = "" if path == "/" else path
        hashed = name.encode() + (self.data or b"") + zxids + times + versions
        return zlib.crc32(hashed + struct.pack(">q", self.owner))


@dataclass
class Model:
    """The whole state; it expects txns that fit."""

    nodes: dict[str, ModelNode] = field(
        default_factory=lambda: {
            "/": ModelNode(b"", OPEN_ACL),
            "/zookeeper": ModelNode(b"", OPEN_ACL),
            "/zookeeper/quota": ModelNode(b"", OPEN_ACL),
            "/zookeeper/config": ModelNode(b"", READ_ACL, aversion=-1),
        }
    )
    sessions: dict[int, int] = field(default_factory=dict)

    def parent(self, path: str) -> ModelNode:
        return self.nodes[path.rpartition("/")[0] or "/"]

    def children(self, path: str) -> set[str]:
        prefix = path.rstrip("/") + "/"
        return {
            other
            for other in self.nodes
            if other != path and other.startswith(prefix) and "/" not in other[len(prefix) :]
        }

    def ephemerals(self, session_id: int) -> list[str]:
        return sorted(path for path, node in self.nodes.items() if node.owner == session_id)

    def apply(self, header: TxnHeader, body: TxnBody | None) -> None:
        zxid, time_ms = header.zxid, header.time_ms
        if isinstance(body, CreateTxn | CreateTTLTxn | CreateContainerTxn):
            owner = 0
            if isinstance(body, CreateTTLTxn):
                owner = TTL | body.ttl
            elif isinstance(body, CreateContainerTxn):
                owner = CONTAINER
            elif body.ephemeral:
                owner = header.session_id
            parent = self.parent(body.path)
            parent.cversion, parent.pzxid = body.parent_cversion, zxid
            acl = OPEN_ACL if body.acl is None else body.acl
            self.nodes[body.path] = ModelNode(
                *(body.data, acl, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, zxid)
            )
        elif isinstance(body, DeleteTxn):
            self._delete(body.path, zxid)
        elif isinstance(body, SetDataTxn):
            node = self.nodes[body.path]
            node.data, node.version = body.data, body.version
            node.mzxid, node.mtime = zxid, time_ms
        elif isinstance(body, SetACLTxn):
            node = self.nodes[body.path]
            node.acl, node.aversion = OPEN_ACL if body.acl is None else body.acl, body.version
        elif isinstance(body, CreateSessionTxn):
            self.sessions[header.session_id] = body.timeout_ms
        elif header.type == OpCode.CLOSE_SESSION:
            for path in self.ephemerals(header.session_id):
                self._delete(path, zxid)
            self.sessions.pop(header.session_id, None)

    def _delete(self, path: str, zxid: int) -> None:
        del self.nodes[path]
        self.parent(path).pzxid = zxid

    def digest(self) -> int:
        counted = (p for p in self.nodes if not p.startswith("/zookeeper/"))
        return sum(self.nodes[path].crc(path) for path in counted) % MODULUS

    def state_digest(self) -> int:
        total = 0
        for path, node in self.nodes.items():
            acl = b"".join(
                struct.pack(">i", entry.perms)
                + b"".join(struct.pack(">i", len(text)) + text.encode() for text in entry.id)
                for entry in node.acl
            )
            weight = int.from_bytes(hashlib.sha256(acl).digest()[:8], "big") | 1
            total += (node.crc(path) + 1) * weight
        for session in self.sessions.items():
            packed = struct.pack(">qi", *session)
            total += int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "big")
        return total % MODULUS


def assert_same(tree: Tree, model: Model) -> None:
    """The tree holds exactly what the model holds."""
    assert set(tree.paths()) == set(model.nodes)
    for path, expected in model.nodes.items():
        node = tree.find(path)
        assert node is not None
        assert node.data == expected.data, path
        assert tree.acl_of(node) == expected.acl, path
        assert persisted(node) == expected.stat(), path
        assert sorted(node.children or ()) == sorted(model.children(path)), path
    assert tree.node_count == len(model.nodes)
    assert tree.data_size == sum(
        len(path) + len(node.data or b"") for path, node in model.nodes.items()
    )
    owners = {path: node.owner for path, node in model.nodes.items() if node.owner}
    assert tree.containers == {path for path, owner in owners.items() if owner == CONTAINER}
    assert tree.ttls == {p for p, owner in owners.items() if TTL <= owner < 0}
    sessions = {owner for owner in owners.values() if owner > 0}
    assert tree.ephemerals == {owner: set(model.ephemerals(owner)) for owner in sessions}
    assert tree.sessions == model.sessions
    assert tree.digest == model.digest()
    assert tree.state_digest == model.state_digest()


class Op(NamedTuple):
    """A wish: what to do, and numbers that pick where. The historian makes a fitting txn of it."""

    kind: str
    where: int
    what: int
    data: bytes | None


KINDS = (
    *("create", "create", "create", "delete", "delete", "set", "acl"),
    *("multi", "failed multi", "error", "open", "close", "config"),
)

ops = st.builds(
    Op,
    st.sampled_from(KINDS),
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.none() | st.binary(max_size=8),
)
# At least some: with none allowed, Hypothesis mostly tries very short ones.
histories = st.lists(ops, min_size=12, max_size=60)


class Historian:
    """Makes a history that fits: each wish becomes the txn that a leader would make of it."""

    def __init__(self, *, is_listing: bool = False) -> None:
        """`is_listing`: each closeSession lists its ephemerals, as 3.6 and later do."""
        self.is_listing = is_listing
        self.model = Model()
        self.zxid = 0
        self.entries: list[LogEntry] = []

    def write(self, op: Op) -> LogEntry:
        """The txn for a wish; the model is changed by it."""
        self.zxid += 1
        session_id, type_, body = self._draft(op)
        time_ms = START_MS + 7 * self.zxid
        header = TxnHeader(SessionId(session_id), 1, Zxid(self.zxid), time_ms, type_)
        if not isinstance(body, MultiTxn):
            self.model.apply(header, body)
        entry = LogEntry(header, body, TxnDigest(2, self.model.digest()))
        self.entries.append(entry)
        return entry

    def _draft(self, op: Op) -> tuple[int, int, TxnBody | None]:
        session_id = 1 + op.what % 3
        if op.kind == "open":
            return session_id, OpCode.CREATE_SESSION, CreateSessionTxn(4000 + op.where)
        if op.kind == "close":
            # Otherwise every third as servers before 3.6 log it.
            paths = tuple(self.model.ephemerals(session_id))
            close = CloseSessionTxn(paths) if op.where % 3 or self.is_listing else None
            return session_id, OpCode.CLOSE_SESSION, close
        if op.kind == "error":
            return session_id, OpCode.ERROR, ErrorTxn(-101)
        if op.kind == "config":
            return session_id, OpCode.RECONFIG, SetDataTxn("/zookeeper/config", op.data, -1)
        if op.kind == "acl":
            path = self._pick(sorted(self.model.nodes), op.where)
            aversion = self.model.nodes[path].aversion + 1
            acl = ACLS[op.what % len(ACLS)]
            return session_id, OpCode.SET_ACL, SetACLTxn(path, acl, aversion)
        if op.kind in ("multi", "failed multi"):
            return session_id, OpCode.MULTI, self._draft_multi(op, session_id)
        return session_id, *self._draft_simple(self.model, op, session_id)

    def _draft_simple(self, model: Model, op: Op, session_id: int) -> tuple[int, TxnBody]:
        if op.kind == "create":
            parents = sorted(path for path, node in model.nodes.items() if node.owner <= 0)
            parent = self._pick([p for p in parents if p.count("/") < 4], op.where)
            path = f"{parent.rstrip('/')}/{'abc'[op.what % 3]}"
            if path not in model.nodes:
                return self._draft_create(model, path, op)
        if op.kind == "delete":
            leaves = [
                path
                for path in sorted(model.nodes)
                if path not in BUILT_IN and not model.children(path)
            ]
            if leaves:
                path = self._pick(leaves, op.where)
                is_cleaned = model.nodes[path].owner < 0 and op.what % 2
                type_ = OpCode.DELETE_CONTAINER if is_cleaned else OpCode.DELETE
                return type_, DeleteTxn(path)
        path = self._pick([p for p in sorted(model.nodes) if p != "/zookeeper/config"], op.where)
        return OpCode.SET_DATA, SetDataTxn(path, op.data, model.nodes[path].version + 1)

    def _draft_create(self, model: Model, path: str, op: Op) -> tuple[int, TxnBody]:
        acl = ACLS[op.where % len(ACLS)]
        cversion = model.parent(path).cversion + 1
        match op.where % 5:
            case 0:
                return OpCode.CREATE_CONTAINER, CreateContainerTxn(path, op.data, acl, cversion)
            case 1:
                ttl = CreateTTLTxn(path, op.data, acl, cversion, 1 + op.what)
                return OpCode.CREATE_TTL, ttl
            case kind:
                type_ = OpCode.CREATE if op.what % 2 else OpCode.CREATE2
                return type_, CreateTxn(path, op.data, acl, kind == 2, cversion)

    def _draft_multi(self, op: Op, session_id: int) -> MultiTxn:
        model = copy.deepcopy(self.model)
        time_ms = START_MS + 7 * self.zxid
        subs = []
        for index in range(op.where % 5):
            kind = ("create", "set", "delete", "check", "create")[(op.what + index) % 5]
            step = Op(kind, op.where // 5 + 13 * index, op.what // 5 + index, op.data)
            if kind == "check":
                path = self._pick(sorted(model.nodes), step.where)
                check = CheckVersionTxn(path, model.nodes[path].version + 1)
                subs.append(SubTxn(OpCode.CHECK, encode_txn_body(check)))
                continue
            type_, body = self._draft_simple(model, step, session_id)
            header = TxnHeader(SessionId(session_id), 1, Zxid(self.zxid), time_ms, type_)
            model.apply(header, body)
            subs.append(SubTxn(type_, encode_txn_body(body)))
        if op.kind == "failed multi":
            subs.append(SubTxn(OpCode.ERROR, encode_txn_body(ErrorTxn(-110))))
        else:
            self.model = model
        return MultiTxn(tuple(subs))

    @staticmethod
    def _pick(paths: list[str], number: int) -> str:
        return paths[number % len(paths)]


def write_history(wishes: list[Op], *, is_listing: bool = False) -> Historian:
    """A history of as many txns as there are wishes."""
    historian = Historian(is_listing=is_listing)
    for op in wishes:
        historian.write(op)
    return historian


def tree_of(entries: list[LogEntry]) -> Tree:
    """A tree with these txns applied to Apache's empty one."""
    tree = Tree()
    for entry in entries:
        tree.apply(entry.header, entry.body)
    return tree
