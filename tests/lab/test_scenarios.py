"""Field failures on real processes: Apache's servers end as the reports say, ours end equal."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from keepfast.lab import SCENARIOS, Ending, ReleaseError, find_release, play
from keepfast.lab.process import LabServer
from keepfast.server import LocalProcess

# Minutes where Java, or many servers, have to share a core.
pytestmark = pytest.mark.timeout(900)

# How a scenario ends on Apache 3.9.5.
ON_APACHE = {
    "disk-full": Ending.REFUSED,
    "snap-keeps-stale-log": Ending.DIVERGED,
    "unsynced-snapshot": Ending.DIVERGED,
    "trunc-misses-record": Ending.DIVERGED,
    "diff-over-gap": Ending.DIVERGED,
    "snap-replays-stale-log": Ending.DIVERGED,
    "trunc-keeps-snapshot": Ending.DIVERGED,
    "interrupted-trunc": Ending.DIVERGED,
    "memory-ahead-of-disk": Ending.DIVERGED,
    "hole-at-start": Ending.DIVERGED,
    "purge-leaves-hole": Ending.DIVERGED,
    "digest-stops-nothing": Ending.DIVERGED,
    "wiped-majority": Ending.LOST,
    "zeroed-record": Ending.LOST,
}
# On ours, nobody may be told what is not so; what cannot be proven is not served.
ON_KEEPFAST = dict.fromkeys(SCENARIOS, Ending.EQUAL) | {
    "wiped-majority": Ending.REFUSED,
    "zeroed-record": Ending.REFUSED,
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
def test_on_apache__ends_as_the_report_says(tmp_path: Path, name: str) -> None:
    outcome = play(SCENARIOS[name], find_release("apache"), tmp_path, Silent())
    assert outcome.ending is ON_APACHE[name], outcome


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
def test_on_keepfast__ends_equal(tmp_path: Path, name: str) -> None:
    outcome = play(SCENARIOS[name], find_release("keepfast"), tmp_path, Silent())
    assert outcome.ending is ON_KEEPFAST[name], outcome
    assert not outcome.problem


@pytest.mark.slow
def test_server_that_ends_some_time_behind_its_error__is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: its log tells of the error while the process is still there."""
    limit_files, errors_told = LabServer.limit_files, LabServer.errors_told
    is_running = vars(LocalProcess)["is_running"].fget
    # Until when a server is seen to run, whatever its process does.
    ends: dict[LabServer, float] = {}

    def limited(server: LabServer, size_bytes: int | None) -> None:
        ends.setdefault(server, math.inf)
        limit_files(server, size_bytes)

    def told(server: LabServer) -> int:
        count = errors_told(server)
        if count and ends[server] == math.inf:
            ends[server] = time.monotonic() + 1
        return count

    monkeypatch.setattr(LabServer, "limit_files", limited)
    monkeypatch.setattr(LabServer, "errors_told", told)
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
