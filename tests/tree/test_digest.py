"""What the two digests see and what they do not."""

from __future__ import annotations

from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    READ_ACL,
    AclList,
    CreateSessionTxn,
    CreateTxn,
    OpCode,
    SetDataTxn,
)
from tests.tree.test_strict import Server


def server_with(first: AclList | None, second: AclList | None) -> Tree:
    server = Server()
    server.apply(OpCode.CREATE, CreateTxn("/a", b"", first, False, 1))
    server.apply(OpCode.CREATE, CreateTxn("/b", b"", second, False, 2))
    return server.tree


def test_swapped_acls__seen_by_ours_only() -> None:
    one, other = server_with(OPEN_ACL, READ_ACL), server_with(READ_ACL, OPEN_ACL)
    assert one.digest == other.digest
    assert one.state_digest != other.state_digest


def test_null_acl_and_the_open_one__are_the_same_state() -> None:
    one, other = server_with(None, READ_ACL), server_with(OPEN_ACL, READ_ACL)
    assert one.state_digest == other.state_digest


def test_sessions__seen_by_ours_only() -> None:
    server, other = Server(), Server()
    server.apply(OpCode.CREATE_SESSION, CreateSessionTxn(4000))
    other.apply(OpCode.CREATE_SESSION, CreateSessionTxn(4001))
    assert server.tree.digest == other.tree.digest == Tree().digest
    assert len({Tree().state_digest, server.tree.state_digest, other.tree.state_digest}) == 3


def test_below_zookeeper__seen_by_ours_only() -> None:
    server = Server()
    server.apply(OpCode.CREATE, CreateTxn("/zookeeper/x", b"", None, False, 1))
    # /zookeeper itself counts in both: its cversion and pzxid changed.
    digest, state_digest = server.tree.digest, server.tree.state_digest
    server.apply(OpCode.SET_DATA, SetDataTxn("/zookeeper/x", b"1", 1))
    assert server.tree.digest == digest != Tree().digest
    assert server.tree.state_digest != state_digest


def test_non_ascii_path__hashed_as_utf_8() -> None:
    server = Server()
    server.apply(OpCode.CREATE, CreateTxn("/\u00e4\u20ac", b"", None, False, 1))
    node = server.tree.find("/\u00e4\u20ac")
    assert node is not None
    with server.tree.freeze() as frozen:
        assert "/\u00e4\u20ac".encode() in b"".join(frozen.node_chunks())
