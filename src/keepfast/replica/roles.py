"""What a member of an ensemble is, and what it begins with."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from keepfast.quorum import ProvenHistory, SharedSecret, Standing
from keepfast.tree import Tree
from keepfast.wire import ServerId, Zxid


class Role(Enum):
    """What a member of an ensemble does; member.py says how one follows the other."""

    SETTLING = "settling"
    LOOKING = "looking"
    LEADING = "leading"
    FOLLOWING = "following"
    OBSERVING = "observing"

    @property
    def mode(self) -> str:
        """As logs, `stat` and `status` name it."""
        return _MODES.get(self.value, "looking")


_MODES = {"leading": "leader", "following": "follower", "observing": "observer"}


class CatchUpReport(NamedTuple):
    """How a learner got its leader's history."""

    kind: str  # diff, trunc or snap
    reason: str
    leader: ServerId
    # It has served since; until then records that follow a tree belong to the same catch-up.
    is_over: bool = False


class StoreFacts(msgspec.Struct, frozen=True):
    """What a server's disk holds when it starts, and where to query its history later."""

    standing: Standing
    tree: Tree | None
    head: Zxid
    accepted_epoch: int | None
    current_epoch: int | None
    ensemble: str | None
    ensemble_since: int
    # The last membership that it knew to be committed, as its text.
    membership: bytes | None
    history: Callable[[], ProvenHistory]
    # What it holds for session passwords.
    secret: SharedSecret | None = None
