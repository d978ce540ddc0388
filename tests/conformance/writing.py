"""Random histories that Keepfast writes by itself: requests become txns, txns are stored, applied.

A `Writer` is a leader without a network: the Preparer makes txns, the Store makes groups of them
durable, the Tree applies what is durable. The seed fixes everything, so the same seed gives the
same directory.

    python -m tests.conformance.writing DIR SEED    write until killed; prints each durable zxid
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from keepfast.storage import Epochs, Recovery, SnapshotWriter, Standing, Store, StoreOptions
from keepfast.tree import Caller, ChangeKind, PrepareOptions, Preparer, Tree
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    CheckVersionRequest,
    CreateContainerTxn,
    CreateMode,
    CreateRequest,
    CreateSessionTxn,
    CreateTTLRequest,
    CreateTTLTxn,
    CreateTxn,
    DeleteContainerRequest,
    DeleteRequest,
    ErrorTxn,
    Id,
    KeeperError,
    LogEntry,
    MultiOp,
    OpCode,
    SessionId,
    SetACLRequest,
    SetACLTxn,
    SetDataRequest,
    TxnHeader,
    Zxid,
    encode_entry,
    epoch_of,
    make_zxid,
)
from tests.apache.history import PathPool
from tests.conformance.judging import DISK, directory_of

ROOT = "/ours"

_NAMES = ("n", "lock-", "état-", "漢字", "a b", "x.y", "Ω", "ﬁ", "member_", "﻿", "ß", "-")
_DIGEST_IDS = (Id("digest", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0="), Id("digest", "eve:x="))
_ADDRESS = Id("ip", "127.0.0.1")
_ACLS: tuple[AclList, ...] = (
    OPEN_ACL,
    (ACL(31, Id("world", "anyone")), ACL(1, _DIGEST_IDS[0])),
    (ACL(29, Id("world", "anyone")), ACL(31, _ADDRESS)),
    (ACL(31, Id("ip", "127.0.0.0/8")), ACL(1, Id("world", "anyone"))),
    (ACL(31, Id("auth", "")), ACL(23, Id("world", "anyone"))),
    (ACL(31, _DIGEST_IDS[0]), ACL(31, _DIGEST_IDS[1]), ACL(19, Id("world", "anyone"))),
)
_TTLS_MS = (1, 40, 60_000, (1 << 40) - 1)
_LIMITS_OF_ROOT = "/zookeeper/quota/zookeeper_limits"
_ANY = -1
_NEVER = 1_000_000
_LARGE_BYTES = (9_000, 30_000, 300_000)
_FIRST_TIME_MS = 1_700_000_000_000
_LARGEST_TREE = 4_000
# Group sizes as a loaded server has them: single records, and many at once.
_WITH_ACL = CreateTxn | CreateContainerTxn | CreateTTLTxn | SetACLTxn
_GROUPS = (1, 5, 20, 100, 300)


class Writer:
    """A directory open for writing, and what writes to it. `counts` tells what was done."""

    def __init__(
        self,
        path: Path,
        *,
        seed: int,
        options: StoreOptions | None = None,
        log_path: Path | None = None,
    ) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._options = options or StoreOptions(grow_bytes=1 << 16, segment_bytes=1 << 20)
        self._names_given = seed * 1_000_000
        self._time_ms = _FIRST_TIME_MS
        self._next_session = (1 << 56) | (seed << 24)
        self._callers: list[Caller] = []
        self._waiting: list[LogEntry] = []
        self._snapshot: SnapshotWriter | None = None
        directory = directory_of(path, log_path)
        self.store, self.recovery = Store.open(DISK, directory, self._options)
        tree = self.recovery.tree
        if tree is None:
            assert self.recovery.standing is Standing.EMPTY
            tree = self.store.initialise()
        self.take(tree)

    def take(self, tree: Tree) -> None:
        """Go on from a state that the store now holds."""
        self.tree = tree
        self._preparer = Preparer(tree, PrepareOptions(is_ttl_enabled=True))
        self._zxid = self.store.head
        assert self._zxid >= tree.last_zxid
        self._waiting.clear()
        self._callers = [
            Caller(SessionId(id), self._ids(), False, False) for id in sorted(tree.sessions)
        ]
        self._paths = PathPool()
        for path in tree.paths():
            self._paths.add(path, None)

    # --- what a driver does

    def write(self, operations: int) -> None:
        """Do random operations; on return all of them are durable and applied."""
        group = 1
        for _ in range(operations):
            self._operation()
            if len(self._waiting) >= group:
                self.settle()
                group = self.random.choice(_GROUPS)
            self._step_snapshot()
        self.settle()

    def settle(self) -> None:
        """Make durable what waits, then apply it."""
        self.store.sync()
        for entry in self._waiting:
            outcome = self._preparer.apply(entry)
            self._take_odd_acl(entry)
            if entry.digest is not None:
                assert self.tree.digest == entry.digest.tree_digest, hex(entry.header.zxid)
            for change in outcome.changes:
                if change.kind is ChangeKind.CREATED:
                    self._paths.add(change.path, None)
                elif change.kind is ChangeKind.DELETED:
                    self._paths.remove(change.path)
        self._waiting.clear()

    def begin_snapshot(self) -> None:
        """Start a snapshot of this moment; `write` continues with it between its operations."""
        self.finish_snapshot()
        self.settle()
        self._snapshot = self.store.begin_snapshot(self.tree.freeze())

    def finish_snapshot(self) -> None:
        while self._snapshot is not None:
            self._step_snapshot()

    def _step_snapshot(self) -> None:
        writer = self._snapshot
        if writer is not None and not writer.step():
            self._snapshot = None
            self.store.publish_snapshot(writer.complete())
            while not self.tree.thaw_step(100):
                pass
            self.counts["snapshots"] += 1

    def begin_epoch(self) -> None:
        """As a new leader does: the next record opens the next epoch."""
        self.settle()
        # Above all that was ever promised, also in records that were truncated.
        epoch = max(epoch_of(self._zxid), self.store.epochs.accepted or 0) + 1
        self.store.set_epochs(Epochs(epoch, epoch))
        self._zxid = make_zxid(epoch, 0)
        self.counts["epochs"] += 1

    def truncate(self, zxid: Zxid) -> Recovery:
        self.finish_snapshot()
        self.settle()
        recovery = self.store.truncate(zxid)
        assert recovery.tree is not None
        self.take(recovery.tree)
        return recovery

    def install(self, tree: Tree) -> None:
        self.finish_snapshot()
        self.settle()
        self.store.install_snapshot(tree)
        self.take(tree)

    def close(self) -> None:
        self.finish_snapshot()
        self.settle()
        self.store.close()

    # --- one operation

    def _operation(self) -> None:
        if not self._callers or self.random.random() < 0.004:
            self._open_session()
        if ROOT not in self._paths and not self._waiting:
            self._ask(self._callers[0], OpCode.CREATE, CreateRequest(ROOT, b"", OPEN_ACL, 0))
            self.settle()
        kinds = list(_MAKERS)
        kind = self.random.choices(kinds, [_MAKERS[kind][0] for kind in kinds])[0]
        if kind.startswith("create") and len(self._paths) > _LARGEST_TREE:
            kind = "delete"
        _MAKERS[kind][1](self)

    def _ask(self, caller: Caller, type_: OpCode, request: Any) -> None:
        """One request: a txn, or an error that is logged in its place."""
        self._time_ms += self.random.randrange(50)
        zxid = self._zxid = Zxid(self._zxid + 1)
        cxid = self.counts["operations"] & 0x7FFFFFFF
        self.counts["operations"] += 1
        try:
            entry = self._preparer.prepare(caller, cxid, zxid, self._time_ms, type_, request)
        except KeeperError as error:
            header = TxnHeader(caller.session_id, cxid, zxid, self._time_ms, OpCode.ERROR.value)
            entry = LogEntry(header, ErrorTxn(error.code), None)
            self.counts[error.code.name] += 1
        else:
            entry = self._with_odd_acl(entry)
            self.counts[type_.name] += 1
        digest = None if entry.digest is None else entry.digest.tree_digest
        self.store.append(zxid, encode_entry(entry), digest)
        self._waiting.append(entry)

    def _take_odd_acl(self, entry: LogEntry) -> None:
        """What was prepared had a list; the tree gets what is in the log instead."""
        body = entry.body
        if isinstance(body, _WITH_ACL) and not body.acl:
            node = self.tree.find(body.path)
            assert node is not None
            self.tree.replace_acl(body.path, node, body.acl)

    def _with_odd_acl(self, entry: LogEntry) -> LogEntry:
        """Now and then a null or an empty list, which no client may ask for and old logs have."""
        body = entry.body
        if isinstance(body, _WITH_ACL) and body.acl == OPEN_ACL and self.random.random() < 0.03:
            self.counts["odd ACLs"] += 1
            return entry._replace(body=body._replace(acl=self.random.choice((None, ()))))
        return entry

    # --- what requests are about

    def _caller(self) -> Caller:
        return self.random.choice(self._callers)

    def _ids(self) -> tuple[Id, ...]:
        return (_ADDRESS, *self.random.sample(_DIGEST_IDS, self.random.randrange(3)))

    def _path(self) -> str:
        return self._paths.choose(self.random)

    def _new_path(self) -> str:
        self._names_given += 1
        parent = self._path() if self.random.random() < 0.5 else ROOT
        name = f"{self.random.choice(_NAMES)}{self._names_given}"
        return f"/{name}" if parent == "/" else f"{parent}/{name}"

    def _data(self) -> bytes | None:
        draw = self.random.random()
        if draw < 0.05:
            return None
        if draw < 0.1:
            return b""
        if draw < 0.103:
            return self.random.randbytes(self.random.choice(_LARGE_BYTES))
        return self.random.randbytes(self.random.randrange(1, 120))

    def _acl(self) -> AclList:
        return OPEN_ACL if self.random.random() < 0.8 else self.random.choice(_ACLS)

    # --- makers

    def _open_session(self) -> None:
        if self._callers and self.random.random() < 0.1:
            caller = self._caller()  # again, perhaps with another timeout
        else:
            self._next_session += 1
            caller = Caller(SessionId(self._next_session), self._ids())
            self._callers.append(caller)
        # Long: a server that reads them later must not see them run out.
        timeout_ms = self.random.choice((400_000, 500_000, 600_000))
        self._ask(caller, OpCode.CREATE_SESSION, CreateSessionTxn(timeout_ms))

    def _close_session(self) -> None:
        caller = self._callers.pop(self.random.randrange(len(self._callers)))
        self._ask(caller, OpCode.CLOSE_SESSION, None)
        if self.random.random() < 0.1:
            # The client's close and an expiry cross.
            self._ask(caller, OpCode.CLOSE_SESSION, None)
            self._ask(caller, OpCode.SET_DATA, SetDataRequest(ROOT, b"late", _ANY))
        if not self._callers:
            self._open_session()

    def _create(self) -> None:
        type_ = self.random.choice((OpCode.CREATE, OpCode.CREATE2))
        flags = self.random.choice((0, 0, 0, 1, 1, 2, 3, 4))
        request = CreateRequest(self._new_path(), self._data(), self._acl(), flags)
        self._ask(self._caller(), type_, request)

    def _create_container(self) -> None:
        mode = CreateMode.CONTAINER.value
        request = CreateRequest(self._new_path(), self._data(), self._acl(), mode)
        self._ask(self._caller(), OpCode.CREATE_CONTAINER, request)

    def _create_ttl(self) -> None:
        ttl_ms = self.random.choice(_TTLS_MS)
        flags = self.random.choice((5, 6))
        request = CreateTTLRequest(self._new_path(), self._data(), self._acl(), flags, ttl_ms)
        self._ask(self._caller(), OpCode.CREATE_TTL, request)

    def _set_data(self) -> None:
        request = SetDataRequest(self._path(), self._data(), _ANY)
        self._ask(self._caller(), OpCode.SET_DATA, request)

    def _set_acl(self) -> None:
        path = self._path()
        # The root stays open for whoever writes next.
        acl = OPEN_ACL if path == "/" else self.random.choice(_ACLS)
        request = SetACLRequest(path, acl, _ANY)
        self._ask(self._caller(), OpCode.SET_ACL, request)

    def _delete(self) -> None:
        self._ask(self._caller(), OpCode.DELETE, DeleteRequest(self._path(), _ANY))

    def _clean(self) -> None:
        """What the cleaner of containers and TTL znodes does."""
        found = sorted(self.tree.containers | self.tree.ttls)
        if found:
            path = self.random.choice(found).encode()
            request = DeleteContainerRequest(path)
            self._ask(Caller(SessionId(0)), OpCode.DELETE_CONTAINER, request)

    def _multi_ops(self) -> list[MultiOp]:
        first, second = self._new_path(), self._new_path()
        ops = [
            MultiOp(OpCode.CREATE, CreateRequest(first, self._data(), OPEN_ACL, 0)),
            MultiOp(OpCode.SET_DATA, SetDataRequest(first, self._data(), 0)),
            MultiOp(OpCode.CHECK, CheckVersionRequest(first, 1)),
            MultiOp(OpCode.CREATE2, CreateRequest(f"{first}/seq-", self._data(), self._acl(), 2)),
            MultiOp(OpCode.CREATE, CreateRequest(f"{first}/own", self._data(), OPEN_ACL, 1)),
            MultiOp(OpCode.CREATE_CONTAINER, CreateRequest(second, self._data(), OPEN_ACL, 4)),
            MultiOp(
                OpCode.CREATE_TTL,
                CreateTTLRequest(f"{second}/ttl", self._data(), OPEN_ACL, 5, 60_000),
            ),
            MultiOp(OpCode.DELETE, DeleteRequest(f"{second}/ttl", 0)),
            MultiOp(OpCode.SET_DATA, SetDataRequest(self._path(), self._data(), _ANY)),
        ]
        return ops[: self.random.randrange(len(ops) + 1)]

    def _multi(self) -> None:
        self._ask(self._caller(), OpCode.MULTI, tuple(self._multi_ops()))

    def _failing_multi(self) -> None:
        bad = self.random.choice(
            (
                MultiOp(OpCode.CHECK, CheckVersionRequest(self._path(), _NEVER)),
                MultiOp(OpCode.DELETE, DeleteRequest(f"{ROOT}/none", _ANY)),
                MultiOp(OpCode.CREATE, CreateRequest(ROOT, b"", OPEN_ACL, 0)),
            )
        )
        rest = MultiOp(OpCode.SET_DATA, SetDataRequest(ROOT, b"never", _ANY))
        self._ask(self._caller(), OpCode.MULTI, (*self._multi_ops(), bad, rest))

    def _failure(self) -> None:
        path = self._path()
        type_, request = self.random.choice(
            (
                (OpCode.DELETE, DeleteRequest(f"{ROOT}/none", _ANY)),
                (OpCode.DELETE, DeleteRequest(path, _NEVER)),
                (OpCode.DELETE, DeleteRequest(ROOT, _ANY)),
                (OpCode.DELETE, DeleteRequest("/zookeeper", _ANY)),
                (OpCode.SET_DATA, SetDataRequest(path, b"never", _NEVER)),
                (OpCode.SET_DATA, SetDataRequest(f"{ROOT}/none", b"never", _ANY)),
                (OpCode.SET_DATA, SetDataRequest("/zookeeper/config", b"never", _ANY)),
                (OpCode.SET_ACL, SetACLRequest(path, OPEN_ACL, _NEVER)),
                (OpCode.SET_ACL, SetACLRequest(ROOT, (), _ANY)),
                (OpCode.CREATE, CreateRequest(path, b"", OPEN_ACL, 0)),
                (OpCode.CREATE2, CreateRequest(f"{ROOT}/none/below", b"", OPEN_ACL, 0)),
                (OpCode.CREATE, CreateRequest(f"{ROOT}/..", b"", OPEN_ACL, 0)),
                (OpCode.CREATE, CreateRequest(f"{ROOT}/\U0001f600", b"", OPEN_ACL, 0)),
                (OpCode.CREATE_CONTAINER, CreateRequest(self._new_path(), b"", None, 4)),
                (OpCode.CREATE_TTL, CreateTTLRequest(self._new_path(), b"", OPEN_ACL, 5, 0)),
                (OpCode.CREATE, CreateRequest(_LIMITS_OF_ROOT, b"", OPEN_ACL, 0)),
            )
        )
        self._ask(self._caller(), type_, request)

    def _quota(self) -> None:
        """As the command line tool does it: parents, limits, statistics."""
        place = "/zookeeper/quota"
        caller = self._caller()
        # Never on /zookeeper: what is counted there depends on the order in which Java's hash sets
        # bring the other quotas.
        for name in self._path().removeprefix("/").split("/"):
            place = f"{place}/{name}".removesuffix("/")
            self._ask(caller, OpCode.CREATE, CreateRequest(place, b"", OPEN_ACL, 0))
        limits = f"count={self.random.randrange(100)},bytes={self.random.randrange(10_000)}"
        if self.random.random() < 0.5:
            limits += "=;byteHardLimit=10;countHardLimit=-1"
        for name, text in (("limits", limits), ("stats", "count=0,bytes=0")):
            request = CreateRequest(f"{place}/zookeeper_{name}", text.encode(), OPEN_ACL, 0)
            self._ask(caller, OpCode.CREATE, request)

    def _change_of_quota(self) -> None:
        """A client writes what servers count; what would stop an Apache server is refused."""
        quotas = sorted(self.tree.quotas)
        if quotas:
            path = f"/zookeeper/quota{self.random.choice(quotas)}/zookeeper_stats"
            texts = (b"", b"count=7,bytes=70", b"count=-5,bytes=0=;x=1", b"nonsense", None)
            request = SetDataRequest(path, self.random.choice(texts), _ANY)
            self._ask(self._caller(), OpCode.SET_DATA, request)

    def _end_of_quota(self) -> None:
        place = f"/zookeeper/quota{self._path()}"
        for name in ("limits", "stats"):
            request = DeleteRequest(f"{place}/zookeeper_{name}", _ANY)
            self._ask(self._caller(), OpCode.DELETE, request)


_MAKERS = {
    "create": (22, Writer._create),
    "create container": (2, Writer._create_container),
    "create ttl": (3, Writer._create_ttl),
    "set data": (30, Writer._set_data),
    "set acl": (6, Writer._set_acl),
    "delete": (13, Writer._delete),
    "clean": (1, Writer._clean),
    "multi": (7, Writer._multi),
    "failing multi": (3, Writer._failing_multi),
    "failure": (6, Writer._failure),
    "quota": (0.2, Writer._quota),
    "change of quota": (0.2, Writer._change_of_quota),
    "end of quota": (0.5, Writer._end_of_quota),
    "close session": (0.4, Writer._close_session),
}


def main(path: str, seed: str) -> None:
    """Write forever, with snapshots and epochs in between, and say what is durable."""
    writer = Writer(Path(path), seed=int(seed))
    while True:
        for _ in range(20):
            writer.write(writer.random.randrange(1, 100))
            print(writer.store.durable, flush=True)
        writer.begin_snapshot()
        if writer.random.random() < 0.2:
            writer.begin_epoch()


if __name__ == "__main__":
    main(*sys.argv[1:])
