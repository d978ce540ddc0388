"""A getData that comes alone has a way of its own: nobody can tell it from the general one."""

from __future__ import annotations

from random import Random

import pytest

from keepfast.replica import Connection, ReplicaOptions, answer_single
from keepfast.wire import (
    ACL,
    OPEN_ACL,
    READ_ACL,
    CreateRequest,
    ErrorCode,
    GetDataRequest,
    GetDataResponse,
    Id,
    OpCode,
    Perms,
    SetDataRequest,
    codec_of,
    encode,
    encode_frame,
    encode_int,
)
from tests.replica.machine import Client, Machine

OPTIONS = ReplicaOptions(
    tick_ms=1000,
    min_session_timeout_ms=2000,
    max_session_timeout_ms=60_000,
    max_frame_bytes=4000,
    max_burst_bytes=3000,
)
ZNODES = {
    "/a": (b"1", OPEN_ACL),
    "/empty": (b"", OPEN_ACL),
    "/null": (None, OPEN_ACL),
    "/large": (b"l" * 1500, OPEN_ACL),
    "/read": (b"r", READ_ACL),
    "/closed": (b"c", (ACL(Perms.ALL, Id("ip", "192.0.2.1")),)),
    "/ü": (b"u", OPEN_ACL),
    "/a/child": (b"", OPEN_ACL),
}
PATHS = (*ZNODES, "/", "", "/none", "no path", "/a/")


class Side:
    """A replica with clients; `receive` goes the quick way, or never."""

    def __init__(self, *, is_quick: bool) -> None:
        self.machine = Machine(OPTIONS)
        self.is_quick = is_quick
        self.answered = 0
        self.clients = [Client(self.machine) for _ in range(2)]
        for client in self.clients:
            client.connect()
        for xid, (path, (data, acl)) in enumerate(ZNODES.items()):
            request = CreateRequest(path, data, acl, 0)
            self.clients[0].send(xid, OpCode.CREATE, request)
        self.machine.settle()
        assert all(error == 0 for _, error in self.clients[0].replies())

    def receive(self, who: int, data: bytes) -> None:
        replica, connection = self.machine.replica, self.clients[who].connection
        if self.is_quick:
            # As the driver does it.
            reply = answer_single(replica.service, connection, data)
            if reply is None:
                replica.receive(connection, data)
            else:
                self.answered += 1
                connection.out.append(reply)
        else:
            # In two pieces it is never alone.
            replica.receive(connection, data[:3])
            replica.receive(connection, data[3:])

    def told(self) -> list[list[bytes]]:
        """What the clients got since the last look; who was told too much at once may continue."""
        told = [client.take() for client in self.clients]
        for client in self.clients:
            if client.connection.is_stalled:
                self.machine.replica.resume(client.connection)
        return told

    def counts(self) -> list[object]:
        statistics = self.machine.replica.statistics
        counts: list[object] = [statistics.reads, statistics.told, statistics.received]
        counts.append(
            (statistics.bytes_received, self.machine.replica.service.watches.reported_count())
        )
        return counts + [_shown(client.connection) for client in self.clients]


def _shown(connection: Connection) -> tuple[object, ...]:
    return (
        *(connection.phase, connection.is_stalled, len(connection.queue), len(connection.held)),
        *(connection.reads, connection.received, connection.told, connection.last_op),
        *(connection.last_xid, connection.last_zxid, connection.last_ms, connection.close_reason),
    )


def _frame(random: Random, xid: int) -> bytes:
    path = random.choice(PATHS)
    if random.random() < 0.08:
        request = SetDataRequest(path, random.randbytes(2), -1)
        return encode_frame(encode_int(xid) + encode_int(OpCode.SET_DATA) + encode(request))
    body = encode(GetDataRequest(path, random.random() < 0.1))
    match random.randrange(40):
        case 0:
            body = body[:-1] + b"\2"
        case 1:
            body = body[:-1]
        case 2:
            body += b"\0"
        case 3:
            body = encode_int(-1) + b"\0"
        case 4:
            xid = -8
        case 5:
            body = encode(GetDataRequest("/" + "x" * 3000, False))
    return encode_frame(encode_int(xid) + encode_int(OpCode.GET_DATA) + body)


@pytest.mark.parametrize("seed", range(10))
def test_any_reads__replies_counts_and_watches_are_the_same(seed: int) -> None:
    random = Random(seed)
    sides = Side(is_quick=True), Side(is_quick=False)
    for xid in range(100, 700):
        who, frame = random.randrange(2), _frame(random, xid)
        has_passed, is_settled, is_taken = (random.random() < p for p in (0.1, 0.6, 0.6))
        for side in sides:
            if has_passed:
                side.machine.advance(1)
            side.receive(who, frame)
            if is_settled:
                side.machine.settle()
        if is_taken:
            assert sides[0].told() == sides[1].told()
        assert sides[0].counts() == sides[1].counts()
    for side in sides:
        side.machine.settle()
    assert sides[0].told() == sides[1].told()
    assert sides[0].answered > 100


def test_frame_that_is_too_long__closes_the_connection() -> None:
    side = Side(is_quick=True)
    body = encode(GetDataRequest("/" + "x" * 5000, False))
    side.receive(0, encode_frame(encode_int(1) + encode_int(OpCode.GET_DATA) + body))
    assert "frame of" in side.clients[0].connection.close_reason


def test_client_that_sends_only_reads_that_come_alone__lives_as_long_as_others() -> None:
    side = Side(is_quick=True)
    machine, client = side.machine, side.clients[0]
    read = encode_int(1) + encode_int(OpCode.GET_DATA) + encode(GetDataRequest("/a", False))
    for _ in range(100):
        machine.advance(300)
        machine.tick()
        side.receive(0, encode_frame(read))
    assert side.answered > 60
    # The other one was silent for longer than its session's 10 s.
    machine.settle()
    assert [c.connection.is_open for c in side.clients] == [True, False]
    machine.advance(10_000)
    machine.tick()
    machine.settle()
    assert client.connection.is_open
    machine.advance(1000)
    machine.tick()
    machine.settle()
    assert not client.connection.is_open


def test_limit_of_frames_that_is_small__holds_for_a_read_that_comes_alone() -> None:
    side = Side(is_quick=True)
    side.clients[0].connection.frames.max_frame = 10
    side.clients[0].send(1, OpCode.GET_DATA, GetDataRequest("/a", False))
    assert "frame of 15 bytes" in side.clients[0].connection.close_reason


def test_rest_of_a_frame_that_looks_like_a_read__is_none() -> None:
    side = Side(is_quick=True)
    client = side.clients[0]
    client.take()
    read = encode_int(2) + encode_int(OpCode.GET_DATA) + encode(GetDataRequest("/a", False))
    ping = encode_int(-2) + encode_int(OpCode.PING) + encode_frame(read)
    side.machine.replica.receive(client.connection, encode_frame(ping)[:12])
    side.machine.replica.receive(client.connection, encode_frame(read))
    assert client.replies() == [(-2, ErrorCode.OK)]


@pytest.mark.parametrize("path", ["/a", "/empty", "/null", "/read"])
def test_data__is_what_was_written(path: str) -> None:
    client = Side(is_quick=True).clients[1]
    client.send(1, OpCode.GET_DATA, GetDataRequest(path, False))
    (reply,) = client.take()
    assert codec_of(GetDataResponse).decode(reply, 16).data == ZNODES[path][0]


def test_znode_that_is_not_for_everybody__refused() -> None:
    client = Side(is_quick=True).clients[1]
    client.send(1, OpCode.GET_DATA, GetDataRequest("/closed", False))
    assert client.replies() == [(1, ErrorCode.NO_AUTH)]


def test_read_behind_a_write__waits_for_it() -> None:
    side = Side(is_quick=True)
    client = side.clients[0]
    client.take()
    client.send(1, OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    client.send(2, OpCode.GET_DATA, GetDataRequest("/a", False))
    assert client.replies() == []
    side.machine.settle()
    assert client.replies() == [(1, ErrorCode.OK), (2, ErrorCode.OK)]


def test_read_of_a_session_that_has_ended__is_not_answered() -> None:
    side = Side(is_quick=True)
    client = side.clients[0]
    client.take()
    side.machine.replica.expire(client.connection.session_id)
    side.machine.settle()
    client.send(1, OpCode.GET_DATA, GetDataRequest("/a", False))
    assert client.replies() == []
    assert not client.connection.is_open
