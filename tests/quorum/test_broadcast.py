"""Many txns at once: what servers of our kind tell each other, and what Apache's are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keepfast.quorum import (
    Chain,
    DiskOrder,
    Leader,
    LeaderPhase,
    LeaderState,
    Learner,
    LearnerFacts,
    Link,
    Membership,
    OwnHistory,
    QuorumOptions,
    Quorums,
    Stage,
    Step,
    TreeStream,
)
from keepfast.quorum.chains import Run
from keepfast.quorum.hello import (
    EpochAck,
    LearnerHello,
    decode_leader_state,
    encode_epoch_ack,
)
from keepfast.quorum.learner_link import LearnerLink
from keepfast.quorum.plausibility import AheadVoters
from keepfast.sim.members import initial_membership
from keepfast.sim.options import SimOptions
from keepfast.wire import PacketParser, PacketType, QuorumPacket, ServerId, Zxid, make_zxid

START = make_zxid(1, 0)
TXNS = [
    (make_zxid(1, counter), bytes(12) + make_zxid(1, counter).to_bytes(8, "big") + bytes(12))
    for counter in range(1, 6)
]
LAST = TXNS[-1][0]


class Host:
    """Remembers what it is told."""

    ahead = AheadVoters(0, 0, 0)

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

    def apply(self, txns: Iterator[tuple[Zxid, bytes]]) -> None:
        self.applied += [zxid for zxid, _ in txns]

    def order(self, order: DiskOrder) -> None:
        pytest.fail(f"{order} was not to be expected")

    def on_established(self, epoch: int) -> None:
        pytest.fail(f"epoch {epoch} was not to be opened")

    def on_txn_wanted(self) -> None:
        pytest.fail("a txn for nothing")

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

    def leader_state(self) -> LeaderState:
        return LeaderState(START, 1, 2)

    def is_ready(self, entry: bytes) -> bool:
        return True

    def on_leader_state(self, state: LeaderState) -> None:
        """It has nothing to compare."""

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
        Quorums(initial_membership(SimOptions())),
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


class Established(Host):
    """A leader's host that can make a txn, with a history of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0

    def on_txn_wanted(self) -> None:
        self.wanted += 1

    def history(self) -> Any:
        return self

    def chain(self) -> Chain:
        return Chain(Zxid(0), tuple(Run(Zxid(one), Zxid(one)) for one in self.committed))

    def serves_behind(self, _zxid: Zxid) -> bool:
        return True

    def bytes_behind(self, _zxid: Zxid) -> int:
        return 0

    def tree_bytes(self) -> int:
        return 0


def test_forked_apache_server__gets_a_tree_once_this_epoch_has_a_txn() -> None:
    host = Established()
    leader, ours, apache, sent = leading(host)
    leader.last_committed, leader.epoch, leader._is_agreed = make_zxid(1, 4), 2, True
    learner = leader.learners[apache]
    learner.step = Step.ASKED
    ack = encode_epoch_ack(EpochAck(1, make_zxid(1, 5), None))
    leader.on_packet(apache, ack, 1)
    assert (learner.step, host.wanted) == (Step.PROMISED, 1)
    leader.propose_all([(make_zxid(2, 1), b"nothing")])
    leader.on_durable(make_zxid(2, 1))
    leader.on_packet(ours, QuorumPacket(PacketType.ACK.value, make_zxid(2, 1)), 1)
    leader.advance()
    assert learner.step is Step.CATCHING_UP
    trees: list[object] = [*sent[apache][:1]]
    assert trees == [TreeStream(make_zxid(2, 1), beyond=make_zxid(1, 5))]


def test_up_to_date__tells_the_state_to_a_server_of_our_kind_alone() -> None:
    host = Established()
    leader, ours, apache, sent = leading(host)
    leader.epoch = 1
    for link in (ours, apache):
        leader.learners[link].step = Step.CATCHING_UP
        leader.on_packet(link, QuorumPacket(PacketType.ACK.value, START), 1)
    told = {link: PacketParser().feed(b"".join(sent[link]))[-1] for link in (ours, apache)}
    assert [packet.type for packet in told.values()] == [PacketType.UPTODATE] * 2
    assert decode_leader_state(told[ours]) == host.leader_state()
    assert told[apache].data is None
    assert decode_leader_state(told[apache]) is None
