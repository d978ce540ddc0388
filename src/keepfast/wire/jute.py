"""Jute, the encoding below every ZooKeeper boundary: primitives, their reader and their writers.

    type       bytes   rule
    byte       1       signed
    boolean    1       written as 00 or 01; any other byte reads as true
    int        4       signed, big endian
    long       8       signed, big endian
    ustring    4 + n   int length in bytes, then the bytes; -1 is null, 0 is empty
    buffer     4 + n   as ustring, raw bytes
    vector     4 + …   int number of elements, then the elements; -1 is null

There are no tags: the reader must know the record. Records themselves are in `records`.

Malformed input raises MalformedRecord with an offset, and nothing else. Two checks come before any
memory is allocated: a length against the limit and the bytes available, and a number of elements
against the minimum space that they need. (Java does not check the latter.)

Strings. A Java server writes each UTF-16 unit by itself, so that a character above U+FFFF leaves
as two three-byte surrogates, six bytes instead of UTF-8's four; and it reads UTF-8 with U+FFFD for
what is malformed. Here such pairs of surrogates are joined to the character they stand for, and
written the way Java does: what Java wrote is read in full and written back as it was.
"""

from __future__ import annotations

import re
import struct
from struct import Struct
from typing import Final

from keepfast.wire.errors import InvariantViolation, MalformedRecord

# jute.maxbuffer: the longest frame that a client may send.
DEFAULT_MAX_FRAME: Final = 1048575
# jute.maxbuffer + extrasize: the longest string or buffer inside a record, at every boundary.
DEFAULT_MAX_FIELD: Final = 2 * DEFAULT_MAX_FRAME
# No reader accepts a longer txn, whatever is configured: a greater length in a file is damage, and
# must not cost memory or time first. No writer creates one (R13).
MAX_TXN_BYTES: Final = 128 << 20

INT: Final = Struct(">i")
LONG: Final = Struct(">q")

_SURROGATE_PAIR = re.compile(rb"\xed([\xa0-\xaf][\x80-\xbf])\xed([\xb0-\xbf][\x80-\xbf])")
# One U+FFFD for all of it, even if its last byte is missing, as in Java.
_LONE_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_LAST_OF_BMP = "\uffff"


def encode_text(text: str) -> bytes:
    """The bytes of a string, as Java writes them, without a length."""
    if text.isascii():
        return text.encode()
    if max(text) <= _LAST_OF_BMP:
        # A lone surrogate cannot come from decode_text; Java would write it like this.
        return text.encode("utf-8", "surrogatepass")
    raw = text.encode("utf-16-be", "surrogatepass")
    units = Struct(f">{len(raw) // 2}H").unpack(raw)
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass")


def decode_text(raw: bytes) -> str:
    """The string encoded by `raw`. Never fails: malformed parts become U+FFFD."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # ED is never inside another character, so neither pattern can match across a boundary.
        joined = _SURROGATE_PAIR.sub(_join_surrogates, raw)
        return _LONE_SURROGATE.sub(_REPLACEMENT, joined).decode("utf-8", "replace")


def _join_surrogates(match: re.Match[bytes]) -> bytes:
    units = match.group().decode("utf-8", "surrogatepass")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be").encode()


def decode_exact_text(raw: bytes) -> str | None:
    """The string that `encode_text` writes as `raw`, or None if there is no such string."""
    text = decode_text(raw)
    return text if encode_text(text) == raw else None


def encode_string(text: str | None) -> bytes:
    """A ustring: length and bytes."""
    if text is None:
        return NULL
    raw = text.encode() if text.isascii() else encode_text(text)
    return INT.pack(len(raw)) + raw


def encode_buffer(data: bytes | None) -> bytes:
    """A buffer: length and bytes."""
    return NULL if data is None else INT.pack(len(data)) + data


def encode_int(value: int) -> bytes:
    """An int; one that does not fit into 32 bits is a bug in the caller."""
    try:
        return INT.pack(value)
    except struct.error as error:
        raise InvariantViolation(f"{value} is not a 32-bit integer") from error


def encode_long(value: int) -> bytes:
    """A long; one that does not fit into 64 bits is a bug in the caller."""
    try:
        return LONG.pack(value)
    except struct.error as error:
        raise InvariantViolation(f"{value} is not a 64-bit integer") from error


NULL: Final = INT.pack(-1)


def ends_early(what: str, needed: int, offset: int, end: int) -> MalformedRecord:
    """The error for a field that lies after the end of the input."""
    have = max(end - offset, 0)
    return MalformedRecord(f"{what}: input ends, {needed} bytes needed, {have} left", offset)


def bad_length(what: str, length: int, offset: int, end: int, max_field: int) -> MalformedRecord:
    """The error for a length (of 4 bytes, at `offset`) that cannot be right."""
    if length < 0:
        # -1 arrives here only where null is not allowed.
        reason = "null is not allowed" if length == -1 else f"unreasonable length {length}"
        return MalformedRecord(f"{what}: {reason}", offset)
    if length > max_field:
        return MalformedRecord(f"{what}: length {length} exceeds the limit {max_field}", offset)
    return ends_early(what, length, offset + 4, end)


def bad_count(what: str, count: int, offset: int, end: int) -> MalformedRecord:
    """The error for a number of elements (of 4 bytes, at `offset`) that cannot be right."""
    if count < 0:
        reason = "null is not allowed" if count == -1 else f"unreasonable count {count}"
        return MalformedRecord(f"{what}: {reason}", offset)
    left = max(end - offset - 4, 0)
    return MalformedRecord(f"{what}: {count} elements cannot fit into {left} bytes", offset)


class Reader:
    """Reads primitives one after another from `buffer[offset:end]`.

    `offset` is where the next value starts; an error leaves it unchanged. Offsets, including those
    in errors, count from the start of `buffer`.
    """

    __slots__ = ("buffer", "end", "max_field", "offset")

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        offset: int = 0,
        end: int | None = None,
        max_field: int = DEFAULT_MAX_FIELD,
    ) -> None:
        # Slices of anything but bytes would be views or mutable, and end up inside records.
        self.buffer = buffer if isinstance(buffer, bytes) else bytes(buffer)
        self.offset = offset
        self.end = len(self.buffer) if end is None else end
        self.max_field = max_field
        if not 0 <= offset <= self.end <= len(self.buffer):
            raise InvariantViolation(
                f"no range [{offset}, {self.end}) in {len(self.buffer)} bytes of input"
            )

    @property
    def remaining(self) -> int:
        """Bytes that are left."""
        return self.end - self.offset

    def read_int(self, what: str = "int") -> int:
        return int.from_bytes(self.read_bytes(4, what), "big", signed=True)

    def read_long(self, what: str = "long") -> int:
        return int.from_bytes(self.read_bytes(8, what), "big", signed=True)

    def read_bytes(self, size: int, what: str = "bytes") -> bytes:
        """Exactly `size` raw bytes."""
        start = self.offset
        stop = start + size
        if stop > self.end:
            raise ends_early(what, size, start, self.end)
        self.offset = stop
        return self.buffer[start:stop]

    def read_buffer(self, what: str = "buffer") -> bytes | None:
        start = self.offset
        length = self.read_int(what)
        if length == -1:
            return None
        stop = start + 4 + length
        if length < 0 or length > self.max_field or stop > self.end:
            self.offset = start
            raise bad_length(what, length, start, self.end, self.max_field)
        self.offset = stop
        return self.buffer[start + 4 : stop]

    def read_string(self, what: str = "string") -> str | None:
        raw = self.read_buffer(what)
        return None if raw is None else decode_text(raw)

    def read_count(self, element_size: int = 1, what: str = "vector") -> int | None:
        """The number of elements of a vector, each at least `element_size` bytes; None for null."""
        start = self.offset
        count = self.read_int(what)
        if count == -1:
            return None
        if count < 0 or count * element_size > self.remaining:
            self.offset = start
            raise bad_count(what, count, start, self.end)
        return count
