"""Field failures on real processes: Apache's servers end as the reports say, ours end equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from keepfast.lab import SCENARIOS, Ending, ReleaseError, find_release, play

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
        "memory-ahead-of-disk",
    ],
)
def test_on_keepfast__ends_equal(tmp_path: Path, name: str) -> None:
    outcome = play(SCENARIOS[name], find_release("keepfast"), tmp_path, Silent())
    assert outcome.ending is ON_KEEPFAST[name], outcome
    assert not outcome.problem


def test_unknown_server__is_named_with_those_that_are_known() -> None:
    with pytest.raises(ReleaseError, match=r"apache:3\.4\.14"):
        find_release("etcd")
