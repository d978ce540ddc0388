"""Requests that would become too much: refused in time, and nothing is left of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.tree import PrepareOptions
from keepfast.tree.multi_bounds import MultiBounds, MultiTooLarge
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    AclList,
    AuthPacket,
    CreateRequest,
    ErrorCode,
    GetChildrenRequest,
    GetDataRequest,
    Id,
    MultiOp,
    OpCode,
    Perms,
    SetACLRequest,
    decode_multi_reply,
    encode,
    encode_multi_request,
)
from tests.replica.machine import Client, Machine

_EVERYBODY: AclList = (ACL(Perms.ALL, Id("auth", "")),)
_REPLY_SIZE = 16


def client_of(prepare: PrepareOptions, max_multi_reads: int = 10_000) -> Client:
    options = ReplicaOptions(prepare=prepare, max_multi_reads=max_multi_reads)
    client = Client(Machine(options))
    client.connect()
    return client


def answer(client: Client, op: int, body: bytes) -> bytes:
    """The reply to a request, its header included."""
    client.send_raw(encode_header(op) + body)
    client.machine.settle()
    return client.take()[-1]


def encode_header(op: int) -> bytes:
    return (1).to_bytes(4, "big") + op.to_bytes(4, "big")


def error_of(reply: bytes) -> int:
    return int.from_bytes(reply[12:16], "big", signed=True)


def create(path: str, data: bytes = b"", acl: AclList = OPEN_ACL) -> CreateRequest:
    return CreateRequest(path, data, acl, 0)


def entries(count: int) -> AclList:
    return tuple(ACL(Perms.READ, Id("digest", f"user{number}:x")) for number in range(count))


def become(client: Client, count: int) -> None:
    """Have this many ids."""
    for number in range(count):
        packet = encode(AuthPacket(0, "digest", b"user%d:secret" % number))
        assert error_of(answer(client, OpCode.AUTH, packet)) == 0


def multi_error(client: Client, ops: Sequence[CreateRequest]) -> int:
    body = encode_multi_request(tuple(MultiOp(OpCode.CREATE, op) for op in ops))
    return error_of(answer(client, OpCode.MULTI, body))


def test_txn_larger_than_its_readers_take__is_refused_and_leaves_the_tree_as_it_was() -> None:
    client = client_of(PrepareOptions(max_txn_bytes=2000))
    digest = client.replica.tree.digest
    refused = answer(client, OpCode.CREATE, encode(create("/a", bytes(3000))))
    assert error_of(refused) == ErrorCode.MARSHALLING_ERROR
    assert client.replica.tree.digest == digest
    assert error_of(answer(client, OpCode.CREATE, encode(create("/a", bytes(1000))))) == 0


def test_multi_that_grows_too_large__ends_there_and_leaves_the_tree_as_it_was() -> None:
    client = client_of(PrepareOptions(max_txn_bytes=2000))
    digest = client.replica.tree.digest
    several = [create(f"/{number}", bytes(700)) for number in range(6)]
    assert multi_error(client, several) == ErrorCode.MARSHALLING_ERROR
    assert client.replica.tree.find("/0") is None
    assert client.replica.tree.digest == digest
    assert multi_error(client, several[:2]) == 0
    assert client.replica.tree.find("/0") is not None


def test_multi_that_grows_too_large__is_given_up_at_once() -> None:
    """Before the rest of it is made: that is what memory and time go into."""
    bounds = MultiBounds(PrepareOptions(max_txn_bytes=100))
    bounds.add(60, None, is_reserved=False)
    with pytest.raises(MultiTooLarge):
        bounds.add(60, None, is_reserved=False)


def test_acls_of_a_multi_that_grow_by_auth__end_it() -> None:
    client = client_of(PrepareOptions(max_acl_entries=100))
    become(client, 40)
    several = [create(f"/{number}", acl=_EVERYBODY) for number in range(4)]
    assert multi_error(client, several) == ErrorCode.MARSHALLING_ERROR
    assert multi_error(client, several[:2]) == 0
    # Short lists are bounded by the size of the txn alone.
    assert multi_error(client, [create(f"/s{n}", acl=entries(2)) for n in range(200)]) == 0
    assert client.replica.tree.find("/s199") is not None


@pytest.mark.parametrize("op", [OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER])
def test_acl_of_too_many_entries__is_refused(op: int) -> None:
    client = client_of(PrepareOptions(max_acl_entries=100))
    flags = 4 if op == OpCode.CREATE_CONTAINER else 0
    for count, expected in ((100, 0), (101, ErrorCode.INVALID_ACL)):
        request = CreateRequest(f"/{count}", b"data", entries(count), flags)
        assert error_of(answer(client, op, encode(request))) == expected
    assert client.replica.tree.find("/101") is None


def test_set_acl_of_too_many_entries__is_refused() -> None:
    client = client_of(PrepareOptions(max_acl_entries=100))
    assert error_of(answer(client, OpCode.CREATE, encode(create("/a")))) == 0
    refused = answer(client, OpCode.SET_ACL, encode(SetACLRequest("/a", entries(101), -1)))
    assert error_of(refused) == ErrorCode.INVALID_ACL
    assert (
        error_of(answer(client, OpCode.SET_ACL, encode(SetACLRequest("/a", entries(9), -1)))) == 0
    )


def test_auth_that_stands_for_too_many_ids__is_refused() -> None:
    client = client_of(PrepareOptions(max_acl_entries=30))
    become(client, 20)
    twice = tuple(ACL(perms, Id("auth", "")) for perms in (Perms.READ, Perms.WRITE))
    assert error_of(answer(client, OpCode.CREATE, encode(create("/a", acl=twice)))) == (
        ErrorCode.INVALID_ACL
    )
    assert error_of(answer(client, OpCode.CREATE, encode(create("/a", acl=_EVERYBODY)))) == 0


def test_multi_read_of_too_many_reads__is_refused() -> None:
    client = client_of(PrepareOptions(), max_multi_reads=50)
    reads = (
        MultiOp(OpCode.GET_DATA, GetDataRequest("/", False)),
        MultiOp(OpCode.GET_CHILDREN, GetChildrenRequest("/zookeeper", False)),
        MultiOp(OpCode.GET_DATA, GetDataRequest("/missing", False)),
    )
    reply = answer(client, OpCode.MULTI_READ, encode_multi_request(reads * 16))
    results = decode_multi_reply(reply, _REPLY_SIZE)
    assert [result.err for result in results] == [0, 0, ErrorCode.NO_NODE] * 16
    refused = answer(client, OpCode.MULTI_READ, encode_multi_request(reads * 17))
    assert error_of(refused) == ErrorCode.MARSHALLING_ERROR
