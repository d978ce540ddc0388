"""Whether a start says that the ports between servers are open to other machines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from keepfast.apache import ServerConfig, load_config
from keepfast.server.security_options import (
    check_files,
    has_closed_quorum_ports,
    open_port_warning,
    peer_security,
)

_TLS = (
    "sslQuorum=true",
    "ssl.quorum.keyStore.location=/etc/keepfast/server.pem",
    "ssl.quorum.trustStore.location=/etc/keepfast/servers.pem",
)
_SASL = (
    "quorum.auth.enableSasl=true",
    "quorum.auth.learnerRequireSasl=true",
    "quorum.auth.serverRequireSasl=true",
)


def configured(folder: Path, host: str, *lines: str) -> ServerConfig:
    members = [f"server.{id}={host}:{2888 + id}:{3888 + id}" for id in (1, 2, 3)]
    (folder / "myid").write_text("1\n")
    file = folder / "zoo.cfg"
    common = (f"dataDir={folder}", "clientPort=0", "initLimit=10", "syncLimit=5")
    file.write_text("\n".join((*common, *members, *lines)) + "\n")
    return load_config(file)


@pytest.mark.parametrize("host", ["10.0.0.1", "zk1.example", "0.0.0.0", "[2001:db8::1]"])
def test_open_ports_on_an_address_of_the_network__are_warned_of(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(tmp_path, host)
    found = open_port_warning(config)
    assert found is not None
    assert "sslQuorum=true" in found
    assert found in check_files(config)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "keepfast.server"):
        peer_security(config)
    assert "open-quorum-ports" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_ports_on_this_machine_alone__are_not(tmp_path: Path, host: str) -> None:
    assert open_port_warning(configured(tmp_path, host)) is None


def test_loopback_that_listens_everywhere__is(tmp_path: Path) -> None:
    assert open_port_warning(configured(tmp_path, "127.0.0.1", "quorumListenOnAllIPs=true"))


@pytest.mark.parametrize(
    ("lines", "is_closed"),
    [
        (_TLS, True),
        ((*_TLS, "portUnification=true"), False),
        # Encrypted, and anybody may speak.
        ((*_TLS, "ssl.quorum.clientAuth=want"), False),
        ((*_TLS, "ssl.quorum.clientAuth=none"), False),
        (_SASL, True),
        (_SASL[:2], False),
    ],
)
def test_ports_are_closed_where_whoever_connects_has_to_prove_that_it_is_a_server(
    tmp_path: Path, lines: tuple[str, ...], is_closed: bool
) -> None:
    config = configured(tmp_path, "10.0.0.1", *lines)
    assert has_closed_quorum_ports(config) is is_closed
    assert (open_port_warning(config) is None) is is_closed
