"""Addresses of both IP families, and who the members are: asked of Apache 3.9.5 and of us."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id

from tests.apache.server import ApacheServer
from tests.keepfast_server import KeepfastServer
from tests.mixed.servers import APACHE, KEEPFAST, MixedEnsemble

pytestmark = pytest.mark.conformance

CONFIG = "/zookeeper/config"
HOSTS = ("127.0.0.1", "[::1]")
RULES = ("127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "::/0", "127.0.0.0/8", "0.0.0.0/0")
SECONDS = 60.0


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def without_addresses(server: ApacheServer, address: str | None) -> ApacheServer:
    """The server with another line for its client port's address, or with none."""
    write = server._write_configuration

    def written() -> Path:
        path = write()
        line = "" if address is None else f"clientPortAddress={address}\n"
        path.write_text(path.read_text().replace("clientPortAddress=127.0.0.1\n", line))
        return path

    server._write_configuration = written  # type: ignore[method-assign]
    return server


@contextmanager
def connected(host: str, port: int) -> Iterator[Any]:
    client = KazooClient(f"{host}:{port}")
    try:
        client.start(timeout=SECONDS)
        yield client
    finally:
        client.stop()
        client.close()


def shown_address(host: str, port: int) -> str:
    """How a server shows the connection that asks it for all connections.

    By its port: Apache continues showing clients that have just left.
    """
    with socket.create_connection((host.strip("[]"), port), SECONDS) as line:
        own = line.getsockname()[1]
        line.sendall(b"cons")
        shown = b"".join(iter(lambda: line.recv(1 << 16), b"")).decode()
    (address,) = re.findall(rf"^ (.*):{own}\[", shown, re.MULTILINE)
    return str(address)


def told(server: ApacheServer) -> list[object]:
    """What a server makes of a client's address, for both families."""
    found: list[object] = []
    for host in HOSTS:
        found.append(shown_address(host, server.port))
        with connected(host, server.port) as client:
            for number, rule in enumerate(RULES):
                path = f"/{HOSTS.index(host)}-{number}"
                client.create(path, b"", acl=[ACL(31, Id("ip", rule))])
                try:
                    client.get(path)
                    found.append((host, rule, "read"))
                except NoAuthError:
                    found.append((host, rule, "refused"))
    return found


@needs_ipv6
@pytest.mark.parametrize("address", [None, "::"], ids=["no address", "any of IPv6"])
def test_clients_of_both_families__get_in_and_are_known_by_the_same_addresses(
    tmp_path: Path, address: str | None
) -> None:
    with without_addresses(ApacheServer(tmp_path / "apache"), address) as apache:
        expected = told(apache)
    with without_addresses(KeepfastServer(tmp_path / "keepfast"), address) as ours:
        assert told(ours) == expected


def members_shown(root: Path, kind: str, client: str) -> list[tuple[str, tuple[int, ...]]]:
    """Text and Stat of /zookeeper/config on all three, without ports and time."""
    with MixedEnsemble(root, dict.fromkeys((1, 2, 3), kind), client=client) as ensemble:
        ensemble.start()
        found: list[tuple[str, tuple[int, ...]]] = []
        for server in ensemble.servers.values():
            with server.connect() as connection:
                data, stat = connection.get(CONFIG)
            text = re.sub(r"(?<=:)\d{4,5}\b", "PORT", data.decode())
            found.append((text, (stat.czxid, stat.mzxid, stat.version, stat.aversion, stat.pzxid)))
        return found


def test_static_members__are_shown_as_by_apache(tmp_path: Path) -> None:
    expected = members_shown(tmp_path / "apache", APACHE, "")
    assert "version=0" in expected[0][0]
    assert members_shown(tmp_path / "keepfast", KEEPFAST, "") == expected


@needs_ipv6
def test_members_at_ipv6_addresses__make_an_ensemble_with_apache(tmp_path: Path) -> None:
    kinds = {1: APACHE, 2: KEEPFAST, 3: KEEPFAST}
    with MixedEnsemble(tmp_path, kinds, host="[::1]", client="[::1]") as ensemble:
        for server in ensemble.servers.values():
            without_addresses(server, "::1").launch()
        texts = set()
        for server in ensemble.servers.values():
            with connected("[::1]", server.port) as client:
                texts.add(client.get(CONFIG)[0])
    (text,) = texts
    assert text.count(b";[0:0:0:0:0:0:0:1]:") == len(kinds)


@pytest.mark.parametrize("kind", [APACHE, KEEPFAST])
def test_follower_that_a_reconfig_removes__keeps_its_clients(tmp_path: Path, kind: str) -> None:
    configuration = {"reconfigEnabled": "true"}
    kinds = dict.fromkeys((1, 2, 3), kind)
    with MixedEnsemble(tmp_path, kinds, configuration=configuration) as ensemble:
        ensemble.start()
        leader = ensemble.wait_leader()
        removed = next(id for id in kinds if id != leader)
        with (
            ensemble.servers[leader].connect() as client,
            ensemble.servers[removed].connect() as remaining,
        ):
            changes: list[str] = []
            remaining.add_listener(changes.append)
            remaining.create("/mine", b"", ephemeral=True)
            client.reconfig(None, str(removed), None)
            for number in range(10):
                remaining.create(f"/after-{number}", b"")
            client.create("/later", b"")
            remaining.sync("/")
            assert remaining.exists("/later") is not None
            assert changes == []
            assert f"server.{removed}=" not in remaining.get(CONFIG)[0].decode()
            assert ensemble.servers[removed].mode() == "follower"
