"""The audit of what scenarios of the lab left on Apache 3.9.5: kind, server, zxid and znodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keepfast.pipeline.findings.document import Finding, FindingSeverity, Verdict
from keepfast.storage import LogReader, RealDisk, load_tree
from tests.pipeline.histories import frame
from tests.pipeline.test_audit_cases import audited

LAB = Path(__file__).parent.parent / "data" / "lab"


def grave(name: str) -> list[Finding]:
    findings = audited(LAB / name).findings
    return [finding for finding in findings if finding.severity is not FindingSeverity.NOTE]


@pytest.mark.parametrize(
    ("name", "kind", "server", "zxid", "cause"),
    [
        # The wrong server led in the last epoch: the digests there are those of its tree.
        ("snap-replays-stale-log", "stale-record-after-trunc", "3", 0x400000001, "truncate"),
        # The znode was created at 0x100000002; 0x100000006 wrote what should not be there.
        ("trunc-keeps-snapshot", "wrong-snapshot", "3", 0x100000006, "a TRUNC later cut"),
        ("interrupted-trunc", "stale-record-after-trunc", "3", 0x100000006, "power cut undid"),
        ("hole-at-start", "lost-snapshot-gap", "1", 0x200000002, "never made durable"),
        ("memory-ahead-of-disk", "lost-snapshot-gap", "1", 0x100000008, "the disk refused"),
        # Who wrote /a is on no server any more; what the znode itself says tells the zxid.
        ("purge-leaves-hole", "lost-snapshot-gap", "1", 0x10000006B, "removes logs first"),
    ],
)
def test_server_that_serves_something_else__is_named(
    name: str, kind: str, server: str, zxid: int, cause: str
) -> None:
    found = grave(name)
    assert audited(LAB / name).verdict is Verdict.DIVERGED
    assert {finding.server for finding in found} == {server}
    (divergence,) = (finding for finding in found if finding.is_divergence)
    assert (divergence.kind, divergence.first_zxid) == (kind, zxid)
    assert divergence.paths == ("/a",)
    assert cause in divergence.cause
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
    # 0x100000003 wrote /b, and reads as zeros on both; the third server has cut it off.
    assert lost.paths == ("/c",)
    assert "0x100000003 cannot be read any more" in lost.evidence
    assert found[0] == lost
    # The third server was told to drop them: by itself it is as the others are.
    assert "3" not in {f.server for f in found}
    assert result.unchecked == ()


def test_hole_whose_first_records_nobody_has__is_told_from_its_begin_to_its_end() -> None:
    (finding,) = (f for f in grave("purge-leaves-hole") if f.is_divergence)
    assert "0x10000004e to 0x100000132 are missing" in finding.evidence
    assert finding.last_zxid == 0x100000132


def test_bytes_behind_the_end_that_a_manifest_gives__are_none_of_the_history(
    tmp_path: Path,
) -> None:
    # The log of server 3 got back what a TRUNC had cut from it, and no start of ours replays it.
    ours = LAB / "interrupted-trunc-keepfast"
    result = audited(ours)
    assert (result.verdict, grave(ours.name)) == (Verdict.CONSISTENT, [])
    # An Apache server has gone on with the directory: it replays all that is there.
    place = Path(shutil.copytree(ours, tmp_path / "taken-over"))
    theirs = place / "3" / "version-2"
    (theirs / "log.300000001").rename(theirs / "log.300000002")
    (finding,) = (f for f in audited(place).findings if f.kind == "stale-record-after-trunc")
    assert (finding.server, finding.first_zxid) == ("3", 0x100000006)


def test_wiped_majority__is_told_by_a_session_that_no_record_began() -> None:
    result = audited(LAB / "wiped-majority")
    (finding,) = (f for f in result.findings if f.kind == "history-forgotten")
    assert (result.verdict, finding.server, finding.first_zxid) == (
        Verdict.AT_RISK,
        "3",
        0x100000001,
    )
    # What was lost is in no file any more, and is not made up.
    assert finding.paths == ()


def test_session_in_a_snapshot_before_all_records__is_healthy_if_a_record_begins_it(
    tmp_path: Path,
) -> None:
    # A fuzzy snapshot holds sessions of records behind its zxid; nobody forgot anything then.
    place = Path(shutil.copytree(LAB / "wiped-majority", tmp_path / "fuzzy"))
    (snapshot,) = place.glob("3/version-2/snapshot.100000000")
    tree, _, _ = load_tree(RealDisk(), str(snapshot), is_fuzzy=True)
    (session,) = (id.to_bytes(8) for id in tree.sessions)
    for log in place.glob("*/version-2/log.100000001"):
        with RealDisk().open_read(str(log)) as file:
            entries = [one.entry for one in LogReader(file)]
        begun = entries[0][:8]
        renamed = (entry.replace(begun, session) for entry in entries)
        log.write_bytes(log.read_bytes()[:16] + b"".join(map(frame, renamed)))
    assert audited(place).verdict is Verdict.CONSISTENT
