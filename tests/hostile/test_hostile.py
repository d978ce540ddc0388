"""One test an offence: memory stays bounded, others are served, the log says why it was cut off."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.apache import wait_until
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN, Script
from tests.hostile.doors import DOORS, Door, door_of
from tests.hostile.offenders import (
    HUNG_UP,
    IS_FULL,
    Offender,
    get_data,
    reasons,
    resident_bytes,
)
from tests.keepfast_server import KeepfastServer

_MIB = 1 << 20
_BIG = b"x" * 1_000_000
# What an offence may cost. The server alone has about 50 MiB.
_BOUND = 60 * _MIB
# Whoever does nothing wrong has a session by then, on a loaded machine too.
_SESSIONLESS_MS = 8000
_PROPERTIES = {
    "zookeeper.nio.sessionlessCnxnTimeout": str(_SESSIONLESS_MS),
    "znode.container.checkIntervalMs": "3600000",
}
_CONFIGURATION = {
    "tickTime": "500",
    "minSessionTimeout": "1000",
    # Ten thousand handshakes take minutes on a busy machine.
    "maxSessionTimeout": "600000",
    "maxClientCnxns": "0",
}


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    return door_of(request.param, tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def server(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepfastServer]:
    place = tmp_path_factory.mktemp("hostile") / "data"
    with door.server(place, _CONFIGURATION, _PROPERTIES) as found:
        yield found


@pytest.fixture
def neighbour(server: KeepfastServer, door: Door) -> Iterator[Offender]:
    """Somebody who does nothing wrong, before, during and after the offence."""
    server.forget_output()
    with door.enter(server.port) as found:
        found.ask((Op.CREATE, wire.create("/big", _BIG, OPEN, 0)))
        assert found.frame() is not None
        yield found
        _is_served(found)
    for word in ("Traceback", "CRITICAL", "ERROR"):
        assert word not in server.output()


def _is_served(neighbour: Offender) -> None:
    neighbour.ask((Op.SET_DATA, wire.set_data("/big", _BIG, -1)), get_data("/big"))
    first, second = neighbour.frame(), neighbour.frame()
    assert first is not None
    assert second is not None
    assert len(second) > len(_BIG)


def _wait_for_reason(server: KeepfastServer, text: str) -> None:
    wait_until(
        lambda: any(text in reason for reason in reasons(server)),
        f"the log says {text!r}; it says {list(reasons(server))}",
    )


def _growth(server: KeepfastServer, action: Callable[[], object], seconds: float = 1.0) -> int:
    """The most memory that the server takes while something is done, and a while later."""
    before = resident_bytes(server)
    action()
    deadline = time.monotonic() + seconds
    most = 0
    while time.monotonic() < deadline:
        most = max(most, resident_bytes(server))
        time.sleep(0.02)
    return most - before


def test_requests_for_gigabytes_that_nobody_reads__cost_one_burst(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    with door.enter(server.port, 2000, receive_buffer=4096) as greedy:
        grown = _growth(server, lambda: greedy.ask(*[get_data("/big")] * 5000))
        assert grown < _BOUND
        _is_served(neighbour)
        # It does not read, so its pings are not read either.
        _wait_for_reason(server, "the session expired")


def test_requests_for_gigabytes_behind_a_write__cost_one_burst(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    write = (Op.SET_DATA, wire.set_data("/big", _BIG, -1))
    with door.enter(server.port, 2000, receive_buffer=4096) as greedy:
        grown = _growth(server, lambda: greedy.ask(write, *[get_data("/big")] * 5000))
        assert grown < _BOUND
        _is_served(neighbour)


def test_many_large_replies_that_are_read__all_come_and_in_order(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    count = 300
    with door.enter(server.port) as reader:
        write = (Op.SET_DATA, wire.set_data("/big", _BIG, -1))
        asked = [write if i % 50 == 25 else get_data("/big") for i in range(count)]
        for i, frame in enumerate(reader.ask_and_read(*asked), 1):
            assert frame is not None
            assert struct.unpack_from(">i", frame)[0] == i
            assert (len(frame) > len(_BIG)) == (asked[i - 1][0] == Op.GET_DATA)
        assert resident_bytes(server) < 50 * _MIB + 2 * _BOUND


def test_events_that_nobody_reads__the_client_is_cut_off(tmp_path: Path, door: Door) -> None:
    long_name = "/" + "n" * 100_000
    with (
        door.server(tmp_path / "data", _CONFIGURATION) as server,
        door.enter(server.port) as writer,
        ExitStack() as stack,
    ):
        writer.ask((Op.CREATE, wire.create(long_name, b"", OPEN, 0)))
        assert writer.frame() is not None
        deaf = [
            stack.enter_context(door.enter(server.port, 60000, receive_buffer=4096))
            for _ in range(4)
        ]
        for client in deaf:
            client.ask((Op.ADD_WATCH, wire.with_version(long_name, 1)))
            assert client.frame() is not None
        before = resident_bytes(server)
        change = (Op.SET_DATA, wire.set_data(long_name, b"", -1))
        for _ in range(1000):
            writer.ask(change)
            assert writer.frame() is not None
            if sum("does not read" in reason for reason in reasons(server)) == len(deaf):
                break
        else:
            pytest.fail(f"not all were cut off: {list(reasons(server))}")
        # 64 MiB for each of them, which is the limit, and what else is held for a moment.
        assert resident_bytes(server) - before < len(deaf) * 64 * _MIB + _BOUND


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, (1 << 20) + 1])
@pytest.mark.parametrize("is_greeted", [False, True])
def test_length_that_cannot_be__is_cut_off_at_once(
    server: KeepfastServer, door: Door, neighbour: Offender, length: int, is_greeted: bool
) -> None:
    with door.knock(server.port) as offender:
        if is_greeted:
            door.greet(offender)
        offender.raw(struct.pack(">i", length))
        assert offender.is_cut_off()
    _wait_for_reason(server, f"frame of {length} bytes")


def test_frames_that_never_end__cost_what_was_sent_and_no_place_forever(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    """Slow writers: a length, a byte now and then, and never the rest."""
    with ExitStack() as stack:
        slow = [stack.enter_context(door.knock(server.port)) for _ in range(100)]

        def begin() -> None:
            for offender in slow:
                offender.raw(struct.pack(">i", 1_000_000) + b"x")

        assert _growth(server, begin, 0.5) < _BOUND
        _is_served(neighbour)
        _wait_for_reason(server, f"no session within {_SESSIONLESS_MS} ms")
        assert all(offender.is_cut_off() for offender in slow)


def test_request_byte_by_byte__is_answered(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    with door.knock(server.port) as slow:
        hello = wire.connect(0, 60_000, 0, bytes(16))
        for byte in struct.pack(">i", len(hello)) + hello:
            slow.raw(bytes((byte,)))
        assert slow.frame() is not None
        door.log_in(slow)
        request = struct.pack(">ii", 1, Op.PING)
        for byte in struct.pack(">i", len(request)) + request:
            slow.raw(bytes((byte,)))
            _is_served(neighbour)
        assert slow.frame() is not None


def test_client_that_falls_silent__its_session_ends_and_its_socket_is_closed(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    """Half-open: the client's machine is gone, and nobody has told the server."""
    with door.enter(server.port, 1000) as silent:
        silent.ask((Op.CREATE, wire.create("/mine", b"", OPEN, 1)))
        assert silent.is_cut_off()
    _wait_for_reason(server, "the session expired")
    neighbour.ask((Op.EXISTS, wire.with_flag("/mine", False)))
    frame = neighbour.frame()
    assert frame is not None
    assert struct.unpack_from(">iqi", frame)[2] == -101


def test_deep_paths_and_long_multis__are_answered(
    server: KeepfastServer, door: Door, neighbour: Offender
) -> None:
    deep = "/a" * 200_000
    many = wire.multi((Op.CHECK, wire.with_version("/big", -1)) for _ in range(40_000))
    with door.enter(server.port) as client:
        client.ask(
            (Op.CREATE, wire.create(deep, b"", OPEN, 0)),
            (Op.DELETE, wire.with_version(deep, -1)),
            (Op.EXISTS, wire.with_flag(deep, True)),
            (Op.ADD_WATCH, wire.with_version(deep, 1)),
            (Op.MULTI, many),
        )
        frames = [client.frame() for _ in range(5)]
        errors = [struct.unpack_from(">iqi", frame)[2] for frame in frames if frame is not None]
        # Too deep to be watched recursively.
        assert errors == [-101, -101, -101, -125, 0]
        # A deep tree, and a change at its very end that a watch on its root has to hear of.
        paths = ["/d" + "/x" * depth for depth in range(1000)]
        client.ask((Op.ADD_WATCH, wire.with_version("/", 1)))
        assert client.frame() is not None
        client.ask(*((Op.CREATE, wire.create(path, b"", OPEN, 0)) for path in paths))
        for _ in range(2 * len(paths)):
            assert client.frame() is not None
        client.ask((Op.GET_ALL_CHILDREN_NUMBER, wire.text("/d")))
        frame = client.frame()
        assert frame is not None
        assert struct.unpack_from(">i", frame, 16)[0] == len(paths) - 1


@pytest.mark.parametrize(
    "op", [Op.DELETE_CONTAINER, Op.CREATE_SESSION, Op.CHECK, 0, -1, 99, 1 << 30]
)
def test_requests_that_are_not_for_clients__are_refused(
    server: KeepfastServer, door: Door, neighbour: Offender, op: int
) -> None:
    neighbour.ask((Op.CREATE_CONTAINER, wire.create("/container", b"", OPEN, 4)))
    assert neighbour.frame() is not None
    with door.enter(server.port) as offender:
        offender.ask((op, wire.text("/container")))
        frame = offender.frame()
        assert frame is not None
        assert struct.unpack_from(">iqi", frame) == (1, -1, -6)
        assert offender.is_cut_off()
    _wait_for_reason(server, f"request type {op} is not known or not for clients")
    neighbour.ask((Op.EXISTS, wire.with_flag("/container", False)))
    frame = neighbour.frame()
    assert frame is not None
    assert struct.unpack_from(">iqi", frame)[2] == 0


def test_random_and_mutated_frames__the_server_stays(
    server: KeepfastServer, door: Door, neighbour: Offender, tell: Callable[[str], None]
) -> None:
    chance = random.Random(5)
    script = Script(5)
    requests = [
        struct.pack(">ii", 1, request.op) + request.body
        for request in (script.request() for _ in range(2000))
    ]
    count = 20_000 if IS_FULL else 600
    before = resident_bytes(server)
    for number in range(count):
        with door.knock(server.port) as offender:
            if chance.random() < 0.8:
                door.greet(offender, 1000)
            for _ in range(chance.randrange(1, 6)):
                payload = _mutated(chance, chance.choice(requests))
                try:
                    if chance.random() < 0.1:
                        offender.raw(chance.randbytes(chance.randrange(1, 200)))
                    else:
                        offender.send(payload)
                except HUNG_UP:
                    break
        if number % 50 == 0:
            _is_served(neighbour)
    grown = resident_bytes(server) - before
    tell(f"{count} connections with mutated frames; {grown / _MIB:.0f} MiB more memory")
    assert grown < _BOUND


def _mutated(chance: random.Random, payload: bytes) -> bytes:
    data = bytearray(payload)
    for _ in range(chance.randrange(0, 5)):
        place = chance.randrange(len(data))
        roll = chance.random()
        if roll < 0.5:
            data[place] = chance.randrange(256)
        elif roll < 0.7:
            data[place : place + 4] = struct.pack(
                ">i", chance.choice((-1, -2, 0, 1 << 20, 2**31 - 1, -(2**31)))
            )
        elif roll < 0.85:
            del data[place:]
        else:
            data[place:place] = chance.randbytes(chance.randrange(1, 20))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def test_thousands_of_connections__others_are_served(
    server: KeepfastServer, door: Door, neighbour: Offender, tell: Callable[[str], None]
) -> None:
    count = 10_000 if IS_FULL else 1000 if door.tls is None else 300
    before = resident_bytes(server)
    with ExitStack() as stack:
        crowd = []
        for number in range(count):
            if not number % 1000:
                _is_served(neighbour)
            client = stack.enter_context(door.knock(server.port))
            client.send(wire.connect(0, 600_000, 0, bytes(16)))
            crowd.append(client)
        for number, client in enumerate(crowd):
            if not number % 1000:
                _is_served(neighbour)
            assert client.frame() is not None
            door.log_in(client)
        grown = resident_bytes(server) - before
        tell(f"{count} connections cost {grown / count / 1024:.1f} KiB each")
        # Inside TLS, most of it is OpenSSL's.
        most = 32 if door.tls is None else 64
        assert grown < count * most * 1024 + _BOUND
        _is_served(neighbour)
        for client in crowd[:: max(count // 200, 1)]:
            client.ask((Op.EXISTS, wire.with_flag("/big", True)))
            assert client.frame() is not None
        _is_served(neighbour)
