"""File names: what each file of a data directory is, and where it is.

    <dataDir>/myid                                     the server's id (ensembles)
    <dataDir>/version-2/snapshot.<hex>[.gz|.snappy]    a snapshot; <hex> is its zxid
    <dataDir>/version-2/{acceptedEpoch,currentEpoch}   Apache's epoch files
    <dataDir>/version-2/keepfast.manifest              what is live (manifest.py)
    <dataDir>/version-2/keepfast.lock                  held while a server runs on the directory;
                                                       dataLogDir has one too (locks.py)
    <dataDir>/version-2/keepfast.aside/g<N>/           files that generation N put out of use
    <dataLogDir>/version-2/log.<hex>                   a log segment; <hex> is its first zxid
    <dataLogDir>/version-2/keepfast.witness            acknowledged end of the log (watermark.py)

Apache ZooKeeper looks only at names that begin with ``snapshot`` or ``log.`` and at the epoch
files, so everything that begins with ``keepfast.`` is invisible to it.
"""

import posixpath
from enum import Enum

import msgspec

from keepfast.storage.disk import Disk
from keepfast.wire import StorageError, Zxid, parse_zxid

VERSION_DIRECTORY = "version-2"
MANIFEST_NAME = "keepfast.manifest"
WATERMARK_NAME = "keepfast.witness"
LOCK_NAME = "keepfast.lock"
ASIDE_NAME = "keepfast.aside"
ACCEPTED_EPOCH_NAME = "acceptedEpoch"
CURRENT_EPOCH_NAME = "currentEpoch"
MY_ID_NAME = "myid"  # in dataDir itself


class Compression(Enum):
    """How a snapshot file is packed; the value is the suffix of its name."""

    NONE = ""
    GZIP = ".gz"
    SNAPPY = ".snappy"


def log_name(first: Zxid) -> str:
    """The name of the segment whose first record is `first`."""
    return f"log.{first:x}"


def snapshot_name(zxid: Zxid, compression: Compression = Compression.NONE) -> str:
    """The name of the snapshot of the state at `zxid`."""
    return f"snapshot.{zxid:x}{compression.value}"


def parse_log_name(name: str) -> Zxid | None:
    """The first zxid that a log's name claims; None if this is not a log's name."""
    prefix, _, text = name.partition(".")
    return _parse_hex(text) if prefix == "log" else None


def parse_snapshot_name(name: str) -> tuple[Zxid, Compression] | None:
    """Zxid and packing that a snapshot's name claims; None if this is not a snapshot's name."""
    prefix, _, text = name.partition(".")
    if prefix != "snapshot":
        return None
    digits, dot, suffix = text.partition(".")
    zxid = _parse_hex(digits)
    if zxid is None:
        return None
    for compression in Compression:
        if compression.value == dot + suffix:
            return zxid, compression
    return None


def _parse_hex(text: str) -> Zxid | None:
    if text.startswith(("0x", "0X")):
        return None
    try:
        return parse_zxid(text)
    except ValueError:
        return None


class DataDirectory(msgspec.Struct, frozen=True):
    """The two directories, down to ``version-2``, in which one server's data lies."""

    snapshots: str
    logs: str

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return self.in_snapshots(MANIFEST_NAME)

    @property
    def watermark(self) -> str:
        """Path of the watermark."""
        return self.in_logs(WATERMARK_NAME)

    @property
    def both(self) -> tuple[str, ...]:
        """The directories, each once."""
        return (self.snapshots,) if self.snapshots == self.logs else (self.snapshots, self.logs)

    def in_snapshots(self, name: str) -> str:
        """Path of a file beside the snapshots."""
        return posixpath.join(self.snapshots, name)

    def in_logs(self, name: str) -> str:
        """Path of a file beside the logs."""
        return posixpath.join(self.logs, name)

    def path_of(self, name: str) -> str:
        """Path of a log or a snapshot by its name."""
        return self.in_logs(name) if name.startswith("log.") else self.in_snapshots(name)

    def aside_of(self, name: str, generation: int) -> str:
        """Where a file goes that `generation` put out of use: the same disk, hidden from Apache."""
        directory = self.logs if name.startswith("log.") else self.snapshots
        return posixpath.join(directory, ASIDE_NAME, f"g{generation}", name)


def version_directory(disk: Disk, path: str) -> str:
    """`path` itself if it is, or is laid out as, a ``version-2``; else ``version-2`` below it."""
    path = path.rstrip("/") or "/"
    inner = posixpath.join(path, VERSION_DIRECTORY)
    if disk.is_directory(inner):
        return inner
    if posixpath.basename(path) == VERSION_DIRECTORY:
        return path
    if disk.is_directory(path) and any(is_data_name(name) for name in disk.list(path)):
        return path
    return inner


def data_directory(disk: Disk, data_dir: str, log_dir: str | None = None) -> DataDirectory:
    """The directories of Apache's ``dataDir`` and ``dataLogDir``.

    Each may hold ``version-2`` or be it.
    """
    snapshots = version_directory(disk, data_dir)
    logs = snapshots if log_dir is None else version_directory(disk, log_dir)
    return DataDirectory(snapshots, logs)


def is_data_name(name: str) -> bool:
    """Whether a name belongs to the data of a server."""
    return (
        parse_log_name(name) is not None
        or parse_snapshot_name(name) is not None
        or name in (MANIFEST_NAME, ACCEPTED_EPOCH_NAME, CURRENT_EPOCH_NAME)
    )


class Listing(msgspec.Struct, frozen=True):
    """The data files that are there, under their live names, in zxid order."""

    snapshots: tuple[str, ...]
    logs: tuple[str, ...]
    temporaries: tuple[str, ...]
    misplaced: tuple[str, ...]


def list_directory(disk: Disk, directory: DataDirectory) -> Listing:
    """Sort the files of the directories by kind; raises StorageError if one cannot be listed."""
    snapshots: list[tuple[Zxid, str]] = []
    logs: list[tuple[Zxid, str]] = []
    temporaries: list[str] = []
    misplaced: list[str] = []
    split = directory.snapshots != directory.logs
    for place in directory.both:
        try:
            names = disk.list(place)
        except OSError as error:
            raise StorageError(f"cannot be listed: {error.strerror}", place) from error
        for name in names:
            log = parse_log_name(name)
            snapshot = parse_snapshot_name(name)
            if log is not None:
                if split and place != directory.logs:
                    misplaced.append(posixpath.join(place, name))
                else:
                    logs.append((log, name))
            elif snapshot is not None:
                if split and place != directory.snapshots:
                    misplaced.append(posixpath.join(place, name))
                else:
                    snapshots.append((snapshot[0], name))
            elif name.endswith(".tmp"):
                temporaries.append(posixpath.join(place, name))
    return Listing(
        tuple(name for _, name in sorted(snapshots)),
        tuple(name for _, name in sorted(logs)),
        tuple(temporaries),
        tuple(misplaced),
    )
