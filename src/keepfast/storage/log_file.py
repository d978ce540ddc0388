"""One log segment as bytes: framing, and a reader that distinguishes a torn tail from damage.

    offset      size  field
    0           4     magic "ZKLG"
    4           4     format version, 2
    8           8     database id, 0
    16 ...            records, back to back:
      0         8     Adler-32 of the entry, zero-extended
      8         4     length n of the entry
      12        n     entry: TxnHeader, body, TxnDigest (keepfast.wire.txns)
      12 + n    1     end mark 0x42
    ...               zeros up to the preallocated size

Theory of operation.  A reader that stops at the first bad record, as Apache's does, takes any
damage for an end and silently loses what follows it.  Here the end of a segment is *explained* or
it is damage.  A crash explains exactly this: sectors of the writes that were not fsynced yet hold
what they held before, which in a preallocated segment is zeros, or the file is shorter than it was
to become.  A record whose sectors were all written and which still fails its checks was not torn by
a crash: its bytes were changed later.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, Self

import msgspec

from keepfast.storage.disk import ReadFile
from keepfast.wire import MAX_TXN_BYTES, InvariantViolation

LOG_MAGIC = b"ZKLG"
LOG_HEADER = LOG_MAGIC + struct.pack(">iq", 2, 0)
HEADER_SIZE = len(LOG_HEADER)
END_MARK = b"B"
SECTOR_SIZE = 512

_FRAME = struct.Struct(">qi")
FRAME_HEADER_SIZE = _FRAME.size
_FRAME_OVERHEAD = FRAME_HEADER_SIZE + len(END_MARK)
_END_MARK_BYTE = END_MARK[0]

# The entry begins with a TxnHeader: session id (8), cxid (4), zxid (8), time (8), type (4).
_TXN_HEADER_SIZE = 32
_MIN_RECORD = FRAME_HEADER_SIZE + _TXN_HEADER_SIZE
_ZXID = struct.Struct(">q")
_ZXID_OFFSET = 12

_WINDOW_SIZE = 1 << 20
_ZEROS = bytes(_WINDOW_SIZE)
# No server takes a request that comes near this (jute.maxbuffer is 1 MiB, and has to be raised on
# every server and client). A length beyond it is damage, and must not cost memory or time first.
MAX_ENTRY_SIZE = MAX_TXN_BYTES
# The upper half of a checksum is always zero, so an end mark before a record looks like this.
_CHECKSUM_START = b"\0\0\0\0"
_RESYNC_PATTERN = END_MARK + _CHECKSUM_START


class Frame(NamedTuple):
    """A record that passed its checks, its position and its content."""

    offset: int
    zxid: int
    entry: bytes

    @property
    def end(self) -> int:
        """The offset right after the record."""
        return self.offset + _FRAME_OVERHEAD + len(self.entry)


class Ending(msgspec.Struct, frozen=True):
    """How the records of a segment end.

    `reason` is empty at a plain end: the end of the file, or zeros only.  Otherwise the bytes at
    `offset` are not a record; `torn` says whether a crash explains them, and `valid_after` where
    the next sound record after them begins, if there is one.

    `unmarked`: a record that is complete except for its end mark, with only zeros after it.  No
    lost sector explains that.  But Apache hands a large entry and its mark to the kernel one after
    the other, so a server that was killed in between leaves just this.
    """

    offset: int
    reason: str = ""
    torn: bool = False
    valid_after: int | None = None
    unmarked: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing but zeros follows the last record."""
        return not self.reason

    @property
    def is_explained(self) -> bool:
        """Whether it is plain, or a crash explains it and nothing sound follows."""
        return self.is_plain or (self.torn and self.valid_after is None)


def frame(entry: bytes) -> bytes:
    """A whole record; never one that a reader would treat as damage (R13)."""
    size = len(entry)
    if not _TXN_HEADER_SIZE <= size <= MAX_ENTRY_SIZE:
        raise InvariantViolation(f"a record of {size} bytes could not be read back")
    return b"".join((_FRAME.pack(zlib.adler32(entry), size), entry, END_MARK))


def _is_plausible(length: int) -> bool:
    return _TXN_HEADER_SIZE <= length <= MAX_ENTRY_SIZE


class LogReader:
    """Iterates over the sound records of one segment from `start` to the first that is not.

    After the iteration `ending` says why it stopped, and `crc32` is the CRC-32 of all bytes from
    `start` up to there.  Reads windows of bounded size, so a length field of two gigabytes costs
    nothing. With `stop`, bytes from that offset on are not read.
    """

    def __init__(self, file: ReadFile, start: int = HEADER_SIZE, stop: int | None = None) -> None:
        self._file = file
        self._start = start
        size = file.size()
        self._size = size if stop is None else min(stop, size)
        self.ending = Ending(start, "not read yet")
        self.crc32 = 0

    def __iter__(self) -> Iterator[Frame]:
        ending = self._check_header()
        if ending is not None:
            self.ending = ending
            return
        base = self._start  # file offset of the window's first byte
        window = self._file.read_at(base, min(_WINDOW_SIZE, self._size - base))
        position = 0
        unpack, adler32, zxid_of = _FRAME.unpack_from, zlib.adler32, _ZXID.unpack_from
        while True:
            if position + FRAME_HEADER_SIZE <= len(window):
                checksum, length = unpack(window, position)
                end = position + FRAME_HEADER_SIZE + length
                if end < len(window) and length >= _TXN_HEADER_SIZE:
                    entry = window[position + FRAME_HEADER_SIZE : end]
                    if window[end] != _END_MARK_BYTE or adler32(entry) != checksum:
                        break
                    yield Frame(base + position, zxid_of(entry, _ZXID_OFFSET)[0], entry)
                    position = end + 1
                    continue
                if not _is_plausible(length) or base + end >= self._size:
                    break
                wanted = max(_WINDOW_SIZE, length + _FRAME_OVERHEAD)
            else:
                wanted = _WINDOW_SIZE
                if base + len(window) >= self._size:
                    break
            self.crc32 = zlib.crc32(memoryview(window)[:position], self.crc32)
            base += position
            position = 0
            window = self._file.read_at(base, min(wanted, self._size - base))
        self.crc32 = zlib.crc32(memoryview(window)[:position], self.crc32)
        self.ending = self._classify(base + position)

    def drained(self) -> Self:
        """Itself, with every record read: for the ending and the CRC alone."""
        for _ in self:
            pass
        return self

    def _check_header(self) -> Ending | None:
        header = self._file.read_at(0, min(HEADER_SIZE, self._size))
        if header == LOG_HEADER or (len(header) == HEADER_SIZE and header[:4] == LOG_MAGIC):
            # Apache checks neither the version nor the database id; other values are no damage
            # to the records after them.
            return None
        if len(header) < HEADER_SIZE:
            return Ending(0, f"only {len(header)} bytes, less than a header", torn=True)
        if not any(header) and self._last_nonzero(0) == -1:
            return Ending(0, "nothing but zeros", torn=True)
        return Ending(0, "does not begin with ZKLG: not a transaction log")

    def _classify(self, offset: int) -> Ending:
        last = self._last_nonzero(offset)
        if last == -1:
            return Ending(offset)
        header = self._file.read_at(offset, FRAME_HEADER_SIZE)
        length = -1
        if len(header) < FRAME_HEADER_SIZE:
            reason = "a record's header is cut short"
        else:
            checksum, length = _FRAME.unpack(header)
            reason = self._reason(offset, checksum, length)
        torn = self._is_torn(offset, length, last)
        unmarked = not torn and self._is_unmarked(offset, length, last)
        return Ending(offset, reason, torn, self._next_valid(offset, length, last), unmarked)

    def _reason(self, offset: int, checksum: int, length: int) -> str:
        if checksum == 0 and length == 0:
            return "a record's checksum and length are zero, but bytes follow"
        if not _is_plausible(length):
            return f"a record claims a length of {length} bytes"
        end = offset + FRAME_HEADER_SIZE + length
        if end >= self._size:
            return f"a record of {length} bytes is cut short by the end of the file"
        if self._file.read_at(end, 1) != END_MARK:
            return "a record's end mark is missing"
        return "a record fails its checksum"

    def _is_torn(self, offset: int, length: int, last: int) -> bool:
        """Whether lost sectors of an unsynced write explain the bad record at `offset`."""
        if self._is_complete(offset, last):
            # Under another length: then the length is what is wrong, and nothing was torn.
            return False
        if _is_plausible(length):
            end = offset + _FRAME_OVERHEAD + length
            if end > self._size:
                return True
            if last < end - 1 and not self._entry_is_sound(offset, length):
                # Zeros from somewhere inside the record on: the write stopped there.
                return True
        else:
            end = offset + FRAME_HEADER_SIZE
            if end > self._size or last < end:
                # Zeros from somewhere inside the header on: the same.
                return True
            end = min(last + 1, offset + MAX_ENTRY_SIZE)
        # The upper half of a checksum is zero anyway: finding zeros there proves nothing.
        position = offset
        while position < end:
            stop = min(end, (position // SECTOR_SIZE + 1) * SECTOR_SIZE)
            part = self._file.read_at(position, stop - position)
            if not any(part) and stop > offset + 4:
                return True
            position = stop
        return False

    def _is_unmarked(self, offset: int, length: int, last: int) -> bool:
        """Whether the entry at `offset` is sound and nothing but zeros lies after it."""
        mark = offset + FRAME_HEADER_SIZE + length
        if not _is_plausible(length) or mark >= self._size or last >= mark:
            return False
        return self._entry_is_sound(offset, length)

    def _entry_is_sound(self, offset: int, length: int) -> bool:
        """Whether the entry at `offset` passes its checksum, whatever the end mark is."""
        data = self._file.read_at(offset, FRAME_HEADER_SIZE + length)
        checksum: int = _FRAME.unpack_from(data)[0]
        return zlib.adler32(memoryview(data)[FRAME_HEADER_SIZE:]) == checksum

    def _is_complete(self, offset: int, last: int) -> bool:
        """Whether a sound entry of any length lies between the header at `offset` and `last`."""
        if last - offset > MAX_ENTRY_SIZE:
            return False
        header = self._file.read_at(offset, FRAME_HEADER_SIZE)
        if len(header) < FRAME_HEADER_SIZE:
            return False
        checksum: int = _FRAME.unpack(header)[0]
        position, adler = offset + FRAME_HEADER_SIZE, 1
        while position <= last:
            window = self._file.read_at(position, min(_WINDOW_SIZE, last + 1 - position))
            done = 0
            while (mark := window.find(END_MARK, done)) != -1:
                adler = zlib.adler32(memoryview(window)[done:mark], adler)
                if adler == checksum and position + mark - offset >= _MIN_RECORD:
                    return True
                adler = zlib.adler32(END_MARK, adler)
                done = mark + 1
            adler = zlib.adler32(memoryview(window)[done:], adler)
            position += len(window)
        return False

    def _first_nonzero(self, offset: int) -> int:
        """Offset of the first byte at or after `offset` that is not zero; the size if none is."""
        while offset < self._size:
            window = self._file.read_at(offset, min(_WINDOW_SIZE, self._size - offset))
            left = len(window.lstrip(b"\0"))
            if left or not window:
                return offset + len(window) - left
            offset += len(window)
        return self._size

    def _last_nonzero(self, offset: int) -> int:
        """Offset of the last byte at or after `offset` that is not zero; -1 if there is none."""
        end = self._size
        while end > offset:
            start = max(offset, end - _WINDOW_SIZE)
            window = self._file.read_at(start, end - start)
            # Comparing is ten times as fast as stripping, and nearly all of the padding is zeros.
            kept = 0 if window == _ZEROS[: len(window)] else len(window.rstrip(b"\0"))
            if kept:
                return start + kept - 1
            end = start
        return -1

    def _next_valid(self, offset: int, length: int, last: int) -> int | None:
        """Offset of the first sound record after a bad one; only zeros lie after `last`."""
        if _is_plausible(length):
            # The next record may stand right after a wrong end mark, where no pattern shows it.
            candidate = offset + _FRAME_OVERHEAD + length
            if self._is_sound(candidate):
                return candidate
        # Nor where the record that reads as zeros took its end mark along.
        after_zeros = self._first_nonzero(offset) - len(_CHECKSUM_START)
        for candidate in range(after_zeros - 3, after_zeros + 1):
            if candidate > offset and self._is_sound(candidate):
                return candidate
        position = offset
        while position <= last:
            window = self._file.read_at(position, min(_WINDOW_SIZE, self._size - position))
            for candidate in _candidates(window, position):
                if candidate > offset and self._is_sound(candidate):
                    return candidate
            if len(window) <= FRAME_HEADER_SIZE:
                break
            # Overlap, so that what lies across the border of two windows is found.
            position += len(window) - FRAME_HEADER_SIZE
        return None

    def _is_sound(self, offset: int) -> bool:
        header = self._file.read_at(offset, FRAME_HEADER_SIZE)
        if len(header) < FRAME_HEADER_SIZE:
            return False
        checksum, length = _FRAME.unpack(header)
        if not _is_plausible(length) or offset + _FRAME_OVERHEAD + length > self._size:
            return False
        body = self._file.read_at(offset + FRAME_HEADER_SIZE, length + 1)
        return body[-1:] == END_MARK and zlib.adler32(body[:-1]) == checksum


def _candidates(window: bytes, base: int) -> list[int]:
    """File offsets at which a record may begin: after an end mark, and at the start of a sector.

    Where the sector in front was lost, the end mark in it is lost as well.
    """
    found = []
    mark = window.find(_RESYNC_PATTERN)
    while mark != -1:
        found.append(base + mark + 1)
        mark = window.find(_RESYNC_PATTERN, mark + 1)
    starts = range(-base % SECTOR_SIZE, len(window) - FRAME_HEADER_SIZE, SECTOR_SIZE)
    # No entry has the checksum zero.
    found += [
        base + start
        for start in starts
        if window.startswith(_CHECKSUM_START, start) and any(window[start : start + 8])
    ]
    return sorted(found)
