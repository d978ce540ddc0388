"""Settings of the data on disk, and the switches of what the server does with it."""

# ruff: noqa: RUF009 - setting() makes a field of a dataclass

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.server.config_settings import (
    MAX_INT,
    MAX_LONG,
    PATH,
    TRUE_FALSE,
    YES_NO,
    Choice,
    Interval,
    Number,
    Scope,
    Whole,
    decimal,
    derive,
    setting,
)
from keepfast.storage import Compression

# Where a server without a file keeps its data.
DEFAULT_DATA_DIR: Final = "./keepfast-data"

# Sizes in KB become bytes, which have to fit a Java long.
_MAX_KB: Final = MAX_LONG // 1024
_FEWEST_SNAPSHOTS: Final = 3
_SHORTEST_COMMIT_LOG: Final = 500
_SMALLEST_SNAP_COUNT: Final = 2


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where the data lies, and when it is written, rolled and purged."""

    data_dir: str = setting(
        "dataDir",
        PATH,
        DEFAULT_DATA_DIR,
        "directory of snapshots and myid; a relative path begins where the server is started",
        default_text="./keepfast-data without a file; with one it has to be set",
    )
    data_log_dir: str = setting(
        "dataLogDir",
        PATH,
        "",
        "directory of the txn log. A disk of its own makes writes faster",
        derived="dataDir",
    )
    snap_count: int = setting(
        "snapCount",
        Whole(0, MAX_INT, "txns"),
        100_000,
        "a snapshot is taken after half to all of this many txns, at random",
        low="snapshots are written all the time",
        high="a start replays many txns, and purge frees space late",
        floor=_SMALLEST_SNAP_COUNT,
    )
    snap_size_limit_kb: int = setting(
        "snapSizeLimitInKb",
        Whole(-1, _MAX_KB, "KB"),
        4_194_304,
        "the same by bytes of log; 0 or less: off",
        low="snapshots are written all the time",
        high="large txns make the next start long",
    )
    txn_log_size_limit_kb: int = setting(
        "txnLogSizeLimitInKb",
        Whole(-1, _MAX_KB, "KB"),
        -1,
        "a log file is rolled beyond this size; 0 or less: beyond 64 MiB, and at a snapshot",
        low="many small files",
        high="purge frees space late",
    )
    pre_alloc_size_kb: int = setting(
        "preAllocSize",
        Whole(0, _MAX_KB, "KB"),
        65_536,
        "how far a log file is grown ahead of its records",
        low="files grow, and stop the writes for it, often",
        high="a new file takes long to begin, and a small disk is full sooner",
    )
    force_sync: bool = setting(
        "forceSync",
        YES_NO,
        True,
        "a write is on the disk before its reply",
        low="no: a power cut takes back writes that clients were told of",
        high="yes: writes are as fast as the disk",
        unsafe=False,
        danger="a power cut takes back writes that clients were told had succeeded",
    )
    fsync_warning_threshold_ms: int = setting(
        "fsync.warningthresholdms",
        Whole(0, MAX_LONG, "ms"),
        1000,
        "a slower fsync is logged",
        low="the log fills with healthy writes",
        high="a slow disk goes unnoticed",
        scope=Scope.BOTH,
    )
    flush_delay_ms: int = setting(
        "flushDelay",
        Whole(0, MAX_LONG, "ms"),
        0,
        "how long a write may wait for others to share its fsync; 0: not at all",
        low="one fsync for few writes while the disk is busy",
        high="every write waits",
    )
    max_write_queue_poll_time_ms: int = setting(
        "maxWriteQueuePollTime",
        Whole(-1, MAX_LONG, "ms"),
        -1,
        "a group of writes that nothing joins for this long is flushed; -1: flushDelay / 3",
        low="groups are small",
        high="every write waits for flushDelay",
        derived="flushDelay / 3",
    )
    max_batch_size: int = setting(
        "maxBatchSize",
        Whole(1, MAX_INT, "txns"),
        1000,
        "txns that share one fsync at most",
        low="more fsyncs than the disk can do",
        high="the first of a large group waits for all",
    )
    compression: Compression = setting(
        "snapshot.compression.method",
        Choice({"": Compression.NONE, "gz": Compression.GZIP, "snappy": Compression.SNAPPY}),
        Compression.NONE,
        "packing of new snapshots: nothing, gz or snappy. All kinds are read",
        low="nothing: the largest files",
        high="gz: the smallest, and the most processor time; 3.5 and older read none of them",
    )
    autopurge_snap_retain_count: int = setting(
        "autopurge.snapRetainCount",
        decimal(0, MAX_INT, "snapshots"),
        3,
        "snapshots that a purge keeps, with the logs behind them",
        low="3 is the least: one that turns out to be damaged must not be the last",
        high="the disk fills",
        floor=_FEWEST_SNAPSHOTS,
    )
    autopurge_purge_interval_ms: int = setting(
        "autopurge.purgeInterval",
        Interval(),
        0,
        "time between purges, in hours unless a unit is given; 0 or less: never",
        low="never: the disk fills. Very short: processor time",
        high="the disk fills between two purges",
    )
    trust_empty: bool = setting(
        "snapshot.trust.empty",
        TRUE_FALSE,
        False,
        "logs without any snapshot are taken for the whole history",
        low="false: a directory that lost its snapshots is refused",
        high="true: it is served with a part of its data",
        unsafe=True,
        danger="a server whose snapshots are lost would serve a part of its data",
    )
    db_autocreate: bool = setting(
        "db.autocreate",
        TRUE_FALSE,
        False,
        "an ensemble's member with an empty directory votes at once (Apache's default is true)",
        low="false: it learns first, unless all are empty or the file `initialize` is there",
        high="true: servers whose disks were wiped may elect an empty one of them",
        unsafe=True,
        danger="servers with wiped disks could form a quorum and lose what the others hold",
    )
    datadir_autocreate: bool = setting(
        "datadir.autocreate",
        TRUE_FALSE,
        True,
        "missing directories are made",
        low="false: a start before the directory exists fails",
        high="true: a disk that is not mounted looks like an empty directory",
    )
    serialize_last_processed_zxid: bool = setting(
        "serializeLastProcessedZxid.enabled",
        TRUE_FALSE,
        True,
        "snapshots end with the last zxid, as those of 3.9 do",
        low="false: the admin commands snapshot and restore are off",
        high="true: none known; older servers read past it",
    )
    commit_log_count: int = setting(
        "commitLogCount",
        decimal(0, MAX_INT, "txns"),
        500,
        "txns kept in memory for learners that catch up",
        low="500 is the least: learners that missed little read the leader's disk",
        high="memory",
        floor=_SHORTEST_COMMIT_LOG,
    )
    snapshot_size_factor: float = setting(
        "snapshotSizeFactor",
        Number(-1, 1),
        0.33,
        "a learner gets txns from disk up to this part of a snapshot's size; below 0: never",
        low="learners that missed little get a whole snapshot",
        high="catching up txn by txn takes longer than a snapshot would",
    )
    disk_reserve_kb: int = setting(
        "keepfast.diskReserveKb",
        Whole(0, _MAX_KB, "KB"),
        32_768,
        "free space at which writes are refused and reads go on",
        low="the last bytes may be missing for a snapshot, and nothing can be purged",
        high="writes are refused on a disk that could take them",
        scope=Scope.OWN,
    )

    def __post_init__(self) -> None:
        if not self.data_log_dir:
            derive(self, "data_log_dir", self.data_dir)
        if self.max_write_queue_poll_time_ms == -1:
            derive(self, "max_write_queue_poll_time_ms", self.flush_delay_ms // 3)


@dataclass(frozen=True, slots=True)
class FeatureConfig:
    """What the server does, beyond what every ZooKeeper does."""

    extended_types: bool = setting(
        "extendedTypesEnabled",
        TRUE_FALSE,
        False,
        "znodes with a TTL. The same on all servers; ids above 254 are refused then",
        low="off: creating one fails (-6)",
        high="on: an Apache server without it takes them for ephemerals",
    )
    enforce_quota: bool = setting(
        "enforceQuota",
        TRUE_FALSE,
        False,
        "hard limits of quotas refuse writes (-125)",
        low="off: they are only counted",
        high="on: a limit that is too small stops its users",
    )
    skip_acl: bool = setting(
        "skipACL",
        YES_NO,
        False,
        "no permission is ever checked",
        low="no: ACLs hold",
        high="yes: every client may read and change everything",
        unsafe=True,
        danger="every client could read, change and delete everything",
    )
    eager_acl_check: bool = setting(
        "enableEagerACLCheck",
        TRUE_FALSE,
        False,
        "permissions are checked on the receiving server before a request goes to the leader",
        low="off: a refused write costs a txn",
        high="on: a write may be refused by an ACL that is just being changed",
    )
    read_only_mode: bool = setting(
        "readonlymode.enabled",
        TRUE_FALSE,
        False,
        "a member without a quorum serves clients that ask for read-only service",
        low="off: it serves nobody",
        high="on: such clients may see old data",
        scope=Scope.PROPERTY,
    )
    container_check_interval_ms: int = setting(
        "znode.container.checkIntervalMs",
        Whole(1, MAX_INT, "ms"),
        60_000,
        "how often containers and TTL znodes are looked at",
        low="processor time",
        high="they stay long after they should go",
        scope=Scope.PROPERTY,
    )
    container_max_per_minute: int = setting(
        "znode.container.maxPerMinute",
        Whole(1, MAX_INT, "znodes"),
        10_000,
        "containers and TTL znodes that are deleted in a minute at most",
        low="they are created faster than they go",
        high="their deletion crowds out the clients",
        scope=Scope.PROPERTY,
    )
    container_max_never_used_interval_ms: int = setting(
        "znode.container.maxNeverUsedIntervalMs",
        Whole(0, MAX_LONG, "ms"),
        0,
        "a container that never had a child goes after this long; 0: it stays",
        low="it goes before its client puts a child into it",
        high="unused containers pile up",
        scope=Scope.PROPERTY,
    )
    reconfig_enabled: bool = setting(
        "reconfigEnabled",
        TRUE_FALSE,
        False,
        "the ensemble's members may be changed while it runs",
        low="off: a change needs restarts, one by one",
        high="on: whoever may write /zookeeper/config decides who votes",
    )
    standalone_enabled: bool = setting(
        "standaloneEnabled",
        TRUE_FALSE,
        True,
        "one server line, or none, makes a server without an ensemble",
        low="false: one server is an ensemble of one, which can grow",
        high="true: it cannot grow without a restart",
    )
    leader_serves: bool = setting(
        "leaderServes",
        YES_NO,
        True,
        "the leader takes clients",
        low="no: with one server left nobody serves",
        high="yes: clients take time from the leader's own work",
    )
    digest_enabled: bool = setting(
        "digest.enabled",
        TRUE_FALSE,
        True,
        "every txn carries the digest of the tree behind it",
        low="false: replicas that differ are not noticed, and logs prove less",
        high="true: a little processor time for each write",
        unsafe=False,
        danger="servers whose data differ would go on serving unnoticed",
    )
    close_session_txn: bool = setting(
        "closeSessionTxn.enabled",
        TRUE_FALSE,
        True,
        "the txn that ends a session lists the ephemerals that go with it",
        low="false: servers decide for themselves which go, and may differ",
        high="true: 3.5 and older do not see the list",
        unsafe=False,
        danger="servers would decide for themselves which ephemerals go, and may differ",
    )
