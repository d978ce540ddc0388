"""`keepfast status` of real Apache servers, as much as each of them tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.client import ServerStatus, parse_target
from keepfast.client.probe import _ask_session
from tests.apache import ApacheEnsemble, wait_until
from tests.cli.runs import Result, run
from tests.conformance.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

WHITELIST = "4lw.commands.whitelist"


def wait_status(code: int, *arguments: str) -> Result:
    """What `keepfast status` says as soon as it ends with that code.

    A server that is asked while the machine is busy with others may answer too late for once.
    """
    found: list[Result] = []

    def is_so() -> bool:
        found.append(run("status", *arguments))
        return found[-1].code == code

    wait_until(is_so, f"status {arguments} ends with {code}", timeout=PATIENCE_SECONDS)
    return found[-1]


def test_ensemble_of_apache__roles_epochs_zxids_and_equal_digests(tmp_path: Path) -> None:
    with ApacheEnsemble(tmp_path, configuration={WHITELIST: "*"}) as ensemble:
        with ensemble.servers[1].connect() as client:
            client.create("/a", b"")
            # Apache keeps the digest of every 128th txn.
            for number in range(150):
                client.set("/a", b"%d" % number)
        document = wait_status(0, ensemble.hosts, "--json").document
        servers = document["servers"]
        assert sorted(server["role"] for server in servers) == ["follower", "follower", "leader"]
        assert {server["id"] for server in servers} == {1, 2, 3}
        assert len({server["epoch"] for server in servers}) == 1
        assert all(server["version"].startswith("3.9.5") for server in servers)
        assert servers[0]["voters"] == [1, 2, 3]
        leader = next(server["server"] for server in servers if server["role"] == "leader")
        assert document["leader"] == leader
        wait_status(0, leader)
        ensemble.servers[1].kill()
        assert "wrong [down]" in wait_status(1, ensemble.hosts).out


def test_apache_with_its_default_whitelist__digests_cannot_be_compared(tmp_path: Path) -> None:
    # The harness itself needs srvr; it is also all that Apache allows by default.
    allowed = {f"zookeeper.{WHITELIST}": "srvr"}
    with ApacheEnsemble(tmp_path, properties=allowed) as ensemble:
        result = wait_status(3, ensemble.hosts, "--json")
        assert [server["asked"] for server in result.document["servers"]] == [["srvr"]] * 3
        kinds = {finding["kind"] for finding in result.document["findings"]}
        assert kinds == {"digest-unknown"}
        # Where not even that is allowed, a session shows the last zxid and the members.
        status = ServerStatus(parse_target(ensemble.servers[1].hosts).addresses[0])
        _ask_session(status, 60.0)
        assert (status.is_serving, status.sources) == (True, ["session"])
        assert status.voters == {1, 2, 3}
        assert (status.zxid or 0) >> 32 >= 1
