"""The audit of places: what `keepfast audit` and `keepfast.pipeline.audit` do.

Small ensembles are one item of work each, all in one Spark job; the files of large ones are read in
parallel, step by step (`stages`).  The result does not depend on which way was taken, nor on where
or in which order items were done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepfast.pipeline.findings import AuditResult, EnsembleResult, Verdict
from keepfast.pipeline.jobs import spark_runner
from keepfast.pipeline.layout import EnsembleFiles, discover
from keepfast.pipeline.parts import used_bytes
from keepfast.pipeline.stages import AuditOptions, EnsembleItem, Runner, audit_with
from keepfast.pipeline.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An ensemble below this is read faster by one task than a second task starts.
_SMALL_BYTES = 16 << 20


def audit_places(
    spark: SparkSession, places: Sequence[str], options: AuditOptions | None = None
) -> AuditResult:
    """Audit all ensembles at some places; raises PlaceError for one that holds no server's data."""
    staging = Staging(spark)
    ensembles = discover(list(places), staging.list_any)
    return staging.named(audit_files(spark_runner(spark), ensembles, options or AuditOptions()))


def audit_files(
    run: Runner, ensembles: Sequence[EnsembleFiles], options: AuditOptions
) -> AuditResult:
    """Audit ensembles whose files were listed."""
    small = [files for files in ensembles if _is_small(files)]
    large = [files for files in ensembles if not _is_small(files)]
    results: dict[str, EnsembleResult] = {}
    for value in run([EnsembleItem(files, options) for files in small]):
        if isinstance(value, EnsembleResult):
            results[value.name] = value
    if large:
        results |= {result.name: result for result in audit_with(run, large, options)}
    return AuditResult(tuple(results[files.name] for files in ensembles))


def _is_small(files: EnsembleFiles) -> bool:
    entries = [entry for server in files.servers for entry in server.files]
    return sum(used_bytes(entry) for entry in entries) <= _SMALL_BYTES


def exit_code_of(result: AuditResult) -> int:
    """The exit code of a command that audited: see the design's section on exit codes."""
    verdicts = {ensemble.verdict for ensemble in result.ensembles}
    if Verdict.DIVERGED in verdicts or Verdict.AT_RISK in verdicts:
        return 1
    if Verdict.UNREADABLE in verdicts or not verdicts:
        return 2
    return 0 if result.is_complete else 3
