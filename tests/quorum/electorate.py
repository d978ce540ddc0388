"""A few election machines and the connections between them; a test says what happens when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from keepfast.quorum import (
    Address,
    Candidacy,
    Elected,
    Election,
    ElectionOptions,
    MemberRole,
    Membership,
    MemberSpec,
    Vote,
)
from keepfast.wire import Notification, PeerState, ServerId, Zxid

OPTIONS = ElectionOptions()
# As long as time stands still, talk has to come to an end.
MAX_EXCHANGES = 200


def member(server_id: int, role: MemberRole = MemberRole.PARTICIPANT) -> MemberSpec:
    """A member on ports of its own."""
    return MemberSpec(
        ServerId(server_id),
        (Address("127.0.0.1", 20000 + server_id),),
        (Address("127.0.0.1", 30000 + server_id),),
        role,
    )


def majority(count: int, *, observers: Iterable[int] = (), version: int = 0) -> Membership:
    """Voters 1..count, and observers."""
    voters = [member(server_id) for server_id in range(1, count + 1)]
    others = [member(server_id, MemberRole.OBSERVER) for server_id in observers]
    return Membership((*voters, *others), Zxid(version))


class Standing(NamedTuple):
    """What a server's disk holds."""

    candidacy: Candidacy = Candidacy.ELIGIBLE
    zxid: Zxid = Zxid(0)
    epoch: int = 0


class Electorate:
    """Machines by id; messages wait in `links` until they are delivered, in order for each pair.

    `votes` remembers who voted for whom in which round: whoever is elected must have had a quorum
    there. A server that is told nothing more stays as it is, as machines do.
    """

    def __init__(self, membership: Membership, standings: Mapping[int, Standing]) -> None:
        self.membership = membership
        self.standings = {ServerId(id): standing for id, standing in standings.items()}
        self.now_ms = 1000
        self.machines: dict[ServerId, Election] = {}
        self.links: dict[tuple[ServerId, ServerId], deque[Notification]] = {}
        self.votes: dict[tuple[int, ServerId], set[ServerId]] = {}
        self.results: list[tuple[ServerId, Elected]] = []

    def start(self, server_id: int) -> Election:
        """A new process: what was on its way to the one before is lost, links are rebuilt."""
        id = ServerId(server_id)
        for pair in [pair for pair in self.links if id in pair]:
            del self.links[pair]
        self.machines[id] = Election(id, self.membership, OPTIONS)
        self.look(id)
        for other, machine in self.machines.items():
            if other != id:
                machine.peer_linked(id)
                self.machines[id].peer_linked(other)
                self.collect(other)
        self.collect(id)
        return self.machines[id]

    def look(self, server_id: int) -> None:
        id = ServerId(server_id)
        standing = self.standings[id]
        self.machines[id].look(standing.candidacy, standing.zxid, standing.epoch, self.now_ms)
        self.collect(id)

    def collect(self, sender: ServerId) -> None:
        """Put what a machine wants to send on its way."""
        machine = self.machines[sender]
        self._remember(sender, machine)
        for receiver, notification in machine.outbox:
            if receiver in self.machines:
                self.links.setdefault((sender, receiver), deque()).append(notification)
        machine.outbox.clear()
        if machine.result is not None and (sender, machine.result) not in self.results:
            self.results.append((sender, machine.result))

    def _remember(self, sender: ServerId, machine: Election) -> None:
        if machine.candidacy is not Candidacy.ELIGIBLE:
            return
        cast = [(machine.election_epoch, machine.vote.leader)]
        cast += [(word.election_epoch, word.leader) for _, word in machine.outbox]
        for round_, leader in cast:
            self.votes.setdefault((round_, leader), set()).add(sender)

    def pairs(self) -> list[tuple[ServerId, ServerId]]:
        """Where something waits to be delivered."""
        return sorted(pair for pair, waiting in self.links.items() if waiting)

    def deliver(self, pair: tuple[ServerId, ServerId]) -> None:
        sender, receiver = pair
        notification = self.links[pair].popleft()
        self.machines[receiver].receive(sender, notification, self.now_ms)
        self.collect(receiver)

    def deliver_all(self) -> None:
        for _ in range(MAX_EXCHANGES):
            pairs = self.pairs()
            if not pairs:
                return
            for pair in pairs:
                self.deliver(pair)
        raise AssertionError("the machines do not stop to talk")

    def cut(self, pair: tuple[ServerId, ServerId]) -> None:
        """Lose the connection of two servers with all that is on it, and make a new one."""
        one, other = pair
        for way in ((one, other), (other, one)):
            self.links.pop(way, None)
            self.machines[way[0]].peer_linked(way[1])
        self.collect(one)
        self.collect(other)

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for id in sorted(self.machines):
            self.machines[id].tick(self.now_ms)
            self.collect(id)

    def run(self, *, rounds: int = 40) -> None:
        """Deliver everything and let time pass, again and again."""
        for _ in range(rounds):
            self.deliver_all()
            self.advance(100)
        self.deliver_all()

    def leaders(self) -> set[ServerId]:
        return {id for id, one in self.machines.items() if one.state is PeerState.LEADING}

    def led_by(self, leader: ServerId) -> set[ServerId]:
        """Those that count as followers of this leader, itself included."""
        return {
            id
            for id, one in self.machines.items()
            if one.result is not None
            and one.result.leader == leader
            and one.state in (PeerState.LEADING, PeerState.FOLLOWING)
        }

    def part_unsupported(self) -> None:
        """What happens next in a real server: who lacks a quorum or its leader looks again."""
        for id, machine in self.machines.items():
            result = machine.result
            if result is None:
                continue
            chief = self.machines.get(result.leader)
            leads = chief is not None and chief.state is PeerState.LEADING
            if not leads or not self.membership.is_quorum(self.led_by(result.leader)):
                self.look(id)

    def best(self) -> Vote:
        """Who has to win when everything is heard."""
        return max(
            (
                Vote(id, standing.zxid, standing.epoch)
                for id, standing in self.standings.items()
                if standing.candidacy is Candidacy.ELIGIBLE
                and id in self.machines
                and self.membership.weight(id)
            ),
            key=lambda vote: (vote.peer_epoch, vote.zxid, vote.leader),
        )
