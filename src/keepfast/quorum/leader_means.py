"""What a leader is given for its term."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from keepfast.quorum.effects import Effect, StoreEpochs
from keepfast.quorum.links import Link, RecordStream, TreeStream
from keepfast.quorum.planner import ProvenHistory
from keepfast.quorum.plausibility import AheadVoters
from keepfast.wire import ServerId, Zxid, make_zxid


class OwnHistory(NamedTuple):
    """What this server brings into its term."""

    server_id: ServerId
    accepted_epoch: int
    current_epoch: int
    head: Zxid
    ensemble: str | None

    @property
    def last(self) -> Zxid:
        """Its last zxid: a record, or the start of an epoch that it agreed to since."""
        return max(self.head, make_zxid(self.current_epoch, 0))


class LeaderMeans(NamedTuple):
    """What a leader works with. All of it outlives the term, and none of it is its owner."""

    # Notes, links to close and trees to prepare are added to these.
    effects: list[Effect]
    send: Callable[[Link, bytes | RecordStream | TreeStream], None]
    # Has the disk carry out an order; `on_epochs_stored` follows.
    order: Callable[[StoreEpochs], None]
    # What the disk can prove now.
    history: Callable[[], ProvenHistory]
    # Both digests of the tree after the last committed txn, once this server is established.
    digests: Callable[[], tuple[int, int]]
    # An identity for an ensemble that has none, as 32 hexadecimal digits.
    new_ensemble: Callable[[], str]
    ahead: AheadVoters
