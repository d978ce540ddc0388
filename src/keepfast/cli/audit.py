"""`keepfast audit`: do the servers of an ensemble agree, and if not, where did they part."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from keepfast import __version__
from keepfast.cli.ensembles import explained
from keepfast.cli.output import CommandFailed, ExitCode, Out, print_document
from keepfast.cli.values import counted
from keepfast.pipeline import (
    AuditOptions,
    AuditResult,
    Coverage,
    EnsembleResult,
    Finding,
    FindingSeverity,
    JobFailed,
    ReportFacts,
    Verdict,
    audit_places,
    check_out,
    exit_code_of,
    spark_session,
    tasks_of,
    write_documents,
    write_tables,
)
from keepfast.wire import format_zxid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STYLES = {
    Verdict.CONSISTENT: "good",
    Verdict.AT_RISK: "warning",
    Verdict.DIVERGED: "bad",
    Verdict.UNREADABLE: "bad",
}
_FINDING_STYLES = {
    FindingSeverity.NOTE: "dim",
    FindingSeverity.WARNING: "warning",
    FindingSeverity.ERROR: "bad",
}
# A screen is enough; everything is in --json and --out.
_MOST_FINDINGS = 20
_MOST_ENSEMBLES = 40
_MOST_PATHS = 5
_MOST_RANGES = 8
_QUIET_SECONDS = 2.0
_LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class AuditCommand:
    """The command line."""

    places: tuple[str, ...]
    master: str | None
    out: str | None
    has_tables: bool
    replay_limit: int | None
    as_json: bool


def run_audit(command: AuditCommand) -> int:
    """Audit, print, write; gives the exit code."""
    started = time.monotonic()
    options = AuditOptions() if command.replay_limit is None else AuditOptions(command.replay_limit)
    try:
        with explained():
            if command.out is not None:
                check_out(command.out, command.places)
            with spark_session(command.master) as spark:
                with _progress(spark):
                    result = audit_places(spark, command.places, options)
                if command.out is not None:
                    write_documents(result, command.out, _facts(command, started))
                    if command.has_tables:
                        write_tables(spark, command.places, command.out, result)
    except JobFailed as error:
        raise CommandFailed(str(error), ExitCode.REFUSED) from error
    code = ExitCode(exit_code_of(result))
    out = Out()
    if command.as_json:
        print_document(out, result.to_json() | {"exit_code": int(code)})
    else:
        _print(out, result, command.out)
    out.flush()
    return code


def _facts(command: AuditCommand, started: float) -> ReportFacts:
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    text = "keepfast audit " + shlex.join(command.places)
    return ReportFacts(text, __version__, finished, time.monotonic() - started)


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    """Tell on a terminal how many tasks are done, once the work takes a while."""
    if not sys.stderr.isatty():
        yield
        return
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, is_over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _watch(spark: SparkSession, is_over: threading.Event) -> None:
    if is_over.wait(_QUIET_SECONDS):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("auditing", total=None)
        while not is_over.wait(_LOOK_SECONDS):
            done, total = tasks_of(spark)
            bar.update(task, completed=done, total=total or None)


# -- for people ------------------------------------------------------------------------------------


def _print(out: Out, result: AuditResult, target: str | None) -> None:
    if len(result.ensembles) == 1:
        _print_ensemble(out, result.ensembles[0])
    else:
        _print_many(out, result)
    if target is not None:
        out.line()
        out.line(f"report: {target}/report.html, findings: {target}/findings.json")


def _print_many(out: Out, result: AuditResult) -> None:
    """A table of all, then those in which something is wrong."""
    counts = [
        f"{sum(one.verdict is verdict for one in result.ensembles)} {verdict.value}"
        for verdict in Verdict
        if any(one.verdict is verdict for one in result.ensembles)
    ]
    out.line(f"{counted(len(result.ensembles), 'ensemble')}: {', '.join(counts)}")
    bad = [one for one in result.ensembles if one.verdict is not Verdict.CONSISTENT]
    shown = bad if len(result.ensembles) > _MOST_ENSEMBLES else list(result.ensembles)
    if shown:
        out.line()
        rows = [
            (one.name, one.verdict.value, str(len(one.servers)), _worst(one))
            for one in shown[:_MOST_ENSEMBLES]
        ]
        out.table(("ensemble", "verdict", "servers", "gravest finding"), rows, "servers")
    if len(shown) > _MOST_ENSEMBLES:
        out.line(f"... and {len(shown) - _MOST_ENSEMBLES} more; --json and --out have all of them")


def _worst(one: EnsembleResult) -> str:
    finding = one.findings[0] if one.findings else None
    if finding is None or finding.severity is FindingSeverity.NOTE:
        return ""
    return f"{finding.kind}{'' if finding.server is None else f' on server {finding.server}'}"


def _print_ensemble(out: Out, one: EnsembleResult) -> None:
    verdict = out.paint(one.verdict.value, _STYLES[one.verdict])
    out.line(f"{one.name}: {verdict}")
    rows = [("servers", ", ".join(one.servers))]
    if one.committed_zxid is not None:
        rows.append(("held by a majority", f"up to {format_zxid(one.committed_zxid)}"))
    rows += [
        (("proven" if number == 0 else ""), _coverage(entry))
        for number, entry in enumerate(one.coverage[:_MOST_RANGES])
    ]
    if len(one.coverage) > _MOST_RANGES:
        rows.append(("", f"... and {len(one.coverage) - _MOST_RANGES} more ranges"))
    rows += [("not checked", sentence) for sentence in one.unchecked]
    out.facts(rows)
    grave = [f for f in one.findings if f.severity is not FindingSeverity.NOTE]
    said: set[str] = set()
    for finding in grave[:_MOST_FINDINGS]:
        out.line()
        _print_finding(out, finding, said)
    if len(grave) > _MOST_FINDINGS:
        out.line(f"... and {len(grave) - _MOST_FINDINGS} more; --json and --out have all of them")
    notes = [f for f in one.findings if f.severity is FindingSeverity.NOTE]
    if notes:
        out.line()
        out.line(out.paint(f"{counted(len(notes), 'note')}: nothing has to be done", "dim"))
        for finding in notes[:_MOST_FINDINGS]:
            place = "" if finding.server is None else f"server {finding.server}: "
            out.line(out.paint(f"  {finding.check} {place}{finding.evidence}", "dim"))


def _coverage(entry: Coverage) -> str:
    span = format_zxid(entry.first_zxid)
    if entry.last_zxid != entry.first_zxid:
        span += f" to {format_zxid(entry.last_zxid)}"
    names = f" ({', '.join(entry.servers)})" if entry.servers else ""
    return f"{span}: {entry.text}{names}"


def _print_finding(out: Out, finding: Finding, said: set[str]) -> None:
    """One finding; `said` is what was said before, and is not said again."""
    head = f"{finding.check} {finding.kind}"
    if finding.server is not None:
        head += f" on server {finding.server}"
    if finding.first_zxid is not None:
        head += f", first at {format_zxid(finding.first_zxid)}"
    out.line(out.paint(head, _FINDING_STYLES[finding.severity]))
    place = finding.file or ""
    if finding.file is not None and finding.offset is not None:
        place += f" at {finding.offset}"
    shown = ", ".join(finding.paths[:_MOST_PATHS])
    if len(finding.paths) > _MOST_PATHS:
        shown += f" and {len(finding.paths) - _MOST_PATHS} more"
    for name, text in (
        ("seen", finding.evidence),
        ("where", place),
        ("znodes", shown),
        ("likely cause", finding.cause),
        ("do", finding.advice),
    ):
        is_general = name in ("likely cause", "do")
        if text and not (is_general and text in said):
            out.line(f"  {name + ':':<13} {text}")
        if is_general:
            said.add(text)
