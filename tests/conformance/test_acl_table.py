"""Who may do what: operation x permission x scheme, alone and inside a multi.

The expectations are one table. Apache 3.9.5 is asked as well, for the schemes that a plain
connection can have, so that the table is Apache's and not our idea of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from keepfast.replica import ReplicaOptions
from keepfast.tree import PrepareOptions
from keepfast.wire import Id
from tests.apache import ApacheServer
from tests.differential import requests as wire
from tests.differential.requests import Entry, Op
from tests.differential.scripts import ANN, OPEN, SUPER
from tests.differential.sides import NO_PASSWORD, Line
from tests.replica.machine import Client, Machine
from tests.server.live import SUPER_DIGEST

READ, WRITE, CREATE, DELETE, ADMIN = PERMS = (1, 2, 4, 8, 16)
NO_AUTH = -102
NODE, CHILD, NEW = "/t/n", "/t/n/child", "/t/n/new"
NOBODY: Entry = (31, "digest", "no:body")

Ask = Callable[[int, bytes], list[bytes]]


class Doors(NamedTuple):
    """Three connections to one server: the superuser, and two that are looked at."""

    superuser: Ask
    holder: Ask
    stranger: Ask


class Operation(NamedTuple):
    """What is asked for, and the permissions one of which it needs on `NODE`."""

    needs: int
    op: int
    body: bytes


def _create(flags: int) -> bytes:
    return wire.create(NEW, b"", OPEN, flags)


_WRITES = {
    "create": Operation(CREATE, Op.CREATE, _create(0)),
    "create ephemeral": Operation(CREATE, Op.CREATE, _create(1)),
    "create2 sequential": Operation(CREATE, Op.CREATE2, _create(2)),
    "createContainer": Operation(CREATE, Op.CREATE_CONTAINER, _create(4)),
    "createTTL": Operation(CREATE, Op.CREATE_TTL, _create(5) + struct.pack(">q", 10**9)),
    "delete": Operation(DELETE, Op.DELETE, wire.with_version(CHILD, -1)),
    "setData": Operation(WRITE, Op.SET_DATA, wire.set_data(NODE, b"x", -1)),
}
_CHECK = Operation(READ, Op.CHECK, wire.with_version(NODE, -1))
_READS = {
    "getData": Operation(READ, Op.GET_DATA, wire.with_flag(NODE, False)),
    "getChildren": Operation(READ, Op.GET_CHILDREN, wire.with_flag(NODE, False)),
}


def _inside(kind: int, operation: Operation) -> Operation:
    return Operation(operation.needs, kind, wire.multi([(operation.op, operation.body)]))


OPERATIONS = {
    **_WRITES,
    **_READS,
    "setACL": Operation(ADMIN, Op.SET_ACL, wire.set_acl(NODE, OPEN, -1)),
    "exists": Operation(READ, Op.EXISTS, wire.with_flag(NODE, False)),
    "getChildren2": Operation(READ, Op.GET_CHILDREN2, wire.with_flag(NODE, False)),
    "getAllChildrenNumber": Operation(READ, Op.GET_ALL_CHILDREN_NUMBER, wire.text(NODE)),
    "getACL": Operation(READ | ADMIN, Op.GET_ACL, wire.text(NODE)),
    **{f"multi {name}": _inside(Op.MULTI, each) for name, each in _WRITES.items()},
    "multi check": _inside(Op.MULTI, _CHECK),
    **{f"multiRead {name}": _inside(Op.MULTI_READ, each) for name, each in _READS.items()},
}


def _code(op: int, frames: Sequence[bytes]) -> int:
    """The error of the last frame; of a multi, that of its only operation."""
    frame = frames[-1]
    (code,) = struct.unpack_from(">i", frame, 12)
    if op in (Op.MULTI, Op.MULTI_READ) and code == 0:
        type_, _, error = struct.unpack_from(">i?i", frame, 16)
        return int(error) if type_ == -1 else 0
    return int(code)


def _prepare(doors: Doors, entries: Sequence[Entry]) -> None:
    """`NODE` with one child and a list. Whoever proves the id of an `auth` entry sets the list."""
    for path in (NEW, f"{NEW}0000000001", CHILD, NODE):
        doors.superuser(Op.DELETE, wire.with_version(path, -1))
    for path in ("/t", NODE, CHILD):
        doors.superuser(Op.CREATE, wire.create(path, b"", OPEN, 0))
    setter = doors.holder if entries[0][1] == "auth" else doors.superuser
    answer = setter(Op.SET_ACL, wire.set_acl(NODE, entries, -1))
    assert _code(Op.SET_ACL, answer) == 0, answer


def _check_table(doors: Doors, scheme: str, who: str) -> int:
    """Every operation with every permission; gives the number of combinations."""
    count = 0
    for perm in PERMS:
        entries = [NOBODY] if scheme == "super" else [(perm, scheme, who)]
        for name, (needs, op, body) in OPERATIONS.items():
            for role, ask in (("holder", doors.holder), ("stranger", doors.stranger)):
                _prepare(doors, entries)
                is_allowed = bool(needs & perm)
                if scheme == "super":
                    is_allowed = role == "holder"
                elif role == "stranger" and scheme not in ("world", "ip"):
                    is_allowed = False
                found = _code(op, ask(op, body))
                expected = 0 if is_allowed else NO_AUTH
                assert found == expected, (scheme, perm, name, role, found)
                count += 1
        count += _check_events(doors, entries, scheme, perm)
    return count


def _check_events(doors: Doors, entries: Sequence[Entry], scheme: str, perm: int) -> int:
    """An event tells that a znode has changed, which is for readers alone."""
    for role, ask in (("holder", doors.holder), ("stranger", doors.stranger)):
        _prepare(doors, entries)
        ask(Op.ADD_WATCH, wire.with_version(NODE, 0))
        doors.superuser(Op.SET_DATA, wire.set_data(NODE, b"y", -1))
        doors.superuser(Op.DELETE, wire.with_version(CHILD, -1))
        events = len(ask(Op.PING, b"")) - 1
        ask(Op.REMOVE_WATCHES, wire.with_version(NODE, 4))
        is_allowed = perm == READ and (role == "holder" or scheme in ("world", "ip"))
        if scheme == "super":
            is_allowed = role == "holder"
        assert events == (2 if is_allowed else 0), (scheme, perm, role, events)
    return 2


# The id that an entry names, for each scheme.
_IDS = {
    "world": "anyone",
    "auth": "",
    "digest": ANN,
    "ip": "127.0.0.0/8",
    "x509": "CN=ann,O=test",
    "sasl": "ann",
    "super": "",
}


def _machine_doors(scheme: str) -> Doors:
    options = ReplicaOptions(
        super_digest=SUPER_DIGEST,
        prepare=PrepareOptions(
            is_ttl_enabled=True, schemes=frozenset(("digest", "ip", "x509", "sasl"))
        ),
    )
    machine = Machine(options)

    def door(*ids: Id) -> Ask:
        client = Client(machine)
        client.connect()
        for identity in ids:
            client.connection.add_id(identity)

        def ask(op: int, body: bytes) -> list[bytes]:
            client.send_raw(struct.pack(">ii", 1, op) + body)
            machine.settle()
            return client.take()

        return ask

    held = {
        "auth": Id("digest", ANN),
        "digest": Id("digest", ANN),
        "x509": Id("x509", _IDS["x509"]),
        "sasl": Id("sasl", "ann"),
        "super": Id("super", ""),
    }
    other = [Id("digest", "ann:x"), Id("x509", "CN=ann"), Id("sasl", "bob")]
    mine = [held[scheme]] if scheme in held else []
    return Doors(door(Id("super", "")), door(*mine), door(*other))


@pytest.mark.parametrize("scheme", _IDS)
def test_every_operation_permission_and_scheme(scheme: str, tell: Callable[[str], None]) -> None:
    count = _check_table(_machine_doors(scheme), scheme, _IDS[scheme])
    tell(f"{count} combinations")


@contextmanager
def _socket_doors(port: int, scheme: str) -> Iterator[Doors]:
    lines: list[Line] = []

    def door(credentials: bytes | None) -> Ask:
        line = Line(port)
        lines.append(line)
        line.send(wire.connect(0, 60_000, 0, NO_PASSWORD))
        assert line.receive() is not None

        def ask(op: int, body: bytes) -> list[bytes]:
            line.send(struct.pack(">ii", 1, op) + body)
            frames = []
            while True:
                frame = line.receive()
                assert frame is not None
                frames.append(frame)
                if struct.unpack_from(">i", frame)[0] != -1:
                    return frames

        if credentials is not None:
            assert _code(Op.AUTH, ask(Op.AUTH, wire.auth("digest", credentials))) == 0
        return ask

    held = {"auth": b"ann:secret", "digest": b"ann:secret", "super": SUPER}
    try:
        yield Doors(door(SUPER), door(held.get(scheme)), door(b"ann:wrong"))
    finally:
        for line in lines:
            line.close()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    quick = {"zookeeper.forceSync": "no"}
    with ApacheServer(tmp_path_factory.mktemp("acl") / "data", properties=quick) as server:
        yield server


@pytest.mark.conformance
@pytest.mark.parametrize("scheme", ["world", "auth", "digest", "ip", "super"])
def test_the_table_is_apaches(apache: ApacheServer, scheme: str) -> None:
    with _socket_doors(apache.port, scheme) as doors:
        _check_table(doors, scheme, _IDS[scheme])


def test_acls_skipped__everybody_may_do_everything(tmp_path: Path) -> None:
    machine = Machine(ReplicaOptions(prepare=PrepareOptions(is_acl_skipped=True)))
    client = Client(machine)
    client.connect()

    def ask(op: int, body: bytes) -> list[bytes]:
        client.send_raw(struct.pack(">ii", 1, op) + body)
        machine.settle()
        return client.take()

    doors = Doors(ask, ask, ask)
    for name, (_, op, body) in OPERATIONS.items():
        if "TTL" in name:
            continue
        _prepare(doors, [NOBODY])
        assert _code(op, ask(op, body)) == 0, name
