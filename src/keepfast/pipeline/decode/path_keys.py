"""Paths as the relational replay knows them: 64-bit hashes, with what a path alone tells."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keepfast.pipeline.decode.gather import Ints, View
from keepfast.pipeline.decode.hashing import Hashes, content_hashes, mixed
from keepfast.tree import CONFIG, ROOT, ZOOKEEPER, is_quota_stats
from keepfast.wire import decode_text, encode_text

_WORD = 4
_ROOT, _CONFIG = ROOT.encode(), CONFIG.encode()
# How paths below /zookeeper begin, and the first eight bytes of that as a number.
RESERVED_PREFIX = f"{ZOOKEEPER}/".encode()
RESERVED_HEAD = int.from_bytes(RESERVED_PREFIX[:8])
# Marks of a path: below /zookeeper, which Apache's digest leaves out; and each member's own znode.
RESERVED, OWN = 1, 2


@dataclass(frozen=True, slots=True)
class PathTable:
    """What is kept of paths."""

    keys: Hashes
    crcs: list[int]
    marks: NDArray[np.uint8]
    is_counted: list[bool]  # their data counts; servers rewrite that of quota statistics themselves
    parents: Hashes


def path_table(raws: list[bytes]) -> PathTable:
    """The keys of paths as they lie in files; the root may be empty."""
    raws = [raw or _ROOT for raw in raws]
    joined = b"".join(raws)
    texts = raws
    if not joined.isascii():
        # Of what is not ASCII, files may hold two forms.
        raws = [encode_text(decode_text(raw)) for raw in raws]
        texts = [decode_text(raw).encode() for raw in raws]
        joined = b"".join(raws)
    ends = np.cumsum(np.array([len(raw) for raw in raws], np.int64))
    starts = np.append(0, ends)[: len(raws)]
    view = View(joined)
    crcs = [zlib.crc32(text) for text in texts]
    marks = np.zeros(len(raws), np.uint8)
    is_counted = [True] * len(raws)
    is_odd = (view.longs(starts) == RESERVED_HEAD) | (ends - starts == len(_ROOT))
    for row in np.flatnonzero(is_odd).tolist():
        marks[row] = _marks(raws[row])
        is_counted[row] = not is_quota_stats(decode_text(raws[row]))
        if raws[row] == _ROOT:
            crcs[row] = 0
    keys, parents = keys_at(view, starts, ends), parents_at(view, starts, ends)
    return PathTable(keys, crcs, marks, is_counted, parents)


def parents_at(view: View, starts: Ints, ends: Ints) -> Hashes:
    """The keys of the parents of paths where they lie: up to the last slash."""
    slashes = np.flatnonzero(view.bytes[: view.size] == ord("/"))
    above = np.append(slashes, 0)[np.searchsorted(slashes, ends) - 1]
    parents = keys_at(view, starts, np.maximum(above, starts))
    return np.where(above <= starts, _ROOT_KEY, parents)


def _marks(raw: bytes) -> int:
    return (RESERVED if raw.startswith(RESERVED_PREFIX) else 0) | (OWN if raw == _CONFIG else 0)


def path_keys(raws: list[bytes]) -> Hashes:
    """The 64-bit hashes of paths."""
    if not raws:
        return np.empty(0, np.uint64)
    ends = np.cumsum(np.array([len(raw) for raw in raws], np.int64))
    return keys_at(View(b"".join(raws)), np.append(0, ends[:-1]), ends)


def keys_at(view: View, starts: Ints, ends: Ints) -> Hashes:
    """The same for paths where they lie; an empty one is none."""
    lengths = ends - starts
    keys = np.zeros(len(starts), np.uint64)
    long = lengths >= _WORD
    if long.any():
        keys[long] = content_hashes(view, starts[long], ends[long])
    if not long.all():
        short = np.zeros(len(starts), np.uint64)
        for place in range(_WORD - 1):
            octet = view.octets(np.minimum(starts + place, view.size - 1)).astype(np.uint64)
            short = short << np.uint64(8) | np.where(place < lengths, octet, np.uint64(0))
        keys[~long] = mixed(short | lengths.astype(np.uint64) << np.uint64(32))[~long]
    return keys


_ROOT_KEY = path_keys([_ROOT])[0]
