"""The verifying scan: every byte of a log checked, and summarised in a few rows of SUMMARY_SCHEMA.

A row stands for a run of records, each directly after the one before, inside one bucket of zxids
(`zxid >> BUCKET_BITS`). Buckets are the same on every server, so two servers hold the same records
of a bucket if the sums of their rows agree, and only where they do not has anybody to look at
records. Rows come in the order of the file; where one does not begin with the zxid after the last
of the row before, there is a step in the log: the start of an epoch, or a hole.

What is summed up is not the bytes but what servers agree on:

- `content_hash` is the sum, modulo 2^64, of a hash of each record: any order gives the same sum,
  and a record that is there twice counts twice. A multi that failed is taken in its canonical
  form; healthy servers hold two others (`wire.canonical_entry`).
- The digest after a record is left out there and has a sum of its own, `digest_hash`: servers of
  different versions, or with the feature off on one of them, log the same txns without it.
- `unnumbered` counts error records under the zxid of the record before (`storage.survey`), which
  have no part in the sums: they change nothing, and only the server that made them has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from keepfast.pipeline.decode.bodies import MAX_ELEMENTS, locate_operations
from keepfast.pipeline.decode.frames import (
    FRAME_HEADER_SIZE,
    FRAME_OVERHEAD,
    Frames,
    Passed,
    read_pieces,
)
from keepfast.pipeline.decode.gather import Bools, Ints, View
from keepfast.pipeline.decode.hashing import Hashes, content_hashes, mixed
from keepfast.pipeline.decode.known import (
    LARGEST_STRETCH,
    STRETCH_RECORDS,
    Known,
    Stretch,
    is_whole,
)
from keepfast.pipeline.decode.txns import FileOrigin
from keepfast.pipeline.schemas import BUCKET_BITS, SUMMARY_SCHEMA
from keepfast.storage import Ending, ReadFile
from keepfast.wire import MalformedRecord, OpCode, canonical_entry, decode_entry, encode_entry

_HEADER_SIZE = 32
_DIGEST_SIZE = 12
_DIGEST_VERSION = 2
_ERROR_ENTRY_SIZE = 36
_COUNTER_MASK = 0xFFFFFFFF
_MASK = (1 << 64) - 1
_SIGN = 1 << 63
_MAX_TIME_MS = 250_000_000_000_000


@dataclass(frozen=True, slots=True)
class ScanSummary:
    """One row of SUMMARY_SCHEMA without the names of its file: a run of records, summed up."""

    kind: str
    start_offset: int
    end_offset: int
    bucket: int | None = None
    first_zxid: int | None = None
    last_zxid: int | None = None
    records: int = 0
    unnumbered: int = 0
    content_hash: int = 0
    digests: int = 0
    digest_hash: int = 0
    first_time: int | None = None  # microseconds
    last_time: int | None = None
    problem: str | None = None
    is_torn: bool = False
    is_unmarked: bool = False
    valid_after: int | None = None


def add_hashes(*values: int) -> int:
    """The sum of hashes as SUMMARY_SCHEMA holds it: modulo 2^64, as a signed number."""
    return ((sum(values) & _MASK) ^ _SIGN) - _SIGN


def summarize(
    file: ReadFile,
    start: int = 0,
    stop: int | None = None,
    known: Known[ScanSummary] | None = None,
    after: int | None = None,
) -> list[ScanSummary]:
    """Check the records that begin in [start, stop) of a log and sum them up, in file order.

    `after` is the zxid of the record that ends at `start`, where what was before is known already.

    `known` is what was read of other logs, and learns from this one; it saves time and changes
    nothing else. Never fails on what a file holds; an OSError of `file` passes.
    """
    rows = _Rows(known, after)
    size = file.size()
    for item in read_pieces(file, known or Known(), start, stop, after):
        if isinstance(item, Passed):
            rows.add_known(item)
        elif isinstance(item, Frames):
            rows.add_frames(item)
        else:
            rows.add_ending(_ending_row(item.ending, size))
    return rows.rows


class _Rows:
    """The rows of one log; what it learns about stretches goes to `known`."""

    def __init__(self, known: Known[ScanSummary] | None, after: int | None) -> None:
        self.rows: list[ScanSummary] = []
        self._known = known
        self._previous = after  # the zxid of the record before
        # The start of a stretch whose end lies in the next window.
        self._begun: tuple[ScanSummary, bytes] | None = None

    def add_ending(self, row: ScanSummary) -> None:
        """Bytes that are not a record."""
        self.rows.append(row)
        self._previous = self._begun = None

    def add_known(self, passed: Passed[ScanSummary]) -> None:
        """A stretch whose sums are known."""
        stretch = passed.stretch
        end = passed.offset + len(stretch.data)
        row = replace(stretch.note, start_offset=passed.offset, end_offset=end)
        # It directly follows the record before, or is the first one after an ending.
        self._add(row, self._previous is not None and _is_in_bucket(row, self._previous))
        self._previous, self._begun = stretch.last, None

    def add_frames(self, frames: Frames) -> None:
        """Records."""
        cuts_stretches = self._known is not None
        for row, goes_on, follows in _summarize_frames(frames, self._previous, cuts_stretches):
            if cuts_stretches:
                self._learn(frames, row, follows)
            self._add(row, goes_on)
        self._previous = int(frames.headers["zxid"][-1])

    def _add(self, row: ScanSummary, goes_on: bool) -> None:
        if goes_on and self.rows:
            self.rows[-1] = _joined(self.rows[-1], row)
        else:
            self.rows.append(row)

    def _learn(self, frames: Frames, row: ScanSummary, follows: bool) -> None:
        """Note a whole stretch; a part of one waits for the rest of it."""
        first, last = row.first_zxid or 0, row.last_zxid or 0
        data = frames.view.data[row.start_offset - frames.base : row.end_offset - frames.base]
        if self._begun is not None and follows:
            row = _joined(self._begun[0], row)
            data = self._begun[1] + data
            first = row.first_zxid or 0
        self._begun = None
        if self._known is not None and is_whole(first, last):
            self._known.add(Stretch(first, last, data, row))
        elif first % STRETCH_RECORDS == 0 and len(data) <= LARGEST_STRETCH:
            self._begun = row, data


def _is_in_bucket(row: ScanSummary, zxid: int) -> bool:
    return row.bucket == zxid >> BUCKET_BITS


def as_batch(rows: Iterable[ScanSummary], origin: FileOrigin) -> pa.RecordBatch:
    """Summaries of one file as a batch of SUMMARY_SCHEMA."""
    listed = list(rows)
    names = {"ensemble": origin.ensemble, "server": origin.server, "file": origin.file}
    arrays = []
    for field in SUMMARY_SCHEMA:
        values: list[Any] = (
            [names[field.name]] * len(listed)
            if field.name in names
            else [getattr(row, field.name) for row in listed]
        )
        arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SUMMARY_SCHEMA)


def _ending_row(ending: Ending, size: int) -> ScanSummary:
    behind = size if ending.valid_after is None else ending.valid_after
    if ending.is_plain:
        return ScanSummary("end", ending.offset, behind)
    return ScanSummary(
        "damage",
        ending.offset,
        behind,
        problem=ending.reason,
        is_torn=ending.torn,
        is_unmarked=ending.unmarked,
        valid_after=ending.valid_after,
    )


def _joined(before: ScanSummary, after: ScanSummary) -> ScanSummary:
    return replace(
        before,
        end_offset=after.end_offset,
        last_zxid=after.last_zxid,
        records=before.records + after.records,
        unnumbered=before.unnumbered + after.unnumbered,
        content_hash=add_hashes(before.content_hash, after.content_hash),
        digests=before.digests + after.digests,
        digest_hash=add_hashes(before.digest_hash, after.digest_hash),
        last_time=after.last_time,
    )


def _summarize_frames(
    frames: Frames, previous: int | None, cuts_stretches: bool
) -> Iterator[tuple[ScanSummary, bool, bool]]:
    """The runs in some records, cut at the borders of buckets, and of stretches if that is asked.

    With each: whether it continues the row before, and the stretch before.
    """
    view, entries = frames.view, frames.offsets + FRAME_HEADER_SIZE
    lengths = frames.lengths
    ends = entries + lengths
    zxids, types, times = frames.header("zxid"), frames.header("type"), frames.header("time")
    before = np.concatenate([[zxids[0] - 1 if previous is None else previous], zxids[:-1]])
    repeated = (zxids == before) & (types == OpCode.ERROR) & (lengths == _ERROR_ENTRY_SIZE)
    if previous is None:
        repeated[0] = False
    follows = (zxids == before + 1) & (zxids & _COUNTER_MASK != 0)
    buckets = zxids >> BUCKET_BITS
    steps = ~(follows | repeated)
    steps[0] |= previous is None
    cut = steps | (buckets != before >> BUCKET_BITS)
    begins = cut
    if cuts_stretches:
        begins = steps | (zxids // STRETCH_RECORDS != before // STRETCH_RECORDS)
    first = np.flatnonzero(begins)
    if not begins[0]:
        # The border of a window went through a run.
        first = np.append(0, first)
    last = np.append(first[1:], len(zxids)) - 1
    has_digest = (lengths >= _HEADER_SIZE + _DIGEST_SIZE) & (
        view.ints(ends - _DIGEST_SIZE) == _DIGEST_VERSION
    )
    contents, digests = _hashes(view, entries, ends, has_digest)
    _take_canonical(view, entries, ends, types, contents)
    salt = mixed(zxids.astype(np.uint64))
    numbered = ~repeated
    content_sums = np.add.reduceat(np.where(numbered, mixed(contents ^ salt), 0), first)
    counted = has_digest & numbered
    digest_sums = np.add.reduceat(np.where(counted, mixed(digests ^ salt), 0), first)
    columns = zip(
        (frames.base + frames.offsets[first]).tolist(),
        (frames.base + ends[last] + FRAME_OVERHEAD - FRAME_HEADER_SIZE).tolist(),
        buckets[first].tolist(),
        zxids[first].tolist(),
        zxids[last].tolist(),
        np.add.reduceat(numbered.astype(np.int64), first).tolist(),
        np.add.reduceat(repeated.astype(np.int64), first).tolist(),
        content_sums.astype(np.int64).tolist(),
        np.add.reduceat(counted.astype(np.int64), first).tolist(),
        digest_sums.astype(np.int64).tolist(),
        map(_microseconds, times[first].tolist()),
        map(_microseconds, times[last].tolist()),
        strict=True,
    )
    goes_on, is_inside = (~cut[first]).tolist(), (~begins[first]).tolist()
    rows = [ScanSummary("run", *values) for values in columns]
    return zip(rows, goes_on, is_inside, strict=True)


def _microseconds(milliseconds: int) -> int | None:
    return milliseconds * 1000 if abs(milliseconds) < _MAX_TIME_MS else None


def _hashes(view: View, entries: Ints, ends: Ints, has_digest: Bools) -> tuple[Hashes, Hashes]:
    """Of each entry: the hash of all but its digest, and its digest."""
    contents = content_hashes(view, entries, ends - np.where(has_digest, _DIGEST_SIZE, 0))
    return contents, view.longs(ends - 8).astype(np.uint64)


def _take_canonical(view: View, entries: Ints, ends: Ints, types: Ints, contents: Hashes) -> None:
    """Replace the hashes of multis that failed by those of their canonical form."""
    multis = np.flatnonzero(types == OpCode.MULTI)
    if not len(multis):
        return
    starts = entries[multis] + _HEADER_SIZE
    counts = view.ints(starts)
    is_short = (starts + 4 <= ends[multis]) & (counts >= 0) & (counts <= MAX_ELEMENTS)
    found = locate_operations(view, starts, ends[multis], np.where(is_short, counts, 0))
    # A list that is too long for the fast path is looked at as if it had failed.
    failed = ~(is_short & found.ok)
    failed[found.rows[found.types == OpCode.ERROR]] = True
    replaced: list[int] = []
    canonical: list[bytes] = []
    for row in multis[failed].tolist():
        content = _canonical_content(view.data[int(entries[row]) : int(ends[row])])
        if content is not None:
            replaced.append(row)
            canonical.append(content)
    if replaced:
        borders = np.cumsum([0, *map(len, canonical)])
        joined = View(b"".join(canonical))
        contents[replaced] = content_hashes(joined, borders[:-1], borders[1:])


def _canonical_content(entry: bytes) -> bytes | None:
    """An entry in canonical form, without its digest; None if it cannot be decoded."""
    try:
        decoded = decode_entry(entry)
    except MalformedRecord:
        return None
    content = encode_entry(canonical_entry(decoded))
    if len(content) >= _HEADER_SIZE + _DIGEST_SIZE:
        version = int.from_bytes(content[-_DIGEST_SIZE:-8])
        if version == _DIGEST_VERSION:
            return content[:-_DIGEST_SIZE]
    return content
