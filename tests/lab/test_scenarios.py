"""Field failures on real processes: Apache's servers end as the reports say, ours end equal."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from keepfast.harness import LocalProcess, ReleaseError, find_release
from keepfast.lab import SCENARIOS, ScenarioEnding, play
from keepfast.lab.lab_server import LabServer
from tests.lab.truth import Witness, expected, named

# Minutes where Java, or many servers, have to share a core.
pytestmark = pytest.mark.timeout(900)

# How a scenario ends on Apache 3.9.5.
ON_APACHE = {
    "disk-full": ScenarioEnding.REFUSED,
    "snap-keeps-stale-log": ScenarioEnding.DIVERGED,
    "unsynced-snapshot": ScenarioEnding.DIVERGED,
    "trunc-misses-record": ScenarioEnding.DIVERGED,
    "diff-over-gap": ScenarioEnding.DIVERGED,
    "snap-replays-stale-log": ScenarioEnding.DIVERGED,
    "trunc-keeps-snapshot": ScenarioEnding.DIVERGED,
    "interrupted-trunc": ScenarioEnding.DIVERGED,
    "memory-ahead-of-disk": ScenarioEnding.DIVERGED,
    "hole-at-start": ScenarioEnding.DIVERGED,
    "purge-leaves-hole": ScenarioEnding.DIVERGED,
    "digest-stops-nothing": ScenarioEnding.DIVERGED,
    "wiped-majority": ScenarioEnding.LOST,
    "zeroed-record": ScenarioEnding.LOST,
}
# On ours, nobody may be told what is not so; what cannot be proven is not served.
ON_KEEPFAST = dict.fromkeys(SCENARIOS, ScenarioEnding.EQUAL) | {
    "wiped-majority": ScenarioEnding.REFUSED,
    "zeroed-record": ScenarioEnding.REFUSED,
}


class Silent:
    """Nobody listens."""

    def step(self, text: str) -> None:
        """Nothing."""

    def state(self, answers: Mapping[int, str]) -> None:
        """Nothing."""


def test_every_scenario__says_how_it_ends() -> None:
    assert set(ON_APACHE) == set(SCENARIOS)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize("name", ["trunc-misses-record", "digest-stops-nothing"])
def test_on_apache__ends_as_the_report_says__and_the_audit_names_it(
    tmp_path: Path, name: str
) -> None:
    witness = Witness(tmp_path, name)
    outcome = play(SCENARIOS[name], find_release("apache"), tmp_path, witness)
    assert outcome.ending is ON_APACHE[name], outcome
    assert named(outcome) == expected(outcome, witness.zxid)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "trunc-misses-record",
        "snap-keeps-stale-log",
        "diff-over-gap",
        "hole-at-start",
        "digest-stops-nothing",
    ],
)
def test_on_keepfast__ends_equal__and_the_audit_finds_nothing(tmp_path: Path, name: str) -> None:
    outcome = play(SCENARIOS[name], find_release("keepfast"), tmp_path, Silent())
    assert outcome.ending is ON_KEEPFAST[name], outcome
    assert not outcome.problem
    assert named(outcome) == expected(outcome, None)


@pytest.mark.slow
def test_server_that_ends_some_time_behind_its_error__is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: its log tells of the error while the process is still there."""
    limit_files, errors_logged = LabServer.limit_files, LabServer.errors_logged
    is_running = vars(LocalProcess)["is_running"].fget
    # Until when a server is seen to run, whatever its process does.
    ends: dict[LabServer, float] = {}

    def limited(server: LabServer, size_bytes: int | None) -> None:
        ends.setdefault(server, math.inf)
        limit_files(server, size_bytes)

    def told(server: LabServer) -> int:
        count = errors_logged(server)
        if count and ends[server] == math.inf:
            ends[server] = time.monotonic() + 1
        return count

    monkeypatch.setattr(LabServer, "limit_files", limited)
    monkeypatch.setattr(LabServer, "errors_logged", told)
    monkeypatch.setattr(
        LabServer,
        "is_running",
        property(lambda server: time.monotonic() < ends.get(server, 0) or is_running(server)),
    )
    name = "memory-ahead-of-disk"
    outcome = play(SCENARIOS[name], find_release("keepfast"), tmp_path, Silent())
    assert len(ends) == 1
    assert outcome.ending is ON_KEEPFAST[name], outcome
    assert not outcome.problem


def test_unknown_server__is_named_with_those_that_are_known() -> None:
    with pytest.raises(ReleaseError, match=r"apache:3\.4\.14"):
        find_release("etcd")
