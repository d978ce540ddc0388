"""`keepfast status` of real Apache servers, as much as each of them tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from keepfast.client import ServerStatus, parse_target
from keepfast.client.probe import _ask_session
from tests.apache import ApacheEnsemble
from tests.apache.words import wait_until
from tests.cli.runs import run

pytestmark = pytest.mark.conformance

WHITELIST = "4lw.commands.whitelist"


def test_ensemble_of_apache__roles_epochs_zxids_and_equal_digests(tmp_path: Path) -> None:
    with ApacheEnsemble(tmp_path, configuration={WHITELIST: "*"}) as ensemble:
        client = KazooClient(hosts=ensemble.hosts)
        client.start()
        client.create("/a", b"")
        # Apache keeps the digest of every 128th txn.
        for number in range(150):
            client.set("/a", b"%d" % number)
        client.stop()
        client.close()
        wait_until(lambda: run("status", ensemble.hosts).code == 0, "all is well")
        document = run("status", ensemble.hosts, "--json").document
        servers = document["servers"]
        assert sorted(server["role"] for server in servers) == ["follower", "follower", "leader"]
        assert {server["id"] for server in servers} == {1, 2, 3}
        assert {server["epoch"] for server in servers} == {1}
        assert all(server["version"].startswith("3.9.5") for server in servers)
        assert servers[0]["voters"] == [1, 2, 3]
        leader = next(server["server"] for server in servers if server["role"] == "leader")
        assert document["leader"] == leader
        asked_alone = run("status", leader)
        assert asked_alone.code == 0
        ensemble.servers[1].kill()
        lost = run("status", ensemble.hosts)
        assert (lost.code, "wrong [down]" in lost.out) == (1, True)


def test_apache_with_its_default_whitelist__digests_cannot_be_compared(tmp_path: Path) -> None:
    # The harness itself needs srvr; it is also all that Apache allows by default.
    allowed = {f"zookeeper.{WHITELIST}": "srvr"}
    with ApacheEnsemble(tmp_path, properties=allowed) as ensemble:
        result = run("status", ensemble.hosts, "--json")
        assert result.code == 3, result.out
        assert [server["asked"] for server in result.document["servers"]] == [["srvr"]] * 3
        kinds = {finding["kind"] for finding in result.document["findings"]}
        assert kinds == {"digest-unknown"}
        # Where not even that is allowed, a session shows the last zxid and the members.
        status = ServerStatus(parse_target(ensemble.servers[1].hosts).addresses[0])
        _ask_session(status, 5.0)
        assert (status.is_serving, status.sources) == (True, ["session"])
        assert status.voters == {1, 2, 3}
        assert (status.zxid or 0) >> 32 == 1
