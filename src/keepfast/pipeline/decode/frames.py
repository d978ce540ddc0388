"""The records of a log as arrays of offsets, checked; what is not one is reported as by `storage`.

A record counts as sound under the same checks as in `storage.log_file`: a plausible length, the
end mark, and the Adler-32 of its entry. The sums are not computed one by one. Adler-32 is linear:
the stored sums of all records of a chunk, and the few bytes between the entries, foretell the sum
of the whole chunk, which one native call computes. Only if the two differ is each record looked at.

Where a record is not sound, `storage.LogReader` says what is wrong there, whether a crash explains
it, and where the next sound record lies; reading continues there.

A large file can be read in parts. A part owns the records that begin in it. It enters at the first
sound record, and it answers for what stands where its last record ends: the next part cannot know.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.gather import Bools, Bytes, Ints, View
from keepfast.pipeline.decode.known import Known, Noted, Stretch
from keepfast.pipeline.decode.walk import follow
from keepfast.pipeline.files.access import LocalFile
from keepfast.storage import Ending, LogReader, ReadFile

FRAME_HEADER_SIZE = 12
FRAME_OVERHEAD = 13
FILE_HEADER_SIZE = 16
_MAGIC = b"ZKLG"
_MIN_ENTRY = 32
_END_MARK = 0x42
# As in storage.log_file: beyond this a length is damage.
_MAX_ENTRY = 128 << 20

WINDOW_SIZE = 4 << 20
# Enough while stretches are recognised; what fits into the processor's cache is compared faster.
_PASSING_SIZE = 1 << 20
# Far enough apart that a walker takes some hundred steps, near enough that many walk together.
_GUESS_DISTANCE = 16 << 10
_RESYNC_PATTERN = b"B\0\0\0\0"
_FRAME = struct.Struct(">qi")
_MODULUS = 65521
# Of the bytes before an entry: each once, and each by its place.
_HEADER_WEIGHTS = np.array([[1.0, place] for place in range(4, FRAME_HEADER_SIZE)])
_ZEROS = bytes(1 << 20)
_SEARCH_SIZE = 64 << 10
SECTOR_SIZE = 512


# A frame's header and the TxnHeader after it.
HEADER = np.dtype(
    [
        *(("checksum", ">i8"), ("length", ">i4"), ("session_id", ">i8"), ("cxid", ">i4")),
        *(("zxid", ">i8"), ("time", ">i8"), ("type", ">i4")),
    ]
)
Headers = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Frames:
    """Sound records in the order of the file; `view` begins at `base` of it."""

    view: View
    base: int
    offsets: Ints  # of the frames, in the view
    headers: Headers

    @property
    def lengths(self) -> Ints:
        """The lengths of the entries."""
        return self.header("length")

    @property
    def end(self) -> int:
        """The offset in the file right after the last record."""
        last = int(self.offsets[-1]) + int(self.headers["length"][-1])
        return self.base + last + FRAME_OVERHEAD

    def header(self, name: str) -> Ints:
        """One field of all headers."""
        return self.headers[name].astype(np.int64)

    def part(self, rows: slice | Ints | Bools) -> Frames:
        """Some of the records."""
        return Frames(self.view, self.base, self.offsets[rows], self.headers[rows])


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a record, or the plain end of the records; see `storage.Ending`.

    The last one of a whole file is its ending; any other has sound records after it.
    """

    ending: Ending


@dataclass(frozen=True, slots=True)
class Passed(Generic[Noted]):
    """A known stretch, found at an offset of the file."""

    offset: int
    stretch: Stretch[Noted]


def read_frames(
    file: ReadFile, start: int = 0, stop: int | None = None
) -> Iterator[Frames | Damage]:
    """The records that begin in [start, stop), and what lies between and after them.

    The last item of a whole file is always a Damage, which may be a plain end.
    """
    nothing: Known[None] = Known()
    for item in read_pieces(file, nothing, start, stop):
        if not isinstance(item, Passed):
            yield item


def read_pieces(
    file: ReadFile,
    known: Known[Noted],
    start: int = 0,
    stop: int | None = None,
    after: int | None = None,
) -> Iterator[Frames | Damage | Passed[Noted]]:
    """The same, except that stretches which are known are not taken apart.

    `after`: the zxid of a record that ends at `start`: what follows begins there or nowhere.
    """
    size = file.size()
    stop = size if stop is None else min(stop, size)
    if start == 0:
        entry: int | Ending | None = _first_record(file)
    else:
        entry = _first_sound(file, start, stop) if after is None else start
    if isinstance(entry, Ending):
        yield Damage(entry)
    if not isinstance(entry, int):
        return
    position, window = entry, WINDOW_SIZE
    before = after
    while True:
        if position < stop:
            data = file.read_at(position, _portion(file, position, window))
            here = position
            for stretch in known.at_start(data, stop - here, before):
                yield Passed(position, stretch)
                position, before = position + len(stretch.data), stretch.last
            if position > here:
                window = _PASSING_SIZE
                continue
            if window == _PASSING_SIZE:
                window = WINDOW_SIZE
                continue
            view = View(data)
            frames = _sound_frames(view, position, min(stop - position, known.ahead(data)))
            if len(frames.offsets):
                yield frames
                position, window = frames.end, WINDOW_SIZE
                before = int(frames.headers["zxid"][-1])
                continue
            needed = _needed(view)
            # Its server cuts off the padding when it is done with a log: what was there when the
            # file was opened may never come.
            size = min(size, file.size())
            if view.size < needed <= size - position:
                window = -needed
                continue
        elif stop < size and is_sound(file, position):
            return
        ending = _plain_end(file, position) or _ending_at(file, position)
        yield Damage(ending)
        if ending.valid_after is None or ending.valid_after >= stop:
            return
        position, before = ending.valid_after, None


def _portion(file: ReadFile, position: int, window: int) -> int:
    """How many bytes to read: up to a window, but not into the hole after the last record.

    A negative window is what one record needs, hole or not.
    """
    if window < 0:
        return -window
    if isinstance(file, LocalFile):
        end = file.data_end(position)
        return max(FRAME_HEADER_SIZE, min(window, end - position))
    return window


def _first_record(file: ReadFile) -> int | Ending:
    """Where the first record has to be, or what is wrong with the header of the file."""
    header = file.read_at(0, FILE_HEADER_SIZE)
    if len(header) == FILE_HEADER_SIZE and header.startswith(_MAGIC):
        return FILE_HEADER_SIZE
    return _ending_at(file, FILE_HEADER_SIZE)


def _needed(view: View) -> int:
    """The bytes that the record at the start of the view takes, if its length is plausible."""
    if view.size < FRAME_HEADER_SIZE:
        return FRAME_HEADER_SIZE
    length: int = _FRAME.unpack_from(view.data)[1]
    return length + FRAME_OVERHEAD if _MIN_ENTRY <= length <= _MAX_ENTRY else 0


class _FrameChain:
    """The frames in a buffer, whole ones with a plausible length.

    Marks are left to whoever follows the chain: he can look at all of them at once.
    """

    def __init__(self, view: View) -> None:
        self._view = view

    def step(self, offsets: Ints) -> Ints:
        view = self._view
        lengths = view.ints(offsets + 8)
        behind = offsets + FRAME_OVERHEAD + lengths
        return np.where((lengths >= _MIN_ENTRY) & (behind <= view.size), behind, -1)

    def step_one(self, offset: int) -> int:
        data, size = self._view.data, self._view.size
        if offset + FRAME_OVERHEAD > size:
            return -1
        length: int = _FRAME.unpack_from(data, offset)[1]
        behind = offset + FRAME_OVERHEAD + length
        return -1 if length < _MIN_ENTRY or behind > size else behind


def _sound_frames(view: View, base: int, stop: int) -> Frames:
    """The sound records at the start of the view that begin before `stop`, up to the first bad."""
    offsets, _ = follow(_guesses(view, stop), min(stop, view.size), _FrameChain(view))
    if len(offsets):
        is_marked = view.octets(offsets + FRAME_HEADER_SIZE + view.ints(offsets + 8)) == _END_MARK
        if not is_marked.all():
            offsets = offsets[: int(np.argmin(is_marked))]
    octets = view.rows(offsets, HEADER.itemsize)
    frames = Frames(view, base, offsets, octets.view(HEADER).reshape(len(offsets)))
    if len(offsets) and not _sums_match(frames, octets[:, 4:FRAME_HEADER_SIZE]):
        return frames.part(slice(_first_bad(frames)))
    return frames


def _guesses(view: View, stop: int) -> Ints:
    """Places where a record probably begins: after something like an end mark and half a sum."""
    data, size = view.data, min(view.size, stop)
    starts = [0]
    for border in range(_GUESS_DISTANCE, size - FRAME_OVERHEAD, _GUESS_DISTANCE):
        mark = data.find(_RESYNC_PATTERN, max(border - 1, starts[-1]), border + _GUESS_DISTANCE)
        if mark >= 0 and mark + 1 > starts[-1]:
            starts.append(mark + 1)
    return np.array(starts, np.int64)


def _sums_match(frames: Frames, header_octets: Bytes) -> bool:
    """Whether the records, back to back, have the Adler-32 that their stored sums foretell.

    `header_octets`: of each frame what stands before its entry, without the zeros.
    """
    sums, lengths, offsets = frames.header("checksum"), frames.lengths, frames.offsets
    if sums.min() < 0 or sums.max() >> 32:
        return False
    first = int(offsets[0])
    size = int(offsets[-1] + lengths[-1]) + FRAME_OVERHEAD - first
    behind = (first + size - FRAME_OVERHEAD) - offsets - lengths
    # Of an entry: the sum of its bytes, and the sum of its bytes by their distance to its end.
    plain = (sums & 0xFFFF) - 1 + _END_MARK
    weighted = (sums >> 16) - lengths + plain * ((behind + 1) % _MODULUS)
    # Small whole numbers, which floating point multiplies exactly, and many times faster.
    header, by_index = (header_octets.astype(np.float64) @ _HEADER_WEIGHTS).astype(np.int64).T
    weighted += header * ((lengths + behind + FRAME_OVERHEAD) % _MODULUS) - by_index
    low = (1 + int(plain.sum()) + int(header.sum())) % _MODULUS
    high = (size + int((weighted % _MODULUS).sum())) % _MODULUS
    data = memoryview(frames.view.data)[first : first + size]
    return zlib.adler32(data) == high << 16 | low


def _first_bad(frames: Frames) -> int:
    """How many records at the start are sound, each looked at by itself."""
    data = memoryview(frames.view.data)
    sums = frames.header("checksum").tolist()
    starts = (frames.offsets + FRAME_HEADER_SIZE).tolist()
    for index, (start, length) in enumerate(zip(starts, frames.lengths.tolist(), strict=True)):
        if zlib.adler32(data[start : start + length]) != sums[index]:
            return index
    return len(starts)


def _ending_at(file: ReadFile, position: int) -> Ending:
    """What `storage` says about the bytes at `position`, where no sound record begins."""
    reader = LogReader(file, position)
    for _ in reader:
        break
    return reader.ending


def _plain_end(file: ReadFile, position: int) -> Ending | None:
    """A plain end at `position`, if holes and a few zeros are all that follows."""
    if not isinstance(file, LocalFile):
        return None
    size = file.size()
    here = position
    while here < size:
        end = file.data_end(here)
        if end < 0:
            return Ending(position)
        here = max(here, file.data_start(here))
        while here < end:
            piece = file.read_at(here, min(len(_ZEROS), end - here))
            if not piece or piece != _ZEROS[: len(piece)]:
                return None
            here += len(piece)
    return Ending(position)


def _first_sound(file: ReadFile, start: int, stop: int) -> int | None:
    """The first sound record at or after `start` and before `stop`."""
    size = file.size()
    start = max(start, FILE_HEADER_SIZE)
    if start < stop and is_sound(file, start):
        return start
    position = start
    while position < stop:
        window = file.read_at(position - 1, min(_SEARCH_SIZE, size - position + 1))
        for candidate in _candidates(window, position - 1):
            if candidate >= stop:
                return None
            if candidate >= start and is_sound(file, candidate):
                return candidate
        if len(window) < _SEARCH_SIZE:
            return None
        # Overlap: what is looked for may lie across the border of two windows.
        position += len(window) - FRAME_HEADER_SIZE
    return None


def _candidates(window: bytes, base: int) -> list[int]:
    """Offsets at which a record may begin: after an end mark, and at the start of a sector.

    Where the sector in front was lost, the end mark in it is lost as well.
    """
    found = []
    mark = window.find(_RESYNC_PATTERN)
    while mark >= 0:
        found.append(base + mark + 1)
        mark = window.find(_RESYNC_PATTERN, mark + 1)
    starts = range(-base % SECTOR_SIZE, len(window) - FRAME_HEADER_SIZE, SECTOR_SIZE)
    found += [base + start for start in starts if window.startswith(b"\0\0\0\0", start)]
    return sorted(found)


def is_sound(file: ReadFile, offset: int) -> bool:
    """Whether a record that passes all checks begins at `offset`."""
    header = file.read_at(offset, FRAME_HEADER_SIZE)
    if len(header) < FRAME_HEADER_SIZE:
        return False
    checksum, length = _FRAME.unpack(header)
    if not _MIN_ENTRY <= length <= _MAX_ENTRY or offset + FRAME_OVERHEAD + length > file.size():
        return False
    body = file.read_at(offset + FRAME_HEADER_SIZE, length + 1)
    return body[-1] == _END_MARK and zlib.adler32(body[:-1]) == checksum
