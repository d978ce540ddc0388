"""The audit of what scenarios of the lab left on Apache 3.9.5: kind, server, zxid and znodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepfast.pipeline.findings import Finding, FindingSeverity, Verdict
from tests.pipeline.test_audit_cases import audited

LAB = Path(__file__).parent.parent / "data" / "lab"


def grave(name: str) -> list[Finding]:
    findings = audited(LAB / name).findings
    return [finding for finding in findings if finding.severity is not FindingSeverity.NOTE]


@pytest.mark.parametrize(
    ("name", "kind", "server", "zxid"),
    [
        # The wrong server led in the last epoch: the digests there are those of its tree.
        ("snap-replays-stale-log", "stale-record-after-trunc", "3", 0x400000001),
        # The znode was created at 0x100000002; 0x100000006 wrote what should not be there.
        ("trunc-keeps-snapshot", "wrong-snapshot", "3", 0x100000006),
        ("hole-at-start", "lost-snapshot-gap", "1", 0x200000002),
    ],
)
def test_server_that_serves_something_else__is_named(
    name: str, kind: str, server: str, zxid: int
) -> None:
    found = grave(name)
    assert audited(LAB / name).verdict is Verdict.DIVERGED
    assert {finding.server for finding in found} == {server}
    (divergence,) = (finding for finding in found if finding.is_divergence)
    assert (divergence.kind, divergence.first_zxid) == (kind, zxid)
    assert divergence.paths == ("/a",)
    believed = [other for other in "123" if other != server]
    assert f"Believe servers {', '.join(believed)}" in divergence.advice


def test_snapshot_of_what_was_cut_off__its_cause_is_told() -> None:
    (finding,) = (f for f in grave("trunc-keeps-snapshot") if f.is_divergence)
    assert "0x100000006, which was never committed" in finding.evidence
    assert "TRUNC" in finding.cause
    assert (finding.file or "").endswith("/3/version-2/snapshot.100000006")


def test_record_of_zeros__what_was_acknowledged_is_lost_on_all_alike() -> None:
    result = audited(LAB / "zeroed-record")
    assert result.verdict is Verdict.AT_RISK
    found = grave("zeroed-record")
    assert {f.server for f in found if f.kind == "record-damaged"} == {"1", "2"}
    (lost,) = (f for f in found if f.kind == "committed-lost")
    assert (lost.server, lost.first_zxid, lost.last_zxid) == (None, 0x100000003, 0x100000005)
    # The third server was told to drop them: by itself it is as the others are.
    assert "3" not in {f.server for f in found}
    assert result.unchecked == ()


def test_wiped_majority__what_no_file_holds_any_more_is_not_made_up() -> None:
    result = audited(LAB / "wiped-majority")
    assert (result.verdict, grave("wiped-majority")) == (Verdict.CONSISTENT, [])
