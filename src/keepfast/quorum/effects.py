"""What a member of an ensemble asks its driver to do. Effects are performed in order.

Bytes for peers are not here: they are in `Link.out`. Records for the log are not here either:
there are too many of them (`Replica.appends`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from keepfast.quorum.links import Link
from keepfast.quorum.notes import Note
from keepfast.quorum.quorums import Quorums
from keepfast.quorum.shared_secret import SharedSecret
from keepfast.wire import Notification, ServerId, Zxid


class Notify(msgspec.Struct, frozen=True):
    """Send a vote to a peer, on the election connection."""

    server_id: ServerId
    notification: Notification


class Dial(msgspec.Struct, frozen=True):
    """Connect to the quorum port of a peer; `link_dialled` or `dial_failed` follows."""

    server_id: ServerId


class Hangup(msgspec.Struct, frozen=True):
    """Close a link, without sending what is pending; the machine has already dropped it."""

    link: Link
    reason: str


class StoreEpochs(msgspec.Struct, frozen=True):
    """Make both epochs and the identity of the ensemble durable.

    `ensemble` None: the identity stays as it is. Empty: none is known from now on.
    """

    accepted: int
    current: int
    ensemble: str | None


class TruncateLog(msgspec.Struct, frozen=True):
    """Drop everything after a record, and return the remaining tree; or fail."""

    zxid: Zxid


class InstallTree(msgspec.Struct, frozen=True):
    """Replace the whole history by a tree, and promise the epoch of the leader that sent it.

    A tree that is not exact may hold effects of txns after its zxid. One that `lacks` something
    is not all that this server may have acknowledged: until the rest is here it must not vote.
    """

    tree: Any
    is_exact: bool
    promised: int
    lacks: bool


class InitialiseStore(msgspec.Struct, frozen=True):
    """Begin a new, empty history, and return its tree."""


class StoreMembership(msgspec.Struct, frozen=True):
    """Make durable which membership was committed last."""

    text: bytes


class StoreSecret(msgspec.Struct, frozen=True):
    """Make the secret for session passwords durable."""

    secret: SharedSecret


class PrepareTree(msgspec.Struct, frozen=True):
    """A TreeStream up to `up_to` will be sent: a snapshot that begins now is not newer than that.

    Later ones may be, and then the learner would have to come again. As in TreeStream, one that is
    not later than `beyond` does not do.
    """

    up_to: Zxid
    beyond: Zxid = Zxid(-1)


class UseMembership(msgspec.Struct, frozen=True):
    """Talk to these peers from now on, including those of an undecided change."""

    quorums: Quorums


# Done one at a time, in order, when all records before are durable; `disk_done` follows each.
DiskOrder = (
    StoreEpochs | StoreMembership | StoreSecret | TruncateLog | InstallTree | InitialiseStore
)
Effect = Notify | Dial | Hangup | Note | PrepareTree | UseMembership | DiskOrder
