"""The audit of directories that Keepfast's own servers wrote, while they run and afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

from keepfast.pipeline.findings.document import EnsembleResult, FindingSeverity, Verdict
from keepfast.testing import Ensemble
from tests.pipeline.test_audit_cases import audited

PATIENCE_SECONDS = 120.0


def grave(result: EnsembleResult) -> list[tuple[str, str]]:
    return [
        (f.check, f.evidence) for f in result.findings if f.severity is not FindingSeverity.NOTE
    ]


def test_ensemble_of_ours__is_consistent_running_and_stopped(tmp_path: Path) -> None:
    # A long tick: nobody gives up a leader or a session because the machine is busy.
    with Ensemble(3, tick_ms=1000) as ensemble:
        client = ensemble.client()
        for number in range(40):
            client.retry(client.ensure_path, f"/n{number}")
        client.retry(client.create, "/e", ephemeral=True)
        leader = ensemble.wait_for_leader(timeout=PATIENCE_SECONDS)
        leader.kill()
        ensemble.wait_for_leader(other_than=leader, timeout=PATIENCE_SECONDS)
        client.retry(client.set, "/n1", b"y")
        leader.restart()
        ensemble.wait_serving(PATIENCE_SECONDS)
        ensemble.wait_equal(PATIENCE_SECONDS)
        client.retry(client.delete, "/n2")
        places = [Path(server.data_dir) for server in ensemble.servers]
        running = audited(*places)
        assert (running.verdict, grave(running)) == (Verdict.CONSISTENT, [])
        ensemble.wait_equal(PATIENCE_SECONDS)
        for server in ensemble.servers:
            server.stop()
        for place in places:
            shutil.copytree(place, tmp_path / "e" / place.name)
    result = audited(tmp_path / "e")
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert result.unchecked == ()
    assert {entry.proof for entry in result.coverage} == {"agreed"}
