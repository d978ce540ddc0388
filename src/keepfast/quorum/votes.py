"""Votes: what one server was heard to say in an election, and which votes are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from keepfast.quorum.quorums import Quorums
from keepfast.wire import Notification, PeerState, ServerId, Zxid

# What a server that must not lead puts instead of leader, zxid and epoch: it only asks.
NOBODY: Final = -(1 << 63)
# The zxid of a server that has no history.
NO_ZXID: Final = Zxid(-1)


class Vote(NamedTuple):
    """Whom a server wants for leader, and that server's last zxid and epoch."""

    leader: ServerId
    zxid: Zxid
    peer_epoch: int


NO_VOTE: Final = Vote(ServerId(NOBODY), Zxid(NOBODY), NOBODY)


class Ballot(NamedTuple):
    """A vote together with the round it was cast in and what its sender was doing."""

    vote: Vote
    election_epoch: int
    state: PeerState
    version: int

    @classmethod
    def of(cls, notification: Notification) -> Ballot:
        """The ballot in a notification whose state is known to be a PeerState."""
        return cls(
            Vote(notification.leader, notification.zxid, notification.leader_epoch),
            notification.election_epoch,
            PeerState(notification.state),
            notification.format_version,
        )

    def agrees_with(self, other: Ballot) -> bool:
        """Whether both mean the same leadership.

        Two settled servers may remember the zxid and the round of the election differently, so that
        leader and epoch decide (ZOOKEEPER-1805). Of one round, the same leader is enough: one of
        the two may have got its new epoch already. So it is where one of the two is older than
        3.4.6 and never sends a new epoch (ZOOKEEPER-1732).
        """
        if PeerState.LOOKING in (self.state, other.state):
            return self.vote == other.vote and self.election_epoch == other.election_epoch
        if self.vote.leader != other.vote.leader:
            return False
        if self.election_epoch == other.election_epoch:
            return True
        if (self.version > 0) != (other.version > 0):
            return True
        return self.vote.peer_epoch == other.vote.peer_epoch


def is_better(vote: Vote, than: Vote, quorums: Quorums) -> bool:
    """Whether the leader of `vote` is the better one: newer epoch, longer history, greater id.

    A server without weight never is.
    """
    if quorums.weight(vote.leader) == 0:
        return False
    return (vote.peer_epoch, vote.zxid, vote.leader) > (than.peer_epoch, than.zxid, than.leader)


def supporters(ballots: Mapping[ServerId, Ballot], wanted: Ballot) -> list[ServerId]:
    """Who, among those heard, means the same as `wanted`."""
    return [sender for sender, ballot in ballots.items() if ballot.agrees_with(wanted)]
