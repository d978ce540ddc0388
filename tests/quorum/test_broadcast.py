"""Many txns at once: what servers of our kind tell each other, and what Apache's are told."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.quorum import (
    Chain,
    DiskOrder,
    Leader,
    LeaderMeans,
    LeaderPhase,
    LeaderState,
    Learner,
    LearnerFacts,
    Link,
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
    LeaderHello,
    LearnerHello,
    decode_leader_state,
    encode_epoch_ack,
    encode_leader_hello,
)
from keepfast.quorum.learner_link import LearnerLink
from keepfast.quorum.plausibility import AheadVoters
from keepfast.sim.options import SimOptions
from keepfast.sim.simulated_members import initial_membership
from keepfast.wire import PacketParser, PacketType, QuorumPacket, ServerId, Zxid, make_zxid

START = make_zxid(1, 0)
TXNS = [
    (make_zxid(1, counter), bytes(12) + make_zxid(1, counter).to_bytes(8, "big") + bytes(12))
    for counter in range(1, 6)
]
LAST = TXNS[-1][0]


def means_of(**means: Any) -> LeaderMeans:
    """What a leader works with, of which nothing is asked for but what is given here."""

    def unexpected(*_: object) -> Any:
        pytest.fail("nothing of the kind was to be asked for")

    given: dict[str, Any] = {"digests": lambda: (1, 2), "ahead": AheadVoters(0, 0, 0), **means}
    fields = dict.fromkeys(LeaderMeans._fields, unexpected) | {"effects": []} | given
    return LeaderMeans(**fields)


def commit(leader: Leader) -> list[Zxid]:
    """Commit what a quorum has; gives up to where, nothing if there is nothing to commit."""
    point = leader.agreed_up_to()
    if point <= leader.last_committed:
        return []
    leader.commit(point)
    leader.serve_waiting()
    return [point]


def packets(data: list[bytes], kind: PacketType) -> list[int]:
    """The zxids of all packets of a kind, in order."""
    return [p.zxid for p in PacketParser().feed(b"".join(data)) if p.type == kind]


def leading(**means: Any) -> tuple[Leader, Link, Link, dict[Link, list[bytes]]]:
    """Server 1 in broadcast, with server 2 of our kind and server 3 of Apache's."""
    sent: dict[Link, list[bytes]] = {}
    leader = Leader(
        OwnHistory(ServerId(1), 1, 1, START, None),
        Quorums(initial_membership(SimOptions())),
        QuorumOptions(),
        means_of(send=lambda link, item: sent[link].append(item), **means),
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
    leader, ours, apache, sent = leading()
    leader.propose_all(TXNS)
    leader.on_durable(LAST)
    assert commit(leader) == []
    leader.on_packet(ours, QuorumPacket(PacketType.ACK.value, LAST), 1)
    every = [zxid for zxid, _ in TXNS]
    assert commit(leader) == [LAST]
    for link in (ours, apache):
        assert packets(sent[link], PacketType.PROPOSAL) == every
    assert packets(sent[ours], PacketType.COMMIT) == [LAST]
    assert packets(sent[apache], PacketType.COMMIT) == every


def test_leader__acks_of_apache_one_by_one_commit_what_each_covers() -> None:
    leader, ours, apache, sent = leading()
    leader.propose_all(TXNS)
    leader.on_durable(LAST)
    for zxid, _ in TXNS[:2]:
        leader.on_packet(apache, QuorumPacket(PacketType.ACK.value, zxid), 1)
        assert commit(leader) == [zxid]
    assert packets(sent[ours], PacketType.COMMIT) == [TXNS[0][0], TXNS[1][0]]


@pytest.mark.parametrize("is_leader_keepfast", [True, False])
def test_learner__acknowledges_what_is_durable(is_leader_keepfast: bool) -> None:
    sent, appended, applied = list[bytes](), list[Zxid](), list[bytes]()
    facts = LearnerFacts(ServerId(2), 1, 1, Chain(START), None, Zxid(0), True, True)
    learner = Learner(
        facts,
        QuorumOptions(),
        lambda zxid, _entry: appended.append(zxid),
        lambda order: pytest.fail(f"{order} was not to be expected"),
        0,
    )
    learner.on_connected(sent.append, 0)
    sent.clear()
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
    applied += learner.take_due(lambda _entry: True)
    assert applied == [entry for _, entry in TXNS[:3]]
    assert not learner.has_due
    learner.on_durable(LAST)
    assert learner.has_due
    applied += learner.take_due(lambda _entry: True)
    assert applied == [entry for _, entry in TXNS]
    assert appended == [zxid for zxid, _ in TXNS]


class LoggedTxns:
    """A history of what is given, all of which the disk can send."""

    def __init__(self, *zxids: Zxid) -> None:
        self.zxids = zxids

    def chain(self) -> Chain:
        return Chain(Zxid(0), tuple(Run(one, one) for one in self.zxids))

    def serves_after(self, _zxid: Zxid) -> bool:
        return True

    def bytes_after(self, _zxid: Zxid) -> int:
        return 0

    def tree_bytes(self) -> int:
        return 0


def test_forked_apache_server__gets_a_tree_once_this_epoch_has_a_txn() -> None:
    first = make_zxid(2, 1)
    leader, ours, apache, sent = leading(history=lambda: LoggedTxns(first))
    leader.last_committed, leader.epoch, leader._is_agreed = make_zxid(1, 4), 2, True
    learner = leader.learners[apache]
    learner.step = Step.ASKED
    ack = encode_epoch_ack(EpochAck(1, make_zxid(1, 5), None))
    leader.on_packet(apache, ack, 1)
    assert (learner.step, leader.wants_txn) == (Step.PROMISED, True)
    leader.propose_all([(first, b"nothing")])
    leader.on_durable(first)
    leader.on_packet(ours, QuorumPacket(PacketType.ACK.value, first), 1)
    assert commit(leader) == [first]
    assert learner.step is Step.CATCHING_UP
    trees: list[object] = [*sent[apache][:1]]
    assert trees == [TreeStream(first, beyond=make_zxid(1, 5))]


def test_apache_server_that_joins_without_a_record_of_this_term__acknowledges_none() -> None:
    first = make_zxid(2, 1)
    leader, _, apache, sent = leading(history=lambda: LoggedTxns(make_zxid(0, 7), first))
    leader.last_committed = make_zxid(0, 7)
    leader.epoch, leader._is_agreed = 2, True
    leader.propose_all([(first, b"known to the leader alone")])
    leader.on_durable(first)
    leader.learners[apache].step = Step.ASKED
    sent[apache].clear()
    leader.on_packet(apache, encode_epoch_ack(EpochAck(1, START, None)), 1)
    leader.on_packet(apache, QuorumPacket(PacketType.ACK.value, make_zxid(2, 0)), 2)
    assert leader.learners[apache].step is Step.CURRENT
    assert packets(sent[apache], PacketType.PROPOSAL) == [first]
    assert commit(leader) == []
    leader.on_packet(apache, QuorumPacket(PacketType.ACK.value, first), 3)
    assert commit(leader) == [first]


def test_up_to_date__tells_the_state_to_a_server_of_our_kind_alone() -> None:
    leader, ours, apache, sent = leading()
    leader.epoch = 1
    for link in (ours, apache):
        leader.learners[link].step = Step.CATCHING_UP
        leader.on_packet(link, QuorumPacket(PacketType.ACK.value, START), 1)
    told = {link: PacketParser().feed(b"".join(sent[link]))[-1] for link in (ours, apache)}
    assert [packet.type for packet in told.values()] == [PacketType.UPTODATE] * 2
    assert decode_leader_state(told[ours]) == LeaderState(leader.last_committed, 1, 2)
    assert told[apache].data is None
    assert decode_leader_state(told[apache]) is None


@pytest.mark.parametrize(
    ("current_epoch", "last", "is_over"),
    [
        (1, START, False),
        (0, Zxid(START + 1), False),
        (1, Zxid(START + 1), True),
        (2, Zxid(START - 1), True),
    ],
)
def test_voter_that_promises_and_has_more__ends_the_term(
    current_epoch: int, last: Zxid, is_over: bool
) -> None:
    """Elections see to it that none does; where one has all the same, nothing of it is cut off."""
    leader, ours, _, _ = leading()
    leader.phase, leader.epoch = LeaderPhase.DISCOVERY, 3
    leader.learners[ours].step = Step.ASKED
    leader.on_packet(ours, encode_epoch_ack(EpochAck(current_epoch, last, None)), 1)
    assert (leader.end is not None) is is_over


def test_learner__does_not_serve_before_all_that_was_committed_is_applied() -> None:
    facts = LearnerFacts(ServerId(2), 1, 1, Chain(START), None, Zxid(0), True, True)
    learner = Learner(facts, QuorumOptions(), lambda *_: None, lambda _: None, 0)
    learner.stage, learner.epoch = Stage.ACTIVE, 1
    assert learner.may_serve
    for zxid, entry in TXNS:
        learner.on_packet(QuorumPacket(PacketType.PROPOSAL.value, zxid, entry), 1)
    assert learner.may_serve
    learner.committed = LAST
    assert not learner.may_serve
    learner.durable = LAST
    assert not learner.may_serve
    assert len(list(learner.take_due(lambda _entry: True))) == len(TXNS)
    assert learner.may_serve


def learner_at_a_diff(head: Zxid, announced: Zxid) -> tuple[Learner, list[DiskOrder]]:
    """A learner whose history ends at `head`, and that was told how far the records go."""
    facts = LearnerFacts(ServerId(2), 1, 1, Chain(head), None, Zxid(0), True, True)
    orders: list[DiskOrder] = []
    learner = Learner(facts, QuorumOptions(), lambda *_: None, orders.append, 0)
    learner.on_connected(lambda _: None, 0)
    learner.on_packet(encode_leader_hello(LeaderHello(1, "")), 1)
    learner.on_packet(QuorumPacket(PacketType.DIFF.value, announced), 1)
    return learner, orders


def test_learner_with_more_than_is_committed__serves_when_that_is() -> None:
    """It was proposed to it before it lost its leader, and its tree has it: others may not."""
    learner, orders = learner_at_a_diff(LAST, START)
    learner.on_packet(QuorumPacket(PacketType.NEWLEADER.value, make_zxid(1, 0)), 1)
    learner.finish()
    learner.on_order_done(orders.pop(), None)
    learner.on_packet(QuorumPacket(PacketType.UPTODATE.value, Zxid(-1)), 1)
    assert not learner.may_serve
    for zxid, _ in TXNS:
        assert not learner.may_serve
        learner.on_packet(QuorumPacket(PacketType.COMMIT.value, zxid), 1)
    assert learner.may_serve


@pytest.mark.parametrize("announced", [TXNS[0][0], LAST])
def test_learner_that_is_sent_less_than_its_diff_announced__asks_for_a_tree(
    announced: Zxid,
) -> None:
    """What came instead may be of a log with a hole: it is not agreed to."""
    learner, orders = learner_at_a_diff(START, announced)
    zxid, entry = TXNS[0]
    learner.on_packet(QuorumPacket(PacketType.PROPOSAL.value, zxid, entry), 1)
    learner.on_durable(zxid)
    learner.on_packet(QuorumPacket(PacketType.NEWLEADER.value, make_zxid(1, 0)), 1)
    learner.finish()
    if announced == zxid:
        assert learner.end is None
        assert orders
        return
    assert learner.end is not None
    assert learner.end.is_unfit
    assert not orders
