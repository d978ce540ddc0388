"""From findings to the verdict on an ensemble."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.pipeline.findings.document import (
    AuditResult,
    Finding,
    FindingSeverity,
    Verdict,
)


def verdict_of(findings: Iterable[Finding], *, is_readable: bool) -> Verdict:
    """The gravest thing that the findings say; `is_readable`: at least one server has a history."""
    found = list(findings)
    if any(finding.is_divergence for finding in found):
        return Verdict.DIVERGED
    if not is_readable:
        return Verdict.UNREADABLE
    if any(finding.severity is not FindingSeverity.NOTE for finding in found):
        return Verdict.AT_RISK
    return Verdict.CONSISTENT


def exit_code_of(result: AuditResult) -> int:
    """The exit code of a command that audited: see the design's section on exit codes."""
    verdicts = {ensemble.verdict for ensemble in result.ensembles}
    if Verdict.DIVERGED in verdicts or Verdict.AT_RISK in verdicts:
        return 1
    if Verdict.UNREADABLE in verdicts or not verdicts:
        return 2
    return 0 if result.is_complete else 3
