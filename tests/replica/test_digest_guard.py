"""When a digest that differs fences a learner (R10)."""

from __future__ import annotations

from keepfast.replica.digest_guard import DigestGuard
from keepfast.tree import DIGEST_VERSION, Tree
from keepfast.wire import (
    ErrorCode,
    ErrorTxn,
    LogEntry,
    OpCode,
    SessionId,
    TxnDigest,
    TxnHeader,
    Zxid,
)


def entry(digest: int, zxid: int = 1) -> LogEntry:
    header = TxnHeader(SessionId(1), 1, Zxid(zxid), 0, OpCode.ERROR.value)
    return LogEntry(header, ErrorTxn(ErrorCode.NO_NODE), TxnDigest(DIGEST_VERSION, digest))


def test_tree_that_never_was_the_apache_leaders__is_fenced_at_the_first_txn() -> None:
    tree = Tree()
    guard = DigestGuard(trusts_leader=False)
    # The same difference again would explain nothing: it is the first one that counts.
    assert not guard.agrees(tree, entry(tree.digest + 1))


def test_slips_of_an_apache_leader__pass_if_they_are_few() -> None:
    tree = Tree()
    guard = DigestGuard(trusts_leader=False)
    for _ in range(2):
        assert guard.agrees(tree, entry(tree.digest))
        assert all(guard.agrees(tree, entry(tree.digest + by)) for by in range(1, 17))
    assert not guard.agrees(tree, entry(tree.digest + 17))


def test_tree_that_was_the_apache_leaders_in_an_earlier_epoch__is_fenced() -> None:
    """Its log may have a hole between the two, behind records that nobody committed."""
    tree = Tree()
    guard = DigestGuard(trusts_leader=False)
    assert guard.agrees(tree, entry(tree.digest, 0x300000008))
    assert not guard.agrees(tree, entry(tree.digest + 1, 0x500000001))


def test_slip_of_an_apache_leader__explains_nothing_in_the_next_epoch() -> None:
    tree = Tree()
    guard = DigestGuard(trusts_leader=False)
    assert guard.agrees(tree, entry(tree.digest, 0x300000001))
    assert guard.agrees(tree, entry(tree.digest + 1, 0x300000002))
    assert guard.agrees(tree, entry(tree.digest + 1, 0x300000003))
    # The same difference, from a leader that began with the digest of its tree.
    assert not guard.agrees(tree, entry(tree.digest + 1, 0x400000001))


def test_leader_of_our_kind__every_difference_counts() -> None:
    tree = Tree()
    guard = DigestGuard(trusts_leader=True)
    assert guard.agrees(tree, entry(tree.digest))
    assert not guard.agrees(tree, entry(tree.digest + 1))
