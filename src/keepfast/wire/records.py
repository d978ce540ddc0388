"""Records: declared once, as a NamedTuple; encoder and decoder are generated from its annotations.

    class SetDataTxn(NamedTuple):
        path: str                    # ustring, null refused
        data: bytes | None           # buffer, null kept apart from empty
        version: Int                 # int

    annotation                       on the wire
    Int, Long, UnsignedLong, Byte    4, 8, 8, 1 bytes, big endian
    a NewType of int                 long (Zxid, SessionId, ServerId)
    bool                             1 byte
    str, bytes                       ustring, buffer
    LooseText                        ustring; a lenient reader takes null for the empty string
    another NamedTuple               its fields, one after another
    tuple[X, ...]                    vector of X: of strings or of records
    X | None                         null for ustring, buffer and vector
    Annotated[X | None, AT_END]      X, or nothing at all: a field that older writers leave out.
                                     A fixed-size last field only

`codec_of(SetDataTxn)` returns a `Codec[SetDataTxn]`. Its two functions are Python source, written
for this one record, compiled once and kept in `Codec.source` for reading: no loop over fields, one
`struct` call per run of fixed-size fields. A server decodes a record for each request.

Two ways to decode. The lenient one is Java's: any non-zero byte is true, malformed UTF-8 becomes
U+FFFD. The exact one (`exact_codec_of`) refuses what would not encode back to the same bytes; it is
for txns, where a difference of one byte between servers is exactly what we look for. Neither
rejects bytes left over after a record: that is how records gained new fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from keepfast.wire.codegen import encode_source, unpack_source
from keepfast.wire.errors import MalformedRecord
from keepfast.wire.jute import DEFAULT_MAX_FIELD, Reader
from keepfast.wire.layout import AT_END, Byte, Int, Long, LooseText, UnsignedLong, layout_of

__all__ = [
    "AT_END",
    "Byte",
    "Codec",
    "CodecTable",
    "Int",
    "Long",
    "LooseText",
    "UnsignedLong",
    "codec_of",
    "decode",
    "encode",
    "exact_codec_of",
]

R = TypeVar("R", bound=tuple[Any, ...])
K = TypeVar("K")
V = TypeVar("V")


class Codec(Generic[R]):
    """Encodes and decodes one kind of record."""

    __slots__ = ("encode", "fixed_size", "record", "source", "unpack")

    def __init__(self, record: type[R], *, is_exact: bool) -> None:
        layout = layout_of(record)
        codec = exact_codec_of if is_exact else codec_of
        encoder = encode_source(layout, lambda nested: codec(nested).encode)
        decoder = unpack_source(
            record,
            layout,
            lambda nested: codec(nested).unpack,
            lambda nested: codec(nested).encode,
            is_exact=is_exact,
        )
        self.record = record
        #: record -> bytes. A value out of range is a bug of ours: InvariantViolation.
        self.encode: Callable[[R], bytes] = encoder.compile("_encode", record.__name__)
        #: (buffer, offset, end, max_field) -> (record, offset after it), or MalformedRecord.
        self.unpack: Callable[[bytes, int, int, int], tuple[R, int]] = decoder.compile(
            "_unpack", record.__name__
        )
        #: Size in bytes, if all records of this kind have the same.
        self.fixed_size = layout.min_size if layout.is_fixed else None
        self.source = encoder.text() + "\n\n" + decoder.text()

    def decode(self, data: bytes, offset: int = 0, max_field: int = DEFAULT_MAX_FIELD) -> R:
        """The record at `offset`; bytes after it are ignored."""
        return self.unpack(data, offset, len(data), max_field)[0]

    def decode_all(self, data: bytes, offset: int = 0, max_field: int = DEFAULT_MAX_FIELD) -> R:
        """The record that fills `data` exactly, from `offset` to its end."""
        end = len(data)
        record, stop = self.unpack(data, offset, end, max_field)
        if stop != end:
            raise MalformedRecord(f"{end - stop} bytes after {self.record.__name__}", stop)
        return record

    def read(self, reader: Reader) -> R:
        """The next record of `reader`."""
        record, reader.offset = self.unpack(
            reader.buffer, reader.offset, reader.end, reader.max_field
        )
        return record


@functools.cache
def _codec(record: type[tuple[Any, ...]], is_exact: bool) -> Codec[Any]:
    return Codec(record, is_exact=is_exact)


def codec_of(record: type[R]) -> Codec[R]:
    """The codec of a record, reading as leniently as Java does."""
    return _codec(record, False)


def exact_codec_of(record: type[R]) -> Codec[R]:
    """The codec of a record that refuses what would not encode back to the same bytes."""
    return _codec(record, True)


class CodecTable(dict[K, V]):
    """Codecs by key, each compiled when it is first requested.

    A process needs few of them, and compiling all would take a tenth of its startup time.
    `table[key]` raises KeyError for a key without a record.
    """

    def __init__(
        self, records: Mapping[K, type[tuple[Any, ...]]], make: Callable[[type[Any]], V]
    ) -> None:
        super().__init__()
        self._records = records
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(self._records[key])
        return value


def encode(record: tuple[Any, ...]) -> bytes:
    """The bytes of any record. Hot code keeps the codec, which saves the lookup."""
    return codec_of(type(record)).encode(record)


def decode(record: type[R], data: bytes, offset: int = 0) -> R:
    """The record at `offset` of `data`; bytes after it are ignored."""
    return codec_of(record).decode(data, offset)
