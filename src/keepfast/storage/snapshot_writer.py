"""Writing a snapshot: in small steps, checked by reading it back, and never under a live name.

The writer leaves a complete, durable file under a temporary name.  It becomes a part of the
history when the store lists it in the manifest, and gets its live name after that (R3).
"""

import contextlib
import errno
import posixpath
import zlib
from collections.abc import Callable
from threading import Lock

from keepfast.storage.compression import packer
from keepfast.storage.disk import Disk, directory_of
from keepfast.storage.layout import DataDirectory, snapshot_name
from keepfast.storage.manifest import SnapshotEntry
from keepfast.storage.snapshot_file import snapshot_pieces
from keepfast.storage.store_options import StoreOptions
from keepfast.tree import FrozenTree
from keepfast.wire import BrokenHistory, DiskFailed, DiskFull, StorageError, invariant

_WINDOW_SIZE = 1 << 20


class SnapshotWriter:
    """Writes one frozen tree.  `step` until it returns False, then `complete`, or `abandon`.

    A step encodes about two thousand znodes, about a millisecond, and writes them.  The kernel may
    make a writer wait, and `complete` waits for the disk: `write` and `complete` touch the
    temporary file alone and may run on another thread.
    """

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        frozen: FrozenTree,
        options: StoreOptions,
        serial: int,
        on_failure: Callable[[DiskFailed], None] | None = None,
    ) -> None:
        """`on_failure` is called with an error that ends the store's claim to its data (R7)."""
        self.zxid = frozen.zxid
        self._on_failure = on_failure
        self._disk = disk
        self._frozen = frozen
        self._name = snapshot_name(frozen.zxid, options.compression)
        self._temporary = directory.in_snapshots(temporary_name(self._name, serial))
        self._pieces = snapshot_pieces(frozen, options.chunk_nodes)
        self._packer = packer(options.compression)
        self._offset = 0
        self._crc = 0
        self._written = False
        # A server that stops abandons the file while a thread may be writing to it.
        self._lock = Lock()
        self._is_abandoned = False
        try:
            self._file = disk.create(self._temporary)
        except OSError as error:
            frozen.close()
            raise self._failure(error) from error

    def step(self) -> bool:
        """Write the next piece; False when there is none left.  Raises DiskFull or DiskFailed.

        After an error nothing is left of the file, and the tree is released.
        """
        piece = self.encode()
        try:
            self.write(piece)
        except StorageError:
            self.abandon()
            raise
        return piece is not None

    def encode(self) -> bytes | None:
        """The next piece, to be given to `write`; None: it is the end, and the tree is released."""
        piece = next(self._pieces, None)
        if piece is None:
            self._frozen.close()
        return piece

    def write(self, piece: bytes | None) -> None:
        """Write a piece, or the end.  Raises DiskFull or DiskFailed; it must be abandoned then."""
        with self._lock:
            if self._is_abandoned:
                return
            try:
                data = self._packer.finish() if piece is None else self._packer.pack(piece)
                if data:
                    self._file.write_at(self._offset, data)
                    self._offset += len(data)
                    self._crc = zlib.crc32(data, self._crc)
            except OSError as error:
                raise self._failure(error) from error
            self._written = piece is None

    def complete(self) -> SnapshotEntry:
        """Make the file durable, read it back, and describe it for the manifest.

        Raises BrokenHistory if the history was truncated or replaced since the snapshot was begun.
        """
        invariant(self._written, "complete() before the last step()")
        try:
            self._file.fsync()
            self._file.close()
            self._read_back()
            # The manifest will name the temporary: a crash must not lose that name.
            self._disk.fsync_directory(directory_of(self._temporary))
        except FileNotFoundError as error:
            # apply_manifest() removed it together with the history that it belongs to.
            raise BrokenHistory(
                "is of a history that is no longer this one", self._name, None, self.zxid
            ) from error
        except OSError as error:
            self.abandon()
            raise self._failure(error) from error
        return SnapshotEntry(
            name=self._name,
            zxid=self._frozen.zxid,
            exact=True,
            digest=self._frozen.digest,
            state_digest=self._frozen.state_digest,
            size=self._offset,
            crc32=self._crc,
            staged=posixpath.basename(self._temporary),
        )

    def abandon(self) -> None:
        """Give up: remove what was written and release the tree."""
        self._frozen.close()
        with self._lock:
            self._is_abandoned = True
            self._file.close()
        with contextlib.suppress(OSError):
            self._disk.remove(self._temporary)

    def _failure(self, error: OSError) -> StorageError:
        failure = storage_error(error, self._temporary)
        if isinstance(failure, DiskFailed) and self._on_failure is not None:
            self._on_failure(failure)
        return failure

    def _read_back(self) -> None:
        crc = 0
        with self._disk.open_read(self._temporary) as file:
            size = file.size()
            for offset in range(0, size, _WINDOW_SIZE):
                crc = zlib.crc32(file.read_at(offset, _WINDOW_SIZE), crc)
        if size != self._offset or crc != self._crc:
            raise OSError(errno.EIO, "reads back other bytes than were written")


def temporary_name(name: str, serial: int) -> str:
    """A name for a file that is being written.

    With the serial of the manifest: a name that a manifest may still refer to is never reused.
    """
    return f"keepfast.{name}.{serial}.tmp"


def storage_error(error: OSError, path: str) -> StorageError:
    """What a disk error means: no space is ordinary, everything else is final (R7)."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull("no space left", path)
    return disk_failure(error, path)


def disk_failure(error: OSError, path: str | None) -> DiskFailed:
    """The failure to report for a disk error that ends a store (R7)."""
    if isinstance(error, PermissionError):
        return DiskFailed("permission denied; run as the user who owns the data", path)
    if isinstance(error, NotADirectoryError):
        return DiskFailed("not a directory", path)
    return DiskFailed(f"the disk failed: {error.strerror or error}", path)
