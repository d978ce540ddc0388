"""The audit of places: what `keepfast audit` and `keepfast.pipeline.audit` do.

Small ensembles are one item of work each, all in one Spark job; the files of large ones are read in
parallel, step by step (`stages`).  The result does not depend on which way was taken, nor on where
or in which order items were done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepfast.pipeline.engine.stages import (
    AuditOptions,
    EnsembleItem,
    Runner,
    audit_with,
    run_here,
)
from keepfast.pipeline.files.layout import EnsembleFiles, discover
from keepfast.pipeline.files.listing import list_place
from keepfast.pipeline.files.parts import used_bytes
from keepfast.pipeline.files.staging import Staging
from keepfast.pipeline.findings.document import AuditResult, EnsembleResult

if TYPE_CHECKING:
    from keepfast.pipeline.engine.connect import Spark

# An ensemble below this is read faster by one task than a second task starts.
_SMALL_BYTES = 16 << 20


def audit_places(
    spark: Spark, places: Sequence[str], options: AuditOptions | None = None
) -> AuditResult:
    """Audit all ensembles at some places; raises PlaceError for one that holds no server's data."""
    from keepfast.pipeline.engine.jobs import SparkRunner

    staging = Staging(spark)
    ensembles = discover(list(places), staging.list_any)
    return staging.named(audit_files(SparkRunner(spark), ensembles, options or AuditOptions()))


def audit_here(places: Sequence[str], options: AuditOptions | None = None) -> AuditResult:
    """The same audit in this process, without Spark and without a JVM; returns the same result.

    For places that Python itself can read: local ones, and those that pyarrow or fsspec knows.
    """
    return audit_files(run_here, discover(list(places), list_place), options or AuditOptions())


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
