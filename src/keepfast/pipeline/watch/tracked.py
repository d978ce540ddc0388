"""The facts of files that continue being written: new bytes are read, the rest is remembered.

A file whose size and times are the same is the same.  Of a log that grew, the records after the
last known one are read, once the bytes before them were seen to be what they were.  Anything
else is read as a whole.  A CRC of every block of bytes is kept, and some blocks are read again in
each look: a disk that changes bytes changes no time.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from keepfast.pipeline.decode.known import Known
from keepfast.pipeline.engine.stages import (
    CompareItem,
    FactsItem,
    FileFacts,
    Item,
    Value,
    run_item,
)
from keepfast.pipeline.files.parts import Part
from keepfast.pipeline.keyed import Found, KeyedWork, work_here
from keepfast.pipeline.scan.facts import Bucket, LogFacts, joined, log_facts
from keepfast.pipeline.scan.summaries import ScanSummary
from keepfast.pipeline.watch.checkpoint import Checkpoint

_BLOCK = 64 << 10
# The ends of earlier reads, from which records after a zxid are found without a search.
_MAX_ENDS = 16
_KIND = "file"
# Two writes closer than this may leave the same time.
_TICK_S = 0.5


class TrackedFile(msgspec.Struct):
    """One file, as it was read last."""

    path: str
    inode: int
    size: int
    changed: float  # the time of its content
    facts: FileFacts
    blocks: list[int] = []  # CRCs of all blocks that were read; the last may be short
    covered: int = 0  # bytes that the CRCs speak for
    ends: list[tuple[int, int]] = []  # zxid, and the offset after its record


@dataclass(slots=True)
class ReadCounts:
    """What a watch has read since it was started."""

    new_bytes: int = 0
    again_bytes: int = 0  # against bit rot
    records: int = 0


@dataclass
class TrackedFiles:
    """Does the items of an audit from what is known; see `stages.Runner`."""

    checkpoint: Checkpoint
    settle_s: float  # a file that is not whole is left alone for so long: it may be being written
    counts: ReadCounts = field(default_factory=ReadCounts)

    def __post_init__(self) -> None:
        self._files = {
            path: msgspec.msgpack.decode(value, type=TrackedFile)
            for path, value in self.checkpoint.texts(_KIND).items()
        }
        self._known: Known[ScanSummary] = Known()
        self._compared: dict[CompareItem, Value] = {}
        self._fresh: set[str] = set()
        self._next = ""  # the file whose blocks are read again next
        self._next_block = 0

    def __call__(self, items: Sequence[Item]) -> list[Value]:
        """Do items one after the other."""
        values: list[Value] = []
        compared: dict[CompareItem, Value] = {}
        for item in items:
            if isinstance(item, FactsItem):
                values.append(self._facts(item.part))
            elif isinstance(item, CompareItem):
                known = self._compared.get(item)
                compared[item] = run_item(item, self._known) if known is None else known
                values.append(compared[item])
            else:
                values.append(run_item(item, self._known))
        names = {item.ensemble for item in compared}
        others = {one: value for one, value in self._compared.items() if one.ensemble not in names}
        self._compared = others | compared
        return values

    def sum_up(self, works: Sequence[KeyedWork]) -> list[Found]:
        """Do works one after the other."""
        return [work_here(work) for work in works]

    @property
    def size(self) -> int:
        """The bytes of all files that are known."""
        return sum(tracked.covered for tracked in self._files.values())

    def begin(self) -> None:
        """A new look begins."""
        self._known = Known()
        self._fresh = set()

    def forget_others(self) -> None:
        """Forget the files that were not asked for in this look: they are no longer there."""
        for path in [path for path in self._files if path not in self._fresh]:
            self.forget(path)

    def forget(self, path: str) -> None:
        """Read a file as a whole when it is asked for next."""
        if self._files.pop(path, None) is not None:
            self.checkpoint.drop_text(_KIND, path)

    def start_of(self, path: str, zxid: int) -> int | None:
        """An offset of a log before the record that follows `zxid`, close to it."""
        tracked = self._files.get(path)
        found = [end for last, end in tracked.ends if last <= zxid] if tracked else []
        return max(found, default=None)

    # -- facts -------------------------------------------------------------------------------------

    def _facts(self, part: Part) -> FileFacts:
        self._fresh.add(part.path)
        tracked = self._files.get(part.path)
        try:
            status = os.stat(part.path)
        except OSError:
            # What can be said about it, is said by reading it.
            return self._read(part)
        if tracked is not None and tracked.inode == status.st_ino:
            if (tracked.size, tracked.changed) == (status.st_size, status.st_mtime):
                return tracked.facts
            grown = self._grown(tracked, part, status)
            if grown is not None:
                return grown
        return self._read(part)

    def _read(self, part: Part) -> FileFacts:
        """A file as a whole."""
        self.forget(part.path)
        # Its state is taken before its content: what is written meanwhile is seen in the next look.
        try:
            status = os.stat(part.path)
        except OSError:
            status = None
        value = run_item(FactsItem(part), self._known)
        facts = replace(value, is_changed=False) if isinstance(value, FileFacts) else FileFacts()
        snapshot = facts.snapshot
        if status is None or (facts.log is not None and facts.log.error):
            return facts
        is_young = time.time() - status.st_mtime < self.settle_s
        if snapshot is not None and not snapshot.is_valid and not snapshot.error and is_young:
            return FileFacts(snapshot=replace(snapshot, is_gone=True))
        tracked = TrackedFile(part.path, status.st_ino, status.st_size, _time_of(status), facts)
        log = facts.log
        if log is not None:
            tracked.facts = FileFacts(log=replace(log, buckets=_compact(log.buckets)))
            self._note_end(tracked, log)
            self.counts.records += log.records
        self._keep(tracked, status.st_size if log is None else log.end)
        return tracked.facts

    def _grown(self, tracked: TrackedFile, part: Part, status: os.stat_result) -> FileFacts | None:
        """The facts of a log that was written on; None if it has to be read as a whole."""
        log = tracked.facts.log
        if log is None or not log.runs or status.st_size < log.end or log.error:
            return None
        if not self._is_same(tracked, len(tracked.blocks) - 1):
            return None
        # Bytes after the last record that were none may be a part of one that is there now.
        sound = replace(log, bad=tuple(bad for bad in log.bad if bad.offset < log.end))
        after = log.runs[-1].last
        more = log_facts(replace(part, start=log.end), self._known, after)
        if more.is_gone or more.error:
            return None
        more = replace(
            more,
            bad=tuple(
                replace(bad, behind=after) if bad.behind is None else bad for bad in more.bad
            ),
        )
        whole = replace(joined([sound, more]), size=status.st_size, mtime=status.st_mtime)
        tracked.facts = FileFacts(log=replace(whole, buckets=_compact(whole.buckets)))
        tracked.size, tracked.changed = status.st_size, _time_of(status)
        self._note_end(tracked, whole)
        self.counts.records += more.records
        self._keep(tracked, whole.end)
        return tracked.facts

    def _note_end(self, tracked: TrackedFile, log: LogFacts) -> None:
        if log.runs and (not tracked.ends or tracked.ends[-1][1] != log.end):
            tracked.ends = [*tracked.ends[-_MAX_ENDS + 1 :], (log.runs[-1].last, log.end)]

    # -- bytes -------------------------------------------------------------------------------------

    def _keep(self, tracked: TrackedFile, end: int) -> None:
        """Remember a file up to an offset."""
        first = tracked.covered // _BLOCK * _BLOCK
        try:
            with open(tracked.path, "rb") as file:
                file.seek(first)
                del tracked.blocks[first // _BLOCK :]
                for at in range(first, end, _BLOCK):
                    tracked.blocks.append(zlib.crc32(file.read(min(_BLOCK, end - at))))
        except OSError:
            # Gone: the next look finds out.
            return
        self.counts.new_bytes += end - tracked.covered
        tracked.covered = end
        self._files[tracked.path] = tracked
        self.checkpoint.put_text(_KIND, tracked.path, msgspec.msgpack.encode(tracked))

    def _is_same(self, tracked: TrackedFile, block: int) -> bool:
        if block < 0:
            return True
        start = block * _BLOCK
        try:
            with open(tracked.path, "rb") as file:
                file.seek(start)
                data = file.read(min(_BLOCK, tracked.covered - start))
        except OSError:
            return False
        return zlib.crc32(data) == tracked.blocks[block]

    def read_again(self, max_bytes: int) -> list[str]:
        """Read some blocks again; returns the files in which bytes are others than they were.

        Each look continues where the one before ended, and wraps around.
        """
        names = sorted(self._files)
        changed: list[str] = []
        left = max_bytes
        seen = 0
        at = next((i for i, name in enumerate(names) if name >= self._next), 0)
        while names and left > 0 and seen <= len(names):
            tracked = self._files[names[at % len(names)]]
            first = self._next_block if tracked.path == self._next else 0
            for block in range(first, len(tracked.blocks)):
                if left <= 0:
                    self._next, self._next_block = tracked.path, block
                    break
                left -= _BLOCK
                self.counts.again_bytes += _BLOCK
                if not self._is_same(tracked, block):
                    changed.append(tracked.path)
                    break
            else:
                self._next, self._next_block = names[(at + 1) % len(names)], 0
            at, seen = at + 1, seen + 1
        for path in changed:
            self.forget(path)
        return changed


def _time_of(status: os.stat_result) -> float:
    """When a file was changed; never, where it may be changed again with the same time."""
    return status.st_mtime if time.time() - status.st_mtime > _TICK_S else -1.0


def _compact(buckets: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
    """Each bucket once: a log that is read in many steps has its records in many parts."""
    found: dict[int, Bucket] = {}
    for bucket in buckets:
        known = found.get(bucket.bucket)
        found[bucket.bucket] = bucket if known is None else known.plus(bucket)
    return tuple(found.values())
