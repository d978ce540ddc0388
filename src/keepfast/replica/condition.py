"""Why a member of an ensemble does not serve, as text for reports.

Nothing here decides anything. It reads the state of the machines and reports what an operator has
to know: what is missing, from whom, and whether it will resolve itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from keepfast.quorum import Ballot, Candidacy, LeaderPhase, Standing, Step
from keepfast.replica.member import Member
from keepfast.wire import PeerState, ServerId

_NO_HISTORY = -1


class Census(NamedTuple):
    """What the voters have reported about their data, as far as this server has heard."""

    whole: frozenset[ServerId]
    empty: frozenset[ServerId]  # no history: new, or wiped
    barred: frozenset[ServerId]  # damaged or unproven
    unheard: frozenset[ServerId]
    # Even with all that were not heard, those that may vote are not a quorum.
    is_majority_lost: bool

    @property
    def lost(self) -> frozenset[ServerId]:
        """Those whose data do not count."""
        return self.empty | self.barred


def census_of(member: Member) -> Census:
    """Count the voters by what they reported; meaningful while the member is looking."""
    voters = member.state.quorums.voters
    groups: dict[str, set[ServerId]] = {"whole": set(), "empty": set(), "barred": set()}
    for server_id, ballot in member.state.election.told.items():
        if server_id in voters:
            groups[_kind_of(ballot)].add(server_id)
    if member.state.server_id in voters:
        groups[_own_kind(member)].add(member.state.server_id)
    whole, empty, barred = (frozenset(groups[name]) for name in ("whole", "empty", "barred"))
    unheard = voters - whole - empty - barred
    return Census(
        whole, empty, barred, unheard, not member.state.quorums.is_quorum(whole | unheard)
    )


def _kind_of(ballot: Ballot) -> str:
    if ballot.state is not PeerState.LOOKING or ballot.vote.zxid > _NO_HISTORY:
        return "whole"
    return "empty" if ballot.vote.zxid == _NO_HISTORY else "barred"


def _own_kind(member: Member) -> str:
    candidacy = member.state.election.candidacy
    if candidacy is Candidacy.ELIGIBLE:
        return "whole"
    return "empty" if candidacy is Candidacy.EMPTY else "barred"


def why_not_serving(member: Member) -> str:
    """What this server waits for; empty if it serves."""
    if member.state.replica.is_serving:
        return ""
    if member.leader is not None:
        return _why_not_leading(member)
    if member.following is not None:
        return _why_not_following(member)
    if member.state.role.value == "settling":
        return "waiting for the disk to finish pending work"
    return _why_looking(member)


def _why_not_leading(member: Member) -> str:
    leader = member.leader
    if leader is None or leader.phase is LeaderPhase.BROADCAST:
        return ""
    ready = {member.state.server_id}
    ready.update(
        learner.server_id for learner in leader.learners.values() if learner.step is Step.CURRENT
    )
    missing = member.state.quorums.voters - ready
    return (
        f"was elected, and is waiting for a quorum to have its history: {_servers(missing)} not yet"
    )


def _why_not_following(member: Member) -> str:
    leader = member.state.leader_id
    if member.state.standing is not Standing.WHOLE:
        data = _own_data(member)
        return f"{data}; healing from leader {leader}, no vote until the data is whole"
    if member.following is not None and member.following.link is None:
        return f"is waiting for leader {leader} to accept it"
    return f"is catching up with leader {leader}"


def _why_looking(member: Member) -> str:
    census = census_of(member)
    candidacy = member.state.election.candidacy
    if candidacy is Candidacy.EMPTY and not census.whole and not census.barred:
        waiting = _servers(member.state.election.waiting_for)
        return (
            f"has no data and is waiting for {waiting} to be sure that this ensemble is new: it "
            "starts only when every voter has said that it has no data either"
        )
    if census.is_majority_lost:
        return _majority_lost(census)
    unheard = f"; not heard: {_servers(census.unheard)}" if census.unheard else ""
    if candidacy is Candidacy.ELIGIBLE:
        if member.state.quorums.is_quorum(census.whole):
            return f"is looking for a leader among {_servers(census.whole)}{unheard}"
        lost = f"; without valid data: {_servers(census.lost)}" if census.lost else ""
        heard = _servers(census.whole)
        return f"no quorum: only {heard} can vote and can be reached{unheard}{lost}"
    return f"{_own_data(member)}: looking for a leader to heal from{unheard}"


def _majority_lost(census: Census) -> str:
    parts = []
    if census.empty:
        parts.append(f"{_servers(census.empty)} without data")
    if census.barred:
        parts.append(f"{_servers(census.barred)} with data that is damaged or not proven")
    left = _servers(census.whole | census.unheard) if census.whole | census.unheard else "none"
    return (
        f"a majority has lost its data ({', '.join(parts)}; left: {left}): what they had "
        "acknowledged may be lost, so the service does not start on its own"
    )


def _own_data(member: Member) -> str:
    if member.state.standing is Standing.EMPTY:
        return "its data is gone (the directory is empty)"
    reason = f" ({member.state.fence_reason})" if member.state.fence_reason else ""
    return f"its data is {member.state.standing.value}{reason}"


def _servers(ids: Iterable[ServerId]) -> str:
    found = sorted(ids)
    return f"server{'s' if len(found) != 1 else ''} {', '.join(map(str, found)) or '-'}"
