"""What the report says in sentences: the verdict first, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from keepfast.pipeline.findings.document import (
    AuditResult,
    EnsembleResult,
    Finding,
    FindingSeverity,
    Verdict,
)
from keepfast.wire import format_zxid

MARKS = {
    Verdict.CONSISTENT: "✓",
    Verdict.AT_RISK: "!",
    Verdict.DIVERGED: "✗",
    Verdict.UNREADABLE: "?",
}
CLASSES = {
    Verdict.CONSISTENT: "good",
    Verdict.AT_RISK: "risk",
    Verdict.DIVERGED: "bad",
    Verdict.UNREADABLE: "unknown",
}
_BELIEVED = re.compile(r"^(?:The other servers are right: b|B)elieve servers? [^.]*\. ")
_MAX_NAMES = 6
_MAX_PATHS = 3


def listed(names: list[str] | tuple[str, ...], most: int = _MAX_NAMES) -> str:
    """Names in a sentence, shortened."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def servers_text(names: list[str] | tuple[str, ...], most: int = _MAX_NAMES) -> str:
    """Servers in a sentence: `server 1`, or `servers 1, 2 and 3`."""
    return f"server{'s' if len(names) != 1 else ''} {listed(names, most)}"


def counted(count: int, noun: str) -> str:
    """A number of things, with the plural where it belongs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def summary_of(result: AuditResult) -> str:
    """The answer for everything that was audited, in one sentence."""
    total = len(result.ensembles)
    if total == 1:
        return sentence_of(result.ensembles[0])
    if not total:
        return "There was nothing to judge."
    counts = Counter(ensemble.verdict for ensemble in result.ensembles)
    order = (Verdict.DIVERGED, Verdict.UNREADABLE, Verdict.AT_RISK, Verdict.CONSISTENT)
    parts = [f"{counts[verdict]:,} {verdict.value}" for verdict in order if counts[verdict]]
    text = f"Of {counted(total, 'ensemble')}: {', '.join(parts)}."
    if not result.is_complete:
        text += " Not everything could be checked."
    return text


def sentence_of(result: EnsembleResult) -> str:
    """The answer for one ensemble, in a sentence or two."""
    if result.verdict is Verdict.DIVERGED:
        return _diverged(result)
    if result.verdict is Verdict.UNREADABLE:
        return f"There is nothing to judge in {result.name}. {_gravest(result)}".strip()
    if result.verdict is Verdict.AT_RISK:
        return f"The servers do not contradict each other, but data is at risk. {_gravest(result)}"
    text = f"Nothing that was checked contradicts one history on {_servers(result)}."
    if not result.is_complete:
        text += " Not everything could be checked."
    return text


def _diverged(result: EnsembleResult) -> str:
    wrong = [lane for lane in result.lanes if lane.diverges_at is not None]
    if not wrong:
        return f"The servers hold different data. {_gravest(result)}"
    first = min(lane.diverges_at for lane in wrong if lane.diverges_at is not None)
    verb = "differs" if len(wrong) == 1 else "differ"
    names = servers_text([lane.server for lane in wrong])
    text = f"S{names[1:]} {verb} from {format_zxid(first)} on"
    paths = sorted({path for finding in result.findings for path in finding.paths})
    if result.tree_diff is not None and result.tree_diff.differences:
        count = result.tree_diff.total
        shown = [difference.path for difference in result.tree_diff.differences]
        text += f": {counted(count, 'znode')} ({listed(shown, _MAX_PATHS)})"
    elif paths:
        text += f": {counted(len(paths), 'znode')} ({listed(paths, _MAX_PATHS)})"
    text += "."
    others = [name for name in result.servers if name not in {lane.server for lane in wrong}]
    if others and result.committed_zxid is not None:
        who = servers_text(others) if len(others) <= _MAX_NAMES else f"the other {len(others)}"
        text += f" Believe {who}: one history up to {format_zxid(result.committed_zxid)}."
    return text


def _gravest(result: EnsembleResult) -> str:
    for finding in result.findings:
        if finding.severity is not FindingSeverity.NOTE:
            text = finding.evidence.strip()
            text = text if text.endswith(".") else f"{text}."
            if finding.server is not None:
                return f"Server {finding.server}: {text}"
            return text[:1].upper() + text[1:]
    return ""


def _servers(result: EnsembleResult) -> str:
    return counted(len(result.servers), "server")


def counts_of(result: EnsembleResult) -> dict[str, int]:
    """How many findings of each severity there are."""
    counts = Counter(finding.severity.value for finding in result.findings)
    return {severity.value: counts[severity.value] for severity in reversed(FindingSeverity)}


@dataclass(frozen=True, slots=True)
class AdviceStep:
    """Something to do, said once, and the advices of findings that it stands for."""

    text: str
    advices: tuple[str, ...]


def steps_of(result: EnsembleResult) -> list[AdviceStep]:
    """What to do, each advice once, the gravest first; one step where only the server differs."""
    groups: dict[str, list[Finding]] = {}
    for finding in result.findings:
        if finding.advice and finding.severity is not FindingSeverity.NOTE:
            groups.setdefault(advice_without_names(finding), []).append(finding)
    # What would be lost by the other steps is saved first.
    ordered = sorted(groups.items(), key=lambda group: group[1][0].kind != "committed-lost")
    steps: list[AdviceStep] = []
    for step in (_step(text, findings, result) for text, findings in ordered):
        longer = next((one for one in steps if one.text.startswith(step.text)), None)
        if longer is None:
            steps.append(step)
        else:
            steps[steps.index(longer)] = AdviceStep(longer.text, (*longer.advices, *step.advices))
    return steps


def advice_without_names(finding: Finding) -> str:
    """An advice without what distinguishes one server's from another's."""
    text = finding.advice
    if finding.server is not None:
        text = re.sub(rf"\bserver {re.escape(finding.server)}(?![\w-]|\.\w)", "the server", text)
        text = _BELIEVED.sub("", text)
    return text


def _step(text: str, findings: list[Finding], result: EnsembleResult) -> AdviceStep:
    advices = tuple(dict.fromkeys(finding.advice for finding in findings))
    if len(advices) == 1:
        return AdviceStep(advices[0], advices)
    # Natural order is that of the ensemble's servers.
    named = {finding.server for finding in findings}
    servers = [name for name in result.servers if name in named]
    believed = [name for name in result.servers if name not in named]
    whom = (
        f"Believe {servers_text(believed)}. " if believed and _BELIEVED.search(advices[0]) else ""
    )
    return AdviceStep(f"On {servers_text(servers)}, one at a time: {whom}{text}", advices)


def causes_of(result: EnsembleResult) -> dict[str, list[str]]:
    """How findings above a note most likely came about: each cause once, with their kinds."""
    found: dict[str, list[str]] = {}
    for finding in result.findings:
        if finding.cause and finding.severity is not FindingSeverity.NOTE:
            kinds = found.setdefault(finding.cause, [])
            if finding.kind not in kinds:
                kinds.append(finding.kind)
    return found
