"""The page around the lanes: verdict, steps, tables. It can be read without the script, too."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from keepfast.pipeline.findings.document import (
    AuditResult,
    EnsembleResult,
    Finding,
    FindingSeverity,
    ServerZnode,
    Verdict,
    ZnodeDifference,
)
from keepfast.pipeline.findings.records_named import RecordNote, session_text, time_text
from keepfast.pipeline.report.axis import Axis
from keepfast.pipeline.report.lanes import axis_of, drawing_of, place_of
from keepfast.pipeline.report.words import (
    CLASSES,
    MARKS,
    AdviceStep,
    advice_without_names,
    causes_of,
    counted,
    counts_of,
    listed,
    sentence_of,
    servers_text,
    steps_of,
    summary_of,
)
from keepfast.wire import format_zxid, safe_lines

_PROOFS = {
    "agreed": "proven by two or more",
    "single": "held by one server only",
    "snapshot": "in snapshots only",
    "unproven": "proven by nobody",
}
# A page with the pictures of a thousand ensembles would be too large to open; those in which
# something is wrong come first.
_MAX_DRAWN = 200
_MAX_PATHS = 20
_MAX_WRITTEN = 3


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """How the audit was run; what is empty is left out."""

    command: str = ""
    version: str = ""
    finished: str = ""  # a time, as text
    seconds: float | None = None


def render_report(result: AuditResult, facts: ReportFacts | None = None) -> str:
    """The whole page."""
    facts = facts or ReportFacts()
    style = "".join(map(report_asset, ("palette.css", "report.css", "lanes.css")))
    script = "".join(map(report_asset, ("lanes.js", "report.js")))
    order = {Verdict.DIVERGED: 0, Verdict.UNREADABLE: 1, Verdict.AT_RISK: 2}
    ensembles = sorted(result.ensembles, key=lambda one: order.get(one.verdict, 3))
    body = [
        _header(result, facts),
        "<main>",
        _overview(ensembles) if len(ensembles) > 1 else "",
        *(
            _section(ensemble, number, is_open=number == 0, is_alone=len(ensembles) == 1)
            for number, ensemble in enumerate(ensembles[:_MAX_DRAWN])
        ),
        _left_out(ensembles),
        "</main>",
        _footer(facts),
    ]
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_e(result.verdict.value)} - Keepfast audit</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *body,
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def report_asset(name: str) -> str:
    """A style sheet or a script of the report; the console serves some of them too."""
    return files("keepfast.pipeline.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _e(text: object) -> str:
    """Text that is only text: no markup, no control characters that hide something."""
    return escape(safe_lines(str(text)), quote=True)


def _json(value: object) -> str:
    """JSON inside a script element, which it cannot end."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# -- the top ---------------------------------------------------------------------------------------


def _header(result: AuditResult, facts: ReportFacts) -> str:
    kind = CLASSES[result.verdict]
    findings = [finding for one in result.ensembles for finding in one.findings]
    servers = sum(len(one.servers) for one in result.ensembles)
    records = sum(one.records for one in result.ensembles)
    numbers = [counted(len(result.ensembles), "ensemble"), counted(servers, "server")]
    if records:
        numbers.append(counted(records, "record"))
    numbers.append(counted(len(findings), "finding"))
    title = result.verdict.value.capitalize()
    return f"""<header class="verdict {kind}">
<div class="bar"><span class="brand">Keepfast audit</span>
<button type="button" id="theme" hidden>Light / dark</button></div>
<h1><span class="mark" aria-hidden="true">{MARKS[result.verdict]}</span> {_e(title)}</h1>
<p class="answer">{_e(summary_of(result))}</p>
<p class="numbers">{_e(" · ".join(numbers))}</p>
</header>"""


def _footer(facts: ReportFacts) -> str:
    parts = []
    if facts.command:
        parts.append(f"<dt>Command</dt><dd><code>{_e(facts.command)}</code></dd>")
    if facts.version:
        parts.append(f"<dt>Version</dt><dd>keepfast {_e(facts.version)}</dd>")
    if facts.finished:
        parts.append(f"<dt>Finished</dt><dd>{_e(facts.finished)}</dd>")
    if facts.seconds is not None:
        parts.append(f"<dt>Took</dt><dd>{facts.seconds:.1f} s</dd>")
    return f"<footer><dl>{''.join(parts)}</dl></footer>" if parts else ""


def _overview(ensembles: Sequence[EnsembleResult]) -> str:
    rows = []
    for number, one in enumerate(ensembles):
        counts = counts_of(one)
        name = _e(one.name)
        link = f'<a href="#ensemble-{number}">{name}</a>' if number < _MAX_DRAWN else name
        rows.append(
            f'<tr><td data-label="Ensemble"><div>{link}</div></td>'
            f'<td data-label="Verdict"><div>{_badge(one.verdict)}</div></td>'
            f'<td data-label="Servers" class="number"><div>{len(one.servers)}</div></td>'
            f'<td data-label="Errors" class="number"><div>{counts["error"]}</div></td>'
            f'<td data-label="Warnings" class="number"><div>{counts["warning"]}</div></td>'
            f'<td data-label="In words"><div>{_e(sentence_of(one))}</div></td></tr>'
        )
    heads = ("Ensemble", "Verdict", "#Servers", "#Errors", "#Warnings", "In words")
    return (
        '<section class="overview"><h2>Ensembles</h2>'
        + _filter("overview", "Filter ensembles")
        + _table("overview", heads, rows)
        + "</section>"
    )


def _left_out(ensembles: Sequence[EnsembleResult]) -> str:
    rest = len(ensembles) - _MAX_DRAWN
    if rest <= 0:
        return ""
    return (
        f'<p class="remark">{counted(rest, "more ensemble")} in the table above, without a section '
        "of their own; findings.json has everything.</p>"
    )


def _badge(verdict: Verdict) -> str:
    return (
        f'<span class="badge {CLASSES[verdict]}"><span aria-hidden="true">{MARKS[verdict]}</span> '
        f"{_e(verdict.value)}</span>"
    )


def _table(name: str, heads: Iterable[str], rows: Iterable[str]) -> str:
    # A column of numbers has a # before its head.
    head = "".join(
        f'<th scope="col" class="number">{_e(text[1:])}</th>'
        if text.startswith("#")
        else f'<th scope="col">{_e(text)}</th>'
        for text in heads
    )
    return (
        f'<div class="scroll"><table class="cards" data-table="{_e(name)}"><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _filter(name: str, label: str) -> str:
    return (
        f'<p class="filter" hidden data-filter="{_e(name)}"><label>{_e(label)} '
        '<input type="search" autocomplete="off" spellcheck="false"></label> '
        '<span class="count" aria-live="polite"></span></p>'
    )


# -- one ensemble ----------------------------------------------------------------------------------


def _section(result: EnsembleResult, number: int, *, is_open: bool, is_alone: bool) -> str:
    axis = axis_of(result)
    steps = steps_of(result)
    opened = " open" if is_open else ""
    servers = f'<span class="dim">{_e(counted(len(result.servers), "server"))}</span>'
    answer = "" if is_alone else f'<p class="answer">{_e(sentence_of(result))}</p>'
    return "\n".join(
        [
            f'<details class="ensemble" id="ensemble-{number}"{opened}>',
            f"<summary><h2>{_e(result.name)}</h2> {_badge(result.verdict)} {servers}</summary>",
            answer,
            _steps(steps, number),
            _causes(result),
            _unchecked(result),
            _lanes(result, axis, number),
            _tree_diff(result, number),
            _lacked(result, number),
            _findings(result, axis, steps, number),
            _coverage(result),
            _files(result),
            "</details>",
        ]
    )


def _steps(steps: Sequence[AdviceStep], number: int) -> str:
    if not steps:
        return ""
    items = [
        f'<li id="step-{number}-{index}">{_e(step.text)}</li>'
        for index, step in enumerate(steps, 1)
    ]
    shown, rest = items[:_MAX_PATHS], items[_MAX_PATHS:]
    more = ""
    if rest:
        more = (
            f"<details><summary>{_e(counted(len(rest), 'more step'))}</summary>"
            f'<ol start="{len(shown) + 1}">{"".join(rest)}</ol></details>'
        )
    return f'<section class="steps"><h3>What to do</h3><ol>{"".join(shown)}</ol>{more}</section>'


def _causes(result: EnsembleResult) -> str:
    causes = causes_of(result)
    if not causes:
        return ""
    items = "".join(
        f"<dt>{_e(', '.join(kinds))}</dt><dd>{_e(cause)}</dd>" for cause, kinds in causes.items()
    )
    return (
        f'<section class="causes"><h3>How it most likely came about</h3><dl>{items}</dl></section>'
    )


def _unchecked(result: EnsembleResult) -> str:
    if not result.unchecked:
        return ""
    items = "".join(f"<li>{_e(text)}</li>" for text in result.unchecked)
    return f'<section class="unchecked"><h3>Not checked</h3><ul>{items}</ul></section>'


def _lanes(result: EnsembleResult, axis: Axis, number: int) -> str:
    if not result.lanes or not axis.stretches:
        return ""
    return f"""<section class="lanes" data-lanes="{number}" data-title="{_e(result.name)}">
<h3>Servers over zxids</h3>
<noscript><p class="remark">The picture needs the script of this page; the tables below hold the
same facts.</p></noscript>
<script type="application/json">{_json(drawing_of(result, axis))}</script>
</section>"""


def _tree_diff(result: EnsembleResult, number: int) -> str:
    diff = result.tree_diff
    if diff is None:
        return (
            '<section><h3>Trees</h3><p class="remark">No znode differs between the servers, as far '
            "as their trees were compared; what could not be is said under “Not checked”.</p>"
            "</section>"
        )
    at = f"{format_zxid(diff.zxid)}, the greatest zxid that {servers_text(diff.servers)} reach"
    if not diff.total:
        return (
            f"<section><h3>Trees</h3><p>No difference at {_e(at)}: znode by znode the same."
            "</p></section>"
        )
    rows = [row for difference in diff.differences for row in _difference_rows(difference)]
    more = ""
    if diff.total > len(diff.differences):
        more = f'<p class="remark">The first {len(diff.differences)} of {diff.total:,}.</p>'
    name = f"diff-{number}"
    heads = ("Znode", "Servers", "Value", "#Bytes", "#Version", "Created", "Modified")
    return (
        f"<section><h3>Trees differ in {_e(counted(diff.total, 'znode'))}</h3>"
        f"<p>At {_e(at)}.</p>"
        + _filter(name, "Filter znodes")
        + _table(name, heads, rows)
        + more
        + "</section>"
    )


def _difference_rows(difference: ZnodeDifference) -> list[str]:
    """One row for each state of a znode, with its servers: few rows, however many servers."""
    groups: dict[ServerZnode | None, list[str]] = {}
    for server, state in difference.states:
        groups.setdefault(state, []).append(server)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    rows = []
    for index, (state, servers) in enumerate(ordered):
        first = ' class="first"' if index == 0 else ""
        path = f'<td data-label="Znode"><div><code>{_e(difference.path)}</code></div></td>'
        names = f'<td data-label="Servers"><div>{_e(listed(servers, 12))}</div></td>'
        if state is None:
            cells = '<td data-label="Value" colspan="5" class="absent"><div>is not there</div></td>'
        else:
            cells = (
                f'<td data-label="Value"><div><code>{_e(state.data)}</code></div></td>'
                f'<td data-label="Bytes" class="number"><div>{state.size}</div></td>'
                f'<td data-label="Version" class="number"><div>{state.version}</div></td>'
                f'<td data-label="Created"><div><code>{format_zxid(state.czxid)}</code></div></td>'
                f'<td data-label="Modified"><div><code>{format_zxid(state.mzxid)}</code></div></td>'
            )
        rows.append(f"<tr{first}>{path}{names}{cells}</tr>")
    return rows


def _lacked(result: EnsembleResult, number: int) -> str:
    """Committed writes that servers do not have."""
    parts = []
    for index, one in enumerate(result.lacked):
        whom = "No server has" if one.server is None else f"Server {one.server} lacks"
        title = f"{whom} {counted(one.records, 'committed record')}"
        span = _zxid_range(one.first_zxid, one.last_zxid)
        rest = "" if one.is_all else f" The first {len(one.writes)} that change a znode."
        name = f"lacked-{number}-{index}"
        heads = ("Time", "Zxid", "Operation", "Znodes", "Session", "User", "Address")
        table = _filter(name, "Filter writes") + _table(name, heads, map(_write_row, one.writes))
        if len(one.writes) > _MAX_PATHS:
            table = f"<details><summary>The writes</summary>{table}</details>"
        parts.append(
            f'<section class="lacked"><h3>{_e(title)}</h3><p>{span}.{_e(rest)}</p>'
            f"{table if one.writes else ''}</section>"
        )
    return "".join(parts)


def _write_row(write: RecordNote) -> str:
    paths = listed([safe_lines(path) for path in write.paths], _MAX_WRITTEN)
    cells = (
        ("Time", f"<time>{_e(time_text(write.time_ms) or '-')}</time>"),
        ("Zxid", f"<code>{format_zxid(write.zxid)}</code>"),
        ("Operation", _e(write.op)),
        ("Znodes", f"<code>{_e(paths)}</code>"),
        ("Session", f"<code>{session_text(write)}</code>"),
        ("User", _e(write.user or "-")),
        ("Address", _e(write.address or "-")),
    )
    row = "".join(f'<td data-label="{name}"><div>{text}</div></td>' for name, text in cells)
    return f"<tr>{row}</tr>"


def _findings(result: EnsembleResult, axis: Axis, steps: Sequence[AdviceStep], number: int) -> str:
    if not result.findings:
        return "<section><h3>Evidence</h3><p>There are no findings.</p></section>"
    counts = counts_of(result)
    name = f"findings-{number}"
    boxes = "".join(
        f'<label class="{severity}"><input type="checkbox" checked data-severity="{severity}"> '
        f"{_e(counted(count, severity))}</label>"
        for severity, count in counts.items()
        if count
    )
    heads = ("Severity", "Finding", "Server", "Zxids", "Evidence", "Where")
    # The step that says what to do about a finding, by the finding's advice.
    links = {
        advice: f'<p><a href="#step-{number}-{index}">what to do: step {index}</a></p>'
        for index, step in enumerate(steps, 1)
        for advice in step.advices
    }
    links |= _first_of_notes(result)
    rows = (_finding_row(finding, axis, links) for finding in result.findings)
    return (
        f"<section><h3>Evidence</h3>"
        f'<p class="filter" hidden data-filter="{name}">{boxes} <label>Filter '
        '<input type="search" autocomplete="off" spellcheck="false" '
        'placeholder="server, zxid, path, kind"></label> '
        '<span class="count" aria-live="polite"></span></p>'
        + _table(name, heads, rows)
        + "</section>"
    )


def _first_of_notes(result: EnsembleResult) -> dict[str, str]:
    """What notes advise, if it is anything, by the note that says it first: the rest need not."""
    found: dict[str, str] = {}
    said: set[str] = set()
    for finding in result.findings:
        text = advice_without_names(finding)
        is_new = text not in said and not text.startswith("Nothing")
        if finding.severity is FindingSeverity.NOTE and text and is_new:
            said.add(text)
            found[finding.evidence] = f'<p class="dim">{_e(finding.advice)}</p>'
    return found


def _finding_row(finding: Finding, axis: Axis, links: dict[str, str]) -> str:
    severity = finding.severity.value
    place = place_of(finding, axis)
    show = ""
    if place is not None:
        show = (
            f' <button type="button" hidden class="show" data-left="{place[0]}" '
            f'data-right="{place[1]}" data-server="{_e(finding.server or "")}">show</button>'
        )
    zxids = _zxids(finding)
    badge = f'<span class="badge {severity}">{severity}</span>'
    where = _place(finding.file) if finding.file else ""
    if finding.offset is not None:
        where += f"<p>offset {finding.offset:,}</p>"
    return (
        f'<tr data-severity="{severity}">'
        f'<td data-label="Severity"><div>{badge}</div></td>'
        f'<td data-label="Finding"><div><b>{_e(finding.check)}</b> {_e(finding.kind)}</div></td>'
        f'<td data-label="Server"><div>{_e(finding.server or "-")}</div></td>'
        f'<td data-label="Zxids"><div>{zxids}{show}</div></td>'
        f'<td data-label="Evidence"><div>{_evidence(finding, links)}</div></td>'
        f'<td data-label="Where" class="where"><div>{where or "-"}</div></td></tr>'
    )


def _place(file: str) -> str:
    """A file: its name, and below it where it lies."""
    directory, _, name = file.rpartition("/")
    where = f'<p class="dim">{_e(directory)}</p>' if directory else ""
    return f"<p><code>{_e(name)}</code></p>{where}"


def _zxids(finding: Finding) -> str:
    zxids = [zxid for zxid in (finding.first_zxid, finding.last_zxid) if zxid is not None]
    return _zxid_range(zxids[0], zxids[-1]) if zxids else "-"


def _zxid_range(first: int, last: int) -> str:
    texts = dict.fromkeys((format_zxid(first), format_zxid(last)))
    return " to ".join(f"<code>{text}</code>" for text in texts)


def _evidence(finding: Finding, links: dict[str, str]) -> str:
    parts = [f"<p>{_e(finding.evidence)}</p>"]
    notes = [note for note in dict.fromkeys((finding.first, finding.last)) if note is not None]
    parts += [
        f'<p class="when"><code>{format_zxid(note.zxid)}</code> {_e(note.text)}</p>'
        for note in notes
    ]
    if finding.paths:
        shown = "".join(f"<li><code>{_e(path)}</code></li>" for path in finding.paths[:_MAX_PATHS])
        rest = len(finding.paths) - _MAX_PATHS
        more = f"<li>and {rest:,} more</li>" if rest > 0 else ""
        parts.append(f'<ul class="paths">{shown}{more}</ul>')
    is_note = finding.severity is FindingSeverity.NOTE
    parts.append(links.get(finding.evidence if is_note else finding.advice, ""))
    return "".join(parts)


def _coverage(result: EnsembleResult) -> str:
    if not result.coverage:
        return ""
    rows = [
        f'<tr><td data-label="Zxids"><div>{_zxid_range(one.first_zxid, one.last_zxid)}</div></td>'
        f'<td data-label="Proof"><div><span class="proof {_e(one.proof)}">'
        f"{_e(_PROOFS.get(one.proof, one.proof))}</span></div></td>"
        f'<td data-label="Servers"><div>{_e(listed(one.servers, 12)) or "-"}</div></td>'
        f'<td data-label="In words"><div>{_e(one.text)}</div></td></tr>'
        for one in result.coverage
    ]
    heads = ("Zxids", "Proof", "Servers", "In words")
    return (
        "<section><h3>What was proven, and by whom</h3>"
        + _table("coverage", heads, rows)
        + "</section>"
    )


def _files(result: EnsembleResult) -> str:
    """The lanes once more, as a table: for those who cannot see the picture, and for paper."""
    rows = []
    for lane in result.lanes:
        rows += [
            (lane.server, span.first_zxid, span.kind, span.last_zxid, span.file, span.text)
            for span in lane.spans
        ]
        for mark in lane.snapshots:
            kind = "snapshot" if mark.is_valid else "snapshot, not valid"
            kind += ", base" if mark.is_base else ""
            rows.append((lane.server, mark.zxid, kind, mark.fuzzy_until, mark.file, mark.text))
    if not rows:
        return ""
    cells = [
        f'<tr><td data-label="Server"><div>{_e(server)}</div></td>'
        f'<td data-label="What"><div>{_e(kind)}</div></td>'
        f'<td data-label="Zxids"><div>{_zxid_range(first, last)}</div></td>'
        f'<td data-label="File" class="where"><div>{_place(file) if file else "-"}</div></td>'
        f'<td data-label="Note"><div>{_e(text)}</div></td></tr>'
        for server, first, kind, last, file, text in rows
    ]
    heads = ("Server", "What", "Zxids", "File", "Note")
    return (
        '<details class="files"><summary>The lanes as a table '
        f'<span class="dim">({len(rows):,} rows)</span></summary>'
        + _table("files", heads, cells)
        + "</details>"
    )
