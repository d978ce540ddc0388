"""Long logs are summed up in wide buckets: few come to the driver, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from keepfast.pipeline.agreement.comparing import RangeOfLog, compare_range
from keepfast.pipeline.engine import stages
from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here, views_of
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.findings.document import EnsembleResult, Verdict
from keepfast.pipeline.schemas import BUCKET_BITS
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import Life, healthy
from tests.pipeline.planting import damaged

# Buckets over several epochs: the records of small ensembles then are in several narrow ones.
WIDE = 34


def audit(root: Path) -> EnsembleResult:
    return audit_with(run_here, discover([str(root)]), AuditOptions())[0]


def both(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[EnsembleResult, EnsembleResult]:
    narrow = audit(root)
    with monkeypatch.context() as patch:
        patch.setattr(stages, "bucket_bits", lambda parts: WIDE)
        return narrow, audit(root)


@pytest.mark.parametrize("name", case_names())
def test_case__found_as_in_narrow_buckets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = both(CASES_DIR / name, monkeypatch)
    assert wide == narrow


@pytest.mark.parametrize("seeds", [range(100, 112), range(300, 312)], ids=["100-111", "300-311"])
def test_lives__found_as_in_narrow_buckets(
    tmp_path: Path, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        for kind, life in (("healthy", healthy(seed)), ("damaged", damaged(seed)[0])):
            narrow, wide = both(life.write_files(tmp_path / f"{kind}-{seed}"), monkeypatch)
            assert wide == narrow, (kind, seed)


def log_of(size: int) -> Part:
    return Part("e", "1", "/e/1/log.1", "log", 1, size, 0.0, weight=size)


@pytest.mark.parametrize("size", [1, 10**9, 10**10, 10**11, 10**12, 10**14, 10**16])
def test_any_size__few_buckets(size: int) -> None:
    bits = stages.bucket_bits([log_of(size // 4), log_of(size - size // 4)])
    shortest = 48
    assert size / shortest / (1 << bits) <= stages.MAX_BUCKETS
    assert bits == BUCKET_BITS or size / shortest / (1 << bits - 1) > stages.MAX_BUCKETS / 2


def test_longer_logs__the_facts_are_no_larger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what comes to the driver of each log."""
    monkeypatch.setattr(stages, "MAX_BUCKETS", 4)
    sizes = []
    for records in (5_000, 20_000):
        life = Life(7, "3.9")
        life.write(records)
        files = discover([str(life.write_files(tmp_path / str(records)))])
        servers = views_of(run_here, files)[0].servers
        assert all(sum(log.records for log in server.logs) >= records for server in servers)
        sizes.append([len(msgspec.json.encode(log)) for server in servers for log in server.logs])
        assert len(sizes[-1]) == len(servers)
    assert max(sizes[1]) < 1.1 * max(sizes[0]), sizes


def differing(root: Path, every: int) -> list[int]:
    """10,000 records, of which one server has others under some zxids, which are given back."""
    life = Life(7, "3.9")
    life.write(10_000)
    log = life.members[0].logs[-1]
    zxids = []
    for at in range(500, len(log.entries), every):
        zxid, _ = log.entries[at]
        log.entries[at] = (zxid, life.stray_entry(zxid, life.random))
        zxids.append(zxid)
    life.write_files(root)
    return zxids


def test_differences_in_a_wide_bucket__all_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zxids = differing(tmp_path, every=4_000)
    narrow, wide = both(tmp_path, monkeypatch)
    assert wide == narrow
    assert wide.verdict is Verdict.DIVERGED
    (finding,) = (f for f in wide.findings if f.kind == "different-records")
    assert (finding.first_zxid, finding.last_zxid) == (zxids[0], zxids[-1])


def test_more_differences_than_are_listed__their_number_is_said(tmp_path: Path) -> None:
    zxids = differing(tmp_path, every=500)
    view = views_of(run_here, discover([str(tmp_path)]))[0]
    sources = [
        RangeOfLog(server.name, log.path, 16, log.end)
        for server in view.servers
        for log in server.logs
    ]
    first = min(server.first or 0 for server in view.servers)
    last = max(server.last or 0 for server in view.servers)
    everything = compare_range(first, last, sources)
    some = compare_range(first, last, sources, max_listed=5)
    assert [one.zxid for one in everything.differing] == zxids
    assert everything.unlisted == 0
    assert some.differing == everything.differing[:5]
    assert some.unlisted == len(zxids) - 5
    assert some.shared == everything.shared


def test_records_that_one_server_holds_twice_in_a_wide_range__others_are_found(
    tmp_path: Path,
) -> None:
    zxids = differing(tmp_path, every=4_000)
    view = views_of(run_here, discover([str(tmp_path)]))[0]
    logs = [server.logs[-1] for server in view.servers[:2]]
    sources = [RangeOfLog("1", log.path, 16, log.end) for log in logs]
    found = compare_range(view.servers[0].first or 0, view.servers[0].last or 0, sources)
    assert found.doubled == tuple(("1", zxid) for zxid in zxids)
