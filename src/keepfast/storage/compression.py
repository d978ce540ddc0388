"""Packed snapshots: gzip members and snappy-java streams, read and written piece by piece.

A packed stream that ends early, has a bad checksum or trailing bytes is damage, not an end: the
seals inside a snapshot cover the unpacked bytes only, so a cut packed stream must not read as
a shorter, still plausible file.

    snappy-java stream
    0   8   magic 82 "SNAPPY" 00
    8   4   version, 1
    12  4   lowest compatible version, 1
    16      chunks: compressed length (4), one raw snappy block
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Protocol

from keepfast.storage.disk import ReadFile
from keepfast.storage.layout import Compression
from keepfast.wire import CorruptSnapshot

_WINDOW_SIZE = 1 << 20
_GZIP_WRITE = 16 + zlib.MAX_WBITS
_SNAPPY_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_SNAPPY_BLOCK_SIZE = 32 * 1024
# snappy-java's default block is 32 KiB; a longer one is legal, a much longer one is damage.
_SNAPPY_BLOCK_LIMIT = 64 << 20
_LENGTH = struct.Struct(">i")


class Packer(Protocol):
    """Turns the bytes of a snapshot into the bytes of its file."""

    def pack(self, data: bytes) -> bytes:
        """Add `data`; returns what can be written already."""

    def finish(self) -> bytes:
        """The rest of the file."""


class _PlainPacker:
    def pack(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _GzipPacker:
    def __init__(self) -> None:
        # Level 1: snapshots are large and short-lived, and packing runs while clients are served.
        self._stream = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WRITE)

    def pack(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class _SnappyPacker:
    def __init__(self) -> None:
        self._pending = bytearray()
        self._started = False

    def pack(self, data: bytes) -> bytes:
        self._pending += data
        whole = len(self._pending) // _SNAPPY_BLOCK_SIZE * _SNAPPY_BLOCK_SIZE
        return self._blocks(whole)

    def finish(self) -> bytes:
        return self._blocks(len(self._pending))

    def _blocks(self, size: int) -> bytes:
        # Here, as in `_unpack_snappy`: few servers pack their snapshots this way.
        import cramjam

        parts = []
        if not self._started:
            self._started = True
            parts.append(_SNAPPY_HEADER)
        for start in range(0, size, _SNAPPY_BLOCK_SIZE):
            block = self._pending[start : min(start + _SNAPPY_BLOCK_SIZE, size)]
            packed = bytes(cramjam.snappy.compress_raw(block))
            parts.append(_LENGTH.pack(len(packed)))
            parts.append(packed)
        del self._pending[:size]
        return b"".join(parts)


def packer(compression: Compression) -> Packer:
    """A packer for one new file."""
    if compression is Compression.GZIP:
        return _GzipPacker()
    if compression is Compression.SNAPPY:
        return _SnappyPacker()
    return _PlainPacker()


def unpacked(
    file: ReadFile, compression: Compression, name: str, window_bytes: int = _WINDOW_SIZE
) -> Iterator[bytes]:
    """The unpacked bytes of a snapshot file in pieces; raises CorruptSnapshot where it is cut.

    `window_bytes`: how much is read at a time, where the form does not decide it.
    """
    if compression is Compression.GZIP:
        return _unpack_gzip(file, name, window_bytes)
    if compression is Compression.SNAPPY:
        return _unpack_snappy(file, name)
    return _windows(file, window_bytes)


def _windows(file: ReadFile, window_bytes: int) -> Iterator[bytes]:
    offset = 0
    while True:
        window = file.read_at(offset, window_bytes)
        if not window:
            return
        yield window
        offset += len(window)


def _unpack_gzip(file: ReadFile, name: str, window_bytes: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_WRITE)
    offset = 0
    for window in _windows(file, window_bytes):
        if stream.eof:
            raise CorruptSnapshot("bytes after the end of the gzip stream", name, offset)
        data = window
        while data and not stream.eof:
            try:
                # Bounded: a few damaged bytes must not unpack to gigabytes at once.
                piece = stream.decompress(data, window_bytes * 4)
            except zlib.error as error:
                raise CorruptSnapshot(f"gzip stream is damaged: {error}", name, offset) from error
            data = stream.unconsumed_tail
            if piece:
                yield piece
        if stream.unused_data:
            raise CorruptSnapshot("bytes after the end of the gzip stream", name, offset)
        offset += len(window)
    if not stream.eof:
        raise CorruptSnapshot("gzip stream is cut short", name, offset)


def _unpack_snappy(file: ReadFile, name: str) -> Iterator[bytes]:
    import cramjam

    header = file.read_at(0, len(_SNAPPY_HEADER))
    if header[:8] != _SNAPPY_HEADER[:8] or len(header) < len(_SNAPPY_HEADER):
        raise CorruptSnapshot("not a snappy stream", name, 0)
    offset = len(header)
    size = file.size()
    while offset < size:
        prefix = file.read_at(offset, _LENGTH.size)
        length = _LENGTH.unpack(prefix)[0] if len(prefix) == _LENGTH.size else -1
        if not 0 < length <= _SNAPPY_BLOCK_LIMIT or offset + _LENGTH.size + length > size:
            raise CorruptSnapshot("a snappy block is cut short or has a bad length", name, offset)
        block = file.read_at(offset + _LENGTH.size, length)
        try:
            # The block itself states its unpacked length; a damaged one may claim gigabytes.
            if cramjam.snappy.decompress_raw_len(block) > _SNAPPY_BLOCK_LIMIT:
                raise CorruptSnapshot("a snappy block claims an absurd size", name, offset)
            piece = bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise CorruptSnapshot(f"a snappy block is damaged: {error}", name, offset) from error
        yield piece
        offset += _LENGTH.size + length
