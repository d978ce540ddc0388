"""The audit of directories that real Apache servers wrote, against what is known about them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from keepfast.pipeline.engine.stages import AuditOptions, audit_with, run_here
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.findings.document import EnsembleResult, FindingSeverity, Verdict
from tests.cases import CASES_DIR, case_names, load_case

VERDICTS = {
    "consistent": Verdict.CONSISTENT,
    "diverged": Verdict.DIVERGED,
    # A server that would not start serves nothing wrong.
    "refused": Verdict.AT_RISK,
}


def audited(*places: Path) -> EnsembleResult:
    (files,) = discover([str(place) for place in places])
    (result,) = audit_with(run_here, [files], AuditOptions())
    return result


@pytest.mark.parametrize("name", case_names())
def test_case__the_verdict_is_that_of_its_truth(name: str) -> None:
    case = load_case(name)
    result = audited(CASES_DIR / name)
    assert result.verdict is VERDICTS[case.outcome]
    assert result.servers == case.server_ids
    grave = [f for f in result.findings if f.severity is not FindingSeverity.NOTE]
    if case.outcome == "consistent":
        assert grave == []
        assert result.unchecked == ()
        assert result.tree_diff is None
        return
    (finding,) = (f for f in grave if f.kind == case.truth["kind"])
    assert finding.server == wrong_server(name)
    assert finding.severity is FindingSeverity.ERROR
    assert finding.cause
    assert f"server {finding.server}" in finding.advice
    assert {f.server for f in grave} == {finding.server}
    if case.outcome == "diverged":
        assert finding.is_divergence
        assert finding.first_zxid == int(case.truth["first_divergent_zxid"], 16)
        assert list(finding.paths) == sorted(case.truth["divergent_paths"])
        assert {path for f in grave for path in f.paths} == set(finding.paths)
        check_tree_diff(result, case.truth["keys"], set(finding.paths))


def wrong_server(name: str) -> str:
    """The one server whose answers differ from those of the others, or that is not there."""
    truth = load_case(name).truth
    if truth["outcome"] == "refused":
        return "0"  # `notes`: "C does not come up: servers [0]"
    votes: dict[str, int] = dict.fromkeys(truth["nodes"], 0)
    for path in truth["divergent_paths"]:
        answers = truth["keys"][path]
        for server, value in answers.items():
            votes[server] += sum(value != other for other in answers.values())
    return max(votes, key=lambda server: votes[server])


def check_tree_diff(
    result: EnsembleResult, keys: dict[str, dict[str, str | None]], paths: set[str]
) -> None:
    """The diff shows what the live servers answered."""
    diff = result.tree_diff
    assert diff is not None
    assert diff.total == len(paths)
    for difference in diff.differences:
        for server, state in difference.states:
            answer = keys[difference.path][server]
            assert (state is None) == (answer is None), (difference.path, server)
            if state is not None and answer is not None and not answer.startswith("sha256:"):
                assert state.data == answer


@pytest.mark.parametrize("name", case_names("healthy"))
def test_healthy_case__every_zxid_is_proven_by_two_or_told(name: str) -> None:
    result = audited(CASES_DIR / name)
    assert {entry.proof for entry in result.coverage} <= {"agreed", "single"}
    covered = sum(entry.last_zxid - entry.first_zxid + 1 for entry in result.coverage)
    agreed = sum(
        entry.last_zxid - entry.first_zxid + 1
        for entry in result.coverage
        if entry.proof == "agreed"
    )
    assert agreed / covered > 0.98
    assert result.committed_zxid == max(entry.last_zxid for entry in result.coverage)


def test_latent_record__is_a_note_and_drawn() -> None:
    result = audited(CASES_DIR / "healthy-latent-3.9.5")
    (note,) = (f for f in result.findings if f.kind == "latent-uncommitted")
    assert (note.server, note.first_zxid) == ("2", 0x100000009)
    lane = next(lane for lane in result.lanes if lane.server == "2")
    assert [(s.first_zxid, s.kind) for s in lane.spans if s.kind == "stale"] == [
        (0x100000009, "stale")
    ]


def test_lanes__have_what_is_drawn() -> None:
    result = audited(CASES_DIR / "diff-over-gap-3.9.5")
    lanes = {lane.server: lane for lane in result.lanes}
    holes = [(s.kind, s.first_zxid, s.last_zxid) for s in lanes["3"].spans if s.kind != "run"]
    assert holes == [("hole", 0x200000003, 0x2000005E0)]
    gaps = [(s.kind, s.first_zxid, s.last_zxid) for s in lanes["4"].spans if s.kind != "run"]
    assert gaps == [("gap", 0x200000003, 0x2000005E0)]
    assert lanes["3"].diverges_at == 0x200000003
    assert [mark.is_base for mark in lanes["4"].snapshots] == [False, False, False, True]
    assert (lanes["0"].accepted_epoch, lanes["0"].current_epoch) == (3, 3)


def test_audit__leaves_the_directories_as_they_are(tmp_path: Path) -> None:
    for name in ("disk-full-3.4.14", "healthy-plain-3.9.5-gz"):
        copy = tmp_path / name
        shutil.copytree(CASES_DIR / name, copy)
        before = fingerprint(copy)
        audited(copy)
        assert fingerprint(copy) == before


def fingerprint(root: Path) -> list[tuple[str, int, str]]:
    return sorted(
        (
            str(path.relative_to(root)),
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in root.rglob("*")
    )
