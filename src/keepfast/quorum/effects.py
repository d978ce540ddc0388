"""What a member of an ensemble asks its driver for. Effects are done in their order.

Bytes for peers are not here: they stand in `Link.out`. Records for the log are not here either:
there are too many of them (`Replica.appends`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepfast.quorum.links import Link
from keepfast.quorum.notes import Note
from keepfast.quorum.quorums import Quorums
from keepfast.wire import Notification, ServerId, Zxid


@dataclass(frozen=True, slots=True)
class Notify:
    """Send a vote to a peer, on the election connection."""

    server_id: ServerId
    notification: Notification


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to the quorum port of a peer; `link_dialled` or `dial_failed` follows."""

    server_id: ServerId


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close a link, without sending what still waits; the machine has forgotten it already."""

    link: Link
    reason: str


@dataclass(frozen=True, slots=True)
class StoreEpochs:
    """Make both epochs and the identity of the ensemble durable."""

    accepted: int
    current: int
    ensemble: str | None


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop everything behind a record, and give the tree that is left; or fail."""

    zxid: Zxid


@dataclass(frozen=True, slots=True)
class InstallTree:
    """Replace the whole history by a tree, and promise the epoch of the leader that sent it.

    A tree that is not exact may hold effects of txns behind its zxid. One that `lacks` something
    is not all that this server may have acknowledged: until the rest is here it must not vote.
    """

    tree: Any
    is_exact: bool
    promised: int
    lacks: bool


@dataclass(frozen=True, slots=True)
class InitialiseStore:
    """Begin a new, empty history, and give its tree."""


@dataclass(frozen=True, slots=True)
class StoreMembership:
    """Make durable which membership was agreed on last."""

    text: bytes


@dataclass(frozen=True, slots=True)
class PrepareTree:
    """A TreeStream up to `up_to` will be sent: a snapshot that begins now is not newer than that.

    Later ones may be, and then the learner would have to come again.
    """

    up_to: Zxid


@dataclass(frozen=True, slots=True)
class UseMembership:
    """Talk to these peers from now on: to those of a change that is not decided, too."""

    quorums: Quorums


# Done one at a time, in order, when all records before are durable; `disk_done` follows each.
DiskOrder = StoreEpochs | StoreMembership | TruncateLog | InstallTree | InitialiseStore
Effect = Notify | Dial | Hangup | Note | PrepareTree | UseMembership | DiskOrder
