"""Times, operations and people on findings, and the writes that a server lacks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keepfast.cli import main
from keepfast.pipeline.engine.auditing import audit_here
from keepfast.pipeline.engine.stages import AuditOptions
from keepfast.pipeline.findings.document import EnsembleResult, FindingSeverity
from keepfast.pipeline.findings.records_named import time_text
from keepfast.pipeline.report.outputs import findings_table
from keepfast.storage import LogReader, RealDisk
from keepfast.wire import decode_entry, format_zxid
from tests.cases import CASES_DIR, case_names
from tests.pipeline.ensembles import Life
from tests.pipeline.planting_causes import partial_then_snapshot

GAP = "diff-over-gap-3.9.5"


def audited(place: Path, options: AuditOptions | None = None) -> EnsembleResult:
    (result,) = audit_here([str(place)], options).ensembles
    return result


def records_of(place: Path) -> dict[int, set[tuple[int, int]]]:
    """All records of a case by zxid: time and session, read record by record."""
    found: dict[int, set[tuple[int, int]]] = {}
    disk = RealDisk()
    for log in sorted(place.rglob("log.*")):
        with disk.open_read(str(log)) as file:
            for frame in LogReader(file):
                header = decode_entry(frame.entry).header
                found.setdefault(header.zxid, set()).add((header.time_ms, header.session_id))
    return found


@pytest.mark.parametrize("name", case_names())
def test_case__findings_have_the_times_of_their_records(name: str) -> None:
    result = audited(CASES_DIR / name)
    records = records_of(CASES_DIR / name)
    assert len(result.times) >= 2
    assert all(any(t == time_ms for t, _ in records[zxid]) for zxid, time_ms in result.times)
    for finding in result.findings:
        for zxid, note in ((finding.first_zxid, finding.first), (finding.last_zxid, finding.last)):
            if zxid in records:
                assert note is not None, finding
                assert (note.time_ms, note.session_id) in records[zxid]
            else:
                assert note is None


@pytest.mark.parametrize("options", [AuditOptions(), AuditOptions(tree_records=0)])
def test_gap__the_writes_that_are_lacking_are_listed(options: AuditOptions) -> None:
    result = audited(CASES_DIR / GAP, options)
    (lacked,) = result.lacked
    assert (lacked.server, lacked.records) == ("3", 1502)
    assert len(lacked.writes) == 200
    assert not lacked.is_all
    first = lacked.writes[0]
    assert (first.op, first.paths) == ("create", ("/between",))
    zxids = [write.zxid for write in lacked.writes]
    assert zxids == list(range(lacked.first_zxid, lacked.first_zxid + 200))


def test_wrong_snapshot__what_was_lacking_when_it_was_written_is_listed(tmp_path: Path) -> None:
    life = Life(344001)
    life.live()
    planted = partial_then_snapshot(life)
    assert planted is not None
    result = audited(life.write_files(tmp_path / "e"))
    (lacked,) = result.lacked
    assert lacked.server == planted.server
    held = {zxid for log in life.members[0].logs for zxid, _ in log.entries}
    member = next(one for one in life.members if one.name == planted.server)
    own = {zxid for log in member.logs for zxid, _ in log.entries}
    assert {write.zxid for write in lacked.writes} <= held - own
    assert lacked.is_all


def test_healthy_case__nothing_is_lacked() -> None:
    assert audited(CASES_DIR / "healthy-elections-3.9.5").lacked == ()


def test_audit_log__names_user_and_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "audit.log"
    log.write_text(
        "2026-11-15 09:47:56,560 INFO session=0x200002d0d330000\tuser=alice\tip=192.0.2.7"
        "\toperation=create\tznode=/between\tresult=success\n"
    )
    place = str(CASES_DIR / GAP)
    code = main(["audit", place, "--engine", "local", "--audit-log", str(log), "--json"])
    assert code == 1
    document = json.loads(capsys.readouterr().out)
    (ensemble,) = document["ensembles"]
    first = ensemble["findings"][0]["first"]
    assert first == {
        "zxid": "0x200000003",
        "time": "2026-11-15T09:47:56.559Z",
        "op": "create",
        "session": "0x200002d0d330000",
        "paths": ["/between"],
        "user": "alice",
        "address": "192.0.2.7",
    }
    assert ensemble["lacked"][0]["writes"][1]["user"] == "alice"
    assert main(["audit", place, "--engine", "local", "--audit-log", str(log)]) == 1
    shown = capsys.readouterr().out
    assert "create /between, session 0x200002d0d330000, user alice from 192.0.2.7" in shown
    assert "server 3 lacks 1502 committed records" in shown


def test_findings_table__has_time_and_people() -> None:
    result = audit_here([str(CASES_DIR / GAP)])
    row = findings_table(result).to_pylist()[0]
    assert row["first_time"].replace(tzinfo=UTC) == datetime(2026, 11, 15, 9, 47, 56, 559000, UTC)
    assert (row["op"], row["session_id"], row["user"]) == ("create", 0x200002D0D330000, None)


def test_time_that_no_calendar_has__is_none() -> None:
    assert time_text(1 << 62) is None
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"


def test_finding_above_a_note__is_in_the_picture_with_its_record() -> None:
    from keepfast.pipeline.report.lanes import axis_of, drawing_of

    result = audited(CASES_DIR / GAP)
    drawing = drawing_of(result, axis_of(result))
    texts = [text for _, _, text in drawing["records"]]  # type: ignore[attr-defined]
    grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
    for finding in grave:
        if finding.first is not None:
            assert f"{format_zxid(finding.first.zxid)} {finding.first.text}" in texts
    assert [zxid for _, zxid, _ in drawing["times"]] == [  # type: ignore[attr-defined]
        format_zxid(zxid) for zxid, _ in result.times
    ]
