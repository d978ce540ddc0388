"""The field reports and the small worlds: every server ends with the same tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.sim.field_reports import REPORTS, key, trunc_misses_record, unsynced_snapshot
from keepfast.sim.script import Script
from keepfast.sim.small_worlds import play, schedules


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS.keys())
def test_report__all_servers_end_equal(report: Callable[[], Script]) -> None:
    script = report()
    assert script.are_current(script.world.hosts)
    assert script.value(1, "/after") == b""


def test_trunc_misses_record__ends_with_the_values_of_the_report() -> None:
    """Of the five writes only those survive whose server met a quorum before it was overtaken."""
    script = trunc_misses_record()
    values = [script.value(1, key(number)) for number in range(5)]
    assert values == [script.value(server, key(n)) for server in (2,) for n in range(5)]
    assert values[0] == b"0"
    assert values[1] == b"1001"


def test_disk_full__snapshots_did_fail() -> None:
    script = REPORTS["disk-full"]()
    assert any("no space left" in line for line in script.world.trace.lines())


@pytest.mark.parametrize("by_tree", [False, True], ids=["records", "tree"])
def test_unsynced_snapshot__any_power_cut_keeps_what_was_caught_up(by_tree: bool) -> None:
    """The same report under many seeds: each loses another part of what was not durable."""
    kinds: set[str] = set()
    for seed in range(10):
        script = unsynced_snapshot(seed=seed, by_tree=by_tree)
        lines = list(script.world.trace.lines())
        kinds.update(kind for kind in ("diff", "snap") for line in lines if f"kind={kind}" in line)
    assert ("snap" in kinds) is by_tree


def test_small_worlds__every_schedule_of_two_divergences_ends_equal() -> None:
    count = 0
    for schedule in schedules(2, with_power_cuts=True):
        play(schedule)
        count += 1
    print(f"{count} schedules of up to 2 divergences, by kill and by power cut")
    assert count == 8 + 64


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_small_worlds__every_schedule_of_four_divergences_ends_equal() -> None:
    count = 0
    for schedule in schedules(4, with_power_cuts=False):
        play(schedule)
        count += 1
    print(f"{count} schedules of up to 4 divergences")
    assert count == 4 + 16 + 64 + 256
