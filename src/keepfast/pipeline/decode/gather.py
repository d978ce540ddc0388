"""Reading fields at many offsets at once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]

# After the data, so that a read at any offset inside it stays inside the buffer.
_PADDING = 8


class View:
    """A buffer whose bytes, ints and longs (big endian) can be read at arrays of offsets.

    Offsets must lie inside the buffer; ints and longs that stick out of it read as garbage.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        padded = data if self.size > _PADDING else data + bytes(_PADDING)
        self._room = len(padded)
        self.bytes: Bytes = np.frombuffer(padded, np.uint8)
        # One element a byte: every offset is the start of a field somewhere.
        self._ints = np.ndarray((self._room - 3,), ">i4", padded, 0, (1,))
        self._longs = np.ndarray((self._room - 7,), ">i8", padded, 0, (1,))

    def ints(self, offsets: Ints) -> Ints:
        """The signed 32-bit fields at `offsets`, clipped to the buffer."""
        return self._ints[np.minimum(offsets, self._room - 4)].astype(np.int64)

    def longs(self, offsets: Ints) -> Ints:
        """The signed 64-bit fields at `offsets`, clipped to the buffer."""
        return self._longs[np.minimum(offsets, self._room - 8)].astype(np.int64)

    def octets(self, offsets: Ints) -> Bytes:
        """The bytes at `offsets`, clipped to the buffer."""
        return self.bytes[np.minimum(offsets, self._room - 1)]

    def rows(self, offsets: Ints, width: int) -> Bytes:
        """The `width` bytes at each offset, as a matrix; all of them lie inside the buffer."""
        if self._room < width:
            return np.empty((0, width), np.uint8)
        # Overlapping rows, one for each byte of the buffer; each moved as a whole, not by bytes.
        shape = (self._room - width + 1,)
        every = np.ndarray(shape, np.dtype((np.void, width)), self.bytes, 0, (1,))
        return every[offsets].view(np.uint8).reshape(-1, width)


def take_bytes(view: View, starts: Ints, lengths: Ints) -> pa.BinaryArray:
    """The slices of a buffer as one column, with one native copy; a negative length is null.

    Slices must not overlap and must come in the order of the buffer; where a length is negative
    the start still has to be in that order.
    """
    count = len(starts)
    # An Arrow array over the whole buffer whose every second element is wanted.
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0 : 2 * count : 2] = starts
    offsets[1 : 2 * count : 2] = starts + np.maximum(lengths, 0)
    offsets[2 * count] = offsets[2 * count - 1] if count else 0
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(view.data)]
    interleaved = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
    wanted = np.arange(0, 2 * count, 2, dtype=np.int32)
    return interleaved.take(pa.array(wanted, mask=lengths < 0))


def as_text(raw: pa.BinaryArray) -> tuple[pa.StringArray | None, Bools]:
    """The column as text, and which rows are no text that a server wrote.

    Text is None if there are such rows. Java writes characters above U+FFFF as two surrogates,
    which are not UTF-8; so a row is doubtful if it is not UTF-8 or has a four-byte character.
    """
    doubtful = np.zeros(len(raw), np.bool_)
    content = raw.buffers()[2]
    used = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    if not len(used) or used.max() < 0x80:
        return _text_over(raw), doubtful
    for row, value in enumerate(raw.to_pylist()):
        if value is not None and not _is_plain_text(value):
            doubtful[row] = True
    return (None if doubtful.any() else _text_over(raw)), doubtful


def _text_over(raw: pa.BinaryArray) -> pa.StringArray:
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count, raw.offset)


def _is_plain_text(value: bytes) -> bool:
    try:
        return max(value.decode(), default="") <= "\uffff"
    except UnicodeDecodeError:
        return False


def nullable(values: Ints, valid: Bools, kind: pa.DataType) -> pa.Array:
    """A column of numbers with nulls where `valid` is false."""
    return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=~valid)


def among(values: NDArray[Any], known: NDArray[Any]) -> Bools:
    """Which values are among some known ones, which are sorted: quicker for few than `isin`."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: Bools = known[places] == values
    return found
