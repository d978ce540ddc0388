"""The documents that `keepfast audit --out DIR` leaves: findings.json and report.html."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from keepfast.pipeline.findings.document import AuditResult
from keepfast.pipeline.report.page import ReportFacts, render_report
from keepfast.pipeline.report.targets import write_file

if TYPE_CHECKING:
    from keepfast.pipeline.engine.connect import Spark

FINDINGS_NAME = "findings.json"
REPORT_NAME = "report.html"


def write_documents(
    result: AuditResult,
    out: str,
    facts: ReportFacts | None = None,
    spark: Spark | None = None,
) -> None:
    """Write findings.json and report.html; each is complete, or not there."""
    write_file(out, FINDINGS_NAME, json.dumps(result.to_json(), indent=2) + "\n", spark)
    write_file(out, REPORT_NAME, render_report(result, facts), spark)
