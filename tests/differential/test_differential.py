"""A sample of the differential test; `make differential` runs all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apache import wait_until
from tests.differential import requests as wire
from tests.differential.campaign import CONFIGURATION, Comparison, DifferenceError, both, compare
from tests.differential.requests import Op, Request
from tests.differential.scripts import OPEN, Script
from tests.differential.sides import Side
from tests.keepfast_server import KeepfastServer

# The time is for a machine with many other things to do.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

_OPERATIONS = 2500


# The odd one sends one request at a time, which a busy machine makes slow.
@pytest.mark.parametrize(("seed", "operations"), [(1001, 900), (1002, _OPERATIONS)])
def test_random_requests__apache_and_we_answer_the_same(
    tmp_path: Path, seed: int, operations: int, tell: Callable[[str], None]
) -> None:
    tell(str(compare(tmp_path, seed, operations)))


@pytest.mark.parametrize(
    ("property_", "value"),
    [
        ("zookeeper.extendedTypesEnabled", "false"),
        ("zookeeper.DigestAuthenticationProvider.digestAlg", "SHA-256"),
        ("jute.maxbuffer", "1500"),
    ],
)
def test_servers_with_one_setting_unlike__a_difference_is_found(
    tmp_path: Path, property_: str, value: str
) -> None:
    changed = {property_: value}
    with (
        KeepfastServer(tmp_path / "one", configuration=CONFIGURATION) as one,
        KeepfastServer(
            tmp_path / "other", configuration=CONFIGURATION, properties=changed
        ) as other,
    ):
        comparison = Comparison(Script(1002), one.port, other.port)
        try:
            with pytest.raises(DifferenceError, match="apache: "):
                comparison.run(_OPERATIONS)
        finally:
            comparison.close()


class _Watcher:
    """A client of one server that watches all of its tree."""

    def __init__(self, port: int) -> None:
        self.side = Side(port, 1)
        self.side.connect(0, 60_000, 0, "new", False)
        self.events: list[tuple[object, ...]] = []
        self.ask(Request(Op.ADD_WATCH, wire.with_version("/", 1)))

    def ask(self, request: Request) -> tuple[Any, ...]:
        self.side.send(0, [(1, request)])
        *events, reply = self.side.answers(0)
        self.events += [event[3:] for event in events]
        assert reply[3] == 0, reply
        return reply

    def names(self) -> list[bytes]:
        names: list[bytes] = self.ask(Request(Op.GET_CHILDREN, wire.with_flag("/", False)))[4]
        return names

    def wait_until_left(self, names: list[bytes]) -> None:
        wait_until(lambda: self.names() == names, f"of the root's children {names} are left")


def test_containers_and_ttls__the_same_znodes_go(tmp_path: Path) -> None:
    requests = [
        Request(Op.CREATE_CONTAINER, wire.create("/used", b"", OPEN, 4)),
        Request(Op.CREATE, wire.create("/used/a", b"", OPEN, 0)),
        Request(Op.DELETE, wire.with_version("/used/a", -1)),
        Request(Op.CREATE_CONTAINER, wire.create("/full", b"", OPEN, 4)),
        Request(Op.CREATE, wire.create("/full/a", b"", OPEN, 0)),
        Request(Op.CREATE_CONTAINER, wire.create("/never-used", b"", OPEN, 4)),
        Request(Op.CREATE_TTL, wire.create_ttl("/short", b"", OPEN, 5, 1)),
        Request(Op.CREATE_TTL, wire.create_ttl("/short-", b"", OPEN, 6, 1)),
        Request(Op.CREATE_TTL, wire.create_ttl("/long", b"", OPEN, 5, 10**9)),
        Request(Op.CREATE_TTL, wire.create_ttl("/busy", b"", OPEN, 5, 1)),
        Request(Op.CREATE, wire.create("/busy/a", b"", OPEN, 0)),
    ]
    # One multi: the cleaner may not come between.
    whole = Request(Op.MULTI, wire.multi((each.op, each.body) for each in requests))
    left = [b"busy", b"full", b"long", b"never-used", b"zookeeper"]
    events = []
    with both(tmp_path, {"znode.container.checkIntervalMs": "200"}) as servers:
        for server in servers:
            watcher = _Watcher(server.port)
            watcher.ask(whole)
            watcher.wait_until_left(left)
            watcher.ask(Request(Op.DELETE, wire.with_version("/busy/a", -1)))
            watcher.wait_until_left(left[1:])
            events.append(sorted(map(str, watcher.events)))
            watcher.side.close()
    assert events[0] == events[1]
    assert len(events[0]) > len(requests)
