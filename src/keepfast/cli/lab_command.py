"""`keepfast lab`: a failure from the field reproduced on real servers, then audited."""

from __future__ import annotations

import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from keepfast import __version__
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.pipeline_input import announce_spark
from keepfast.harness import ReleaseError, find_release
from keepfast.lab import SCENARIOS, LabError, ScenarioEnding, ScenarioOutcome, play
from keepfast.pipeline import (
    AuditOptions,
    EnsembleResult,
    FindingSeverity,
    JavaNotFound,
    JobFailed,
    ReportFacts,
    SparkNotUsable,
    Verdict,
    audit_places,
    spark_session,
    write_documents,
)
from keepfast.wire import format_zxid

_SMALLEST_ROOM = 20
_STYLES = {
    ScenarioEnding.EQUAL: "good",
    ScenarioEnding.UNFINISHED: "warning",
    ScenarioEnding.REFUSED: "warning",
    ScenarioEnding.LOST: "bad",
    ScenarioEnding.DIVERGED: "bad",
}


@dataclass(frozen=True, slots=True)
class LabCommand:
    """The command line."""

    scenario: str | None
    servers: tuple[str, ...]
    is_all: bool
    keep: str | None
    has_report: bool
    as_json: bool


class _Voice:
    """Prints each step as it happens; silent when a JSON document is requested."""

    def __init__(self, out: Out, is_quiet: bool) -> None:
        self._out = out
        self._is_quiet = is_quiet
        self._number = 0

    def step(self, text: str) -> None:
        self._number += 1
        if not self._is_quiet:
            first, *others = _folded(text, 5)
            self._out.line(f"{self._number:>3}  {first}")
            for line in others:
                self._out.line(f"     {line}")
            self._out.flush()

    def state(self, answers: Mapping[int, str]) -> None:
        if not self._is_quiet:
            parts = [f"{id}: {answer}" for id, answer in answers.items()]
            # What belongs together stays in one line.
            shown = "   ".join(part.replace(" ", "\u00a0") for part in parts)
            for line in _folded(shown, 5):
                self._out.line(self._out.paint(f"     {line}".replace("\u00a0", " "), "dim"))
            self._out.flush()


def run_lab(command: LabCommand) -> int:
    """Run the scenarios, print, audit; returns the exit code."""
    out = Out()
    names = list(SCENARIOS) if command.is_all else [command.scenario or ""]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        known = ", ".join(SCENARIOS)
        raise CommandFailed(f'there is no scenario "{unknown[0]}"; there are {known}')
    root = _folder(command.keep)
    played: list[ScenarioOutcome] = []
    try:
        played = _play_all(command, names, root, out)
        audits = _audit(played, root, command)
    except (ReleaseError, LabError) as error:
        raise CommandFailed(str(error), ExitCode.REFUSED) from error
    except (JobFailed, JavaNotFound, SparkNotUsable) as error:
        if not command.as_json:
            # The result of the run, which may have taken minutes, is shown anyway.
            _print_comparison(out, played, None)
            out.flush()
        raise CommandFailed(str(error), ExitCode.REFUSED) from error
    finally:
        if command.keep is None and not command.has_report:
            shutil.rmtree(root, ignore_errors=True)
    is_complete = all(one.ending is ScenarioEnding.EQUAL for one in played)
    code = ExitCode.OK if is_complete else ExitCode.INCOMPLETE
    if any(one.ending.is_wrong for one in played):
        code = ExitCode.WRONG
    if command.as_json:
        plays = [_document(*pair) for pair in zip(played, audits, strict=True)]
        print_document(out, {"schema": "keepfast.lab/1", "plays": plays, "exit_code": int(code)})
    else:
        _print_comparison(out, played, audits)
        if command.keep is not None or command.has_report:
            out.line(f"data directories and reports: {root}")
    out.flush()
    return code


def _folder(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="keepfast-lab-"))
    folder = Path(keep).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise CommandFailed(f"{keep} is not empty; name a folder that is, or that is not there yet")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _play_all(
    command: LabCommand, names: Sequence[str], root: Path, out: Out
) -> list[ScenarioOutcome]:
    releases = [find_release(name) for name in command.servers]
    played = []
    for name in names:
        scenario = SCENARIOS[name]
        for release in releases:
            if not command.as_json:
                out.line(out.paint(f"{name} on {release.name}: {scenario.title}", "bold"))
                out.flush()
            folder = root / name / release.name.replace(":", "-")
            outcome = play(scenario, release, folder, _Voice(out, command.as_json))
            if not command.as_json:
                _print_values(out, outcome)
            played.append(outcome)
    return played


def _audit(
    played: Sequence[ScenarioOutcome], root: Path, command: LabCommand
) -> list[EnsembleResult | None]:
    """What the audit says about the files that each run left."""
    results: list[EnsembleResult | None] = []
    announce_spark()
    with spark_session() as spark:
        for outcome in played:
            places = [place for place in outcome.places if (Path(place) / "version-2").exists()]
            if not places:
                results.append(None)
                continue
            started = time.monotonic()
            result = audit_places(spark, tuple(places), AuditOptions())
            results.append(result.ensembles[0])
            if command.keep is not None or command.has_report:
                text = f"keepfast lab {outcome.scenario.name} --server {outcome.release.name}"
                finished = datetime.now(UTC).isoformat(timespec="seconds")
                facts = ReportFacts(text, __version__, finished, time.monotonic() - started)
                write_documents(result, str(Path(outcome.places[0]).parent.parent), facts)
    return results


# -- for people ------------------------------------------------------------------------------------


def _print_values(out: Out, outcome: ScenarioOutcome) -> None:
    out.line()
    ids = sorted({id for answers in outcome.values.values() for id in answers})
    rows = []
    for path, answers in outcome.values.items():
        shown = ["(none)" if answers.get(id) is None else str(answers[id])[:24] for id in ids]
        is_wrong = len(set(answers.values())) > 1
        rows.append((path, *shown, "differ" if is_wrong else ""))
    if ids:
        out.table(("znode", *(f"server {id}" for id in ids), ""), rows)
    word = out.paint(outcome.ending.value, _STYLES[outcome.ending])
    out.line(f"{outcome.scenario.name} on {outcome.release.name}: {word}")
    out.line()
    out.flush()


def _print_comparison(
    out: Out, played: Sequence[ScenarioOutcome], audits: Sequence[EnsembleResult | None] | None
) -> None:
    """One row per play; without `audits`, nothing was audited."""
    heads = ("scenario", "servers of", "ended", "the audit says")
    plays = [(one.scenario.name, one.release.name, one.ending.value) for one in played]
    used = sum(max(map(len, column)) + 2 for column in zip(*plays, heads[:3], strict=True))
    rows: list[tuple[str, ...]] = []
    said = ["not audited"] * len(played) if audits is None else [_said(one) for one in audits]
    for cells, text in zip(plays, said, strict=True):
        first, *others = _folded(text, used)
        rows.append((*cells, first))
        rows.extend(("", "", "", line) for line in others)
    out.table(heads, rows)


def _folded(text: str, used: int) -> list[str]:
    """Lines that fit the terminal after an indent; one line if there is no terminal."""
    room = shutil.get_terminal_size().columns - used
    if not sys.stdout.isatty() or room < _SMALLEST_ROOM:
        return [text]
    return textwrap.wrap(text, room, break_long_words=False) or [""]


def _said(result: EnsembleResult | None) -> str:
    if result is None:
        return "nothing to audit"
    finding = result.findings[0] if result.findings else None
    if result.verdict is Verdict.CONSISTENT and not result.is_complete:
        return "consistent in what could be checked"
    if result.verdict is Verdict.CONSISTENT or finding is None:
        return str(result.verdict.value)
    if finding.severity is FindingSeverity.NOTE:
        return str(result.verdict.value)
    paths = ", ".join(finding.paths[:3])
    server = "" if finding.server is None else f" on server {finding.server}"
    place = ""
    if finding.first_zxid is not None:
        place = f" at {format_zxid(finding.first_zxid)}"
    elif finding.last_zxid is not None:
        place = f" up to {format_zxid(finding.last_zxid)}"
    return f"{result.verdict.value}: {finding.kind}{server}{place}{f': {paths}' if paths else ''}"


def _document(outcome: ScenarioOutcome, result: EnsembleResult | None) -> dict[str, object]:
    values = {
        path: {str(id): answer for id, answer in answers.items()}
        for path, answers in outcome.values.items()
    }
    return {
        "scenario": outcome.scenario.name,
        "server": outcome.release.name,
        "ending": outcome.ending.value,
        "values": values,
        "silent": list(outcome.silent),
        "problem": outcome.problem,
        "audit": None if result is None else result.to_json(),
    }
