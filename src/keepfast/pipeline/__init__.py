"""The pipeline: Spark over data directories at rest; verdicts, findings, reports and tables.

What may live here: everything that reads many servers' files at once. What may not: anything that
a running server needs, and anything that writes into a directory that is read. Decoding (bytes in,
Arrow out) does not know Spark, so that most of it is tested without a JVM.

    files      places, layouts, listings, other file systems, parts
    decode     bytes in, Arrow out
    scan       what one file says by itself
    agreement  which records are the ensemble's
    replay     records to trees, snapshots and digests held against them
    findings   the checks, verdicts, coverage
    engine     Spark: session, sources, jobs, stages
    feeds      history and state as tables
    report     what a person is shown
    backup     proven chains of snapshot and records
    watch      the continuous audit: what is kept from look to look, alerts

    from keepfast.pipeline import audit, transactions, state_at

These three are functions (`api`), so no module of this package may bear one of their names. Names
are looked up when they are first used: `keepfast state` needs neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.pipeline.api import Audit, audit, change_feed, register, state_at, transactions
    from keepfast.pipeline.backup.backup_place import (
        chain_at,
        chain_here,
        list_chains,
        read_chain,
    )
    from keepfast.pipeline.backup.chains import (
        BackupChain,
        BackupOptions,
        BackupRefused,
        BackupTaken,
    )
    from keepfast.pipeline.backup.object_store import is_object_store
    from keepfast.pipeline.backup.streamed import SnapshotRequest, back_up_server
    from keepfast.pipeline.backup.taking import back_up_files
    from keepfast.pipeline.engine.auditing import audit_here, audit_places
    from keepfast.pipeline.engine.connect import Spark, session_of
    from keepfast.pipeline.engine.failures import JobFailed
    from keepfast.pipeline.engine.java import JavaNotFound, find_java
    from keepfast.pipeline.engine.jobs import tasks_of
    from keepfast.pipeline.engine.session import (
        SessionOptions,
        running_session,
        spark_session,
        spark_tasks,
    )
    from keepfast.pipeline.engine.spark_home import SparkNotUsable
    from keepfast.pipeline.engine.stages import AuditOptions
    from keepfast.pipeline.feeds.feed import (
        FeedRefused,
        FeedSummary,
        FollowOptions,
        follow_history,
        history_frame,
        our_failure,
        write_history,
    )
    from keepfast.pipeline.files.layout import (
        EnsembleFiles,
        PlaceError,
        ServerFiles,
        discover,
        is_remote,
        local_path,
        split_place,
    )
    from keepfast.pipeline.files.listing import list_place
    from keepfast.pipeline.files.staging import as_named
    from keepfast.pipeline.findings.document import (
        AuditResult,
        Coverage,
        EnsembleResult,
        Finding,
        FindingSeverity,
        Verdict,
    )
    from keepfast.pipeline.findings.evidence import with_people
    from keepfast.pipeline.findings.records_named import LackedWrites, RecordNote
    from keepfast.pipeline.findings.verdict import exit_code_of
    from keepfast.pipeline.replay.changes import ZnodeChange
    from keepfast.pipeline.replay.diff import Difference, differences
    from keepfast.pipeline.replay.history import (
        EnsembleHistory,
        HistoryBroken,
        HistoryGone,
        origins,
    )
    from keepfast.pipeline.replay.people import NamedChange, changes_of
    from keepfast.pipeline.replay.restore import Restored, RestoreRefused, restore_state
    from keepfast.pipeline.replay.state import (
        EnsembleState,
        Moment,
        ServersDisagree,
        ServerState,
        StateUnknown,
        ensemble_state,
        moment_of,
        one_ensemble,
        read_only_disk,
        server_state,
    )
    from keepfast.pipeline.replay.undelete import Undeletion, undelete_subtree
    from keepfast.pipeline.report import ReportFacts, audit_overview, report_asset
    from keepfast.pipeline.report.delta import add_to_delta
    from keepfast.pipeline.report.documents import write_documents
    from keepfast.pipeline.report.outputs import AuditStamp, write_tables
    from keepfast.pipeline.report.targets import check_out
    from keepfast.pipeline.report.words import summary_of
    from keepfast.pipeline.scan.session_people import People
    from keepfast.pipeline.watch.alerts import FindingChange, text_of
    from keepfast.pipeline.watch.checkpoint import CheckpointBusy, CheckpointUnusable
    from keepfast.pipeline.watch.watch_metrics import WatchMetrics, serve_metrics
    from keepfast.pipeline.watch.watching import Look, Watching, WatchOptions, WatchRefused

# Name -> the module that has it.
_EXPORTS = {
    "ZnodeChange": "replay.changes",
    "read_only_disk": "replay.state",
    "origins": "replay.history",
    "moment_of": "replay.state",
    "Audit": "api",
    "AuditOptions": "engine.stages",
    "AuditResult": "findings.document",
    "Coverage": "findings.document",
    "Difference": "replay.diff",
    "EnsembleFiles": "files.layout",
    "EnsembleHistory": "replay.history",
    "EnsembleResult": "findings.document",
    "EnsembleState": "replay.state",
    "FeedRefused": "feeds.feed",
    "FeedSummary": "feeds.feed",
    "Finding": "findings.document",
    "FindingSeverity": "findings.document",
    "FollowOptions": "feeds.feed",
    "HistoryBroken": "replay.history",
    "HistoryGone": "replay.history",
    "JavaNotFound": "engine.java",
    "JobFailed": "engine.failures",
    "Moment": "replay.state",
    "PlaceError": "files.layout",
    "ReportFacts": "report",
    "RestoreRefused": "replay.restore",
    "Restored": "replay.restore",
    "ServerFiles": "files.layout",
    "ServerState": "replay.state",
    "ServersDisagree": "replay.state",
    "SessionOptions": "engine.session",
    "StateUnknown": "replay.state",
    "Undeletion": "replay.undelete",
    "Verdict": "findings.document",
    "as_named": "files.staging",
    "audit": "api",
    "audit_overview": "report",
    "audit_here": "engine.auditing",
    "audit_places": "engine.auditing",
    "running_session": "engine.session",
    "Spark": "engine.connect",
    "session_of": "engine.connect",
    "SparkNotUsable": "engine.spark_home",
    "summary_of": "report.words",
    "list_place": "files.listing",
    "change_feed": "api",
    "check_out": "report.targets",
    "differences": "replay.diff",
    "discover": "files.layout",
    "ensemble_state": "replay.state",
    "exit_code_of": "findings.verdict",
    "find_java": "engine.java",
    "follow_history": "feeds.feed",
    "history_frame": "feeds.feed",
    "one_ensemble": "replay.state",
    "our_failure": "feeds.feed",
    "report_asset": "report",
    "restore_state": "replay.restore",
    "server_state": "replay.state",
    "spark_session": "engine.session",
    "spark_tasks": "engine.session",
    "tasks_of": "engine.jobs",
    "register": "api",
    "state_at": "api",
    "transactions": "api",
    "undelete_subtree": "replay.undelete",
    "write_documents": "report.documents",
    "write_history": "feeds.feed",
    "BackupOptions": "backup.chains",
    "BackupTaken": "backup.chains",
    "back_up_files": "backup.taking",
    "BackupChain": "backup.chains",
    "BackupRefused": "backup.chains",
    "chain_at": "backup.backup_place",
    "chain_here": "backup.backup_place",
    "is_object_store": "backup.object_store",
    "list_chains": "backup.backup_place",
    "read_chain": "backup.backup_place",
    "SnapshotRequest": "backup.streamed",
    "back_up_server": "backup.streamed",
    "AuditStamp": "report.outputs",
    "add_to_delta": "report.delta",
    "is_remote": "files.layout",
    "local_path": "files.layout",
    "split_place": "files.layout",
    "write_tables": "report.outputs",
    "FindingChange": "watch.alerts",
    "NamedChange": "replay.people",
    "LackedWrites": "findings.records_named",
    "People": "scan.session_people",
    "RecordNote": "findings.records_named",
    "with_people": "findings.evidence",
    "changes_of": "replay.people",
    "text_of": "watch.alerts",
    "CheckpointBusy": "watch.checkpoint",
    "CheckpointUnusable": "watch.checkpoint",
    "WatchMetrics": "watch.watch_metrics",
    "serve_metrics": "watch.watch_metrics",
    "Look": "watch.watching",
    "Watching": "watch.watching",
    "WatchOptions": "watch.watching",
    "WatchRefused": "watch.watching",
}

__all__ = [
    "Audit",
    "AuditOptions",
    "AuditResult",
    "AuditStamp",
    "BackupChain",
    "BackupOptions",
    "BackupRefused",
    "BackupTaken",
    "CheckpointBusy",
    "CheckpointUnusable",
    "Coverage",
    "Difference",
    "EnsembleFiles",
    "EnsembleHistory",
    "EnsembleResult",
    "EnsembleState",
    "FeedRefused",
    "FeedSummary",
    "Finding",
    "FindingChange",
    "FindingSeverity",
    "FollowOptions",
    "HistoryBroken",
    "HistoryGone",
    "JavaNotFound",
    "JobFailed",
    "LackedWrites",
    "Look",
    "Moment",
    "NamedChange",
    "People",
    "PlaceError",
    "RecordNote",
    "ReportFacts",
    "RestoreRefused",
    "Restored",
    "ServerFiles",
    "ServerState",
    "ServersDisagree",
    "SessionOptions",
    "SnapshotRequest",
    "Spark",
    "SparkNotUsable",
    "StateUnknown",
    "Undeletion",
    "Verdict",
    "WatchMetrics",
    "WatchOptions",
    "WatchRefused",
    "Watching",
    "ZnodeChange",
    "add_to_delta",
    "as_named",
    "audit",
    "audit_here",
    "audit_overview",
    "audit_places",
    "back_up_files",
    "back_up_server",
    "chain_at",
    "chain_here",
    "change_feed",
    "changes_of",
    "check_out",
    "differences",
    "discover",
    "ensemble_state",
    "exit_code_of",
    "find_java",
    "follow_history",
    "history_frame",
    "is_object_store",
    "is_remote",
    "list_chains",
    "list_place",
    "local_path",
    "moment_of",
    "one_ensemble",
    "origins",
    "our_failure",
    "read_chain",
    "read_only_disk",
    "register",
    "report_asset",
    "restore_state",
    "running_session",
    "serve_metrics",
    "server_state",
    "session_of",
    "spark_session",
    "spark_tasks",
    "split_place",
    "state_at",
    "summary_of",
    "tasks_of",
    "text_of",
    "transactions",
    "undelete_subtree",
    "with_people",
    "write_documents",
    "write_history",
    "write_tables",
]


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
