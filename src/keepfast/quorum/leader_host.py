"""What a leader is given, and what it asks of the server that it belongs to."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from keepfast.quorum.effects import StoreEpochs
from keepfast.quorum.hello import LeaderState
from keepfast.quorum.membership import Membership
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


class LeaderHost(Protocol):
    """Whoever a leader belongs to."""

    # Outlives the terms of this server.
    ahead: AheadVoters

    def order(self, order: StoreEpochs) -> None:
        """Have the disk carry out an order; `on_epochs_stored` follows."""

    def on_established(self, epoch: int) -> None:
        """A quorum follows: what this server has is the history, and clients may be served."""

    def on_committed(self, zxid: Zxid) -> None:
        """Everything up to `zxid` is committed."""

    def next_stop(self, zxid: Zxid) -> Zxid:
        """How far to commit in one step, at most to `zxid`; `on_committed` follows each step.

        Not beyond what is committed already: a sync has to be confirmed first. `on_committed` comes
        again then.
        """

    def on_txn_wanted(self) -> None:
        """This epoch needs a txn, whatever it does; one that is on its way is enough."""

    def on_reconfigured(self, membership: Membership, leader: ServerId) -> None:
        """The membership was changed, and this server is to lead it."""

    def new_ensemble(self) -> str:
        """An identity for an ensemble that has none, as 32 hexadecimal digits."""

    def leader_state(self) -> LeaderState:
        """The tree after the last committed txn, once this server is established."""

    def history(self) -> ProvenHistory:
        """What the disk can prove now."""
