"""The records of a history, for catch-up: exactly what the log can prove.

Which zxids are in the history follows from the manifest alone: each segment is a list of ranges,
one per epoch, and each range follows the one before.  So whether a peer's last zxid is in it is
decided without reading a record (R9).
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from keepfast.quorum import Chain, chain_of
from keepfast.storage.disk import Disk
from keepfast.storage.layout import DataDirectory
from keepfast.storage.log_file import LogReader
from keepfast.storage.manifest import Manifest, SegmentEntry
from keepfast.storage.recovery_listed import known_joins
from keepfast.wire import (
    CorruptLog,
    Zxid,
    counter_of,
    epoch_of,
    follows_in_epoch,
    format_zxid,
    invariant,
)


class LogRecord(NamedTuple):
    """One durable record."""

    zxid: Zxid
    entry: bytes


# Below every zxid.
NOTHING = Zxid(-1)


def check_opens_epoch(zxid: Zxid, head: Zxid) -> None:
    """Refuse a record that is not the next of its epoch, unless it opens a later one (R1)."""
    invariant(
        head >= 0 and epoch_of(zxid) > epoch_of(head) and counter_of(zxid) == 1,
        f"{format_zxid(zxid)} does not follow {format_zxid(head)}",
    )


class Doubts(msgspec.Struct):
    """What turned out to be unreadable when it was needed for a peer.

    A server does not read all its files at startup: what it needs for itself is proven, and older
    files may have rotted. A peer must then be served in another way instead of retrying.
    """

    # Nothing after this zxid or an earlier one can be served from the log.
    unreadable: Zxid = NOTHING
    snapshots: set[str] = msgspec.field(default_factory=set)


class History(msgspec.Struct, frozen=True):
    """The durable part of a history up to `head`."""

    disk: Disk
    directory: DataDirectory
    manifest: Manifest
    head: Zxid
    doubts: Doubts = msgspec.field(default_factory=Doubts)
    # Where the records of the open segment end; its file is longer. 0: not known.
    open_end: int = 0

    def ranges(self, segment: SegmentEntry) -> list[tuple[Zxid, Zxid]]:
        """First and last zxid of each epoch's records in a segment."""
        last = self.head if segment.seal is None else segment.seal.last
        firsts = [segment.first, *(join.zxid for join in segment.joins)]
        lasts = [*(join.follows for join in segment.joins), last]
        # A segment that was just begun is listed before its first record is durable.
        return [pair for pair in zip(firsts, lasts, strict=True) if pair[0] <= pair[1]]

    def contains(self, zxid: Zxid) -> bool:
        """Whether `zxid` is a record of this history, or its starting point."""
        if any(snapshot.zxid == zxid for snapshot in self.manifest.snapshots):
            return True
        return self._in_log(zxid)

    def _in_log(self, zxid: Zxid) -> bool:
        segments = self.manifest.segments
        if segments and segments[0].follows == zxid:
            return True
        return any(
            first <= zxid <= last for segment in segments for first, last in self.ranges(segment)
        )

    def chain(self) -> Chain:
        """The history as peers compare it: from the oldest state that it can reach back to."""
        base = min((s.zxid for s in self.manifest.snapshots), default=self.head)
        ranges = (pair for segment in self.manifest.segments for pair in self.ranges(segment))
        return chain_of(base, ranges)

    def serves_after(self, zxid: Zxid) -> bool:
        """Whether the log holds every record after `zxid`."""
        return zxid == self.head or (zxid > self.doubts.unreadable and self._in_log(zxid))

    def bytes_after(self, zxid: Zxid) -> int:
        """About how many bytes of log are after `zxid`, assuming records of equal size."""
        size = 0
        for segment in self.manifest.segments:
            first, last = segment.first, self.head
            end = self.open_end
            if segment.seal is not None:
                last, end = segment.seal.last, segment.seal.end
            elif not end:
                end = self._size_of(self.directory.in_logs(segment.name))
            if first <= zxid < last and epoch_of(first) == epoch_of(last):
                end = end * (last - zxid) // (last - first + 1)
            if zxid < last:
                size += end
        return size

    def tree_bytes(self) -> int:
        """About how many bytes the tree takes: the newest snapshot."""
        return self.manifest.snapshots[-1].size if self.manifest.snapshots else 0

    def _size_of(self, path: str) -> int:
        try:
            return self.disk.size(path)
        except OSError:
            return 0  # just published or retired; this is an estimate

    def records_after(self, zxid: Zxid) -> Iterator[LogRecord] | None:
        """The records that directly follow `zxid`; None if the log does not reach back to it."""
        if zxid == self.head:
            return iter(())
        if not self._in_log(zxid):
            return None
        return self._read(zxid)

    def _read(self, zxid: Zxid) -> Iterator[LogRecord]:
        reached = zxid
        try:
            for record in self._frames(zxid):
                reached = record.zxid
                yield record
        except CorruptLog:
            self.doubts.unreadable = max(self.doubts.unreadable, reached)
            raise

    def _frames(self, zxid: Zxid) -> Iterator[LogRecord]:
        reached = zxid
        joins = known_joins(self.manifest.segments)
        for segment in self.manifest.segments:
            if segment.seal is not None and segment.seal.last <= reached:
                continue
            path = self.directory.in_logs(segment.name)
            stop = None if segment.seal is None else segment.seal.end
            try:
                with self.disk.open_read(path) as file:
                    for frame in LogReader(file, segment.start, stop):
                        following = Zxid(frame.zxid)
                        if not reached < following <= self.head:
                            continue
                        # A segment that was sound when this server started may rot since: a peer
                        # must not be given what lies after the records that it lacks (R9).
                        is_next = follows_in_epoch(following, reached)
                        if not is_next and joins.get(following) != reached:
                            raise _missing(reached, path)
                        reached = following
                        yield LogRecord(reached, frame.entry)
            except OSError as error:
                raise CorruptLog(f"cannot be read: {error.strerror}", path) from error
        if reached != self.head:
            raise _missing(reached, None)


def _missing(reached: Zxid, path: str | None) -> CorruptLog:
    return CorruptLog(
        f"the record after {format_zxid(reached)} cannot be read", path, None, reached
    )
