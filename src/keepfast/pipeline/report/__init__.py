"""The report of an audit: one HTML file that opens offline, prints, and needs nothing else.

What may live here: how results look. What may not: any judgement; the verdicts and findings are
drawn as the audit gives them. Everything that comes from audited files (paths of znodes, data,
names of files and servers) is hostile text: it is escaped in Python, set as text in the browser,
and a content security policy lets no script run but the one that is hashed into the page.
"""

from keepfast.pipeline.report.axis import Axis, AxisStretch
from keepfast.pipeline.report.overview import audit_overview
from keepfast.pipeline.report.page import ReportFacts, render_report, report_asset

__all__ = [
    "Axis",
    "AxisStretch",
    "ReportFacts",
    "audit_overview",
    "render_report",
    "report_asset",
]
