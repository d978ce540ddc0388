"""A sample of the campaign without Spark: every check on planted damage, and honest lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_here
from keepfast.pipeline.engine.stages import AuditOptions
from keepfast.pipeline.findings.document import FindingSeverity, Verdict
from tests.pipeline.ensembles import VERSIONS, Life, healthy
from tests.pipeline.planted import Planter
from tests.pipeline.planting import PLANTERS, damaged, damaged_record, stale_after_snap
from tests.pipeline.planting_causes import partial_then_snapshot
from tests.pipeline.planting_files import foreign_log, foreign_snapshot
from tests.pipeline.planting_snapshots import no_base, purge_trap
from tests.pipeline.test_audit_cases import audited

EACH_PLANTER = [
    (check, planter) for check, some in PLANTERS.items() for planter in dict.fromkeys(some)
]
_LIVES = 2
SUMMED = AuditOptions(tree_records=0)
# With the seed of the life.
ONCE_MISSED = [
    (partial_then_snapshot, 344001),
    (no_base, 382000),
    (purge_trap, 1402000),
    (stale_after_snap, 5462001),
    (damaged_record, 9015000),
    # Ahead of all records, so that sums say nothing about it: only a start on it does.
    (foreign_snapshot, 3),
]


@pytest.mark.parametrize(
    ("check", "planter"), EACH_PLANTER, ids=[f"{c}-{p.__name__}" for c, p in EACH_PLANTER]
)
def test_planted_damage__is_named(tmp_path: Path, check: str, planter: Planter) -> None:
    found = 0
    for seed in range(2000):
        life = Life(seed)
        life.live()
        planted = planter(life)
        if planted is None:
            continue
        place = str(life.write_files(tmp_path / str(seed)))
        for options in (AuditOptions(), SUMMED):
            (result,) = audit_here([place], options).ensembles
            assert planted.found_in(result), (seed, planted, result.findings)
            is_mixed = planter is foreign_log and result.verdict is Verdict.UNREADABLE
            assert is_mixed or result.verdict in (Verdict.AT_RISK, Verdict.DIVERGED)
        found += 1
        if found == _LIVES:
            return
    raise AssertionError("no life allows it")


@pytest.mark.parametrize("version", VERSIONS)
def test_honest_life__gives_nothing_above_a_note(
    tmp_path: Path, version: str, tell: Callable[[str], None]
) -> None:
    records = kinds = 0
    seen: set[str] = set()
    for seed in range(10):
        life = Life(seed, version)
        life.live()
        life.end()
        result = audited(life.write_files(tmp_path / str(seed)))
        grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
        assert (result.verdict, grave) == (Verdict.CONSISTENT, []), seed
        records += result.records
        seen |= {finding.kind for finding in result.findings}
    kinds = len(seen)
    assert kinds > 2  # something happened that looks like trouble
    tell(f"{records} records; notes: {', '.join(sorted(seen))}")


# Each was a false alarm, or went unnoticed, when the generator first made it.
@pytest.mark.parametrize("options", [AuditOptions(), SUMMED], ids=["tree", "sums"])
@pytest.mark.parametrize("seed", [85, 193, 3746, 4042, 20430])
def test_seed_that_once_gave_a_false_alarm(
    tmp_path: Path, seed: int, options: AuditOptions
) -> None:
    (result,) = audit_here([str(healthy(seed).write_files(tmp_path / "e"))], options).ensembles
    assert [f for f in result.findings if f.severity is not FindingSeverity.NOTE] == []


@pytest.mark.parametrize("options", [AuditOptions(), SUMMED], ids=["tree", "sums"])
@pytest.mark.parametrize("seed", [946, 5089, 5177, 13947])
def test_seed_of_the_campaign_that_was_once_missed(
    tmp_path: Path, seed: int, options: AuditOptions
) -> None:
    life, planted = damaged(seed)
    (result,) = audit_here([str(life.write_files(tmp_path / "e"))], options).ensembles
    assert planted.found_in(result)


@pytest.mark.parametrize("options", [AuditOptions(), SUMMED], ids=["tree", "sums"])
def test_record_that_is_another_one__is_not_counted_as_the_same_and_is_the_one_shown(
    tmp_path: Path, options: AuditOptions
) -> None:
    life, planted = damaged(946)
    place = str(life.write_files(tmp_path / "e"))
    (result,) = audit_here([place], options).ensembles
    (finding,) = planted.found_in(result)
    zxid = 0x2_0000_0001
    assert finding.first_zxid == zxid
    holders = [one.servers for one in result.coverage if one.first_zxid <= zxid <= one.last_zxid]
    assert holders == [("1", "3", "4")]
    assert finding.first is not None
    assert (finding.first.op, finding.first.paths) == ("setData", ("/a/d0000000003",))


def test_session_that_a_table_lacks__its_later_ephemerals_are_orphans_by_sums_too(
    tmp_path: Path,
) -> None:
    life, planted = damaged(345)
    place = str(life.write_files(tmp_path / "e"))
    on_tree, summed = (audit_here([place], one).ensembles for one in (AuditOptions(), SUMMED))
    assert summed == on_tree
    assert {f.kind for f in planted.found_in(summed[0])} == {"session-missing"}
    assert "orphan-ephemeral" in {f.kind for f in summed[0].findings}


@pytest.mark.parametrize("is_summed", [False, True], ids=["tree", "sums"])
@pytest.mark.parametrize(("planter", "seed"), ONCE_MISSED)
def test_damage_that_was_once_missed(
    tmp_path: Path, planter: Planter, seed: int, is_summed: bool
) -> None:
    life = Life(seed)
    life.live()
    planted = planter(life)
    assert planted is not None
    options = SUMMED if is_summed else AuditOptions()
    (result,) = audit_here([str(life.write_files(tmp_path / "e"))], options).ensembles
    assert planted.found_in(result)
    if planted.kind:
        # The others are not accused in its place.
        assert {f.server for f in result.findings if f.is_divergence} <= {planted.server}
