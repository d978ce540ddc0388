"""What one file says by itself: the small rows that the cheap pass of an audit gives.

Made where the file is read, compared where all of them come together.  A log becomes its runs of
back-to-back records, one hash a bucket of zxids, and the places that hold no record; a snapshot
what its seals and its stats say.  Nothing here compares servers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from keepfast.pipeline.decode.events import Rows, SnapshotRows, znode_sums
from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.decode.path_keys import OWN
from keepfast.pipeline.files.access import open_file
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.scan.forms import FormRows, form_rows, is_odd, is_tree
from keepfast.pipeline.scan.summaries import ScanSummary, add_hashes, summarize
from keepfast.pipeline.schemas import BUCKET_BITS
from keepfast.storage import (
    Disk,
    Frame,
    LogReader,
    ReadFile,
    SnapshotInfo,
    check_snapshot_name,
    load_tree,
    survey,
)
from keepfast.wire import (
    CorruptSnapshot,
    MalformedRecord,
    canonical_entry,
    counter_of,
    decode_entry,
    encode_entry,
    follows_in_epoch,
)

_HEADER_SIZE = 16
_EPOCH_LIMIT_BYTES = 64
_MASK = (1 << 64) - 1
# In the reasons for bytes that are not a record: those on which Apache does not start.
_STOPPING = ("fails its checksum", "claims", "ZKLG")


@dataclass(frozen=True, slots=True)
class RecordRun:
    """Records of one file, back to back, each following the one before in its epoch."""

    first: int
    last: int
    start: int  # offset of the first record
    end: int  # offset after the last one


@dataclass(frozen=True, slots=True)
class Bucket:
    """All records of one file in one range of zxids, and the bytes between which they lie.

    The hashes do not depend on the order of the records; see `scan`.
    """

    bucket: int
    count: int
    content: int
    digests: int
    digest: int
    start: int
    end: int

    def plus(self, other: Bucket) -> Bucket:
        """Both together."""
        return Bucket(
            self.bucket,
            self.count + other.count,
            add_hashes(self.content, other.content),
            self.digests + other.digests,
            add_hashes(self.digest, other.digest),
            min(self.start, other.start),
            max(self.end, other.end),
        )


@dataclass(frozen=True, slots=True)
class BadBytes:
    """Bytes of a log that are not a record, and are not the zeros after the last one."""

    offset: int
    reason: str
    is_torn: bool  # a crash explains them
    valid_after: int | None  # where the next sound record begins
    stops_server: bool  # Apache does not start on this; elsewise it takes it for the end
    behind: int | None  # the last sound zxid before it


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One log file."""

    path: str
    zxid: int  # of its name
    size: int
    mtime: float
    runs: tuple[RecordRun, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    bad: tuple[BadBytes, ...] = ()
    records: int = 0
    end: int = 0  # offset after the last sound record
    has_digests: bool = False
    error: str = ""  # why it could not be read
    is_gone: bool = False  # it was there when the directory was listed
    bucket_bits: int = BUCKET_BITS  # a bucket is as many zxids wide as this power of two

    @property
    def is_padded(self) -> bool:
        """Whether zeros follow the last record: a log that was cut by a TRUNC has none."""
        return self.size > self.end


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """One snapshot file; `fuzzy_until` is the last zxid of which it shows an effect."""

    path: str
    zxid: int
    size: int
    mtime: float
    is_valid: bool
    reason: str = ""
    offset: int | None = None
    fuzzy_until: int = 0
    digest_zxid: int | None = None
    digest: int | None = None  # what it says the tree's was at that zxid
    digest_version: int | None = None
    znodes: int = 0
    state: int | None = None  # what its znodes add up to: see `decode.events.znode_states`
    own_digest: int | None = None  # the tree digest of its znodes
    sessions: tuple[int, ...] = ()  # of one at the start of an epoch
    config: str = ""  # /zookeeper/config, which 3.5 and later write
    is_odd: bool = False  # some znode is as no sequence of transactions makes it: see `scan.forms`
    starts: tuple[int, ...] = ()  # where its parts begin, of one that is read in several
    error: str = ""  # why it could not be read, where that says nothing about its content
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """The epoch files; -1 stands for one that cannot be read, None for one that is missing."""

    accepted: int | None = None
    current: int | None = None
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """One record, for the comparison record by record."""

    zxid: int
    path: str
    offset: int
    content: int  # hash of what all servers that agree have in common
    digest: int | None  # the tree digest that it states


# -- logs ------------------------------------------------------------------------------------------


def log_facts(
    part: Part,
    known: Known[ScanSummary],
    after: int | None = None,
    bucket_bits: int = BUCKET_BITS,
) -> LogFacts:
    """Read a log, or the part of it that is asked for; see `scan.summarize`."""
    facts = LogFacts(part.path, part.zxid, part.size, part.mtime, bucket_bits=bucket_bits)
    if part.start == 0:
        # Logs are read in the order of their first zxids, of all servers (`parts.side_by_side`).
        known.forget_before(part.zxid)
    try:
        with open_file(part.path) as file:
            rows = summarize(file, part.start, part.stop, known, after)
    except FileNotFoundError:
        return replace(facts, is_gone=True)
    except OSError as error:
        return replace(facts, error=f"cannot be read: {error.strerror or error}")
    runs = [row for row in rows if row.kind == "run"]
    if after is not None and runs and runs[0].records == (runs[0].last_zxid or 0) - after:
        # It begins with an error under the zxid of the record before, which has no number.
        runs[0] = replace(runs[0], first_zxid=after + 1)
    return replace(
        facts,
        runs=tuple(_runs(runs)),
        buckets=tuple(_buckets(runs, bucket_bits)),
        bad=tuple(_bad(rows)),
        records=sum(row.records + row.unnumbered for row in runs),
        end=runs[-1].end_offset if runs else max(part.start, _HEADER_SIZE),
        has_digests=any(row.digests for row in runs),
    )


def joined(parts: Sequence[LogFacts]) -> LogFacts:
    """The facts of a log that was read in parts, in their order."""
    whole = parts[0]
    for part in parts[1:]:
        runs = list(whole.runs)
        fresh = list(part.runs)
        if runs and fresh and _goes_on(runs[-1], fresh[0]):
            runs[-1] = RecordRun(runs[-1].first, fresh[0].last, runs[-1].start, fresh[0].end)
            del fresh[0]
        whole = replace(
            whole,
            runs=(*runs, *fresh),
            buckets=(*whole.buckets, *part.buckets),
            bad=(*whole.bad, *part.bad),
            records=whole.records + part.records,
            end=part.end if part.runs else whole.end,
            has_digests=whole.has_digests or part.has_digests,
            error=whole.error or part.error,
        )
    return whole


def sealed(log: LogFacts, last: int, end: int) -> LogFacts:
    """A log that ends with the record `last` at the offset `end`, whatever lies after that."""
    if log.end <= end and all(bad.offset < end for bad in log.bad):
        return log
    runs = [
        replace(run, last=last, end=end) if run.first <= last < run.last else run
        for run in log.runs
        if run.start < end
    ]
    return replace(
        log,
        runs=tuple(runs),
        bad=tuple(bad for bad in log.bad if bad.offset < end),
        records=log.records - _zxids_in(log.runs) + _zxids_in(runs),
        end=min(log.end, end),
    )


def _zxids_in(runs: Iterable[RecordRun]) -> int:
    return sum(run.last - run.first + 1 for run in runs)


def _goes_on(run: RecordRun, following: RecordRun) -> bool:
    return run.end == following.start and follows_in_epoch(following.first, run.last)


def _runs(rows: list[ScanSummary]) -> Iterator[RecordRun]:
    """The runs of rows, whose borders are those of buckets too."""
    current: RecordRun | None = None
    for row in rows:
        run = RecordRun(row.first_zxid or 0, row.last_zxid or 0, row.start_offset, row.end_offset)
        if current is not None and _goes_on(current, run):
            current = RecordRun(current.first, run.last, current.start, run.end)
            continue
        if current is not None:
            yield current
        current = run
    if current is not None:
        yield current


def buckets_between(path: str, start: int, end: int, known: Known[ScanSummary]) -> Iterator[Bucket]:
    """The narrowest buckets of the records that begin between two offsets of a log.

    Raises OSError.
    """
    with open_file(path) as file:
        _check_holds(file, end)
        rows = summarize(file, start, end, known)
    yield from _buckets([row for row in rows if row.kind == "run"], BUCKET_BITS)


def _buckets(rows: list[ScanSummary], bucket_bits: int) -> Iterator[Bucket]:
    found: dict[int, Bucket] = {}
    for row in rows:
        key = (row.bucket or 0) >> bucket_bits - BUCKET_BITS
        new = Bucket(
            *(key, row.records, row.content_hash, row.digests, row.digest_hash),
            *(row.start_offset, row.end_offset),
        )
        old = found.get(key)
        found[key] = new if old is None else old.plus(new)
    yield from found.values()


def _bad(rows: list[ScanSummary]) -> Iterator[BadBytes]:
    behind: int | None = None
    for row in rows:
        if row.kind == "run":
            behind = row.last_zxid
        elif row.kind == "damage":
            reason = row.problem or ""
            is_torn = (row.is_torn or row.is_unmarked) and row.valid_after is None
            # Apache takes zeros and a missing end mark for the end of a file; these it does not.
            stops = any(text in reason for text in _STOPPING)
            yield BadBytes(
                *(row.start_offset, reason, is_torn, row.valid_after),
                stops and not is_torn,
                behind,
            )


def _check_holds(file: ReadFile, end: int) -> None:
    """Refuse a log that is shorter than when it was first read."""
    if file.size() < end:
        raise OSError(f"it now ends at {file.size()}")


def record_facts(path: str, ranges: Sequence[tuple[int, int, int, int]]) -> Iterator[RecordFacts]:
    """The sound records of a log in ranges of zxids, each with the bytes that hold it.

    Raises OSError.
    """
    with open_file(path) as file:
        for first, last, start, end in ranges:
            _check_holds(file, end)
            for frame in _frames(file, start, end):
                if first <= frame.zxid <= last:
                    yield _record(path, frame)


def _frames(file: ReadFile, start: int, end: int) -> Iterator[Frame]:
    """The sound records between two offsets, also those after damage."""
    last = -1
    while True:
        reader = LogReader(file, start, end)
        for frame in reader:
            if frame.zxid != last or not survey.is_unnumbered(frame.entry):
                yield frame
            last = frame.zxid
        after = reader.ending.valid_after
        if after is None or after >= end:
            return
        start = after


def _record(path: str, frame: Frame) -> RecordFacts:
    try:
        entry = canonical_entry(decode_entry(frame.entry))
    except MalformedRecord:
        return RecordFacts(frame.zxid, path, frame.offset, _hash(frame.entry), None)
    digest = None if entry.digest is None else entry.digest.tree_digest
    # Versions differ in whether they write a digest; that is no difference of content.
    bare = encode_entry(entry._replace(digest=None))
    return RecordFacts(frame.zxid, path, frame.offset, _hash(bare), digest)


def _hash(entry: bytes) -> int:
    return (zlib.crc32(entry) << 31) ^ zlib.adler32(entry)


# -- snapshots and epochs --------------------------------------------------------------------------


def snapshot_facts(disk: Disk, path: str, zxid: int, mtime: float) -> SnapshotFacts:
    """Read a snapshot in full, some znodes at a time."""
    size = 0
    try:
        size = disk.size(path)
        with disk.open_read(path) as file:
            facts = _sound_snapshot(file, SnapshotFacts(path, zxid, size, mtime, True))
        if facts is None:
            # Its form is wrong; the loader has the words for it.
            load_tree(disk, path, is_fuzzy=True)
            raise CorruptSnapshot("its znodes are not those of a tree", path)
        return facts
    except CorruptSnapshot as error:
        facts = SnapshotFacts(path, zxid, size, mtime, False, error.reason, error.offset)
        # The same error stands for a file that may not be read, or is no longer there.
        denied = error.reason if isinstance(error.__cause__, OSError) else ""
        is_gone = isinstance(error.__cause__, FileNotFoundError)
        return replace(facts, error=denied, is_gone=is_gone)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        is_gone = isinstance(error, FileNotFoundError)
        facts = SnapshotFacts(path, zxid, size, mtime, False, reason)
        return replace(facts, error=reason, is_gone=is_gone)


def _sound_snapshot(file: ReadFile, facts: SnapshotFacts) -> SnapshotFacts | None:
    """The facts of a snapshot whose seals are right; None if its znodes make no tree."""
    found = SnapshotRows(file, facts.path)
    forms: list[FormRows] = []
    sessions = np.empty(0, np.int64)
    state = digest = seen = count = 0
    for rows in found.batches():
        if not forms:
            sessions = np.fromiter(found.reader.sessions, np.int64)
        state, digest = map(sum, zip((state, digest), znode_sums(rows), strict=True))
        seen = max(seen, newest_zxid(rows))
        forms.append(form_rows(rows, facts.zxid, sessions, count))
        count += len(rows)
    znodes = np.concatenate([form.znodes for form in forms])
    children = np.concatenate([form.children for form in forms])
    info = found.reader.info
    if info is None or not is_tree(znodes, children):
        return None
    is_any_odd = any(form.is_odd for form in forms) or is_odd(znodes, children)
    sums = state & _MASK, digest & _MASK
    content = SnapshotContent(seen, len(znodes), *sums, found.config, is_any_odd)
    return with_content(facts, info, found.reader.sessions, content)


def newest_zxid(rows: Rows) -> int:
    """The last zxid of which some znodes of a snapshot show an effect."""
    # The mzxid of /zookeeper/config is the version of a configuration.
    stat = rows["stat"][rows["marks"] & OWN == 0]
    return max((int(stat[name].max(initial=0)) for name in ("czxid", "mzxid", "pzxid")), default=0)


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What the znodes of a snapshot say, all together; for the names see `SnapshotFacts`."""

    seen: int
    znodes: int
    state: int
    own_digest: int
    config: bytes
    is_odd: bool
    starts: tuple[int, ...] = ()


def with_content(
    facts: SnapshotFacts, info: SnapshotInfo, sessions: Iterable[int], content: SnapshotContent
) -> SnapshotFacts:
    """The facts of a sound snapshot by its seals and its content; raises CorruptSnapshot."""
    check_snapshot_name(info, facts.path)
    is_start = counter_of(facts.zxid) == 0
    return replace(
        facts,
        fuzzy_until=max(facts.zxid, info.digest_zxid or 0, info.last_processed or 0, content.seen),
        digest_zxid=info.digest_zxid,
        digest=info.digest,
        digest_version=info.digest_version,
        znodes=content.znodes,
        state=content.state,
        own_digest=content.own_digest,
        sessions=tuple(sorted(sessions)) if is_start else (),
        config=content.config.decode("utf-8", "replace"),
        is_odd=content.is_odd,
        starts=content.starts,
    )


def epoch_value(disk: Disk, path: str) -> int:
    """The number in an epoch file; -1 if there is none."""
    try:
        with disk.open_read(path) as file:
            text = file.read_at(0, _EPOCH_LIMIT_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return -1
    return int(text) if text.isdecimal() and len(text) < 20 else -1
