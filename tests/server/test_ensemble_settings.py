"""Settings whose effect is seen in an ensemble of real processes only."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.client import Client, ClientOptions, OperationFailed
from tests.apache.words import wait_until
from tests.chaos.processes import PATIENCE_SECONDS, RealEnsemble

pytestmark = pytest.mark.timeout(300)


def test_leader_serves_no__the_leader_leaves_clients_to_the_others(tmp_path: Path) -> None:
    with RealEnsemble(tmp_path, settings={"leaderServes": "no"}) as ensemble:
        ensemble.start()
        leader = ensemble.wait_leader()
        follower = next(id for id in ensemble.servers if id != leader)

        with Client(str(ensemble.address(follower))) as client:
            client.create("/a", b"1")
        options = ClientOptions(session_timeout_ms=2000, operation_timeout_s=2.0)
        with (
            pytest.raises(OperationFailed),
            Client(str(ensemble.address(leader)), options) as client,
        ):
            client.exists("/a")

        wait_until(
            lambda: "leaves clients to the others" in ensemble.log_text(leader), "the log says why"
        )


def test_initialize__a_majority_founds_an_ensemble_when_its_operator_says_so(
    tmp_path: Path,
) -> None:
    with RealEnsemble(tmp_path) as ensemble:
        two = (1, 2)
        for id in two:
            (ensemble.layout.directory(id) / "initialize").touch()
        ensemble.start(two)

        assert ensemble.wait_leader() == 2
        assert not [id for id in two if (ensemble.layout.directory(id) / "initialize").exists()]
        # The third comes empty, and learns.
        ensemble.start((3,))
        ensemble.wait_equal()


def test_without_the_marker__a_majority_waits_for_the_rest(tmp_path: Path) -> None:
    with RealEnsemble(tmp_path) as ensemble:
        for id in (1, 2):
            ensemble.servers[id].start()
        wait_until(
            lambda: "3" in ensemble.ask(1).facts.get("reason", ""),
            "it says for whom it waits",
            timeout=PATIENCE_SECONDS,
        )
        assert not ensemble.ask(1).is_serving
