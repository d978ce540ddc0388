"""Settings of the data on disk, and the switches of what the server does with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.apache.config_settings import (
    MAX_INT,
    MAX_LONG,
    PATH,
    TRUE_FALSE,
    YES_NO,
    FileMask,
    Number,
    OneOf,
    Period,
    Scope,
    Whole,
    decimal,
    derive,
    setting,
)

# Where a server without a file keeps its data.
DEFAULT_DATA_DIR: Final = "./keepfast-data"

# Sizes in KB become bytes, which have to fit a Java long.
_MAX_KB: Final = MAX_LONG // 1024
# Apache never purges by default, and the disk fills.
_ONE_HOUR_MS: Final = 3_600_000
_FEWEST_SNAPSHOTS: Final = 3
_SMALLEST_SNAP_COUNT: Final = 2
SNAP_ZNODE_PERCENT_KEY: Final = "keepfast.snapZnodePercent"


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where the data lies, and when it is written, rolled and purged."""

    data_dir: str = setting("dataDir", PATH, DEFAULT_DATA_DIR)
    data_log_dir: str = setting("dataLogDir", PATH, "")
    snap_count: int = setting(
        "snapCount", Whole(0, MAX_INT, "txns"), 100_000, floor=_SMALLEST_SNAP_COUNT
    )
    snap_znode_percent: int = setting(
        SNAP_ZNODE_PERCENT_KEY, Whole(0, MAX_INT, "percent"), 50, scope=Scope.OWN
    )
    snap_size_limit_kb: int = setting("snapSizeLimitInKb", Whole(-1, _MAX_KB, "KB"), 4_194_304)
    txn_log_size_limit_kb: int = setting("txnLogSizeLimitInKb", Whole(-1, _MAX_KB, "KB"), -1)
    pre_alloc_size_kb: int = setting("preAllocSize", Whole(0, _MAX_KB, "KB"), 65_536)
    fsync_warning_threshold_ms: int = setting(
        "fsync.warningthresholdms", Whole(0, MAX_LONG, "ms"), 1000, scope=Scope.BOTH
    )
    # The suffix of the names of new snapshots.
    compression: str = setting(
        "snapshot.compression.method", OneOf({"": "", "gz": ".gz", "snappy": ".snappy"}), ""
    )
    autopurge_snap_retain_count: int = setting(
        "autopurge.snapRetainCount", decimal(0, MAX_INT, "snapshots"), 3, floor=_FEWEST_SNAPSHOTS
    )
    autopurge_purge_interval_ms: int = setting("autopurge.purgeInterval", Period(), _ONE_HOUR_MS)
    db_autocreate: bool = setting("db.autocreate", TRUE_FALSE, False, unsafe=True)
    datadir_autocreate: bool = setting("datadir.autocreate", TRUE_FALSE, True)
    snapshot_size_factor: float = setting("snapshotSizeFactor", Number(-1, 1), 0.33)
    umask: int = setting("keepfast.umask", FileMask(), 0o077, scope=Scope.OWN)
    disk_reserve_kb: int = setting(
        "keepfast.diskReserveKb", Whole(0, _MAX_KB, "KB"), 32_768, scope=Scope.OWN
    )

    def __post_init__(self) -> None:
        if not self.data_log_dir:
            derive(self, "data_log_dir", self.data_dir)


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """What the server does, beyond what every ZooKeeper does."""

    extended_types: bool = setting("extendedTypesEnabled", TRUE_FALSE, False)
    enforce_quota: bool = setting("enforceQuota", TRUE_FALSE, False)
    skip_acl: bool = setting("skipACL", YES_NO, False, unsafe=True)
    read_only_mode: bool = setting("readonlymode.enabled", TRUE_FALSE, False, scope=Scope.PROPERTY)
    container_check_interval_ms: int = setting(
        "znode.container.checkIntervalMs", Whole(1, MAX_INT, "ms"), 60_000, scope=Scope.PROPERTY
    )
    container_max_per_minute: int = setting(
        "znode.container.maxPerMinute", Whole(1, MAX_INT, "znodes"), 10_000, scope=Scope.PROPERTY
    )
    container_max_never_used_interval_ms: int = setting(
        "znode.container.maxNeverUsedIntervalMs", Whole(0, MAX_LONG, "ms"), 0, scope=Scope.PROPERTY
    )
    reconfig_enabled: bool = setting("reconfigEnabled", TRUE_FALSE, False)
    standalone_enabled: bool = setting("standaloneEnabled", TRUE_FALSE, True)
    leader_serves: bool = setting("leaderServes", YES_NO, True)
