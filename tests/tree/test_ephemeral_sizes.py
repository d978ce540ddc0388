"""How many ephemerals a session may have: those that it will have count, and no others."""

from __future__ import annotations

from keepfast.tree import PrepareOptions, Preparer
from keepfast.wire import (
    OPEN_ACL,
    CheckVersionRequest,
    CreateRequest,
    DeleteRequest,
    ErrorCode,
    MultiOp,
    OpCode,
)
from tests.tree.test_prepare import Leader


def limited_leader() -> Leader:
    """One session may have two ephemerals, and has /e and /f; nothing is applied yet."""
    leader = Leader(PrepareOptions(max_ephemerals=2), lag=100)
    for path in ("/e", "/f"):
        assert leader.create(path, flags=1) == 0
    return leader


def test_limit_of_ephemerals__one_that_a_txn_under_way_deletes_does_not_count() -> None:
    leader = limited_leader()
    leader.catch_up(3)
    assert leader.create("/g", flags=1) == ErrorCode.QUOTA_EXCEEDED
    assert leader.code(OpCode.DELETE, DeleteRequest("/e", -1)) == 0
    assert leader.create("/g", flags=1) == 0
    assert leader.create("/h", flags=1) == ErrorCode.QUOTA_EXCEEDED
    leader.catch_up()


def test_limit_of_ephemerals__what_a_failed_multi_deleted_counts() -> None:
    leader = limited_leader()
    # Another server's term begins: it counts when it is asked first, in the middle of this multi.
    leader.catch_up()
    leader.preparer = Preparer(leader.tree, PrepareOptions(max_ephemerals=2))
    ops = (
        MultiOp(OpCode.DELETE, DeleteRequest("/e", -1)),
        MultiOp(OpCode.CREATE, CreateRequest("/g", b"", OPEN_ACL, 1)),
        MultiOp(OpCode.CHECK, CheckVersionRequest("/f", 7)),
    )
    leader.ask(OpCode.MULTI, ops)
    assert leader.create("/g", flags=1) == ErrorCode.QUOTA_EXCEEDED
