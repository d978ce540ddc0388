"""Packed snapshots: what one side packs the other unpacks, and a cut stream is never an end."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

import cramjam
import pytest

from keepfast.sim import MemoryDisk
from keepfast.storage import Compression
from keepfast.storage.compression import packer, unpacked
from keepfast.wire import CorruptSnapshot
from tests.storage.directories import packed

BLOCK = 32768
SIZES = (0, 1, 1000, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 77)


def sample(size: int) -> bytes:
    rng = random.Random(size)
    parts = (rng.choice((b"/zookeeper", rng.randbytes(7))) for _ in range(size // 7 + 1))
    return b"".join(parts)[:size]


def pack(data: bytes, compression: Compression, step: int = 5000) -> bytes:
    writer = packer(compression)
    parts = [writer.pack(data[start : start + step]) for start in range(0, len(data), step)]
    return b"".join((*parts, writer.finish()))


def unpack(data: bytes, compression: Compression) -> bytes:
    disk = MemoryDisk()
    disk.put("/snapshot", data)
    with disk.open_read("/snapshot") as file:
        return b"".join(unpacked(file, compression, "/snapshot"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("compression", Compression)
def test_round_trip__same_bytes(compression: Compression, size: int) -> None:
    data = sample(size)
    for step in (1 + size // 3, 100_000):
        assert unpack(pack(data, compression, step), compression) == data
    assert unpack(packed(data, compression), compression) == data


def test_gzip__other_readers_agree() -> None:
    data = sample(100_000)
    assert gzip.decompress(pack(data, Compression.GZIP)) == data


def test_snappy__layout_of_snappy_java() -> None:
    data = sample(BLOCK + 5)
    found = pack(data, Compression.SNAPPY)
    assert found[:16] == bytes.fromhex("82534e41505059000000000100000001")
    parts, offset = [], 16
    while offset < len(found):
        (length,) = struct.unpack_from(">i", found, offset)
        block = found[offset + 4 : offset + 4 + length]
        parts.append(bytes(cramjam.snappy.decompress_raw(block)))
        offset += 4 + length
    assert [len(part) for part in parts] == [BLOCK, 5]
    assert b"".join(parts) == data


def test_gzip_cut_anywhere__refused() -> None:
    found = pack(sample(3000), Compression.GZIP)
    for size in range(len(found)):
        with pytest.raises(CorruptSnapshot):
            unpack(found[:size], Compression.GZIP)


def test_snappy_cut_inside_a_block__refused() -> None:
    data = sample(2 * BLOCK)
    found = pack(data, Compression.SNAPPY)
    (first,) = struct.unpack_from(">i", found, 16)
    for size in range(0, len(found), 7):
        with pytest.raises(CorruptSnapshot):
            unpack(found[:size], Compression.SNAPPY)
    # Between two blocks nothing tells; the seals inside a snapshot do.
    assert unpack(found[: 20 + first], Compression.SNAPPY) == data[:BLOCK]


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY])
def test_any_byte_changed__refused_or_other_bytes(compression: Compression) -> None:
    """A stream of snappy has no check sum of its own: a change shows in what it unpacks to."""
    data = sample(400)
    found = pack(data, compression)
    for at in range(len(found)):
        changed = found[:at] + bytes([found[at] ^ 0xFF]) + found[at + 1 :]
        try:
            result = unpack(changed, compression)
        except CorruptSnapshot:
            continue
        is_header = at < 10 if compression is Compression.GZIP else 8 <= at < 16
        assert (result == data) == is_header, at


@pytest.mark.parametrize("more", [b"\0", b"more", gzip.compress(b"more", mtime=0)])
def test_gzip_with_bytes_behind_it__refused(more: bytes) -> None:
    found = pack(sample(3000), Compression.GZIP)
    with pytest.raises(CorruptSnapshot, match="after the end"):
        unpack(found + more, Compression.GZIP)


def test_gzip_of_endless_zeros__unpacked_in_bounded_pieces() -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush()
    disk = MemoryDisk()
    disk.put("/bomb", bomb)
    with disk.open_read("/bomb") as file:
        sizes = [len(piece) for piece in unpacked(file, Compression.GZIP, "/bomb")]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= 4 << 20


@pytest.mark.parametrize("length", [0, -1, 0x7FFFFFFF, 65 << 20])
def test_snappy_with_an_absurd_length__refused(length: int) -> None:
    found = pack(sample(100), Compression.SNAPPY)
    with pytest.raises(CorruptSnapshot, match="bad length"):
        unpack(found[:16] + struct.pack(">i", length) + found[20:], Compression.SNAPPY)


def test_snappy_block_that_claims_gigabytes__refused_before_they_are_asked_for() -> None:
    block = b"\xff\xff\xff\xff\x0f" + b"\x00a"  # a length of 4 GB, and then one byte
    stream = packed(b"", Compression.SNAPPY) + struct.pack(">i", len(block)) + block
    with pytest.raises(CorruptSnapshot):
        unpack(stream, Compression.SNAPPY)
