"""A znode as prepared txns leave it, and what one operation of a txn does to znodes."""

from __future__ import annotations

import msgspec

from keepfast.wire import AclList

# Of a stat: czxid, ctime, cversion to ephemeralOwner and pzxid, which a change of the data leaves
# as they are; and the version.
PlainStat = tuple[bytes, bytes, bytes, bytes, int]


class PendingNode(msgspec.Struct, gc=False, eq=False):
    """A znode as the prepared txns leave it. Immutable: each txn creates a new one.

    A Struct for the same reasons as `Node`: several are made for each write.
    """

    data: bytes | None
    acl: AclList
    # Empty for a znode that is deleted.
    stat: bytes
    child_count: int
    # What it adds to Apache's digest; -1 if that was not computed yet.
    crc: int = -1
    # Of a znode whose data anybody may change, if that was seen: its stat, in pieces
    # (plain_sets.py).
    plain: PlainStat | None = None
    # Whether the tree has had it, and a txn that was not applied yet has changed it since.
    is_settled: bool = False


# What one operation of a prepared txn does: the kind of the change; path, the znode after it, the
# znode before it, if there was one, and what was pending there before it, if anything was; and
# where a child is created or deleted, the same of its parent. A plain tuple: one is made for each
# write.
Step = tuple[
    int,
    str,
    PendingNode,
    PendingNode | None,
    PendingNode | None,
    str,
    PendingNode | None,
    PendingNode | None,
    PendingNode | None,
]
