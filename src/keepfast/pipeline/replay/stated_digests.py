"""The digests that snapshots state, against the history (A7).

Since 3.6 a snapshot ends with a tree digest and its zxid: that of the server's tree when the file
was finished, so of a later zxid than its name where records were applied meanwhile, or of the one
before, where it was begun while one was.  It is right if it is that of the file's own znodes, at
one zxid (`StatedDigest.is_own`), or that in the record of its zxid; a failure states none, and
leaves the one before it as it is.  Where none says so, as leaders log wrong digests in healthy
runs, the history is replayed to that zxid.

A server whose tree is uneven (a cversion, as Apache leaves it after a fuzzy snapshot) states other
digests: only snapshots that are what the history makes are asked for theirs.
"""

from __future__ import annotations

from keepfast.pipeline.replay.plan import ReplayPlan, SnapshotPlan, StatedDigest, WrongDigest
from keepfast.pipeline.replay.records import Unread, entries_of
from keepfast.pipeline.replay.replaying import Reference, ReplayedTree, world_of
from keepfast.storage import Disk
from keepfast.tree import DIGEST_VERSION
from keepfast.wire import format_zxid


def wrong_digests(
    disk: Disk, plan: ReplayPlan, reference: Reference, unread: Unread
) -> list[WrongDigest]:
    """The snapshots that are right and state a wrong digest; what is not known is said there."""
    right = reference.believed - set(reference.uneven)
    right -= {conflict.path for conflict in reference.conflicts}
    found: list[WrongDigest] = []
    for snapshot in plan.snapshots:
        stated = snapshot.stated
        if stated is None or stated.is_own or snapshot.path not in right:
            continue
        if stated.version != DIGEST_VERSION:
            text = f"the digest in {snapshot.path} is of version {stated.version}: not checked"
            reference.unchecked.append(text)
            continue
        if reference.record_digests.get(stated.zxid) == stated.digest:
            continue
        digest = _digest_at(disk, plan, reference, stated.zxid, unread)
        if digest is None:
            reference.unchecked.append(_unknown(snapshot, stated))
        elif digest != stated.digest:
            found.append(
                WrongDigest(
                    *(snapshot.server, snapshot.path, snapshot.zxid),
                    *(stated.zxid, stated.digest, digest),
                )
            )
    return found


def _unknown(snapshot: SnapshotPlan, stated: StatedDigest) -> str:
    return (
        f"the digest in {snapshot.path} was not checked: nothing proves the tree at "
        f"{format_zxid(stated.zxid)}"
    )


def _digest_at(
    disk: Disk, plan: ReplayPlan, reference: Reference, zxid: int, unread: Unread
) -> int | None:
    """The digest of the agreed tree at a zxid; None if it is not known."""
    segment = reference.segment_at(zxid)
    if segment is None:
        return None
    world = reference_world(disk, plan, segment.start, zxid, unread)
    # Two wrong digests in a row: that tree may be uneven itself.
    if world is None or world.position != zxid or len(world.off) > 1:
        return None
    return world.tree.digest


def reference_world(
    disk: Disk, plan: ReplayPlan, start: SnapshotPlan | None, until: int, unread: Unread
) -> ReplayedTree | None:
    """The agreed state at a zxid, from the base that is believed."""
    world = world_of(disk, start)
    if world is None:
        return None
    pieces = tuple(
        piece for piece in plan.history if piece.last > world.position and piece.first <= until
    )
    for entry, _, _ in entries_of(disk, pieces, unread):
        if world.position < entry.header.zxid <= until:
            world.apply(entry)
    return world
