"""Writing one log segment: groups of records, each made durable by one fdatasync.

The file is filled with zeros ahead of the records.  Overwriting zeros that are on the disk needs no
change to the file system's metadata, which makes an fdatasync about half as expensive as after an
append; a full disk is noticed while the zeros are written, before any record is; and what a crash
leaves of an unsynced group is zeros, which is how the reader knows a torn tail.

A large group that does not fit into the zeros gets reserved blocks instead: they read as zeros as
well, and a full disk is noticed just as early. To write that many zeros and wait for them would be
as much work for the disk as the records themselves; a change to the metadata is less.
"""

import contextlib
import errno
import zlib

from keepfast.storage.disk import Disk, WriteFile
from keepfast.storage.log_file import HEADER_SIZE, LOG_HEADER
from keepfast.storage.manifest import Seal
from keepfast.wire import Zxid

_ZEROS = bytes(1 << 20)
# The part of a step of growth from which on a group is large. Where both were measured, zeros took
# less time for 16 KB, the same for 64 KB, and a third more for 256 KB, a quarter of the usual step.
_LARGE_SHARE = 4


class SegmentWriter:
    """Appends to one new segment.  Errors are the disk's; the caller decides what they mean."""

    def __init__(self, disk: Disk, path: str, grow_bytes: int) -> None:
        """Create the file: header and first zeros, durable under `path` once its directory is."""
        self._grow_bytes = grow_bytes
        self.position = HEADER_SIZE
        self._size = 0
        self._crc = 0
        self._disk = disk
        self._path = path
        self._file: WriteFile = disk.create(path)
        try:
            self._file.write_at(0, LOG_HEADER)
            self._size = HEADER_SIZE
            self._extend(HEADER_SIZE)
            # Not fsync, which drops what the disk has from memory: each group that begins inside a
            # page would then read that page before it is written.
            self._file.datasync()
        except OSError:
            self.discard()
            raise

    @property
    def is_empty(self) -> bool:
        """Whether it has no record yet."""
        return self.position == HEADER_SIZE

    def write(self, data: bytes) -> None:
        """Write whole records and make them durable.

        Raises OSError with ENOSPC only where the same call may be repeated later: what of the
        records is in the file by then lies after the position, and is overwritten.
        """
        end = self.position + len(data)
        if end > self._size:
            if len(data) * _LARGE_SHARE >= self._grow_bytes:
                self._file.allocate(end)
                self._size = end
            else:
                self._extend(end)
                # Durable first, so that no later group changes the size.
                self._datasync()
        self._file.write_at(self.position, data)
        self._datasync()
        self._crc = zlib.crc32(data, self._crc)
        self.position = end

    def seal(self, last: Zxid, digest: int | None) -> Seal:
        """What the segment holds, if nothing is appended any more."""
        return Seal(last, self.position, self._crc, digest)

    def cut(self) -> None:
        """Release the zeros after the last record."""
        self._file.truncate(self.position)
        # Not fsync, which drops the segment from memory: nobody reads it back here, those who catch
        # up read it soon, and dropping 64 MB takes 5 ms, in which writes wait.
        self._file.datasync()

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def discard(self) -> None:
        """Remove the file, which nothing refers to yet."""
        self._file.close()
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)

    def _datasync(self) -> None:
        try:
            self._file.datasync()
        except OSError as error:
            # Whatever the reason, it is final: after a failed fsync nobody knows what is on the
            # disk, so "no space" must not look like the ordinary kind, after which one continues.
            raise OSError(errno.EIO, f"fsync failed: {error.strerror}", self._path) from error

    def _extend(self, needed: int) -> None:
        """Write zeros up to the next step of growth after `needed`."""
        goal = needed + self._grow_bytes
        while self._size < goal:
            count = min(len(_ZEROS), goal - self._size)
            try:
                self._file.write_at(self._size, _ZEROS[:count])
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT) and self._size >= needed:
                    return  # enough for now; the next growth will show
                raise
            self._size += count
