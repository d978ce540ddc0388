"""What is given to the audit is not always what it needs: a sentence, never an alarm about it."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.pipeline.engine.auditing import audit_here
from keepfast.pipeline.engine.stages import (
    AuditOptions,
    CompareItem,
    Item,
    LocalRunner,
    PlacesDisk,
    ReplayItem,
    Value,
    audit_with,
    run_here,
)
from keepfast.pipeline.files.layout import EnsembleFiles, PlaceError, discover
from keepfast.pipeline.findings.document import (
    AuditResult,
    EnsembleResult,
    FindingSeverity,
    Verdict,
)
from keepfast.pipeline.findings.verdict import exit_code_of
from keepfast.pipeline.keyed import Found, KeyedWork
from keepfast.pipeline.report.targets import check_out
from keepfast.pipeline.scan.facts import snapshot_facts
from keepfast.storage import BytesFile, LogReader, frame
from keepfast.wire import SetDataTxn, decode_entry, encode_entry
from tests.cases import CASES_DIR
from tests.pipeline.ensembles import Life
from tests.pipeline.planting import damaged
from tests.pipeline.test_audit_cases import audited

HEALTHY = CASES_DIR / "healthy-plain-3.9.5"


def audit_listed(files: EnsembleFiles) -> EnsembleResult:
    return audit_with(run_here, [files], AuditOptions())[0]


def code_of(result: EnsembleResult) -> int:
    return exit_code_of(AuditResult((result,)))


def grave(result: EnsembleResult) -> list[str]:
    return [f.kind for f in result.findings if f.severity is not FindingSeverity.NOTE]


def test_empty_root__one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PlaceError, match="is empty"):
        discover([str(tmp_path)])


@pytest.mark.parametrize("name", ["healthy-plain-3.9.5", "healthy-plain-3.4.14"])
def test_one_server__says_what_that_cannot_prove(name: str) -> None:
    result = audited(CASES_DIR / name / "0")
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert "cannot be proven" in result.unchecked[0]
    assert {entry.proof for entry in result.coverage} == {"single"}
    assert code_of(result) == 3


def test_all_servers__code_0() -> None:
    assert code_of(audited(HEALTHY)) == 0


def test_mixed_ensembles__are_not_called_diverged(tmp_path: Path) -> None:
    for seed in (1, 2):
        life = Life(seed, "3.6")
        life.live(5)
        life.write_files(tmp_path / str(seed))
    mixed = tmp_path / "mixed"
    shutil.copytree(tmp_path / "1" / "1", mixed / "1")
    shutil.copytree(tmp_path / "2" / "2", mixed / "2")
    result = audited(mixed)
    assert (result.verdict, grave(result)) == (Verdict.UNREADABLE, ["mixed-ensembles"])
    assert "different ensembles" in result.unchecked[0]
    assert code_of(result) == 2


def test_record_that_differs_behind_many_gaps__is_found(tmp_path: Path) -> None:
    """Each gap makes a bucket of the cheap pass differ; none of them may hide what lies behind."""
    life = Life(5, "3.6")
    victim = life.members[0]
    for _ in range(300):
        life.write(3)
        life.elect()
    for log in victim.logs:
        # As if it had been caught up by SNAP in each epoch.
        log.entries = [item for item in log.entries if item[0] & 0xFFFFFFFF != 2]
    life.store(victim, life.exact(victim, life.zxid))
    life.write(3)
    zxid, _ = victim.logs[-1].entries[-2]
    victim.logs[-1].entries[-2] = (zxid, life.stray_entry(zxid, life.random))
    result = audited(life.write_files(tmp_path))
    assert result.verdict is Verdict.DIVERGED
    assert {(f.server, f.first_zxid) for f in result.findings if f.kind == "different-records"} == {
        (victim.name, zxid)
    }


def test_empty_servers__there_is_nothing_to_judge(tmp_path: Path) -> None:
    for server in "12":
        (tmp_path / server / "version-2").mkdir(parents=True)
        (tmp_path / server / "version-2" / "currentEpoch").write_text("0")
        (tmp_path / server / "version-2" / "acceptedEpoch").write_text("0")
    result = audited(tmp_path)
    assert result.verdict is Verdict.UNREADABLE
    assert code_of(result) == 2


def test_directory_being_written__is_said_and_audited_up_to_there(tmp_path: Path) -> None:
    copy = tmp_path / "e"
    shutil.copytree(HEALTHY, copy)
    (files,) = discover([str(copy)])
    log = max((copy / "0" / "version-2").glob("log.*"), key=lambda p: int(p.name[4:], 16))
    with log.open("r+b") as file:  # as if its server had written on while we read
        file.seek(0, 2)
        file.write(bytes(16))
    (copy / "1" / "version-2" / "snapshot.0").unlink()  # purged a moment ago
    half = copy / "2" / "version-2" / "snapshot.200000034"
    half.write_bytes(half.read_bytes()[:5000])  # being written
    result = audit_listed(files)
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    (note,) = (f for f in result.findings if f.kind == "being-written")
    assert note.last_zxid == 0x200000040
    assert any("changed while they were read" in sentence for sentence in result.unchecked)
    assert code_of(result) == 3


def test_unreadable_files__are_not_taken_for_missing_ones(tmp_path: Path) -> None:
    copy = tmp_path / "e"
    shutil.copytree(CASES_DIR / "healthy-elections-3.9.5", copy)
    (files,) = discover([str(copy)])
    log = files.servers[0].logs[2]  # right behind its newest snapshot
    # A directory under the name of a log: reading fails, whoever runs this.
    Path(log.path).unlink()
    Path(log.path).mkdir()
    result = audit_listed(files)
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert any(log.path in sentence for sentence in result.unchecked)
    assert code_of(result) == 3


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipe_or_device_under_the_name_of_a_log__is_not_read(kind: str, tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read, without end."""
    copy = tmp_path / "e"
    shutil.copytree(CASES_DIR / "healthy-elections-3.9.5", copy)
    (files,) = discover([str(copy)])
    log = Path(files.servers[0].logs[2].path)
    log.unlink()
    if kind == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to("/dev/zero")
    result = audit_listed(files)
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert any(str(log) in sentence for sentence in result.unchecked)


def test_length_of_two_gigabytes__costs_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "e"
    shutil.copytree(HEALTHY, copy)
    log = copy / "0" / "version-2" / "log.200000001"
    raw = bytearray(log.read_bytes())
    raw[24:28] = struct.pack(">i", 0x7FFFFFFF)
    log.write_bytes(raw)
    result = audited(copy)
    assert "record-damaged" in grave(result)
    assert code_of(result) == 1


def test_lengths_of_two_gigabytes_in_a_snapshot__cost_nothing(tmp_path: Path) -> None:
    """Wherever it is read as one: of sessions, of ACLs, of a path, of data."""
    raw = (HEALTHY / "0" / "version-2" / "snapshot.200000024").read_bytes()
    snapshot = tmp_path / "snapshot.200000024"
    for offset in range(16, 400, 7):
        damaged = raw[:offset] + struct.pack(">i", 0x7FFFFFFF) + raw[offset + 4 :]
        snapshot.write_bytes(damaged)
        tracemalloc.start()
        try:
            facts = snapshot_facts(PlacesDisk(), str(snapshot), 0x200000024, 0.0)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
        assert not facts.is_valid


def while_audited(files: EnsembleFiles, change: Callable[[], None]) -> EnsembleResult:
    """Audit, and change files between the look at them and the replay."""

    class Changing(LocalRunner):
        def __call__(self, items: Sequence[Item]) -> list[Value]:
            if any(isinstance(item, ReplayItem) for item in items):
                change()
            return super().__call__(items)

        def sum_up(self, works: Sequence[KeyedWork]) -> list[Found]:
            if works:
                change()
            return super().sum_up(works)

    results = [
        audit_with(Changing(), [files], AuditOptions(tree_records=records))[0]
        for records in (1 << 30, 0)
    ]
    assert results[0].verdict is results[1].verdict
    return results[0]


def test_snapshot_is_purged_during_the_audit__it_is_not_checked(tmp_path: Path) -> None:
    shutil.copytree(HEALTHY, tmp_path / "e")
    (files,) = discover([str(tmp_path / "e")])
    oldest = Path(files.servers[0].snapshots[0].path)
    result = while_audited(files, lambda: oldest.unlink(missing_ok=True))
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert result.unchecked == (f"{oldest} can no longer be read",)
    assert code_of(result) == 3


@pytest.mark.parametrize("number", range(3))
def test_log_is_purged_during_the_audit__that_is_no_divergence(number: int, tmp_path: Path) -> None:
    """Whether the agreed history was read from it, or what its own server serves."""
    shutil.copytree(HEALTHY, tmp_path / "e")
    (files,) = discover([str(tmp_path / "e")])
    log = Path(files.servers[number].logs[-1].path)
    result = while_audited(files, lambda: log.unlink(missing_ok=True))
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    assert any(f"{log} can no longer be read" in sentence for sentence in result.unchecked)
    assert any(f"state of {number} could not be" in text for text in result.unchecked)
    assert code_of(result) == 3


def test_log_is_cut_during_the_audit__that_is_no_divergence(tmp_path: Path) -> None:
    shutil.copytree(HEALTHY, tmp_path / "e")
    (files,) = discover([str(tmp_path / "e")])
    logs = [Path(server.logs[-1].path) for server in files.servers]

    def cut() -> None:
        for log in logs[:2]:
            with log.open("r+b") as file:
                file.truncate(300)

    result = while_audited(files, cut)
    assert (result.verdict, grave(result)) == (Verdict.CONSISTENT, [])
    # The agreed history is read from the first of them as well.
    for log in logs[:2]:
        assert any(f"{log} no longer holds 0x200000040" in text for text in result.unchecked)
    assert any("no longer holds" in text and " to 0x200000040" in text for text in result.unchecked)
    assert code_of(result) == 3


def test_snapshot_that_no_records_lead_to__was_not_compared(tmp_path: Path) -> None:
    """Each server has one snapshot, of another moment, and nobody has the records between."""
    for server, name in (("0", "snapshot.1000000e2"), ("1", "snapshot.200000029")):
        place = tmp_path / "e" / server / "version-2"
        place.mkdir(parents=True)
        shutil.copy(HEALTHY / server / "version-2" / name, place / name)
    result = audited(tmp_path / "e")
    assert any("is ahead of all records" in text for text in result.unchecked)
    assert code_of(result) == 3


def with_other_record(root: Path) -> tuple[EnsembleFiles, Path]:
    """A record of server 2 that is not the others', with a good checksum, below its snapshots."""
    shutil.copytree(HEALTHY, root)
    log = root / "2" / "version-2" / "log.1000000a9"
    raw = log.read_bytes()
    reader = LogReader(BytesFile(raw), 16, len(raw))
    record = next(found for found in reader if found.zxid == 0x1000000AB)
    entry = decode_entry(record.entry)
    assert isinstance(entry.body, SetDataTxn)
    changed = entry._replace(body=entry.body._replace(data=b"29"))
    framed = frame(encode_entry(changed))
    log.write_bytes(raw[: record.offset] + framed + raw[record.offset + len(framed) :])
    (files,) = discover([str(root)])
    return files, log


@pytest.mark.parametrize("tree_records", [1 << 30, 0], ids=["tree", "sums"])
def test_other_record_below_the_newest_snapshot__is_a_risk(
    tmp_path: Path, tree_records: int
) -> None:
    files, log = with_other_record(tmp_path / "e")
    (result,) = audit_with(run_here, [files], AuditOptions(tree_records=tree_records))
    (found,) = (f for f in result.findings if f.severity is not FindingSeverity.NOTE)
    assert (found.kind, found.server, found.first_zxid) == ("different-records", "2", 0x1000000AB)
    assert (found.file, found.is_divergence) == (str(log), False)
    assert (result.verdict, code_of(result)) == (Verdict.AT_RISK, 1)


@pytest.mark.parametrize("size", [None, 100], ids=["gone", "cut"])
def test_log_that_is_gone_before_its_records_are_compared__is_said(
    tmp_path: Path, size: int | None
) -> None:
    files, log = with_other_record(tmp_path / "e")

    class Purging(LocalRunner):
        def __call__(self, items: Sequence[Item]) -> list[Value]:
            if any(isinstance(item, CompareItem) for item in items):
                log.unlink() if size is None else os.truncate(log, size)
            return super().__call__(items)

    # The server is not started on paper: nobody else would read that log.
    (result,) = audit_with(Purging(), [files], AuditOptions(is_replayed=False))
    assert any(text.startswith(f"{log} can no longer be read") for text in result.unchecked)


def test_copies_of_one_server__are_no_second_proof(tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(HEALTHY / "0", tmp_path / "e" / name)
        (tmp_path / "e" / name / "myid").write_text("3\n")
    result = audited(tmp_path / "e")
    assert {entry.servers for entry in result.coverage} == {("a", "b")}
    assert any("servers a and b have the same myid, 3" in text for text in result.unchecked)
    assert code_of(result) == 3


def test_out_inside_of_what_is_audited__is_refused(tmp_path: Path) -> None:
    shutil.copytree(HEALTHY, tmp_path / "e")
    for out in ("e", "e/report", "e/0/version-2/x"):
        with pytest.raises(PlaceError, match="audited"):
            check_out(str(tmp_path / out), [str(tmp_path / "e")])
    check_out(str(tmp_path / "elsewhere"), [str(tmp_path / "e")])
    check_out(str(tmp_path / "e-report"), [str(tmp_path / "e")])
    # By a link, and where the root that is named has links in it.
    (tmp_path / "link").symlink_to(tmp_path / "e")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "ensemble").symlink_to(tmp_path / "e")
    for out, place in (("link/report", "e"), ("e/0/version-2/x", "root")):
        with pytest.raises(PlaceError, match="audited"):
            check_out(str(tmp_path / out), [str(tmp_path / place)])


def test_observers_and_order_of_servers__do_not_change_the_result() -> None:
    (files,) = discover([str(HEALTHY)])
    turned = replace(files, servers=tuple(reversed(files.servers)))
    assert audit_listed(turned).findings == audit_listed(files).findings


def test_log_of_another_ensemble_beside_own_ones__names_its_server(tmp_path: Path) -> None:
    life, planted = damaged(20_095)
    life.write_files(tmp_path)
    (result,) = audit_here([str(tmp_path)]).ensembles
    # Its one log of that time shares nothing with that of another, and later ones all with a third.
    assert planted.found_in(result)
    assert result.verdict is Verdict.AT_RISK


def test_partial_snapshot_where_the_logs_begin__is_no_vote_against_what_others_hold(
    tmp_path: Path,
) -> None:
    life, planted = damaged(462)
    life.write_files(tmp_path)
    (result,) = audit_here([str(tmp_path)]).ensembles
    assert planted.found_in(result)
    # Nobody who was there passes over what servers 1 and 2 hold.
    assert not [one for one in result.findings if one.kind == "stale-record-after-trunc"]
