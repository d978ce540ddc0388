"""Reads between two writes of one client show the first of them, and never the second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.sim.script import quiet_options
from keepfast.wire import (
    EventType,
    ExistsRequest,
    GetChildrenRequest,
    GetDataRequest,
    GetDataResponse,
    OpCode,
    ReplyHeader,
    SetDataRequest,
    SyncRequest,
    Xid,
    codec_of,
    encode_frame,
)
from tests.replica.machine import Client, Machine
from tests.replica.plain_frames import replies_in, request_of
from tests.replica.simulated import Ensemble, PlainClient, create, started

HEADER = 16
MUCH = 1 << 20
GET_DATA, SET_DATA = OpCode.GET_DATA, OpCode.SET_DATA
SMALL = (GetDataRequest("/a", False), GetDataRequest("/a", True))
# Each makes the reads in front of the second write wait in another way.
STALLS = {
    "full buffer": (GET_DATA, GetDataRequest("/big", False)),
    "many requests": (OpCode.EXISTS, ExistsRequest("/big", False)),
    "long list": (OpCode.GET_CHILDREN, GetChildrenRequest("/p", False)),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepfast.replica.child_lists._SLICE", 3)
    monkeypatch.setattr("keepfast.replica.reply_order.TURN_REQUESTS", 3)


def ensemble_of(count: int, max_parked_bytes: int) -> Ensemble:
    options = quiet_options(count)
    replica = replace(
        options.replica, max_burst_bytes=1000, max_parked_bytes=max_parked_bytes, tick_ms=100
    )
    ensemble = started(count, replace(options, replica=replica))
    client = PlainClient(ensemble, ensemble.leading())
    assert client.ask(1, OpCode.CREATE, create("/a", b"0")) == [(1, 0)]
    assert client.ask(2, OpCode.CREATE, create("/big", bytes(1500))) == [(2, 0)]
    assert client.ask(3, OpCode.CREATE, create("/p")) == [(3, 0)]
    for number in range(10):
        assert client.ask(4, OpCode.CREATE, create(f"/p/{number}")) == [(4, 0)]
    client.leave()
    ensemble.pass_ms(50)
    return ensemble


def data_in(payload: bytes) -> bytes | None:
    return codec_of(GetDataResponse).decode(payload, HEADER).data


@pytest.mark.parametrize("max_parked_bytes", [MUCH, 2500, 100])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "general"])
@pytest.mark.parametrize("stall", list(STALLS))
@pytest.mark.parametrize(("servers", "place"), [(1, "alone"), (3, "leader"), (3, "learner")])
def test_reads_that_stall_before_a_write__show_the_tree_before_it(
    servers: int, place: str, stall: str, is_plain: bool, max_parked_bytes: int
) -> None:
    ensemble = ensemble_of(servers, max_parked_bytes)
    host = ensemble.followers()[0] if place == "learner" else ensemble.leading()
    client = PlainClient(ensemble, host)
    # A null value is not plain.
    last = b"2" if is_plain else None
    requests = [
        (SET_DATA, SetDataRequest("/a", b"1", -1)),
        *[STALLS[stall]] * 5,
        (GET_DATA, GetDataRequest("/a", True)),
        (OpCode.SYNC, SyncRequest("/a")),
        *[STALLS[stall]] * 5,
        (GET_DATA, GetDataRequest("/a", False)),
        (SET_DATA, SetDataRequest("/a", last, -1)),
        *[STALLS[stall]] * 5,
        (GET_DATA, GetDataRequest("/a", False)),
    ]
    assert client.stream is not None
    frames = [encode_frame(request_of(xid, *each)) for xid, each in enumerate(requests, 1)]
    client.stream.send(0, b"".join(frames))
    ensemble.pass_ms(200)
    payloads = client.take()
    # The watch was set by a read before the second write, whose event comes before its reply.
    position = requests.index((SET_DATA, SetDataRequest("/a", last, -1)))
    event = payloads.pop(position)
    assert replies_in([event]) == [(Xid.EVENT, EventType.NODE_DATA_CHANGED)]
    assert replies_in(payloads) == [(xid, 0) for xid in range(1, len(requests) + 1)]
    zxids = [codec_of(ReplyHeader).decode(payload).zxid for payload in payloads]
    assert zxids == sorted(zxids)
    reads = [at for at, (_, request) in enumerate(requests) if request in SMALL]
    assert [data_in(payloads[at]) for at in reads] == [b"1", b"1", last]


def small_replica(max_parked_bytes: int) -> Machine:
    options = ReplicaOptions(
        tick_ms=1000,
        min_session_timeout_ms=2000,
        max_burst_bytes=1000,
        max_unsent_bytes=5000,
        max_parked_bytes=max_parked_bytes,
    )
    return Machine(options)


def connected(machine: Machine) -> Client:
    client = Client(machine)
    client.connect()
    return client


def write(client: Client, xid: int, path: str, data: bytes) -> None:
    client.send(xid, SET_DATA, SetDataRequest(path, data, -1))


def test_little_in_front_of_a_write__it_is_taken_at_once() -> None:
    machine = small_replica(MUCH)
    client = connected(machine)
    client.send(1, OpCode.CREATE, create("/a"))
    machine.settle()
    for xid in range(2, 100, 2):
        write(client, xid, "/a", b"%d" % xid)
        client.send(xid + 1, GET_DATA, GetDataRequest("/a", False))
    assert machine.replica.outstanding == 49
    assert not client.connection.held


def test_much_in_front_of_a_write__neither_it_nor_what_follows_is_taken() -> None:
    machine = small_replica(10_000)
    client = connected(machine)
    client.send(1, OpCode.CREATE, create("/big", bytes(4000)))
    machine.settle()
    client.take()
    write(client, 2, "/big", bytes(4000))
    for xid in range(3, 6):
        client.send(xid, GET_DATA, GetDataRequest("/big", False))
    write(client, 6, "/big", b"small")
    client.send(7, GET_DATA, GetDataRequest("/big", False))
    assert machine.replica.outstanding == 1
    assert len(client.connection.held) == 2
    seen = []
    for _ in range(8):
        machine.settle()
        seen += client.replies()
        machine.replica.resume(client.connection)
    assert seen == [(xid, 0) for xid in range(2, 8)]
    assert not client.connection.is_held_up


def test_many_small_reads_between_very_many_writes__never_add_up_to_too_much() -> None:
    machine = small_replica(50_000)
    client = connected(machine)
    client.send(1, OpCode.CREATE, create("/a"))
    machine.settle()
    client.take()
    for xid in range(2, 1002, 2):
        write(client, xid, "/a", b"%d" % xid)
        client.send(xid + 1, GET_DATA, GetDataRequest("/a", False))
    reads = [item for item in client.connection.queue if isinstance(item, bytes)]
    assert 20 < len(reads) < 100
    seen: list[tuple[int, int]] = []
    for _ in range(1000):
        machine.settle()
        seen += client.replies()
        machine.replica.resume(client.connection)
    assert seen == [(xid, 0) for xid in range(2, 1002)]


def test_replies_that_grew_beyond_all_bounds__who_asked_is_cut_off() -> None:
    machine = small_replica(MUCH)
    client, other = connected(machine), connected(machine)
    client.send(1, OpCode.CREATE, create("/x"))
    machine.settle()
    client.take()
    # Not committed when the others are judged.
    write(other, 1, "/x", bytes(2000))
    write(client, 2, "/x", b"1" * 2000)
    for xid in range(3, 13):
        client.send(xid, GET_DATA, GetDataRequest("/x", False))
    write(client, 13, "/x", b"")
    assert machine.replica.outstanding == 3
    machine.settle()
    assert not client.connection.is_open
    assert machine.replica.service.take_stuck() == [client.connection]
    assert not client.take()
    assert other.replies() == [(1, 0)]


def test_sync_before_what_is_held_at_a_learner__its_answer_lets_it_go_on() -> None:
    ensemble = ensemble_of(3, 100)
    client = PlainClient(ensemble, ensemble.followers()[0])
    requests = [
        (OpCode.SYNC, SyncRequest("/a")),
        (GET_DATA, GetDataRequest("/a", False)),
        (SET_DATA, SetDataRequest("/a", b"1", -1)),
    ]
    assert client.stream is not None
    frames = [encode_frame(request_of(xid, *each)) for xid, each in enumerate(requests, 1)]
    client.stream.send(0, b"".join(frames))
    ensemble.pass_ms(50)
    assert client.replies() == [(1, 0), (2, 0), (3, 0)]


def test_sync_behind_reads_that_stall__shows_the_zxid_of_when_it_is_sent() -> None:
    machine = small_replica(MUCH)
    client, other = connected(machine), connected(machine)
    client.send(1, OpCode.CREATE, create("/big", bytes(1500)))
    machine.settle()
    client.take()
    write(client, 2, "/big", bytes(1500))
    for xid in range(3, 6):
        client.send(xid, GET_DATA, GetDataRequest("/big", False))
    client.send(6, OpCode.SYNC, SyncRequest("/big"))
    machine.settle()
    assert client.connection.is_stalled
    payloads = client.take()
    for xid in range(1, 10):
        write(other, xid, "/big", bytes(1500))
        machine.settle()
        machine.replica.resume(client.connection)
        payloads += client.take()
    assert replies_in(payloads) == [(xid, 0) for xid in range(2, 7)]
    zxids = [codec_of(ReplyHeader).decode(payload).zxid for payload in payloads]
    assert zxids == sorted(zxids)
