"""Retention: what may be deleted, computed from proven recovery paths (R11).

A snapshot is worth keeping if it was read back in full and records lead from it to the head
without a hole.  Counting files, as Apache's purge does, keeps three broken ones and deletes the
good one (the field report `disk-full`).
"""

import msgspec

from keepfast.storage.manifest import Manifest, Retired, SegmentEntry, SnapshotEntry
from keepfast.wire import Zxid, invariant


class RetentionPlan(msgspec.Struct, frozen=True):
    """What stays and what goes."""

    snapshots: tuple[SnapshotEntry, ...]
    segments: tuple[SegmentEntry, ...]
    deleted: tuple[Retired, ...]


def has_path(manifest: Manifest, snapshot: SnapshotEntry, head: Zxid) -> bool:
    """Whether the listed segments lead from a snapshot to the head without a hole."""
    reached = snapshot.zxid
    for segment in manifest.segments:
        last = head if segment.seal is None else segment.seal.last
        if last <= reached:
            continue
        if not _leads_on(segment, reached, last):
            return False
        reached = last
    return reached >= head


def _leads_on(segment: SegmentEntry, reached: Zxid, last: Zxid) -> bool:
    """Whether a segment follows exactly what was reached, or holds it."""
    firsts = (segment.first, *(join.zxid for join in segment.joins))
    lasts = (*(join.follows for join in segment.joins), last)
    return segment.follows == reached or any(
        first <= reached <= end for first, end in zip(firsts, lasts, strict=True)
    )


def plan_retention(
    manifest: Manifest, head: Zxid, retain: int, proven: frozenset[str]
) -> RetentionPlan:
    """Keep the newest `retain` snapshots that are proven and have a path to the head.

    `proven` are the names of the snapshots that were read back or loaded in full.  At least one
    such snapshot stays; if there is none, nothing is deleted.
    """
    invariant(retain >= 1, "retention must keep at least one snapshot")
    good = [s for s in manifest.snapshots if s.name in proven and has_path(manifest, s, head)]
    kept = good[-retain:]
    if not kept:
        return RetentionPlan(manifest.snapshots, manifest.segments, ())
    oldest = kept[0].zxid
    segments = tuple(s for s in manifest.segments if s.seal is None or s.seal.last > oldest)
    live = {s.name for s in kept} | {s.name for s in segments}
    deleted = tuple(
        Retired(name, delete=True) for name in sorted(manifest.names()) if name not in live
    )
    return RetentionPlan(tuple(kept), segments, deleted)
