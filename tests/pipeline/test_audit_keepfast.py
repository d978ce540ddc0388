"""The audit of directories that Keepfast's own servers wrote, while they run and afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

from keepfast.pipeline.findings import EnsembleResult, FindingSeverity, Verdict
from keepfast.testing import Ensemble
from tests.pipeline.test_audit_cases import audited


def grave(result: EnsembleResult) -> list[tuple[str, str]]:
    return [
        (f.check, f.evidence) for f in result.findings if f.severity is not FindingSeverity.NOTE
    ]


def test_ensemble_of_ours__is_consistent_running_and_stopped(tmp_path: Path) -> None:
    with Ensemble(3) as ensemble:
        client = ensemble.client()
        for number in range(40):
            client.create(f"/n{number}", b"x")
        client.create("/e", ephemeral=True)
        leader = ensemble.leader
        assert leader is not None
        leader.kill()
        ensemble.wait_for_leader()
        client.retry(client.set, "/n1", b"y")
        leader.restart()
        ensemble.wait_serving()
        ensemble.wait_equal()
        client.retry(client.delete, "/n2")
        places = [Path(server.data_dir) for server in ensemble.servers]
        running = audited(*places)
        assert (running.verdict, grave(running)) == (Verdict.CONSISTENT, [])
        ensemble.wait_equal()
        for server in ensemble.servers:
            server.stop()
        for place in places:
            shutil.copytree(place, tmp_path / "e" / place.name)
    result = audited(tmp_path / "e")
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert result.unchecked == ()
    assert {entry.proof for entry in result.coverage} == {"agreed"}
