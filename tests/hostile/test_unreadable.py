"""Requests that become txns far larger than themselves: nothing is written that no server can read.

After each, a restart works, `verify` finds the directory whole, and an ensemble keeps its leader.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.storage import (
    LogReader,
    RealDisk,
    Standing,
    data_directory,
    list_directory,
    recover,
)
from keepfast.testing import Ensemble
from keepfast.tree import PrepareOptions
from keepfast.wire import DEFAULT_MAX_FIELD, CreateMode
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.hostile.doors import DOORS, Door, door_of
from tests.hostile.offenders import Offender, is_whole
from tests.server.live import live

_IDS = 1800
_BAD_ARGUMENTS, _MARSHALLING_ERROR, _INVALID_ACL, _QUOTA_EXCEEDED = -8, -5, -114, -125
_NO_AUTH = -102
_EPHEMERAL = 1
_CONFIGURATION = {"tickTime": "500", "maxSessionTimeout": "60000"}


def error_of(frame: bytes | None) -> int:
    assert frame is not None, "the connection was closed"
    return int(struct.unpack_from(">iqi", frame)[2])


def authenticate(offender: Offender) -> None:
    """Become 1,800 users."""
    payloads = [
        struct.pack(">ii", -4, Op.AUTH) + wire.auth("digest", f"user{number:0200}:secret".encode())
        for number in range(_IDS)
    ]
    offender.send(*payloads)
    for _ in payloads:
        assert error_of(offender.frame()) == 0


def ask(offender: Offender, op: int, body: bytes) -> int:
    offender.ask((op, body))
    return error_of(offender.frame())


def create_for_all(offender: Offender) -> None:
    """Create a znode whose ACL names all users, as often as they fit into a request."""
    authenticate(offender)
    alike = [(31, "auth", str(number)) for number in range(_IDS)]
    assert ask(offender, Op.CREATE, wire.create("/alike", b"", alike, 0)) == 0
    different = [(number, "auth", "") for number in range(_IDS)]
    error = ask(offender, Op.CREATE, wire.create("/different", b"", different, 0))
    assert error == _INVALID_ACL
    # Each of many operations may name them all: it ends where it grows too large, and the tree is
    # as it was.
    everybody = [(31, "auth", "")]
    many = [(Op.CREATE, wire.create(f"/f{number}", b"", everybody, 0)) for number in range(1000)]
    assert ask(offender, Op.MULTI, wire.multi(many)) == _MARSHALLING_ERROR
    assert ask(offender, Op.CREATE, wire.create("/f0", b"", OPEN, 0)) == 0
    assert ask(offender, Op.CREATE, wire.create("/f", b"", OPEN, 0)) == 0


def create_ephemerals(offender: Offender, length: int) -> list[int]:
    """Create ephemerals with long names until one is refused; the errors, the last one not 0."""
    errors: list[int] = []
    while not errors or not errors[-1]:
        path = f"/{len(errors):06d}" + "n" * (length - 7)
        errors.append(ask(offender, Op.CREATE, wire.create(path, b"", OPEN, _EPHEMERAL)))
    return errors


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Door:
    return door_of(request.param, tmp_path / "door")


def test_acl_of_many_ids__is_stored_once_or_refused_and_can_be_read_back(
    tmp_path: Path, door: Door
) -> None:
    server = door.server(tmp_path / "data", _CONFIGURATION)
    with server:
        with door.enter(server.port) as offender:
            create_for_all(offender)
        server.kill()
        assert is_whole(server.data_dir)
        server.start()
        with door.enter(server.port) as reader:
            # Its creator is known again by the certificate; without one, it has no id any more.
            expected = _NO_AUTH if door.tls is None else 0
            assert ask(reader, Op.GET_DATA, wire.with_flag("/alike", False)) == expected
        assert "Traceback" not in server.output()
    assert is_whole(server.data_dir)


def test_ids_without_end__the_connection_is(tmp_path: Path, door: Door) -> None:
    with (
        door.server(tmp_path / "data", _CONFIGURATION) as server,
        door.enter(server.port) as offender,
    ):
        names = (f"{'u' * 100_000}{number}:secret".encode() for number in range(20))
        proofs = (struct.pack(">ii", -4, Op.AUTH) + wire.auth("digest", name) for name in names)
        assert offender.is_cut_off_by(*proofs)
        assert "ids of more than" in server.output()


@pytest.mark.parametrize(
    ("property_value", "length", "expected"),
    [
        # By default no path is that long.
        ("", 950_000, [_BAD_ARGUMENTS]),
        ("1000000", 950_000, [0, 0, _QUOTA_EXCEEDED]),
        ("", 100_000, [0] * 20 + [_QUOTA_EXCEEDED]),
    ],
)
def test_ephemerals_with_long_names__the_end_of_the_session_can_be_read_back(
    tmp_path: Path, door: Door, property_value: str, length: int, expected: list[int]
) -> None:
    settings = {"keepfast.maxPathBytes": property_value} if property_value else {}
    server = door.server(tmp_path / "data", _CONFIGURATION | settings)
    with server:
        with door.enter(server.port) as offender:
            assert create_ephemerals(offender, length) == expected
            assert ask(offender, Op.CLOSE_SESSION, b"") == 0
        server.kill()
        assert is_whole(server.data_dir)
        server.start()
        with door.enter(server.port) as reader:
            reader.ask((Op.GET_CHILDREN, wire.with_flag("/", False)))
            frame = reader.frame()
            assert frame is not None
            assert len(frame) < 1000
    assert is_whole(server.data_dir)


def test_session_with_too_many_ephemerals_from_before__ends_in_several_txns(tmp_path: Path) -> None:
    """A server with a larger limit let it have them."""
    place, options = tmp_path / "data", ReplicaOptions(max_session_timeout_ms=60_000)
    larger = replace(options, prepare=PrepareOptions(max_txn_bytes=16 << 20))
    with live(place, replica=larger) as first:
        client = first.client().start()
        client.wait_connected()
        for number in range(50):
            client.create(f"/{number:06d}" + "n" * 100_000, mode=CreateMode.EPHEMERAL)
        port = first.port
    with live(place, replica=options, port=port) as second:
        client.wait_connected(60, is_patient=True)
        before = client.last_zxid
        client.close()
        with second.client() as other:
            assert other.get_children("/") == ("zookeeper",)
            # The session's end, with what one txn can name, and the ephemerals before it.
            assert other.last_zxid - before > 2
    disk = RealDisk()
    directory = data_directory(disk, str(place))
    found = recover(disk, directory, full=True)
    assert found.standing is Standing.WHOLE
    assert found.tree is not None
    assert found.tree.node_count == len(set(found.tree.paths())) < 10
    for name in list_directory(disk, directory).logs:
        with disk.open_read(directory.in_logs(name)) as file:
            sizes = [len(frame.entry) for frame in LogReader(file) if frame.zxid > before]
        assert max(sizes, default=0) <= DEFAULT_MAX_FIELD


def test_ensemble__keeps_its_leader_and_all_have_the_same_tree() -> None:
    with Ensemble() as ensemble:
        leader = ensemble.wait_for_leader()
        ensemble.wait_serving()
        with Offender(ensemble.followers[0].port).greet() as offender:
            create_for_all(offender)
        with Offender(leader.port).greet() as offender:
            create_ephemerals(offender, 100_000)
            assert ask(offender, Op.CLOSE_SESSION, b"") == 0
        ensemble.wait_equal()
        assert ensemble.leader is leader
        places = [server.data_dir for server in ensemble.servers]
        for server in ensemble.servers:
            server.kill()
            server.restart()
        ensemble.wait_serving()
        ensemble.wait_equal()
        for server in ensemble.servers:
            server.stop()
        assert all(map(is_whole, places))
