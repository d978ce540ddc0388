"""The scenarios, each in its own file that reads like the report."""

from keepfast.lab.scenario import Scenario
from keepfast.lab.scenarios import (
    diff_over_gap,
    digest_stops_nothing,
    disk_full,
    hole_at_start,
    interrupted_trunc,
    memory_ahead_of_disk,
    purge_leaves_hole,
    snap_keeps_stale_log,
    snap_replays_stale_log,
    trunc_keeps_snapshot,
    trunc_misses_record,
    unsynced_snapshot,
    wiped_majority,
    zeroed_record,
)

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        disk_full.SCENARIO,
        snap_keeps_stale_log.SCENARIO,
        unsynced_snapshot.SCENARIO,
        trunc_misses_record.SCENARIO,
        diff_over_gap.SCENARIO,
        snap_replays_stale_log.SCENARIO,
        trunc_keeps_snapshot.SCENARIO,
        interrupted_trunc.SCENARIO,
        memory_ahead_of_disk.SCENARIO,
        hole_at_start.SCENARIO,
        purge_leaves_hole.SCENARIO,
        digest_stops_nothing.SCENARIO,
        wiped_majority.SCENARIO,
        zeroed_record.SCENARIO,
    )
}
