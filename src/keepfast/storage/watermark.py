"""The watermark: how far the open segment is known to have been acknowledged (rule R4).

A crash may tear the records of the last group, which are not acknowledged yet; damage may hit
records that clients rely on.  Both leave a bad record at the end of the open segment, and the log
alone cannot distinguish them.  So after each group's fsync the position that it reached is written
here: everything before it was acknowledged, and if it cannot be read it is damage.

The watermark itself is *not* fsynced with each group, which would double the cost of a write.  It
need not be: it is written only after the fact that it states, so a stale watermark understates but
is never wrong.  A killed process leaves the newest one (it is in the page cache); a power cut
leaves one that is at most `SYNC_EVERY` groups old, or up to date if the server was idle.

    two slots, at 0 and 4096, written in turn; each inside one sector, so never torn
    0    8   magic "KFWITNSS"
    8    8   sequence number
    16   8   serial of the segment (manifest.SegmentEntry.serial)
    24   8   acknowledged end: offset after the last acknowledged record
    32   8   zxid of that record
    40   4   CRC-32 of the 40 bytes before
"""

import contextlib
import struct
import zlib

import msgspec

from keepfast.storage.disk import Disk, WriteFile, directory_of, read_file, temporary_of
from keepfast.storage.layout import DataDirectory
from keepfast.storage.manifest import Manifest
from keepfast.wire import Zxid

_MAGIC = b"KFWITNSS"
_SLOT = struct.Struct(">8sqqqq")
_CRC = struct.Struct(">I")
_SLOT_DISTANCE = 4096
_FILE_SIZE = 2 * _SLOT_DISTANCE

SYNC_EVERY = 64


class Watermark(msgspec.Struct, frozen=True):
    """How far a segment was acknowledged."""

    serial: int
    end: int
    zxid: Zxid


class WatermarkFile:
    """Writes the watermark of one open segment at a time."""

    def __init__(self, disk: Disk, directory: DataDirectory, known: Watermark | None) -> None:
        """Create the file with what is known already; durable on return."""
        path = directory.watermark
        temporary = temporary_of(path)
        self._sequence = 0 if known is None else 1
        said = b"" if known is None else _slot(self._sequence, known)
        self._unsynced = 0
        self._file: WriteFile = disk.create(temporary)
        try:
            self._file.write_at(0, bytes(_FILE_SIZE))
            self._file.write_at(self._sequence % 2 * _SLOT_DISTANCE, said)
            self._file.fsync()
            disk.rename(temporary, path)
            disk.fsync_directory(directory_of(path))
        except OSError:
            self._file.close()
            with contextlib.suppress(OSError):
                disk.remove(temporary)
            raise

    def record(self, serial: int, end: int, zxid: Zxid) -> None:
        """Record that everything before `end` is acknowledged. Call after the group's fsync."""
        self._sequence += 1
        data = _slot(self._sequence, Watermark(serial, end, zxid))
        self._file.write_at(self._sequence % 2 * _SLOT_DISTANCE, data)
        self._unsynced += 1
        if self._unsynced >= SYNC_EVERY:
            self.sync()

    @property
    def is_unsynced(self) -> bool:
        """Whether the newest statement may be lost with the power."""
        return self._unsynced > 0

    def sync(self) -> None:
        """Make the newest statement durable; for idle moments."""
        if self._unsynced:
            self._file.datasync()
            self._unsynced = 0

    def close(self) -> None:
        """Release the file."""
        self._file.close()


def watermark_of(manifest: Manifest) -> Watermark | None:
    """What a manifest itself knows about its last segment, if that is finished."""
    last = manifest.segments[-1] if manifest.segments else None
    if last is None or last.seal is None:
        return None
    return Watermark(last.serial, last.seal.end, last.seal.last)


def lags(disk: Disk, directory: DataDirectory, manifest: Manifest) -> bool:
    """Whether the watermark is behind what the manifest knows: it was lost, or is an older one."""
    known, said = watermark_of(manifest), read_watermark(disk, directory)
    if known is None:
        return False
    return said is None or (said.serial, said.end) < (known.serial, known.end)


def read_watermark(disk: Disk, directory: DataDirectory) -> Watermark | None:
    """The newest valid watermark; None if there is no file or nothing was recorded yet."""
    newest = _newest(disk, directory)
    return None if newest is None else newest[1]


def update_watermark(disk: Disk, directory: DataDirectory, known: Watermark) -> None:
    """Update the existing watermark with what a start has read; durable on return.

    Takes no space: without this, a server that starts on a full disk, where no new watermark can be
    made, vouches for records that nobody would miss if they were lost later.
    """
    newest = _newest(disk, directory)
    if newest is None or (newest[1].serial, newest[1].end) >= (known.serial, known.end):
        return
    sequence = newest[0] + 1
    with disk.open_write(directory.watermark) as file:
        file.write_at(sequence % 2 * _SLOT_DISTANCE, _slot(sequence, known))
        file.datasync()


def _newest(disk: Disk, directory: DataDirectory) -> tuple[int, Watermark] | None:
    slots = [_statement(slot) for slot in _slots(disk, directory)]
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot[0], default=None)


def is_watermark_intact(disk: Disk, directory: DataDirectory) -> bool:
    """Whether the watermark exists and is undamaged.

    No crash leaves it otherwise: it is durable before the first segment that it covers is listed,
    and a slot lies inside one sector.
    """
    slots = _slots(disk, directory)
    return bool(slots) and all(not any(slot) or _statement(slot) is not None for slot in slots)


def _slot(sequence: int, said: Watermark) -> bytes:
    record = _SLOT.pack(_MAGIC, sequence, said.serial, said.end, said.zxid)
    return record + _CRC.pack(zlib.crc32(record))


def _slots(disk: Disk, directory: DataDirectory) -> list[bytes]:
    """The two slots; none if the file is not there in its full size."""
    try:
        data = read_file(disk, directory.watermark, _FILE_SIZE)
    except OSError:
        return []
    if len(data) != _FILE_SIZE:
        return []
    size = _SLOT.size + _CRC.size
    return [data[offset : offset + size] for offset in (0, _SLOT_DISTANCE)]


def _statement(slot: bytes) -> tuple[int, Watermark] | None:
    """Sequence number and statement of a slot; None if it is not valid."""
    record, check = slot[: _SLOT.size], slot[_SLOT.size :]
    magic, sequence, serial, end, zxid = _SLOT.unpack(record)
    if magic != _MAGIC or check != _CRC.pack(zlib.crc32(record)):
        return None
    return sequence, Watermark(serial, end, Zxid(zxid))
