"""What applying a txn did: for watches, replies and metrics."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from keepfast.wire import AclList


class ChangeKind(IntEnum):
    """What happened to a znode; the first three are the numbers of the watch events."""

    CREATED = 1
    DELETED = 2
    DATA = 3
    ACL = 100


class Change(NamedTuple):
    """One znode that changed.

    The ACLs are those of the moment of the change (of a deleted znode: its last). They decide who
    may see the event, and a later operation of the same multi may have deleted their znodes.
    """

    kind: ChangeKind
    path: str
    acl: AclList
    # For CREATED and DELETED: the parent sees a change of its children.
    parent_acl: AclList | None = None


class OpResult(NamedTuple):
    """What one operation of a multi answers. `type` is -1 where the multi failed."""

    type: int
    error: int
    path: str | None = None
    # The 68 bytes of Stat right after this operation; None where the reply has none.
    stat: bytes | None = None


class Outcome(NamedTuple):
    """What a txn did, in the order in which it did it."""

    changes: tuple[Change, ...] = ()
    # The code of a failed txn, which changed nothing.
    error: int = 0
    # One per operation of a multi.
    results: tuple[OpResult, ...] = ()


NOTHING: Final = Outcome()
