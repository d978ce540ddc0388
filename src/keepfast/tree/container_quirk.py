"""Distinguishes the wrong digests that Apache is known to log from those of a wrong tree.

A create or create2 with the container flag creates a persistent znode on every server, but the
leader hashes it as a container.  The leader computes the digest of a txn from that of the txn
prepared before it, as long as one of them is waiting to be applied, and from its tree otherwise. So
the same difference stays in the records after the create until the leader is idle for a moment; and
a change of such a znode, prepared before its create was applied, is hashed as one of a container
too.

    D = logged digest - digest of the tree, at each record

    D is that of the record before          nothing of this kind happened
    D is 0                                  the leader was idle, or the last such znode was deleted
    D changes by h(z), or D is h(z)         z was created; h(z) = hash as a container - true hash
    D changes by h(z) now - h(z) then       z was changed, still hashed as a container

Any other D means that the tree is wrong.  Hashes have 32 bits and one record touches a few znodes,
so a wrong tree does not pass as one of these by chance.
"""

from enum import Enum
from itertools import combinations

from keepfast.tree.digest import DIGEST_VERSION, node_crc
from keepfast.tree.node_bytes import CONTAINER_OWNER, with_owner
from keepfast.tree.paths import ROOT, parent_of
from keepfast.tree.tree import Tree
from keepfast.wire import (
    CloseSessionTxn,
    CreateContainerTxn,
    CreateTTLTxn,
    CreateTxn,
    CreateTxnV0,
    DeleteTxn,
    ErrorTxn,
    LogEntry,
    MultiTxn,
    SetACLTxn,
    SetDataTxn,
    TxnBody,
    decode_txn_body,
)

_MODULUS = 1 << 64
# Of the znodes that one record touches; a multi may touch any number.
_MAX_CHANGES = 12

_CREATES = (CreateTxn, CreateTxnV0, CreateContainerTxn, CreateTTLTxn)


class DigestFit(Enum):
    """How the digest that a record states fits the tree after it."""

    UNKNOWN = "there is none, or one of another version"
    RIGHT = "it is the tree's"
    EXPLAINED = "Apache is known to log this one for such a tree"
    WRONG = "it is that of another tree, or off for a reason that lies before"


class ContainerQuirk:
    """Follows the difference between logged and true digests from record to record."""

    __slots__ = ("_as_containers", "delta")

    def __init__(self) -> None:
        self.delta = 0
        # Znodes that the leader may still treat as containers -> what each adds to `delta`.
        self._as_containers: dict[str, int] = {}

    def reset(self, delta: int = 0) -> None:
        """Start over: at a correct digest, or at one that is off for earlier reasons."""
        self.delta = delta
        self._as_containers.clear()

    def judge(self, tree: Tree, entry: LogEntry) -> DigestFit:
        """Compare the digest of a record with the tree that the record has made.

        A wrong one is taken for off by as much as it is: what follows is judged from there.
        """
        digest = entry.digest
        if digest is None or digest.version != DIGEST_VERSION:
            return DigestFit.UNKNOWN
        logged = digest.tree_digest
        if logged == tree.digest:
            if self.delta or self._as_containers:
                self.reset()
            return DigestFit.RIGHT
        if self._explains(tree, entry, logged):
            return DigestFit.EXPLAINED
        self.reset((logged - tree.digest) % _MODULUS)
        return DigestFit.WRONG

    def _explains(self, tree: Tree, entry: LogEntry, logged: int) -> bool:
        """Whether Apache may log this digest for a record that made `tree` what it is."""
        delta = (logged - tree.digest) % _MODULUS
        touched = [path for path in _touched(entry.body) if path in self._as_containers]
        changes = {path: _difference(tree, path) - self._as_containers[path] for path in touched}
        created = {path: _difference(tree, path) for path in _created(entry.body)}
        for start, options in ((self.delta, changes | created), (0, created)):
            chosen = _subset(options, (delta - start) % _MODULUS)
            if chosen is None:
                continue
            if start == 0 != self.delta:
                self._as_containers.clear()
            for path in (*touched, *chosen):
                self._as_containers.pop(path, None)
            for path in chosen:
                if tree.find(path) is not None:
                    self._as_containers[path] = _difference(tree, path)
            self.delta = delta
            return True
        return False


def _difference(tree: Tree, path: str) -> int:
    """What hashing a znode as a container adds to the digest; 0 if it is not there."""
    node = tree.find(path)
    if node is None:
        return 0
    as_container = with_owner(node.stat, CONTAINER_OWNER)
    return node_crc(path, node.data, as_container) - node_crc(path, node.data, node.stat)


def _subset(options: dict[str, int], wanted: int) -> tuple[str, ...] | None:
    """The smallest choice of options that adds up to `wanted`; None if there is none."""
    paths = list(options)[:_MAX_CHANGES]
    for size in range(len(paths) + 1):
        for chosen in combinations(paths, size):
            if sum(options[path] for path in chosen) % _MODULUS == wanted:
                return chosen
    return None


def _bodies(body: TxnBody | None) -> list[TxnBody]:
    if not isinstance(body, MultiTxn):
        return [] if body is None else [body]
    bodies = [decode_txn_body(sub.type, sub.data) for sub in body.txns or ()]
    # One failed operation, and nothing of a multi is applied.
    return [] if any(isinstance(one, ErrorTxn) for one in bodies) else bodies


def _created(body: TxnBody | None) -> list[str]:
    """The znodes that may have been requested as containers."""
    found = [
        one.path
        for one in _bodies(body)
        if isinstance(one, CreateTxn | CreateTxnV0) and not one.ephemeral
    ]
    return list(dict.fromkeys(found))


def _touched(body: TxnBody | None) -> list[str]:
    """The znodes whose hash a record changes."""
    found: list[str] = []
    for one in _bodies(body):
        if isinstance(one, SetDataTxn | SetACLTxn):
            found.append(one.path or ROOT)
        elif isinstance(one, (*_CREATES, DeleteTxn)):
            found += (one.path, parent_of(one.path))
        elif isinstance(one, CloseSessionTxn):
            for path in one.paths or ():
                found += (path, parent_of(path))
    return list(dict.fromkeys(found))
