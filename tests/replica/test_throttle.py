"""Limits on what arrives at once."""

from __future__ import annotations

import struct
from dataclasses import replace

from keepfast.replica import ReplicaOptions, ThrottleOptions
from keepfast.replica.throttle import ConnectionThrottle
from keepfast.wire import (
    OPEN_ACL,
    CreateRequest,
    GetDataRequest,
    OpCode,
    ReplyHeader,
    SetDataRequest,
    codec_of,
)
from tests.replica.machine import Client, Machine

_OPTIONS = ReplicaOptions(tick_ms=1000, min_session_timeout_ms=2000, max_session_timeout_ms=60_000)
THROTTLED_OP = -127


def machine_with(outstanding_limit: int = 1000, **limits: float) -> Machine:
    throttle = ThrottleOptions(**limits)  # type: ignore[arg-type]
    return Machine(replace(_OPTIONS, throttle=throttle, outstanding_limit=outstanding_limit))


def connected(machine: Machine) -> Client:
    client = Client(machine)
    client.connect()
    return client


def create(client: Client, xid: int, path: str, data: bytes = b"") -> None:
    client.send(xid, OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, 0))


class TestConnections:
    def test_more_than_there_are_tokens__are_refused_until_some_are_added(self) -> None:
        machine = machine_with(connection_tokens=3, fill_ms=1000, fill_count=1)
        clients = [Client(machine) for _ in range(5)]
        machine.settle()
        assert [client.connection.is_open for client in clients] == [True] * 3 + [False] * 2
        assert clients[4].connection.close_reason == "too many connections at once"
        assert machine.replica.statistics.throttle_refusals == 2
        machine.advance(2001)
        later = [Client(machine) for _ in range(3)]
        machine.settle()
        assert [client.connection.is_open for client in later] == [True, True, False]

    def test_weights__a_session_that_comes_back_costs_less(self) -> None:
        options = ThrottleOptions(
            connection_tokens=6, fill_ms=10_000, new_session_weight=3, renewal_weight=2
        )
        throttle = ConnectionThrottle(options, 0, 1)
        assert throttle.admits(1, is_new=True)
        assert throttle.admits(1, is_new=False)
        assert not throttle.admits(1, is_new=True)
        assert throttle.deficit == 5

    def test_bucket_stays_empty__the_chance_of_a_refusal_grows_and_falls_again(self) -> None:
        options = ThrottleOptions(
            connection_tokens=2, fill_ms=100, freeze_ms=10, drop_increase=0.25, drop_decrease=0.5
        )
        throttle = ConnectionThrottle(options, 0, 1)
        for now_ms in range(0, 1100, 11):
            # Tokens are taken as they come, so there is none whenever the chance changes.
            while throttle.admits(now_ms, is_new=True):
                pass
        assert throttle.drop == 1.0
        for now_ms in (5000, 5100, 5200):
            throttle.admits(now_ms, is_new=True)
        assert throttle.drop == 0.0

    def test_no_session_in_time__closed_with_a_reason(self) -> None:
        machine = machine_with(sessionless_ms=5000)
        replica = machine.replica
        silent = replica.connect("127.0.0.1", 1)
        client = connected(machine)
        machine.advance(5000)
        replica.tick()
        assert silent not in replica.service.closing
        machine.advance(1)
        replica.tick()
        assert silent in replica.service.closing
        assert silent.close_reason == "no session within 5000 ms"
        assert client.connection.is_open
        assert replica.statistics.sessionless_expired == 1


class TestWrites:
    def test_limit_for_all__further_writes_wait_and_come_in_order(self) -> None:
        machine = machine_with(max_requests=2)
        one, other = connected(machine), connected(machine)
        for xid in range(1, 6):
            create(one, xid, f"/a{xid}")
        create(other, 1, "/b")
        other.send(2, OpCode.GET_DATA, GetDataRequest("/a1", False))
        assert machine.replica.outstanding == 2
        assert machine.replica.statistics.throttled == 2
        machine.settle()
        assert one.replies() == [(xid, 0) for xid in range(1, 6)]
        assert other.replies() == [(1, 0), (2, 0)]
        assert machine.replica.outstanding == 0

    def test_limit_of_the_server__each_connection_may_have_one_more(self) -> None:
        machine = machine_with(outstanding_limit=3)
        one, other = connected(machine), connected(machine)
        for xid in range(1, 20):
            create(one, xid, f"/a{xid}")
        assert machine.replica.outstanding == 4
        create(other, 1, "/b1")
        create(other, 2, "/b2")
        assert machine.replica.outstanding == 5
        machine.settle()
        assert one.replies() == [(xid, 0) for xid in range(1, 20)]
        assert other.replies() == [(1, 0), (2, 0)]

    def test_held_for_too_long__not_done_and_answered_so(self) -> None:
        machine = machine_with(max_requests=1, max_wait_ms=100)
        client = connected(machine)
        create(client, 1, "/a")
        create(client, 2, "/late")
        client.send(3, OpCode.GET_DATA, GetDataRequest("/a", False))
        client.send(-2, OpCode.PING)
        machine.advance(101)
        machine.settle()
        # No zxid: the write before it shows one that was not known when it was refused.
        codec = codec_of(ReplyHeader)
        headers = [codec.decode(frame[:16]) for frame in client.take()]
        assert [header.zxid for header in headers[1:3]] == [-1, -1]
        assert [(header.xid, header.err) for header in headers] == [
            (1, 0),
            (2, THROTTLED_OP),
            (3, THROTTLED_OP),
            (-2, 0),
        ]
        assert machine.replica.tree.find("/late") is None
        assert machine.replica.statistics.throttled_out == 2

    def test_connection_lost_while_held__its_requests_are_dropped(self) -> None:
        machine = machine_with(max_requests=1)
        one, other = connected(machine), connected(machine)
        create(one, 1, "/a")
        create(other, 1, "/b")
        machine.replica.lost(other.connection)
        machine.settle()
        assert one.replies() == [(1, 0)]
        assert machine.replica.tree.find("/b") is None

    def test_limit_for_all__holds_for_the_quick_way_of_set_data(self) -> None:
        machine = machine_with(max_requests=2)
        client = connected(machine)
        create(client, 1, "/a")
        machine.settle()
        for xid in range(2, 9):
            client.send(xid, OpCode.SET_DATA, SetDataRequest("/a", b"x", -1))
        assert machine.replica.outstanding == 2
        machine.settle()
        assert client.replies() == [(xid, 0) for xid in range(1, 9)]

    def test_write_is_held__the_read_behind_it_waits_though_it_comes_alone(self) -> None:
        machine = machine_with(max_requests=1)
        one, other = connected(machine), connected(machine)
        create(one, 1, "/there")
        machine.settle()
        create(one, 2, "/a")
        other.send(1, OpCode.GET_DATA, GetDataRequest("/there", False))
        create(other, 2, "/b")
        other.send(3, OpCode.GET_DATA, GetDataRequest("/there", False))
        assert other.replies() == [(1, 0)]
        machine.settle()
        assert other.replies() == [(2, 0), (3, 0)]


class TestLargeRequests:
    def test_too_many_bytes_under_way__the_sender_is_cut_off(self) -> None:
        machine = machine_with(large_request_bytes=1000, large_requests_max_bytes=5000)
        clients = [connected(machine) for _ in range(3)]
        for number, client in enumerate(clients):
            create(client, 1, f"/n{number}", bytes(2000))
        assert [client.connection.is_open for client in clients] == [True, True, False]
        assert "large requests" in clients[2].connection.close_reason
        machine.settle()
        again = connected(machine)
        create(again, 1, "/again", bytes(2000))
        machine.settle()
        assert again.replies() == [(1, 0)]
        assert machine.replica.service.large_bytes == 0

    def test_too_many_bytes_of_set_data__the_sender_is_cut_off(self) -> None:
        machine = machine_with(large_request_bytes=1000, large_requests_max_bytes=5000)
        clients = [connected(machine) for _ in range(3)]
        create(clients[0], 1, "/a")
        machine.settle()
        for client in clients:
            client.send(2, OpCode.SET_DATA, SetDataRequest("/a", bytes(2000), -1))
        assert [client.connection.is_open for client in clients] == [True, True, False]

    def test_requests_that_are_still_arriving__count(self) -> None:
        machine = machine_with(large_request_bytes=1000, large_requests_max_bytes=5000)
        clients = [connected(machine) for _ in range(3)]
        for client in clients:
            machine.replica.receive(client.connection, struct.pack(">i", 2000) + b"x")
        assert [client.connection.is_open for client in clients] == [True, True, False]
        machine.replica.lost(clients[0].connection)
        machine.replica.lost(clients[1].connection)
        assert machine.replica.service.large_bytes == 0

    def test_small_requests__are_not_counted(self) -> None:
        machine = machine_with(large_request_bytes=1000, large_requests_max_bytes=1001)
        client = connected(machine)
        for xid in range(1, 50):
            create(client, xid, f"/n{xid}", bytes(500))
        machine.settle()
        assert len(client.replies()) == 49


class TestBursts:
    def test_more_than_a_burst__the_rest_waits_for_the_client(self) -> None:
        machine = Machine(replace(_OPTIONS, max_burst_bytes=10_000, max_parked_bytes=10_000))
        client = connected(machine)
        create(client, 1, "/big", bytes(4000))
        machine.settle()
        client.replies()
        # Behind a write, too.
        client.send(2, OpCode.SET_DATA, SetDataRequest("/big", bytes(4000), -1))
        for xid in range(3, 13):
            client.send(xid, OpCode.GET_DATA, GetDataRequest("/big", False))
        create(client, 13, "/last")
        machine.settle()
        assert client.replies() == [(xid, 0) for xid in range(2, 6)]
        assert client.connection.is_stalled
        seen = []
        for _ in range(4):
            machine.replica.resume(client.connection)
            machine.settle()
            seen += client.replies()
        assert seen == [(xid, 0) for xid in range(6, 14)]
        assert not client.connection.held

    def test_client_takes_what_it_is_sent__its_session_lives(self) -> None:
        machine = Machine(replace(_OPTIONS, max_burst_bytes=10_000))
        client = connected(machine)
        create(client, 1, "/big", bytes(9000))
        machine.settle()
        for xid in range(2, 20):
            client.send(xid, OpCode.GET_DATA, GetDataRequest("/big", False))
        for _ in range(5):
            machine.advance(8000)
            machine.replica.resume(client.connection)
            machine.tick()
            machine.settle()
        assert client.connection.is_open
        machine.advance(12_000)
        machine.tick()
        machine.settle()
        assert not client.connection.is_open
