"""The scenarios, each in a file of its own that reads as the report does."""

from keepfast.lab.scenario import Scenario
from keepfast.lab.scenarios import (
    diff_over_gap,
    disk_full,
    snap_keeps_stale_log,
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
        wiped_majority.SCENARIO,
        zeroed_record.SCENARIO,
    )
}
