"""Why a member of an ensemble does not serve: in words, for reports.

Nothing here decides anything. It reads what the machines know and says what an operator has to
know: what is missing, of whom, and whether it comes by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from keepfast.quorum import Ballot, Candidacy, LeaderPhase, Standing, Step
from keepfast.replica.member import Member
from keepfast.wire import PeerState, ServerId

_NO_HISTORY = -1


class Census(NamedTuple):
    """What the voters have told of their data, as far as a server that looks has heard."""

    whole: frozenset[ServerId]
    empty: frozenset[ServerId]  # no history: new, or wiped
    barred: frozenset[ServerId]  # damaged or unproven
    unheard: frozenset[ServerId]
    # Even with all who were not heard, those who may vote are no quorum.
    is_majority_lost: bool

    @property
    def lost(self) -> frozenset[ServerId]:
        """Those whose data do not count."""
        return self.empty | self.barred


def census_of(member: Member) -> Census:
    """Count the voters by what they told; meaningful while the member looks for a leader."""
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
        return "the disk finishes what it was asked for"
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
    return f"was elected, and waits until a quorum has its history: {_servers(missing)} not yet"


def _why_not_following(member: Member) -> str:
    leader = member.state.leader_id
    if member.state.standing is not Standing.WHOLE:
        data = _own_data(member)
        return (
            f"{data} and heal from leader {leader}: this server does not vote until they are whole"
        )
    if member.following is not None and member.following.link is None:
        return f"waits for leader {leader} to take it in"
    return f"catches up with leader {leader}"


def _why_looking(member: Member) -> str:
    census = census_of(member)
    candidacy = member.state.election.candidacy
    if candidacy is Candidacy.EMPTY and not census.whole and not census.barred:
        waiting = _servers(member.state.election.waiting_for)
        return (
            f"has no data and waits for {waiting} to be sure that this ensemble is new: only when "
            "every voter has said that it has no data either does it begin"
        )
    if census.is_majority_lost:
        return _majority_lost(census)
    unheard = f"; not heard: {_servers(census.unheard)}" if census.unheard else ""
    if candidacy is Candidacy.ELIGIBLE:
        if member.state.quorums.is_quorum(census.whole):
            return f"looks for a leader among {_servers(census.whole)}{unheard}"
        lost = f"; without data that count: {_servers(census.lost)}" if census.lost else ""
        heard = _servers(census.whole)
        return f"no quorum: only {heard} can vote and can be reached{unheard}{lost}"
    return f"{_own_data(member)}: looks for a leader to heal from{unheard}"


def _majority_lost(census: Census) -> str:
    parts = []
    if census.empty:
        parts.append(f"{_servers(census.empty)} without data")
    if census.barred:
        parts.append(f"{_servers(census.barred)} with data that are damaged or not proven")
    left = _servers(census.whole | census.unheard) if census.whole | census.unheard else "none"
    return (
        f"a majority has lost its data ({', '.join(parts)}; left: {left}): what they had "
        "acknowledged may be lost, so the service does not start by itself"
    )


def _own_data(member: Member) -> str:
    if member.state.standing is Standing.EMPTY:
        return "its data are gone (the directory is empty)"
    reason = f" ({member.state.fence_reason})" if member.state.fence_reason else ""
    return f"its data are {member.state.standing.value}{reason}"


def _servers(ids: Iterable[ServerId]) -> str:
    found = sorted(ids)
    return f"server{'s' if len(found) != 1 else ''} {', '.join(map(str, found)) or '-'}"
