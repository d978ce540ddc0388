"""What the console shows of an audit: the report's words and lanes as one JSON document."""

from __future__ import annotations

from keepfast.pipeline.findings.document import AuditResult, EnsembleResult, Finding
from keepfast.pipeline.report.axis import Axis
from keepfast.pipeline.report.lanes import axis_of, drawing_of, place_of
from keepfast.pipeline.report.words import (
    CLASSES,
    MARKS,
    causes_of,
    counts_of,
    sentence_of,
    steps_of,
    summary_of,
)
from keepfast.wire import format_zxid

# A page that lists more is not read; findings.json has all of them.
_MAX_FINDINGS = 500
_MAX_PATHS = 20


def audit_overview(result: AuditResult) -> dict[str, object]:
    """Verdict, words, lanes and findings of every ensemble, for lanes.js and the console."""
    return {
        "verdict": result.verdict.value,
        "mark": MARKS[result.verdict],
        "class": CLASSES[result.verdict],
        "summary": summary_of(result),
        "is_complete": result.is_complete,
        "ensembles": [_ensemble(one) for one in result.ensembles],
    }


def _ensemble(result: EnsembleResult) -> dict[str, object]:
    axis = axis_of(result)
    return {
        "name": result.name,
        "verdict": result.verdict.value,
        "class": CLASSES[result.verdict],
        "sentence": sentence_of(result),
        "servers": list(result.servers),
        "records": result.records,
        "committed": None if result.committed_zxid is None else format_zxid(result.committed_zxid),
        "steps": [step.text for step in steps_of(result)],
        "causes": [{"text": text, "kinds": kinds} for text, kinds in causes_of(result).items()],
        "unchecked": list(result.unchecked),
        "counts": counts_of(result),
        "lanes": drawing_of(result, axis) if result.lanes and axis.stretches else None,
        "findings": [_finding(one, axis) for one in result.findings[:_MAX_FINDINGS]],
        "findings_total": len(result.findings),
    }


def _finding(finding: Finding, axis: Axis) -> dict[str, object]:
    zxids = [zxid for zxid in (finding.first_zxid, finding.last_zxid) if zxid is not None]
    return {
        "check": finding.check,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "server": finding.server,
        "file": finding.file,
        "offset": finding.offset,
        "zxids": list(dict.fromkeys(map(format_zxid, zxids))),
        "place": place_of(finding, axis),
        "evidence": finding.evidence,
        "paths": list(finding.paths[:_MAX_PATHS]),
        "paths_total": len(finding.paths),
        "advice": finding.advice,
    }
