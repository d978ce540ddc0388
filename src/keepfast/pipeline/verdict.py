"""From findings to the verdict on an ensemble."""

from __future__ import annotations

from collections.abc import Iterable

from keepfast.pipeline.findings import Finding, FindingSeverity, Verdict


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
