"""Attacks of clients on an ensemble of real processes, with open doors and with all of them closed.

After each, and without a restart: the same server leads in the same epoch, all have the same tree,
and others are served. At the end every directory is whole, and each process is the one it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from tests.apache import wait_until, words
from tests.conformance.guards import by_tls
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.hostile.doors import DOORS, Door, door_of
from tests.hostile.offenders import Offender, is_whole
from tests.hostile.stalls import (
    counts,
    deep_paths,
    ids_against_acl,
    large_reads,
    lists,
    long_acls,
    long_ephemerals,
    many_multis,
    many_reads,
    multi_reads,
    prepare,
)
from tests.hostile.test_unreadable import ask, authenticate, create_for_all
from tests.keepfast_server import KeepfastServer
from tests.mixed.servers import KEEPFAST, MixedEnsemble

pytestmark = pytest.mark.timeout(600)

_SETTINGS = {
    "maxSessionTimeout": "60000",
    "maxClientCnxns": "0",
    "tickTime": "500",
    "initLimit": "60",
    "syncLimit": "40",
}
# What a server says of itself and its peers, and has to say alike after an attack.
_SHARED = ("zxid", "state_digest")
_ENTRIES = 2000
_WIDTH = 2000


def ids_without_end(offender: Offender) -> None:
    """More ids than a connection may have."""
    authenticate(offender)
    names = (f"{'u' * 100_000}{number}:secret".encode() for number in range(20))
    proofs = (struct.pack(">ii", -4, Op.AUTH) + wire.auth("digest", name) for name in names)
    assert offender.is_cut_off_by(*proofs)


def wrong_passwords(offender: Offender) -> None:
    """Somebody else's session, by guesses."""
    for session_id in range(1, 50):
        with Offender(offender.port, tls=offender.tls) as guess:
            guess.send(wire.connect(0, 60_000, session_id << 56, b"guess" + bytes(11)))
            assert guess.frame() is not None
            assert guess.is_cut_off()


ATTACKS: tuple[Callable[[Offender], None], ...] = (
    create_for_all,
    ids_without_end,
    long_ephemerals,
    multi_reads,
    counts,
    lists,
    ids_against_acl,
    long_acls,
    many_reads,
    large_reads,
    deep_paths,
    many_multis,
    wrong_passwords,
)


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    return door_of(request.param, tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def ensemble(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedEnsemble]:
    folder = tmp_path_factory.mktemp("ensemble")
    between = {} if door.tls is None else by_tls(folder).configuration
    with MixedEnsemble(
        folder / "data",
        dict.fromkeys((1, 2, 3), KEEPFAST),
        configuration={**_SETTINGS, **door.configuration, **between},
        properties=door.properties,
    ) as found:
        found.start()
        prepare(door, found.servers[1].port, entries=_ENTRIES, width=_WIDTH)
        pids = [pid_of(server) for server in found.servers.values()]
        yield found
        assert [pid_of(server) for server in found.servers.values()] == pids
        for server in found.servers.values():
            assert "Traceback" not in server.output()
            server.stop()
            assert is_whole(server.data_dir)


def pid_of(server: object) -> int:
    assert isinstance(server, KeepfastServer)
    return server.pid


def facts_of(port: int) -> dict[str, str]:
    return dict(line.split("=", 1) for line in words.ask(port, "kfst").splitlines() if line)


@pytest.mark.parametrize("place", ["leader", "follower"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_attack__all_servers_have_the_same_tree_and_the_same_leader(
    ensemble: MixedEnsemble, door: Door, attack: Callable[[Offender], None], place: str
) -> None:
    leader = ensemble.wait_leader()
    epoch = facts_of(ensemble.servers[leader].port)["current_epoch"]
    follower = next(id for id in ensemble.servers if id != leader)
    at = ensemble.servers[leader if place == "leader" else follower]
    with door.enter(at.port) as offender:
        attack(offender)
    for id, server in ensemble.servers.items():
        with door.enter(server.port) as other:
            path = f"/after-{attack.__name__}-{place}-{id}"
            assert ask(other, Op.CREATE, wire.create(path, b"", OPEN, 0)) == 0
    with door.enter(ensemble.servers[leader].port) as cleaner:
        for path in ("/alike", "/f", "/f0", "/acl2048"):
            assert ask(cleaner, Op.DELETE, wire.with_version(path, -1)) in (0, -101)

    def shared() -> set[tuple[str, ...]]:
        found = [facts_of(server.port) for server in ensemble.servers.values()]
        return {tuple(facts[name] for name in _SHARED) for facts in found}

    wait_until(lambda: len(shared()) == 1, f"one state of all: {shared()}")
    assert ensemble.wait_leader() == leader
    assert facts_of(ensemble.servers[leader].port)["current_epoch"] == epoch
