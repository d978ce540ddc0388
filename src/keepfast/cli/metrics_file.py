"""Metrics of commands that end: a file for the textfile collector of Prometheus' node_exporter."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from keepfast.cli.output import CommandFailed
from keepfast.pipeline import FindingSeverity, Verdict

if TYPE_CHECKING:
    from keepfast.pipeline import AuditResult, BackupTaken

# The collector runs as another user, and the file contains nothing confidential.
_MODE: Final = 0o644


def write_audit_metrics(path: str, result: AuditResult, exit_code: int) -> None:
    """Write what an audit found, one series per ensemble."""
    registry = CollectorRegistry()
    names = ["ensemble"]
    verdicts = Gauge(
        "keepfast_audit_verdict",
        "1 for the verdict of the last audit, 0 for the others.",
        [*names, "verdict"],
        registry=registry,
    )
    findings = Gauge(
        "keepfast_audit_findings",
        "Findings of the last audit.",
        [*names, "severity"],
        registry=registry,
    )
    servers = Gauge(
        "keepfast_audit_servers", "Servers whose files were read.", names, registry=registry
    )
    unchecked = Gauge(
        "keepfast_audit_unchecked", "Parts that could not be checked.", names, registry=registry
    )
    committed = Gauge(
        "keepfast_audit_committed_zxid",
        "The last zxid that a majority holds.",
        names,
        registry=registry,
    )
    for one in result.ensembles:
        for verdict in Verdict:
            verdicts.labels(one.name, verdict.value).set(one.verdict is verdict)
        servers.labels(one.name).set(len(one.servers))
        unchecked.labels(one.name).set(len(one.unchecked))
        if one.committed_zxid is not None:
            committed.labels(one.name).set(one.committed_zxid)
        for severity in FindingSeverity:
            count = sum(finding.severity is severity for finding in one.findings)
            findings.labels(one.name, severity.value).set(count)
    _write(path, registry, "audit", exit_code)


def write_backup_metrics(path: str, taken: BackupTaken, exit_code: int) -> None:
    """Write what a backup holds. A refused one leaves the file unchanged, so its time grows old."""
    registry = CollectorRegistry()
    head = Gauge("keepfast_backup_head_zxid", "The last zxid in the backup.", registry=registry)
    head.set(taken.head)
    added = Gauge("keepfast_backup_added_records", "Records added by it.", registry=registry)
    added.set(taken.records)
    _write(path, registry, "backup", exit_code)


def _write(path: str, registry: CollectorRegistry, what: str, exit_code: int) -> None:
    ended = Gauge(
        f"keepfast_{what}_timestamp_seconds",
        f"When the last {what} was finished.",
        registry=registry,
    )
    ended.set(time.time())
    code = Gauge(f"keepfast_{what}_exit_code", "Its exit code; 0: all is well.", registry=registry)
    code.set(exit_code)
    temporary = f"{path}.{os.getpid()}"
    try:
        # Not what somebody else put there: a link would lead to a file of this user's.
        with open(temporary, "xb") as file:
            os.fchmod(file.fileno(), _MODE)
            file.write(generate_latest(registry))
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise CommandFailed(f"--metrics {path}: cannot be written: {error.strerror}") from error
