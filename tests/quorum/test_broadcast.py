"""Many txns at once: what servers of our kind tell each other, and what Apache's are told."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.quorum import (
    Chain,
    DiskOrder,
    Leader,
    LeaderPhase,
    Learner,
    LearnerFacts,
    Link,
    Membership,
    OwnHistory,
    QuorumOptions,
    Quorums,
    Stage,
    Step,
)
from keepfast.quorum.hello import LearnerHello
from keepfast.quorum.learner_link import LearnerLink
from keepfast.wire import PacketParser, PacketType, QuorumPacket, ServerId, Zxid, make_zxid
from tests.replica.ensemble import membership_of

START = make_zxid(1, 0)
TXNS = [(make_zxid(1, counter), b"txn%d" % counter) for counter in range(1, 6)]
LAST = TXNS[-1][0]


class Host:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.appended: list[int] = []
        self.applied: list[int] = []

    def on_committed(self, zxid: Zxid) -> None:
        self.committed.append(zxid)

    def next_stop(self, zxid: Zxid) -> Zxid:
        return zxid

    def append(self, zxid: Zxid, _entry: bytes) -> None:
        self.appended.append(zxid)

    def apply(self, zxid: Zxid, _entry: bytes) -> None:
        self.applied.append(zxid)

    def order(self, order: DiskOrder) -> None:
        pytest.fail(f"{order} was not to be expected")

    def on_established(self, epoch: int) -> None:
        pytest.fail(f"epoch {epoch} was not to be opened")

    def on_leading_failed(self, reason: str) -> None:
        pytest.fail(reason)

    def on_reconfigured(self, membership: Membership, leader: ServerId) -> None:
        pytest.fail(f"{membership}, {leader}")

    def new_ensemble(self) -> str:
        return "0" * 32

    def history(self) -> Any:
        pytest.fail("nobody catches up")

    def replace_tree(self, tree: Any) -> None:
        pytest.fail(str(tree))

    def on_membership(self, membership: Membership) -> None:
        pytest.fail(str(membership))

    def on_active(self, epoch: int) -> None:
        """It serves."""

    def on_following_failed(self, reason: str) -> None:
        pytest.fail(reason)

    def on_unfit(self, reason: str) -> None:
        pytest.fail(reason)


def packets(data: list[bytes], kind: PacketType) -> list[int]:
    """The zxids of all packets of a kind, in order."""
    return [p.zxid for p in PacketParser().feed(b"".join(data)) if p.type == kind]


def leading(host: Host) -> tuple[Leader, Link, Link, dict[Link, list[bytes]]]:
    """Server 1 in broadcast, with server 2 of our kind and server 3 of Apache's."""
    sent: dict[Link, list[bytes]] = {}
    leader = Leader(
        OwnHistory(ServerId(1), 1, 1, START, None),
        Quorums(membership_of(3)),
        QuorumOptions(),
        host,
        [],
        lambda link, item: sent[link].append(item),  # type: ignore[arg-type]
        0,
    )
    leader.epoch, leader.phase = 1, LeaderPhase.BROADCAST
    links = Link(2), Link(3)
    for link, ensemble in zip(links, ("", None), strict=True):
        learner = LearnerLink(link, 0)
        learner.hello = LearnerHello(ServerId(link.number), True, 1, Zxid(0), ensemble)
        learner.step = Step.CURRENT
        leader.learners[link] = learner
        sent[link] = []
    return leader, *links, sent


def test_leader__one_commit_stands_for_all_before_it_and_apache_gets_each() -> None:
    host = Host()
    leader, ours, apache, sent = leading(host)
    leader.propose_all(TXNS)
    leader.on_durable(LAST)
    assert host.committed == []
    leader.on_packet(ours, QuorumPacket(PacketType.ACK.value, LAST), 1)
    leader.advance()
    every = [zxid for zxid, _ in TXNS]
    assert host.committed == [LAST]
    for link in (ours, apache):
        assert packets(sent[link], PacketType.PROPOSAL) == every
    assert packets(sent[ours], PacketType.COMMIT) == [LAST]
    assert packets(sent[apache], PacketType.COMMIT) == every


def test_leader__acks_of_apache_one_by_one_commit_what_each_covers() -> None:
    host = Host()
    leader, ours, apache, sent = leading(host)
    leader.propose_all(TXNS)
    leader.on_durable(LAST)
    for zxid, _ in TXNS[:2]:
        leader.on_packet(apache, QuorumPacket(PacketType.ACK.value, zxid), 1)
        leader.advance()
    assert host.committed == [TXNS[0][0], TXNS[1][0]]
    assert packets(sent[ours], PacketType.COMMIT) == host.committed


@pytest.mark.parametrize("is_leader_keepfast", [True, False])
def test_learner__acknowledges_what_is_durable(is_leader_keepfast: bool) -> None:
    host, sent = Host(), list[bytes]()
    facts = LearnerFacts(ServerId(2), 1, 1, Chain(START), None, Zxid(0), True, True)
    learner = Learner(facts, QuorumOptions(), host, sent.append, 0)
    learner.stage, learner.epoch = Stage.ACTIVE, 1
    learner.is_leader_keepfast = is_leader_keepfast
    for zxid, entry in TXNS:
        learner.on_packet(QuorumPacket(PacketType.PROPOSAL.value, zxid, entry), 1)
    assert sent == []
    learner.on_durable(TXNS[2][0])
    three = [zxid for zxid, _ in TXNS[:3]]
    assert packets(sent, PacketType.ACK) == (three[-1:] if is_leader_keepfast else three)
    # One COMMIT is for all before it; what is not durable here waits.
    learner.on_packet(QuorumPacket(PacketType.COMMIT.value, LAST), 1)
    assert host.applied == three
    learner.on_durable(LAST)
    assert host.applied == host.appended == [zxid for zxid, _ in TXNS]
