"""A server in small: a tree and a store kept in step, and a ledger of what a crash may leave.

The ledger is the judge.  It knows nothing of files: it is told what was submitted and what was
acknowledged, and says which states recovery may find if power is lost at this moment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from keepfast.sim import MemoryDisk
from keepfast.storage import (
    NO_HISTORY,
    DataDirectory,
    Disk,
    Epochs,
    Recovery,
    SnapshotEntry,
    SnapshotWriter,
    Standing,
    Store,
    StoreOptions,
)
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnBody,
    TxnDigest,
    TxnHeader,
    Zxid,
    encode_entry,
    epoch_of,
    make_zxid,
)

ONE_PLACE = DataDirectory("/data/version-2", "/data/version-2")
TWO_PLACES = DataDirectory("/data/version-2", "/logs/version-2")
# Small steps of growth and small segments, so that short scenarios grow and roll.
OPTIONS = StoreOptions(grow_bytes=1024, segment_bytes=2048, reserve_bytes=0)
SESSION = SessionId(0x1000_0001)


class Point(NamedTuple):
    """A state of the tree, known by its zxid and both digests."""

    zxid: Zxid
    digest: int
    state_digest: int


NOTHING = Point(NO_HISTORY, 0, 0)
REFUSED = Point(Zxid(-2), 0, 0)


def point_of(tree: Tree | None) -> Point:
    return NOTHING if tree is None else Point(tree.last_zxid, tree.digest, tree.state_digest)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What recovery may find if power is lost now.

    allowed: the states, the one that everything acknowledged makes up first.
    least, most: the epochs that were acknowledged, and those that were asked for.
    for_apache: whether Apache, which does not see the manifest, must find one of `allowed` too.
    """

    allowed: tuple[Point, ...]
    least: Epochs
    most: Epochs
    for_apache: bool = True


class Ledger:
    """What was submitted and acknowledged; see the module."""

    def __init__(self) -> None:
        self.entries: dict[int, bytes] = {}
        self.past: dict[int, Point] = {}
        self.expectation = Expectation((NOTHING,), Epochs(), Epochs())
        self._acknowledged = NOTHING
        self._submitted: list[Point] = []
        self._other: tuple[Point, ...] = ()
        self._least = self._most = Epochs()

    def begin_at(self, point: Point, epochs: Epochs) -> None:
        """A history as it was found, or as an operation that returned has made it."""
        self._least = self._most = epochs
        self.replaced(point)

    def replaced(self, point: Point) -> None:
        """The history is this state, and nothing of what was under way."""
        self._acknowledged = point
        self._submitted.clear()
        self._other = ()
        self.past[point.zxid] = point
        self._state()

    def submit(self, point: Point, entry: bytes) -> None:
        """A record was handed to the store."""
        self.entries[point.zxid] = entry
        self.past[point.zxid] = point
        self._submitted.append(point)
        self._state()

    def acknowledge(self, zxid: Zxid) -> None:
        """The store has said that everything up to `zxid` is durable."""
        while self._submitted and self._submitted[0].zxid <= zxid:
            self._acknowledged = self._submitted.pop(0)
        assert self._acknowledged.zxid == zxid
        self._state()

    def replacing(self, point: Point) -> None:
        """The store was asked to replace the history by this state."""
        self._other = (point,)
        self._state()

    def not_replaced(self) -> None:
        """It refused."""
        self._other = ()
        self._state()

    def promising(self, epochs: Epochs) -> None:
        """The store was asked to keep these epochs."""
        self._most = epochs
        self._state()

    def promised(self) -> None:
        """It has."""
        self._least = self._most
        self._state()

    @property
    def acknowledged(self) -> Point:
        return self._acknowledged

    @property
    def submitted(self) -> tuple[Point, ...]:
        return tuple(self._submitted)

    def _state(self) -> None:
        self.expectation = Expectation(
            (self._acknowledged, *self._submitted, *self._other),
            self._least,
            self._most,
            # Which files count changes with the manifest, at one moment; their names change
            # afterwards, one by one, and names are all that Apache has.
            for_apache=not self._other,
        )


class Server:
    """A store and its tree.  Every method tells the ledger before and after."""

    def __init__(self, disk: Disk, directory: DataDirectory = ONE_PLACE) -> None:
        self.disk = disk
        self.directory = directory
        self.options = OPTIONS
        self.ledger = Ledger()
        self.tree = Tree()
        self.epoch = 1
        self._made = 0

    @property
    def memory_disk(self) -> MemoryDisk:
        assert isinstance(self.disk, MemoryDisk)
        return self.disk

    def open(self) -> Recovery:
        """Open the directory; what is found there counts as acknowledged."""
        self.store, recovery = Store.open(self.disk, self.directory, self.options)
        if recovery.tree is not None:
            self.tree = recovery.tree
            self.epoch = max(1, epoch_of(recovery.head))
        refused = recovery.standing is Standing.DAMAGED
        self.ledger.begin_at(REFUSED if refused else point_of(recovery.tree), recovery.epochs)
        return recovery

    def start(self) -> None:
        """Open an empty directory and begin a history in it."""
        self.open()
        self.start_new()

    def start_new(self) -> None:
        """Begin a history in an empty directory that is open."""
        self.ledger.replacing(point_of(Tree()))
        self.tree = self.store.initialise()
        self.ledger.replaced(point_of(self.tree))

    def append(self, *sizes: int) -> None:
        """Hand over one record for each size, which is that of its data, about."""
        for size in sizes:
            header, body = self._next_txn(size)
            self.tree.apply(header, body)
            entry = encode_entry(LogEntry(header, body, TxnDigest(2, self.tree.digest)))
            self.ledger.submit(point_of(self.tree), entry)
            self.store.append(header.zxid, entry, self.tree.digest)

    def sync(self) -> None:
        self.ledger.acknowledge(self.store.sync())

    def write(self, *sizes: int) -> None:
        """`append` and `sync`."""
        self.append(*sizes)
        self.sync()

    def change_epoch(self) -> None:
        """The next record opens an epoch; a member of an ensemble has agreed to it by then."""
        self.epoch = epoch_of(self.tree.last_zxid) + 1
        current = self.store.epochs.current
        if current is not None:
            self.epoch = max(self.epoch, current + 1)
            self.set_epochs(self.epoch, current)
            self.set_epochs(self.epoch, self.epoch)

    def begin_snapshot(self) -> SnapshotWriter:
        return self.store.begin_snapshot(self.tree.freeze())

    def complete(self, writer: SnapshotWriter) -> SnapshotEntry:
        while writer.step():
            pass
        return writer.complete()

    def snapshot(self) -> None:
        self.store.publish_snapshot(self.complete(self.begin_snapshot()))

    def install(self, tree: Tree) -> None:
        self.ledger.replacing(point_of(tree))
        self.store.install_snapshot(tree)
        self.tree = tree
        self.epoch = max(1, epoch_of(tree.last_zxid))
        self.ledger.replaced(point_of(tree))

    def truncate(self, zxid: Zxid) -> None:
        point = self.ledger.past[zxid]
        self.ledger.replacing(point)
        recovery = self.store.truncate(zxid)
        assert recovery.tree is not None
        assert point_of(recovery.tree) == point
        self.tree = recovery.tree
        self.ledger.replaced(point)

    def set_epochs(self, accepted: int, current: int) -> None:
        epochs = Epochs(accepted, current)
        self.ledger.promising(epochs)
        self.store.set_epochs(epochs)
        self.ledger.promised()

    def close(self) -> None:
        """Close, which makes durable whatever was handed over."""
        self.store.close()
        if self.ledger.submitted:
            self.ledger.acknowledge(self.ledger.submitted[-1].zxid)

    def _next_txn(self, size: int) -> tuple[TxnHeader, TxnBody]:
        last = self.tree.last_zxid
        zxid = Zxid(last + 1) if epoch_of(last) == self.epoch else make_zxid(self.epoch, 1)
        kind, body = txn(self.tree, self._made, size)
        self._made += 1
        return TxnHeader(SESSION, self._made, zxid, 1_700_000_000_000 + self._made, kind), body


def txn(tree: Tree, number: int, size: int) -> tuple[OpCode, TxnBody]:
    """One of a mix of txns that fits the tree; the mix depends on the number alone."""
    if SESSION not in tree.sessions:
        return OpCode.CREATE_SESSION, CreateSessionTxn(30_000)
    # Now and then nothing but zeros, which is also what a lost sector looks like.
    data = bytes((number * 37 + index) % 256 if number % 5 else 0 for index in range(size))
    own = sorted(path for path in tree.paths() if path.startswith("/n"))
    if size and own and number % 4 == 1:
        path = own[number % len(own)]
        return OpCode.SET_DATA, SetDataTxn(path, data, _version(tree, path) + 1)
    if not size and own and number % 8 == 3:
        return OpCode.DELETE, DeleteTxn(own[0])
    if not size and number % 8 == 7:
        return OpCode.ERROR, ErrorTxn(-101)
    path = f"/n{tree.last_zxid:x}-{number}"
    return OpCode.CREATE, CreateTxn(path, data, OPEN_ACL, False, _cversion(tree) + 1)


def _version(tree: Tree, path: str) -> int:
    return _stat_field(tree, path, 32)


def _cversion(tree: Tree) -> int:
    return _stat_field(tree, "/", 36)


def _stat_field(tree: Tree, path: str, offset: int) -> int:
    node = tree.find(path)
    assert node is not None
    value: int = struct.unpack_from(">i", node.stat, offset)[0]
    return value


def other_tree(epoch: int, sizes: Iterable[int]) -> Tree:
    """The state of a leader with a history of its own."""
    tree = Tree()
    for number, size in enumerate(sizes, 1):
        kind, body = txn(tree, number, size)
        header = TxnHeader(SESSION, number, make_zxid(epoch, number), 1_600_000_000_000, kind)
        tree.apply(header, body)
    return tree
