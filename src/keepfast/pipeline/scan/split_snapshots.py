"""A large snapshot read in parts, each by whoever is free, and put together from small sums.

    map      a part: its znodes, by buckets of paths, and what they add up to
    reduce   a bucket of paths: is each there once, with its parent, and as a parent may be
    finish   all parts under one key

Where parts begin is guessed (`decode.snapshots`).  All of it is right only if each part ends where
the next one begins, their Adler-32 together is that of the seals, and the znodes are a tree.
Whatever is not, `split_facts` gives nothing, and the file is read as a whole: that says what is
wrong with it, and where.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from keepfast.pipeline.decode.events import SnapshotRows, builtin_rows, znode_sums
from keepfast.pipeline.decode.snapshots import read_seals
from keepfast.pipeline.files.access import open_file
from keepfast.pipeline.files.layout import is_remote
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.keyed import Found, Keyed
from keepfast.pipeline.scan.facts import (
    SnapshotContent,
    SnapshotFacts,
    newest_zxid,
    with_content,
)
from keepfast.pipeline.scan.forms import CHILDREN, ZNODE_FORM, form_rows, is_odd, is_tree
from keepfast.storage import Compression, SnapshotCursor, parse_snapshot_name
from keepfast.wire import CorruptSnapshot, Zxid, counter_of

# Up to here one task reads it: most are smaller, and cutting costs a shuffle.
WHOLE_BYTES = 256 << 20
_CUT_BYTES = 64 << 20
_BUCKET_BYTES = 128 << 20
_PARTS, _FORMS = -1, -2
# More znodes than a part has.
_PLACE_BITS = 40
_OF_ZNODES, _OF_CHILDREN = b"Z", b"C"
_ADLER_BASE = 65521
_MASK = (1 << 64) - 1


class PartSum(msgspec.Struct, frozen=True):
    """What a part says; `problem`: why it cannot be said in parts."""

    part: int
    first: int = 0
    reach: int = 0
    adler: int = 1
    znodes: int = 0
    state: int = 0
    own_digest: int = 0
    seen: int = 0
    builtin: int = 0  # how many of Apache's own znodes are in it
    is_odd: bool = False
    is_changed: bool = False  # the file, since it was listed
    config: bytes = b""
    tail: bytes | None = None
    session_count: int = 0
    sessions: list[int] = []  # of a snapshot at the start of an epoch
    problem: str = ""


class FormSum(msgspec.Struct, frozen=True):
    """The form of some buckets."""

    is_tree: bool
    is_odd: bool


@dataclass(frozen=True, slots=True)
class SnapshotSplit:
    """A snapshot, and where its parts begin, about."""

    path: str
    zxid: int
    size: int
    mtime: float
    starts: tuple[int, ...]

    @property
    def indexes(self) -> Sequence[int]:
        """One for each part."""
        return range(len(self.starts))

    @property
    def buckets(self) -> int:
        """How many buckets of paths there are."""
        return max(4, -(-self.size // _BUCKET_BYTES))

    @property
    def has_prelude(self) -> bool:
        """Nothing has to be known beforehand."""
        return False

    def prelude(self, index: int) -> Iterator[Keyed]:
        """Nothing."""
        return iter(())

    def resolve(self, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """Nothing."""
        return iter(())

    def map(self, index: int) -> Iterator[Keyed]:
        """The form of the znodes of one part, by bucket, and what they add up to."""
        try:
            yield from _map_part(self, index)
        except (CorruptSnapshot, OSError) as error:
            yield _PARTS, msgspec.msgpack.encode(PartSum(index, problem=str(error)))

    def reduce(self, key: int, blobs: Iterable[bytes]) -> Iterator[Keyed]:
        """The form of a bucket."""
        if key < 0:
            yield from ((key, blob) for blob in blobs)
            return
        znodes, children = [np.empty(0, ZNODE_FORM)], [np.empty(0, CHILDREN)]
        for blob in blobs:
            if blob.startswith(_OF_ZNODES):
                znodes.append(np.frombuffer(blob, ZNODE_FORM, offset=1))
            else:
                children.append(np.frombuffer(blob, CHILDREN, offset=1))
        rows, parents = np.concatenate(znodes), np.concatenate(children)
        found = FormSum(is_tree(rows, parents), is_odd(rows, parents))
        yield _FORMS, msgspec.msgpack.encode(found)

    def finish(self, key: int, blobs: Iterable[bytes]) -> list[bytes]:
        """The parts as they are, the forms together."""
        if key == _PARTS:
            return list(blobs)
        forms = [msgspec.msgpack.decode(blob, type=FormSum) for blob in blobs]
        total = FormSum(all(one.is_tree for one in forms), any(one.is_odd for one in forms))
        return [msgspec.msgpack.encode(total)]


def split_of(part: Part) -> SnapshotSplit | None:
    """How a file is read in parts; None if it is not."""
    if part.kind != "snapshot" or part.size <= WHOLE_BYTES:
        return None
    parsed = parse_snapshot_name(part.path.rpartition("/")[2])
    if parsed is None or parsed[1] is not Compression.NONE:
        return None
    starts = tuple(range(0, part.size - _CUT_BYTES // 2, _CUT_BYTES))
    return SnapshotSplit(part.path, part.zxid, part.size, part.mtime, starts)


def _map_part(split: SnapshotSplit, index: int) -> Iterator[Keyed]:
    start = split.starts[index]
    stop = split.starts[index + 1] if index + 1 < len(split.starts) else None
    state = digest = seen = count = builtin = 0
    is_part_odd = False
    own = builtin_rows()["path"]
    with open_file(split.path) as file:
        found = SnapshotRows(file, split.path)
        reader = found.reader
        sessions: np.ndarray | None = None
        for rows in found.part(start, stop, is_guess=True):
            if sessions is None:
                sessions = np.fromiter(reader.sessions, np.int64)
            state, digest = map(sum, zip((state, digest), znode_sums(rows), strict=True))
            seen = max(seen, newest_zxid(rows))
            builtin += int(np.isin(rows["path"], own).sum())
            form = form_rows(rows, split.zxid, sessions, (index << _PLACE_BITS) + count)
            count += len(rows)
            is_part_odd |= form.is_odd
            yield from _by_bucket(split, _OF_ZNODES, form.znodes, form.znodes["path"])
            yield from _by_bucket(split, _OF_CHILDREN, form.children, form.children["parent"])
    wanted = sorted(reader.sessions) if index == 0 and counter_of(split.zxid) == 0 else []
    found_sum = PartSum(
        *(index, reader.first, reader.reach, reader.adler, count),
        *(state & _MASK, digest & _MASK, seen, builtin),
        *(is_part_odd, _is_changed(split), found.config, reader.tail),
        *(len(reader.sessions), wanted),
    )
    yield _PARTS, msgspec.msgpack.encode(found_sum)


def _by_bucket(
    split: SnapshotSplit, tag: bytes, rows: np.ndarray, paths: np.ndarray
) -> Iterator[Keyed]:
    bucket = paths % np.uint64(split.buckets)
    for key in range(split.buckets):
        wanted = rows[bucket == key]
        if len(wanted):
            yield key, tag + wanted.tobytes()


def _is_changed(split: SnapshotSplit) -> bool:
    if is_remote(split.path):
        return False
    try:
        status = os.stat(split.path)
    except OSError:
        return True
    return (status.st_mtime, status.st_size) != (split.mtime, split.size)


def split_facts(split: SnapshotSplit, found: Found) -> tuple[SnapshotFacts, bool] | None:
    """The facts of a sound snapshot, and whether it changed; None: read it as a whole."""
    parts = [msgspec.msgpack.decode(blob, type=PartSum) for blob in found.get(_PARTS, ())]
    parts.sort(key=lambda one: one.part)
    form = FormSum(False, False)
    for blob in found.get(_FORMS, ()):
        form = msgspec.msgpack.decode(blob, type=FormSum)
    is_joined = all(left.reach == right.first for left, right in pairwise(parts))
    has_builtin = sum(part.builtin for part in parts) == len(builtin_rows())
    if any(part.problem for part in parts) or not (is_joined and has_builtin and form.is_tree):
        return None
    adler = 1
    for part in parts:
        adler = adler_joined(adler, part.adler, part.reach - part.first)
    last = parts[-1]
    facts = SnapshotFacts(split.path, split.zxid, split.size, split.mtime, True)
    content = SnapshotContent(
        max(part.seen for part in parts),
        sum(part.znodes for part in parts),
        sum(part.state for part in parts) & _MASK,
        sum(part.own_digest for part in parts) & _MASK,
        next((part.config for part in reversed(parts) if part.config), b""),
        form.is_odd or any(part.is_odd for part in parts),
        tuple(part.first for part in parts),
    )
    try:
        tail = SnapshotCursor(iter([last.tail or b""]), split.path, last.reach, adler)
        info = read_seals(tail, Zxid(split.zxid), last.session_count)
        facts = with_content(facts, info, parts[0].sessions, content)
    except CorruptSnapshot:
        return None
    return facts, any(part.is_changed for part in parts)


def adler_joined(first: int, second: int, size: int) -> int:
    """The Adler-32 of two pieces, from theirs and the size of the second."""
    low = (first & 0xFFFF) + (second & 0xFFFF) - 1
    high = (first >> 16) + (second >> 16) + size * ((first & 0xFFFF) - 1)
    return high % _ADLER_BASE << 16 | low % _ADLER_BASE
