"""The CRC-32 of many znodes at once, from the CRC of path and data and the numbers of the stat.

A CRC is linear: that of A followed by B is that of A, moved ahead by the length of B, xor B's.
Moving ahead by the 60 bytes of a stat, and the CRC of these 60 bytes, are looked up in tables of 16
bits each.  Data is read once, where it lies, and never again.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

Crcs = NDArray[np.uint32]

STAT_SIZE = 60
# As Apache hashes it: pzxid after mzxid, and not where it is in the stored form.
HASHED_STAT = np.dtype(
    [
        *((name, ">i8") for name in ("czxid", "mzxid", "pzxid", "ctime", "mtime")),
        *((name, ">i4") for name in ("version", "cversion", "aversion")),
        ("owner", ">i8"),
    ]
)
_WORDS = STAT_SIZE // 2


def _spread(bits: list[int]) -> Crcs:
    """The xor of the values of all bits that are set, for each 16-bit number."""
    table = np.zeros(1, np.uint32)
    for value in bits:
        table = np.concatenate([table, table ^ np.uint32(value)])
    return table


@cache
def _tables() -> tuple[Crcs, Crcs]:
    """For each place the CRC of each word there; and each half of a CRC moved ahead by a stat."""
    zeros = zlib.crc32(bytes(STAT_SIZE))
    places = []
    for place in range(_WORDS):
        bits = []
        for bit in range(16):
            message = bytearray(STAT_SIZE)
            message[2 * place : 2 * place + 2] = (1 << bit).to_bytes(2, "little")
            bits.append(zlib.crc32(message) ^ zeros)
        places.append(_spread(bits))
    moved = [zlib.crc32(bytes(STAT_SIZE), 1 << bit) ^ zeros for bit in range(32)]
    return np.stack(places), np.stack([_spread(moved[:16]), _spread(moved[16:])])


def crc_of(prefix: Crcs, stats: NDArray[np.void]) -> Crcs:
    """The CRCs of znodes: of each the CRC of path and data, and its stat as HASHED_STAT."""
    places, moved = _tables()
    result: Crcs = moved[0].take(prefix & 0xFFFF) ^ moved[1].take(prefix >> 16)
    result ^= np.uint32(zlib.crc32(bytes(STAT_SIZE)))
    words = np.ascontiguousarray(stats).view("<u2").reshape(len(stats), _WORDS)
    for place in range(_WORDS):
        result ^= places[place].take(words[:, place])
    return result
