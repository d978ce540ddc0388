"""Everything that touches a disk: the txn log, snapshots, epoch files, manifest and recovery.

What may live here: files, their formats and what can be proven from them. What may not: any
decision about agreement between servers, any socket, any clock. All access to files goes
through `Disk`, so that a simulated one can forget, tear, corrupt, fill up and fail.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keepfast.storage.catch_up import fitting_snapshot, is_recent, record_packets, tree_packets
from keepfast.storage.disk import (
    Buffer,
    Disk,
    ReadFile,
    RealDisk,
    RealWriteFile,
    WriteFile,
    read_file,
    replace_file,
    temporary_of,
)
from keepfast.storage.disk_views import BytesFile
from keepfast.storage.epochs import Epochs
from keepfast.storage.history import History, LogRecord
from keepfast.storage.layout import (
    Compression,
    DataDirectory,
    Listing,
    data_directory,
    is_data_name,
    list_directory,
    log_name,
    parse_log_name,
    parse_snapshot_name,
    snapshot_name,
    version_directory,
)
from keepfast.storage.log_file import SECTOR_SIZE, Ending, Frame, LogReader, frame
from keepfast.storage.manifest import (
    Join,
    Manifest,
    Rescue,
    Retired,
    Seal,
    SegmentEntry,
    SnapshotEntry,
    load_manifest,
)
from keepfast.storage.options import StoreOptions
from keepfast.storage.orders import carry_out
from keepfast.storage.problems import Problem, Severity, Standing, worst
from keepfast.storage.recovery import NO_HISTORY, Recovery, recover
from keepfast.storage.recovery_listed import acknowledged_end
from keepfast.storage.retention import RetentionPlan, has_path, plan_retention
from keepfast.storage.snapshot_file import (
    SnapshotCursor,
    SnapshotInfo,
    SnapshotSink,
    load_tree,
    parse_snapshot,
    snapshot_pieces,
)
from keepfast.storage.snapshot_writer import SnapshotWriter
from keepfast.storage.store import Store
from keepfast.storage.survey import LogSurvey, Progress, Run, survey_log
from keepfast.storage.witness import read_testimony

if TYPE_CHECKING:
    from keepfast.storage.memory_disk import MemoryDisk
    from keepfast.storage.rescue import RescueKind, RescuePlan, apply_rescue, plan_rescue
else:
    # A server at work needs none of these: imported when they are asked for, as its start is
    # little else than imports.
    _LATE: Final = {
        "MemoryDisk": "memory_disk",
        "RescueKind": "rescue",
        "RescuePlan": "rescue",
        "apply_rescue": "rescue",
        "plan_rescue": "rescue",
    }

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)


__all__ = [
    "NO_HISTORY",
    "SECTOR_SIZE",
    "Buffer",
    "BytesFile",
    "Compression",
    "DataDirectory",
    "Disk",
    "Ending",
    "Epochs",
    "Frame",
    "History",
    "Join",
    "Listing",
    "LogReader",
    "LogRecord",
    "LogSurvey",
    "Manifest",
    "MemoryDisk",
    "Problem",
    "Progress",
    "ReadFile",
    "RealDisk",
    "RealWriteFile",
    "Recovery",
    "Rescue",
    "RescueKind",
    "RescuePlan",
    "RetentionPlan",
    "Retired",
    "Run",
    "Seal",
    "SegmentEntry",
    "Severity",
    "SnapshotCursor",
    "SnapshotEntry",
    "SnapshotInfo",
    "SnapshotSink",
    "SnapshotWriter",
    "Standing",
    "Store",
    "StoreOptions",
    "WriteFile",
    "acknowledged_end",
    "apply_rescue",
    "carry_out",
    "data_directory",
    "fitting_snapshot",
    "frame",
    "has_path",
    "is_data_name",
    "is_recent",
    "list_directory",
    "load_manifest",
    "load_tree",
    "log_name",
    "parse_log_name",
    "parse_snapshot",
    "parse_snapshot_name",
    "plan_rescue",
    "plan_retention",
    "read_file",
    "read_testimony",
    "record_packets",
    "recover",
    "replace_file",
    "snapshot_name",
    "snapshot_pieces",
    "survey_log",
    "temporary_of",
    "tree_packets",
    "version_directory",
    "worst",
]
