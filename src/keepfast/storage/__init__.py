"""Everything that touches a disk: the txn log, snapshots, epoch files, manifest and recovery.

What may live here: files, their formats and what can be proven from them. What may not: any
decision about agreement between servers, any socket, any clock. All access to files goes through
`Disk`, so that a simulated one can forget, tear, corrupt, fill up and fail.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from keepfast.storage.catch_up import fitting_snapshot, is_recent, record_packets, tree_packets
from keepfast.storage.disk import (
    Buffer,
    ClosedOnExit,
    Disk,
    Names,
    ReadFile,
    RealDisk,
    RealReadFile,
    RealWriteFile,
    WriteFile,
    open_regular,
    read_file,
    replace_file,
    temporary_of,
)
from keepfast.storage.disk_views import BytesFile
from keepfast.storage.epochs import Epochs
from keepfast.storage.history import History, LogRecord
from keepfast.storage.layout import (
    ACCEPTED_EPOCH_NAME,
    CURRENT_EPOCH_NAME,
    MANIFEST_NAME,
    VERSION_DIRECTORY,
    Compression,
    DataDirectory,
    Listing,
    data_directory,
    is_data_name,
    list_directory,
    parse_log_name,
    parse_snapshot_name,
    snapshot_name,
)
from keepfast.storage.locks import unlock_directory
from keepfast.storage.log_file import SECTOR_SIZE, Ending, Frame, LogReader, frame
from keepfast.storage.manifest import (
    Join,
    Manifest,
    Rescue,
    Retired,
    Seal,
    SegmentEntry,
    SnapshotEntry,
    decode_manifest,
    load_manifest,
)
from keepfast.storage.orders import carry_out
from keepfast.storage.problems import Problem, Severity, Standing
from keepfast.storage.recovered import NO_HISTORY, Recovery
from keepfast.storage.recovery import recover
from keepfast.storage.recovery_listed import acknowledged_end
from keepfast.storage.retention import RetentionPlan, has_path, plan_retention
from keepfast.storage.snapshot_file import (
    SnapshotCursor,
    SnapshotInfo,
    check_snapshot_name,
    load_tree,
    parse_snapshot,
    snapshot_pieces,
)
from keepfast.storage.snapshot_writer import SnapshotWriter, storage_error
from keepfast.storage.store import Store
from keepfast.storage.store_options import StoreOptions
from keepfast.storage.survey import SurveyedRun, survey_log
from keepfast.storage.watermark import is_watermark_intact, read_watermark

if TYPE_CHECKING:
    from keepfast.storage.in_use import DirectoryUse, use_of
    from keepfast.storage.live import LiveRecovery, recover_in_use
    from keepfast.storage.rescue import RescueKind, RescuePlan, apply_rescue, plan_rescue
else:
    # A running server needs none of these: they are imported on demand, because startup is little
    # more than imports.
    _LATE: Final = {
        "DirectoryUse": "in_use",
        "use_of": "in_use",
        "LiveRecovery": "live",
        "recover_in_use": "live",
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
    "ACCEPTED_EPOCH_NAME",
    "CURRENT_EPOCH_NAME",
    "MANIFEST_NAME",
    "NO_HISTORY",
    "SECTOR_SIZE",
    "VERSION_DIRECTORY",
    "Buffer",
    "BytesFile",
    "ClosedOnExit",
    "Compression",
    "DataDirectory",
    "DirectoryUse",
    "Disk",
    "Ending",
    "Epochs",
    "Frame",
    "History",
    "Join",
    "Listing",
    "LiveRecovery",
    "LogReader",
    "LogRecord",
    "Manifest",
    "Names",
    "Problem",
    "ReadFile",
    "RealDisk",
    "RealReadFile",
    "RealWriteFile",
    "Recovery",
    "Rescue",
    "RescueKind",
    "RescuePlan",
    "RetentionPlan",
    "Retired",
    "Seal",
    "SegmentEntry",
    "Severity",
    "SnapshotCursor",
    "SnapshotEntry",
    "SnapshotInfo",
    "SnapshotWriter",
    "Standing",
    "Store",
    "StoreOptions",
    "SurveyedRun",
    "WriteFile",
    "acknowledged_end",
    "apply_rescue",
    "carry_out",
    "check_snapshot_name",
    "data_directory",
    "decode_manifest",
    "fitting_snapshot",
    "frame",
    "has_path",
    "is_data_name",
    "is_recent",
    "is_watermark_intact",
    "list_directory",
    "load_manifest",
    "load_tree",
    "open_regular",
    "parse_log_name",
    "parse_snapshot",
    "parse_snapshot_name",
    "plan_rescue",
    "plan_retention",
    "read_file",
    "read_watermark",
    "record_packets",
    "recover",
    "recover_in_use",
    "replace_file",
    "snapshot_name",
    "snapshot_pieces",
    "storage_error",
    "survey_log",
    "temporary_of",
    "tree_packets",
    "unlock_directory",
    "use_of",
]
