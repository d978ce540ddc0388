"""The pipeline: Spark over data directories at rest; verdicts, findings, reports and tables.

What may live here: everything that reads many servers' files at once. What may not: anything that
a running server needs, and anything that writes into a directory that is read. Decoding (bytes in,
Arrow out) does not know Spark, so that most of it is tested without a JVM.

    from keepfast.pipeline import audit, transactions, state_at

These three are functions (`api`), so no module of this package may bear one of their names. Names
are looked up when they are first used: `keepfast state` needs neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.pipeline.api import Audit, audit, change_feed, state_at, transactions
    from keepfast.pipeline.auditing import audit_places, exit_code_of
    from keepfast.pipeline.diff import Difference, differences
    from keepfast.pipeline.feed import (
        FeedRefused,
        FeedSummary,
        FollowOptions,
        follow_history,
        history_frame,
        our_failure,
        write_history,
    )
    from keepfast.pipeline.findings import (
        AuditResult,
        Coverage,
        EnsembleResult,
        Finding,
        FindingSeverity,
        Verdict,
    )
    from keepfast.pipeline.history import EnsembleHistory, HistoryBroken, HistoryGone
    from keepfast.pipeline.java import JavaNotFound, find_java
    from keepfast.pipeline.jobs import tasks_of
    from keepfast.pipeline.layout import EnsembleFiles, PlaceError, ServerFiles, discover
    from keepfast.pipeline.outputs import check_out, write_documents, write_tables
    from keepfast.pipeline.report import ReportFacts
    from keepfast.pipeline.restore import Restored, RestoreRefused, restore_state
    from keepfast.pipeline.session import JobFailed, SessionOptions, spark_session
    from keepfast.pipeline.stages import AuditOptions
    from keepfast.pipeline.staging import as_named
    from keepfast.pipeline.state import (
        EnsembleState,
        Moment,
        ServersDisagree,
        ServerState,
        StateUnknown,
        directory_of,
        ensemble_state,
        one_ensemble,
        server_state,
    )
    from keepfast.pipeline.undelete import Undeletion, undelete_subtree

# Name -> the module that has it.
_EXPORTS = {
    "Audit": "api",
    "AuditOptions": "stages",
    "AuditResult": "findings",
    "Coverage": "findings",
    "Difference": "diff",
    "EnsembleFiles": "layout",
    "EnsembleHistory": "history",
    "EnsembleResult": "findings",
    "EnsembleState": "state",
    "FeedRefused": "feed",
    "FeedSummary": "feed",
    "Finding": "findings",
    "FindingSeverity": "findings",
    "FollowOptions": "feed",
    "HistoryBroken": "history",
    "HistoryGone": "history",
    "JavaNotFound": "java",
    "JobFailed": "session",
    "Moment": "state",
    "PlaceError": "layout",
    "ReportFacts": "report",
    "RestoreRefused": "restore",
    "Restored": "restore",
    "ServerFiles": "layout",
    "ServerState": "state",
    "ServersDisagree": "state",
    "SessionOptions": "session",
    "StateUnknown": "state",
    "Undeletion": "undelete",
    "Verdict": "findings",
    "as_named": "staging",
    "audit": "api",
    "audit_places": "auditing",
    "change_feed": "api",
    "check_out": "outputs",
    "differences": "diff",
    "directory_of": "state",
    "discover": "layout",
    "ensemble_state": "state",
    "exit_code_of": "auditing",
    "find_java": "java",
    "follow_history": "feed",
    "history_frame": "feed",
    "one_ensemble": "state",
    "our_failure": "feed",
    "restore_state": "restore",
    "server_state": "state",
    "spark_session": "session",
    "tasks_of": "jobs",
    "state_at": "api",
    "transactions": "api",
    "undelete_subtree": "undelete",
    "write_documents": "outputs",
    "write_history": "feed",
    "write_tables": "outputs",
}

__all__ = [
    "Audit",
    "AuditOptions",
    "AuditResult",
    "Coverage",
    "Difference",
    "EnsembleFiles",
    "EnsembleHistory",
    "EnsembleResult",
    "EnsembleState",
    "FeedRefused",
    "FeedSummary",
    "Finding",
    "FindingSeverity",
    "FollowOptions",
    "HistoryBroken",
    "HistoryGone",
    "JavaNotFound",
    "JobFailed",
    "Moment",
    "PlaceError",
    "ReportFacts",
    "RestoreRefused",
    "Restored",
    "ServerFiles",
    "ServerState",
    "ServersDisagree",
    "SessionOptions",
    "StateUnknown",
    "Undeletion",
    "Verdict",
    "as_named",
    "audit",
    "audit_places",
    "change_feed",
    "check_out",
    "differences",
    "directory_of",
    "discover",
    "ensemble_state",
    "exit_code_of",
    "find_java",
    "follow_history",
    "history_frame",
    "one_ensemble",
    "our_failure",
    "restore_state",
    "server_state",
    "spark_session",
    "state_at",
    "tasks_of",
    "transactions",
    "undelete_subtree",
    "write_documents",
    "write_history",
    "write_tables",
]


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
