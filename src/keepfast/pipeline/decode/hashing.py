"""Hashes by which records are compared without being compared.

The sum that a log stores for each record is no proof of equality: Adler-32 does not tell "121" from
"202". Here each record gets a second sum, over its words of four bytes with a random 64-bit factor
for each place (multilinear hashing, Lemire and Kaser, "Strongly universal string hashing is fast",
2014), and both are mixed with its zxid. The factors are fixed: hashes made by two programs, or on
two days, can be compared.
"""

from __future__ import annotations

import zlib
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.gather import Ints, View

Hashes = NDArray[np.uint64]

_WORD = 4
# Longer records are rare, and each length would need a pass of its own.
_MAX_WORDS = 512
_FACTORS: Hashes = np.random.Generator(np.random.PCG64(20140826)).integers(
    0, 2**64, _MAX_WORDS + 1, dtype=np.uint64
)
_LONG_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def content_hashes(view: View, starts: Ints, ends: Ints) -> Hashes:
    """A 64-bit hash of each slice of the buffer; slices are at least four bytes long."""
    lengths = ends - starts
    words = lengths // _WORD
    # The last word again, from the end: it takes the bytes that fill no word.
    result = view.ints(ends - _WORD).astype(np.uint64) * _FACTORS[_MAX_WORDS]
    result += lengths.astype(np.uint64) * _LONG_FACTOR
    # As short numbers, which numpy sorts by their digits, in a tenth of the time.
    order = np.argsort(np.minimum(words, _MAX_WORDS + 1).astype(np.uint16), kind="stable")
    borders = np.flatnonzero(np.diff(words[order])) + 1
    for first, last in pairwise([0, *borders.tolist(), len(order)]):
        rows = order[first:last]
        count = int(words[rows[0]]) if len(rows) else 0
        if count > _MAX_WORDS:
            result[rows] += _long_hashes(view, starts[rows], ends[rows])
        elif count:
            matrix = view.rows(starts[rows], count * _WORD).view(np.uint32).astype(np.uint64)
            result[rows] += np.einsum("ij,j->i", matrix, _FACTORS[:count])
    return mixed(result)


def _long_hashes(view: View, starts: Ints, ends: Ints) -> Hashes:
    data = memoryview(view.data)
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([zlib.crc32(data[start:end]) for start, end in pairs], np.uint64)


def mixed(values: Hashes) -> Hashes:
    """The finalizer of SplitMix64: every bit of the input moves every bit of the output."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
