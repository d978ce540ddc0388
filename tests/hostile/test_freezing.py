"""Requests that ask for far more than they cost: nobody else waits, and memory is bounded."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.replica import ReplicaOptions
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.hostile.doors import DOORS, Door, door_of
from tests.hostile.offenders import Offender, get_data, resident_bytes
from tests.keepfast_server import KeepfastServer
from tests.server.live import live

_MIB = 1 << 20
_BIG = b"x" * 1_000_000
_MARSHALLING_ERROR, _QUOTA_EXCEEDED = -5, -125
_CONFIGURATION = {
    "tickTime": "500",
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    # As in a tree that another program wrote with such a list.
    "keepfast.maxAclEntries": "10000",
}


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    return door_of(request.param, tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def server(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepfastServer]:
    with door.server(tmp_path_factory.mktemp("freezing") / "data", _CONFIGURATION) as found:
        with door.enter(found.port) as writer:
            writer.ask((Op.CREATE, wire.create("/big", _BIG, OPEN, 0)))
            assert writer.frame() is not None
        yield found


def errors_of(client: Offender, count: int) -> list[int]:
    frames = [client.frame() for _ in range(count)]
    return [struct.unpack_from(">iqi", frame)[2] for frame in frames if frame is not None]


def test_multi_read_of_a_gigabyte__is_refused_with_an_error(
    server: KeepfastServer, door: Door
) -> None:
    many = wire.multi([get_data("/big")] * 1000)
    assert len(many) < 32 << 10
    more = wire.multi([get_data("/none")] * 20_000)
    with door.enter(server.port) as greedy:
        before = resident_bytes(server)
        greedy.ask(*[(Op.MULTI_READ, many)] * 3, (Op.MULTI_READ, more))
        assert errors_of(greedy, 4) == [_MARSHALLING_ERROR] * 4
        assert resident_bytes(server) - before < 60 * _MIB
        # A request within the limit is answered, on the same connection.
        greedy.ask((Op.MULTI_READ, wire.multi([get_data("/big")] * 10)))
        frame = greedy.frame()
        assert frame is not None
        assert len(frame) > 10 * len(_BIG)


def test_reply_larger_than_what_may_wait__reaches_a_client_that_reads(tmp_path: Path) -> None:
    limits = replace(ReplicaOptions(), max_unsent_bytes=2 * _MIB)
    with (
        live(tmp_path / "data", replica=limits) as server,
        Offender(server.port).greet() as reader,
    ):
        reader.ask((Op.CREATE, wire.create("/big", _BIG, OPEN, 0)))
        assert reader.frame() is not None
        reader.ask((Op.MULTI_READ, wire.multi([get_data("/big")] * 15)))
        frame = reader.frame()
        assert frame is not None, "cut off"
        assert len(frame) > 15 * len(_BIG)


def test_counts_of_a_large_tree__are_answered_one_after_the_other(
    server: KeepfastServer, door: Door
) -> None:
    """The neighbour is answered while the offender still waits for most of its replies."""
    width = 5000
    with door.enter(server.port) as writer:
        creates = [(Op.CREATE, wire.create("/many", b"", OPEN, 0))]
        creates += [(Op.CREATE, wire.create(f"/many/{n}", b"", OPEN, 0)) for n in range(width)]
        for start in range(0, len(creates), 500):
            part = creates[start : start + 500]
            writer.ask(*part)
            assert errors_of(writer, len(part)) == [0] * len(part)
        asked = [(Op.GET_ALL_CHILDREN_NUMBER, wire.text("/many"))] * 10_000
        with door.enter(server.port) as neighbour:
            for at, frame in enumerate(writer.ask_and_read(*asked)):
                if at == 0:
                    neighbour.ask(get_data("/big"))
                    assert errors_of(neighbour, 1) == [0]
                assert frame is not None
                assert struct.unpack_from(">i", frame, 16)[0] == width


def test_many_ids_against_a_long_acl__are_answered(server: KeepfastServer, door: Door) -> None:
    entries = [(1, "digest", f"user{number}:x") for number in range(10_000)]
    with door.enter(server.port) as owner:
        owner.ask((Op.CREATE, wire.create("/closed", b"", entries, 0)))
        assert errors_of(owner, 1) == [0]
    with door.enter(server.port) as many, door.enter(server.port) as neighbour:
        for number in range(100):
            many.ask((Op.AUTH, wire.auth("digest", b"id%d:x" % number)))
            assert errors_of(many, 1) == [0]
        many.ask(*[get_data("/closed")] * 200)
        neighbour.ask(get_data("/big"))
        assert errors_of(neighbour, 1) == [0]
        assert errors_of(many, 200) == [-102] * 200


def test_session_with_very_many_ephemerals__is_refused_its_next(tmp_path: Path, door: Door) -> None:
    settings = _CONFIGURATION | {"keepfast.maxEphemerals": "50"}
    with (
        door.server(tmp_path / "data", settings) as small,
        door.enter(small.port) as owner,
    ):
        made = [(Op.CREATE, wire.create(f"/{number}", b"", OPEN, 1)) for number in range(60)]
        owner.ask(*made)
        assert errors_of(owner, 60) == [0] * 50 + [_QUOTA_EXCEEDED] * 10
        owner.ask((Op.DELETE, wire.with_version("/0", -1)))
        assert errors_of(owner, 1) == [0]
        owner.ask(made[0], made[55])
        assert errors_of(owner, 2) == [0, _QUOTA_EXCEEDED]


def test_long_multi_below_quotas__is_refused_and_leaves_nothing(
    server: KeepfastServer, door: Door
) -> None:
    """It would be applied in one piece."""
    below = "/zookeeper/quota/long"
    many = [(Op.CREATE, wire.create(f"{below}/{n}", b"", OPEN, 0)) for n in range(1001)]
    with door.enter(server.port) as writer:
        writer.ask((Op.CREATE, wire.create(below, b"", OPEN, 0)))
        writer.ask((Op.MULTI, wire.multi(many)))
        assert errors_of(writer, 2) == [0, _MARSHALLING_ERROR]
        writer.ask((Op.GET_ALL_CHILDREN_NUMBER, wire.text(below)))
        frame = writer.frame()
        assert frame is not None
        assert struct.unpack_from(">i", frame, 16)[0] == 0
        writer.ask((Op.MULTI, wire.multi(many[:1000])))
        assert errors_of(writer, 1) == [0]


def test_multi_of_very_many_different_acls__is_refused_and_leaves_nothing(
    tmp_path: Path, door: Door
) -> None:
    """Each is added to a table when the txn is installed."""
    settings = _CONFIGURATION | {"keepfast.maxAclEntries": "50"}
    with (
        door.server(tmp_path / "data", settings) as small,
        door.enter(small.port) as writer,
    ):
        others = [[(31, "digest", f"{number}:x")] for number in range(51)]
        different = [
            (Op.CREATE, wire.create(f"/d{n}", b"", acl, 0)) for n, acl in enumerate(others)
        ]
        alike = [(Op.CREATE, wire.create(f"/a{n}", b"", others[0], 0)) for n in range(300)]
        long = [(1, "digest", f"{number}:x") for number in range(40)]
        twice = [(Op.CREATE, wire.create(path, b"", long, 0)) for path in ("/l", "/m")]
        for operations, expected in (
            (different, _MARSHALLING_ERROR),
            (twice, _MARSHALLING_ERROR),
            (different[:50], 0),
            (alike, 0),
            (twice[:1], 0),
        ):
            writer.ask((Op.MULTI, wire.multi(operations)))
            assert errors_of(writer, 1) == [expected]
