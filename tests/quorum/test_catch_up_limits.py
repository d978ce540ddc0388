"""How many observers a leader sends what they lack at the same time."""

from __future__ import annotations

from dataclasses import replace

from keepfast.quorum import (
    Effect,
    Hangup,
    Leader,
    LeaderPhase,
    Link,
    OwnHistory,
    QuorumOptions,
    Quorums,
    Step,
)
from keepfast.quorum.hello import EpochAck, LearnerHello, encode_epoch_ack
from keepfast.quorum.learner_link import LearnerLink
from keepfast.sim.options import SimOptions
from keepfast.sim.simulated_members import initial_membership
from keepfast.wire import PacketType, QuorumPacket, ServerId, Zxid, make_zxid
from tests.quorum.test_broadcast import START, means_of


def leading(options: QuorumOptions) -> tuple[Leader, list[Effect]]:
    effects: list[Effect] = []
    own = OwnHistory(ServerId(1), 1, 1, START, None)
    quorums = Quorums(initial_membership(SimOptions()))
    # Whoever has no history gets a tree without a look at the disk.
    means = means_of(effects=effects, send=lambda *_: None, history=lambda: None)
    leader = Leader(own, quorums, options, means, 0)
    leader.epoch, leader.phase = 1, LeaderPhase.BROADCAST
    leader._is_promised = leader._is_agreed = True
    return leader, effects


def connect(leader: Leader, number: int, *, is_follower: bool) -> Link:
    """A learner without a history, up to its promise of the epoch."""
    link = Link(number)
    learner = LearnerLink(link, 0)
    learner.hello = LearnerHello(ServerId(number), is_follower, 0, Zxid(0), "")
    learner.step = Step.ASKED
    leader.learners[link] = learner
    leader.on_packet(link, encode_epoch_ack(EpochAck(0, Zxid(-1), None)), 1)
    return link


def test_observers__more_than_may_get_a_snapshot_at_once_are_turned_away() -> None:
    leader, effects = leading(replace(QuorumOptions(), max_snapshot_catch_ups=2))
    links = [connect(leader, number, is_follower=False) for number in (11, 12, 13)]

    assert list(leader.learners) == links[:2]
    assert [one.link for one in effects if isinstance(one, Hangup)] == links[2:]


def test_observer__gets_in_when_another_one_is_done() -> None:
    leader, effects = leading(replace(QuorumOptions(), max_snapshot_catch_ups=1))
    first = connect(leader, 11, is_follower=False)
    leader.on_packet(first, QuorumPacket(PacketType.ACK.value, make_zxid(1, 0)), 2)
    second = connect(leader, 12, is_follower=False)

    assert list(leader.learners) == [first, second]
    assert not [one for one in effects if isinstance(one, Hangup)]


def test_followers__are_never_turned_away() -> None:
    leader, effects = leading(replace(QuorumOptions(), max_snapshot_catch_ups=1))
    links = [connect(leader, number, is_follower=True) for number in (2, 3)]

    assert list(leader.learners) == links
    assert not [one for one in effects if isinstance(one, Hangup)]


def test_limits__snapshots_and_txns_are_counted_apart() -> None:
    leader, effects = leading(replace(QuorumOptions(), max_diff_catch_ups=1))
    links = [connect(leader, number, is_follower=False) for number in (11, 12)]

    assert list(leader.learners) == links
    assert not [one for one in effects if isinstance(one, Hangup)]
