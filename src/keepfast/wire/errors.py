"""Every failure that Keepfast raises on purpose, in one tree.

    KeepfastError
    ├── MalformedRecord      bytes that are not the record they should be; says at which offset
    ├── KeeperError          the client's fault or bad luck; becomes an error code in a reply
    ├── PeerProtocolError    the other server broke the protocol; drop the connection
    ├── StorageError         the disk or what is on it; names file, offset and zxid where known
    │   ├── CorruptLog       damage inside a transaction log
    │   ├── CorruptSnapshot  a snapshot that cannot be read in full
    │   ├── CorruptManifest  the manifest, or an epoch file, is unreadable or contradicts itself
    │   ├── BrokenHistory    sound files that do not form one contiguous history
    │   ├── DiskFull         no space; nothing partial was left behind
    │   └── DiskFailed       an error from write or fsync; the process may not trust its memory
    └── InvariantViolation   our own bug; stop the process

What a caller does depends on the branch alone, so a new failure belongs under one of the branches.
Arguments are kept in `args` unformatted: the errors cross process boundaries by pickle.
"""

# ruff: noqa: N818 - these names say what is wrong; only the root says that it is an error

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The error codes of the client protocol, by ZooKeeper's names."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NEW_CONFIG_NO_QUORUM = -13
    RECONFIG_IN_PROGRESS = -14
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    EPHEMERAL_ON_LOCAL_SESSION = -120
    NO_WATCHER = -121
    REQUEST_TIMEOUT = -122
    RECONFIG_DISABLED = -123
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124
    QUOTA_EXCEEDED = -125
    THROTTLED_OP = -127


class KeepfastError(Exception):
    """Root of all failures that are raised on purpose."""


class MalformedRecord(KeepfastError):
    """Bytes that are not the record expected at `offset`.

    The offset counts from the start of the buffer that the caller passed, or from whatever base
    the caller named, and points at the field that could not be read.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.reason} at offset {self.offset}"


class KeeperError(KeepfastError):
    """An operation that is refused; the client sees `code`."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        text = f"{self.code.name} ({self.code.value})"
        return f"{text}: {self.detail}" if self.detail else text


class PeerProtocolError(KeepfastError):
    """Another server sent what the protocol does not allow."""


class StorageError(KeepfastError):
    """Something is wrong with the data on disk, or with the disk."""

    def __init__(
        self,
        reason: str,
        file: str | None = None,
        offset: int | None = None,
        zxid: int | None = None,
    ) -> None:
        super().__init__(reason, file, offset, zxid)
        self.reason = reason
        self.file = file
        self.offset = offset
        self.zxid = zxid

    def __str__(self) -> str:
        where = []
        if self.file is not None:
            where.append(self.file)
        if self.offset is not None:
            where.append(f"offset {self.offset}")
        if self.zxid is not None:
            where.append(f"zxid {self.zxid:#x}")
        return f"{self.reason} ({', '.join(where)})" if where else self.reason


class CorruptLog(StorageError):
    """A transaction log contains damage that no crash explains."""


class CorruptSnapshot(StorageError):
    """A snapshot fails its checks."""


class CorruptManifest(StorageError):
    """The manifest, or an epoch file, cannot be read or contradicts itself."""


class BrokenHistory(StorageError):
    """Files that are individually valid do not form one contiguous history."""


class DiskFull(StorageError):
    """There is no space left."""


class DiskFailed(StorageError):
    """The disk reported an error; what is in memory may no longer be what is on disk."""


class InvariantViolation(KeepfastError):
    """One of our own invariants is broken: a bug here, not in the data and not in a peer."""


def invariant(condition: bool, why: str) -> None:
    """Raise InvariantViolation unless `condition` holds.

    Unlike `assert` it also runs under `python -O`.
    """
    if not condition:
        raise InvariantViolation(why)
