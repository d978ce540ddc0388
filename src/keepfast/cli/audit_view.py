"""What `keepfast audit` prints: the answer in a sentence, findings, and last what proves it."""

from __future__ import annotations

import shutil
import sys
import textwrap

from keepfast.cli.output import Out
from keepfast.cli.values import counted, zxid_span
from keepfast.pipeline import (
    AuditResult,
    Coverage,
    EnsembleResult,
    Finding,
    FindingSeverity,
    LackedWrites,
    Verdict,
    summary_of,
)
from keepfast.wire import format_zxid, safe_text

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
_MAX_FINDINGS = 20
_MAX_ENSEMBLES = 40
_MAX_PATHS = 5
_MAX_RANGES = 4
_MAX_WRITES = 5
_MIN_ROOM = 30


def print_audit(out: Out, result: AuditResult, target: str | None) -> None:
    """Print a result for people; `target` is where the report was written."""
    if len(result.ensembles) == 1:
        _print_ensemble(out, result.ensembles[0])
    else:
        _print_many(out, result)
    if target is not None:
        out.line()
        out.line(f"report: {target}/report.html, findings: {target}/findings.json")


def _folded(out: Out, first: str, text: str, style: str = "") -> None:
    """Print a text after `first`, on a terminal in lines that fit it; words stay whole."""
    room = shutil.get_terminal_size().columns
    lines = [first + text]
    if sys.stdout.isatty() and room - len(first) >= _MIN_ROOM:
        lines = textwrap.wrap(
            text,
            room,
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first]
    for line in lines:
        out.line(out.paint(line, style))


def _print_many(out: Out, result: AuditResult) -> None:
    """A sentence on all, then a table of those in which something is wrong."""
    _folded(out, "", summary_of(result))
    bad = [one for one in result.ensembles if one.verdict is not Verdict.CONSISTENT]
    shown = bad if len(result.ensembles) > _MAX_ENSEMBLES else list(result.ensembles)
    if shown:
        out.line()
        rows = [
            (one.name, one.verdict.value, str(len(one.servers)), _worst(one))
            for one in shown[:_MAX_ENSEMBLES]
        ]
        out.table(("ensemble", "verdict", "servers", "gravest finding"), rows, "servers")
    if len(shown) > _MAX_ENSEMBLES:
        out.line(f"... and {len(shown) - _MAX_ENSEMBLES} more; --json and --out have all of them")


def _worst(one: EnsembleResult) -> str:
    finding = one.findings[0] if one.findings else None
    if finding is None or finding.severity is FindingSeverity.NOTE:
        return ""
    return f"{finding.kind}{'' if finding.server is None else f' on server {finding.server}'}"


def _print_ensemble(out: Out, one: EnsembleResult) -> None:
    verdict = out.paint(one.verdict.value, _STYLES[one.verdict])
    out.line(f"{one.name}: {verdict}")
    _folded(out, "", summary_of(AuditResult((one,))))
    grave = [f for f in one.findings if f.severity is not FindingSeverity.NOTE]
    said: set[str] = set()
    for finding in grave[:_MAX_FINDINGS]:
        out.line()
        _print_finding(out, finding, said)
    if len(grave) > _MAX_FINDINGS:
        out.line(f"... and {len(grave) - _MAX_FINDINGS} more; --json and --out have all of them")
    _print_lacked(out, one.lacked)
    _print_notes(out, [f for f in one.findings if f.severity is FindingSeverity.NOTE])
    if one.unchecked:
        out.line()
        out.line(out.paint("not checked", "bold"))
        for sentence in one.unchecked:
            _folded(out, "  ", sentence)
    out.line()
    rows = [("servers", ", ".join(one.servers))]
    if one.committed_zxid is not None:
        rows.append(("held by a majority", f"up to {format_zxid(one.committed_zxid)}"))
    rows += [
        (("proven" if number == 0 else ""), _coverage(entry))
        for number, entry in enumerate(one.coverage[:_MAX_RANGES])
    ]
    if len(one.coverage) > _MAX_RANGES:
        rows.append(("", f"... and {counted(len(one.coverage) - _MAX_RANGES, 'more range')}"))
    out.facts(rows)


def _print_lacked(out: Out, lacked: tuple[LackedWrites, ...]) -> None:
    for one in lacked:
        out.line()
        who = "no server has" if one.server is None else f"server {one.server} lacks"
        span = zxid_span(one.first_zxid, one.last_zxid)
        head = f"{who} {counted(one.records, 'committed record')}, {span}"
        out.line(out.paint(head, "bold"))
        for write in one.writes[:_MAX_WRITES]:
            _folded(out, f"  {format_zxid(write.zxid)} ", safe_text(write.text))
        rest = len(one.writes) - _MAX_WRITES
        if rest > 0:
            known = f"{rest} more; --json and --out have them"
            first = f"more; --json and --out have the first {len(one.writes)}"
            out.line(f"  ... and {known if one.is_all else first}")


def _print_notes(out: Out, notes: list[Finding]) -> None:
    if not notes:
        return
    out.line()
    out.line(out.paint(f"{counted(len(notes), 'note')}: nothing has to be done", "dim"))
    for finding in notes[:_MAX_FINDINGS]:
        place = "" if finding.server is None else f"server {finding.server}: "
        _folded(out, f"  {finding.check} ", f"{place}{finding.evidence}", "dim")
    if len(notes) > _MAX_FINDINGS:
        out.line(f"  ... and {len(notes) - _MAX_FINDINGS} more; --json and --out have all of them")


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
    shown = ", ".join(finding.paths[:_MAX_PATHS])
    if len(finding.paths) > _MAX_PATHS:
        shown += f" and {len(finding.paths) - _MAX_PATHS} more"
    first = "" if finding.first is None else finding.first.text
    last = "" if finding.last in (None, finding.first) else finding.last.text
    for name, text in (
        ("seen", finding.evidence),
        ("when", safe_text(first)),
        ("to", safe_text(last)),
        ("where", place),
        ("znodes", shown),
        ("likely cause", finding.cause),
        ("do", finding.advice),
    ):
        is_general = name in ("likely cause", "do")
        if text and not (is_general and text in said):
            _folded(out, f"  {name + ':':<13} ", text)
        if is_general:
            said.add(text)
