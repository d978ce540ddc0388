"""What a leader believes of somebody who introduces itself, and what a voter believes of a vote."""

from __future__ import annotations

from itertools import pairwise

import pytest

from keepfast.quorum import Candidacy, Election, Leader, Link, OwnHistory, QuorumOptions, Quorums
from keepfast.quorum.effects import StoreEpochs
from keepfast.quorum.hello import LearnerHello, encode_learner_hello
from keepfast.quorum.plausibility import (
    MAX_EPOCH_JUMP,
    MAX_NEW_LEARNERS,
    MAX_ROUND_JUMP,
    MAX_YIELD_INTERVAL_MS,
    MIN_YIELD_INTERVAL_MS,
    AheadVoters,
    comes_from,
)
from keepfast.sim.options import SimOptions
from keepfast.sim.simulated_members import initial_membership
from keepfast.wire import (
    MAX_EPOCH,
    MalformedRecord,
    Notification,
    PacketType,
    PeerProtocolError,
    PeerState,
    QuorumPacket,
    ServerId,
    Zxid,
    encode_notification,
    make_zxid,
)
from tests.quorum.test_broadcast import means_of


class Discovering:
    """What outlives the terms of a server, and what its disk is asked for."""

    def __init__(self) -> None:
        self.ahead = AheadVoters(patience_ms=1000, pause_ms=100, knocking_ms=100)
        self.orders: list[StoreEpochs] = []


def leader_of(host: Discovering, accepted: int = 5, *, is_reconfig_enabled: bool = False) -> Leader:
    return Leader(
        OwnHistory(ServerId(1), accepted, accepted, make_zxid(accepted, 0), None),
        Quorums(initial_membership(SimOptions())),
        QuorumOptions(is_reconfig_enabled=is_reconfig_enabled),
        means_of(
            send=lambda _link, _item: None,
            order=host.orders.append,
            new_ensemble=lambda: "0" * 32,
            ahead=host.ahead,
        ),
        0,
    )


def introduce(
    leader: Leader, server_id: int, accepted: int, *, address: str = "", now_ms: int = 0
) -> Link:
    link = Link(len(leader.learners) + 1, address)
    leader.on_link(link, now_ms)
    hello = LearnerHello(ServerId(server_id), True, accepted, Zxid(0), "")
    leader.on_packet(link, encode_learner_hello(hello), now_ms)
    return link


def test_epoch_far_ahead__ends_the_link_and_is_not_counted() -> None:
    host = Discovering()
    leader = leader_of(host)
    for accepted in (5 + MAX_EPOCH_JUMP + 1, MAX_EPOCH):
        with pytest.raises(PeerProtocolError, match="acceptedEpoch"):
            introduce(leader, 2, accepted)
    assert host.orders == []
    introduce(leader, 3, 5 + MAX_EPOCH_JUMP)
    assert leader.epoch == 6 + MAX_EPOCH_JUMP


@pytest.mark.parametrize("kind", [PacketType.PING, PacketType.ACK, PacketType.ACKEPOCH])
def test_packet_before_the_hello__ends_the_link(kind: PacketType) -> None:
    """Or somebody could send pings without end, and never introduce itself."""
    leader = leader_of(Discovering())
    link = Link(1, "")
    leader.on_link(link, 0)
    with pytest.raises(PeerProtocolError):
        leader.on_packet(link, QuorumPacket(kind.value, Zxid(0), bytes(4)), 0)


def test_epoch_of_one_who_does_not_vote__is_not_counted() -> None:
    host = Discovering()
    leader = leader_of(host, is_reconfig_enabled=True)
    introduce(leader, 99, 40)
    introduce(leader, 2, 5)
    assert leader.epoch == 6


def test_last_epoch_is_used_up__the_operator_is_told_what_to_do() -> None:
    host = Discovering()
    leader = leader_of(host, MAX_EPOCH)
    introduce(leader, 2, 5)
    assert leader.epoch is None
    assert "all epochs are used up" in (leader.end or "")


def test_late_hello_of_a_later_epoch__the_term_goes_on() -> None:
    host = Discovering()
    leader = leader_of(host)
    introduce(leader, 2, 5)
    for now_ms in (0, 400, 800):
        with pytest.raises(PeerProtocolError, match="it can follow later"):
            introduce(leader, 3, 7, now_ms=now_ms)
    assert leader.end is None


def test_voter_that_stays_ahead__is_let_in_by_an_election_but_seldom() -> None:
    host = Discovering()
    leader = leader_of(host)
    introduce(leader, 2, 5)
    now_ms = 0
    while leader.end is None:
        now_ms += 500
        try:
            introduce(leader, 3, 7, now_ms=now_ms)
        except PeerProtocolError:
            assert now_ms < 3000
    assert now_ms > 1000
    assert host.ahead.promised == 7
    # The next term is above what it promised; and nobody has another one ended soon.
    later = leader_of(host)
    introduce(later, 2, 5, now_ms=now_ms)
    assert later.epoch == 8
    for step in range(100):
        with pytest.raises(PeerProtocolError):
            introduce(later, 3, 9, now_ms=now_ms + 500 * step)


def test_who_is_no_member__is_refused_where_members_do_not_change() -> None:
    with pytest.raises(PeerProtocolError, match="not a member"):
        introduce(leader_of(Discovering()), 99, 5)


def test_member_from_elsewhere__is_refused() -> None:
    leader = leader_of(Discovering())
    spec = leader.quorums.find(ServerId(2))
    assert spec is not None
    if comes_from("192.0.2.1", [place.host for place in spec.quorum]):
        pytest.skip("the members of this ensemble have names")
    with pytest.raises(PeerProtocolError, match="does not come from"):
        introduce(leader, 2, 5, address="192.0.2.1")


@pytest.mark.parametrize(
    ("address", "hosts", "expected"),
    [
        ("10.0.0.1", ["10.0.0.1"], True),
        ("10.0.0.2", ["10.0.0.1"], False),
        ("10.0.0.2", ["10.0.0.1", "10.0.0.2"], True),
        ("::ffff:10.0.0.1", ["10.0.0.1"], True),
        ("10.0.0.2", ["zk1"], True),
        ("10.0.0.2", ["0.0.0.0"], True),
        ("fe80::1%eth0", ["fe80::1"], True),
        ("", ["10.0.0.1"], True),
        ("10.0.0.2", [], True),
    ],
)
def test_addresses(address: str, hosts: list[str], expected: bool) -> None:
    assert comes_from(address, hosts) == expected


def test_double_of_one_who_follows__is_refused_and_the_follower_stays() -> None:
    leader = leader_of(Discovering())
    link = introduce(leader, 2, 5)
    leader.learners[link].step = type(leader.learners[link].step).CURRENT
    with pytest.raises(PeerProtocolError, match="follows already"):
        introduce(leader, 2, 5, now_ms=10)
    assert link in leader.learners
    # A link that has fallen silent is another matter.
    introduce(leader, 2, 5, now_ms=1_000_000)
    assert link not in leader.learners


def test_links_without_a_hello__are_few_and_their_packets_small() -> None:
    leader = leader_of(Discovering())
    links = [Link(number) for number in range(MAX_NEW_LEARNERS + 10)]
    for link in links:
        leader.on_link(link, 0)
    assert len(leader.learners) == MAX_NEW_LEARNERS
    assert links[-1] in leader.learners
    head = QuorumPacket(PacketType.REQUEST.value, Zxid(0), bytes(5000))
    with pytest.raises(MalformedRecord):
        links[-1].parser.feed(_encoded(head)[:20])


def _encoded(packet: QuorumPacket) -> bytes:
    from keepfast.quorum.links import encode_packet

    return encode_packet(packet)


def vote(round_: int, epoch: int = 1) -> Notification:
    return Notification(PeerState.LOOKING, ServerId(3), make_zxid(1, 5), round_, epoch, 2, b"")


def test_vote_of_a_round_far_ahead__is_not_joined() -> None:
    election = Election(ServerId(1), initial_membership(SimOptions()))
    election.look(Candidacy.ELIGIBLE, make_zxid(1, 5), 1, 0)
    for implausible in (2**63 - 1, 2 + MAX_ROUND_JUMP, -1):
        election.receive(ServerId(3), vote(implausible), 0)
        assert election.election_epoch == 1
    election.receive(ServerId(3), vote(1, epoch=2**40), 0)
    election.receive(ServerId(3), vote(7), 0)
    assert election.election_epoch == 7
    # Whatever is said next can be written.
    election.look(Candidacy.ELIGIBLE, make_zxid(1, 5), 1, 0)
    for _, notification in election.outbox:
        encode_notification(notification)


def test_elections_for_one_who_is_ahead__become_rare() -> None:
    """Who says so forever costs an election after 10 minutes, 20, 40, and in the end one a day."""
    ahead = AheadVoters(patience_ms=1000, pause_ms=100, knocking_ms=100)
    days = 10
    times = range(0, days * 86_400_000, 900)
    due = [now_ms for now_ms in times if ahead.is_due(ServerId(3), 7, now_ms)]
    pauses = [later - earlier for earlier, later in pairwise(due)]
    assert [round(pause / MIN_YIELD_INTERVAL_MS) for pause in pauses[:4]] == [1, 2, 4, 8]
    assert max(pauses) < MAX_YIELD_INTERVAL_MS + 10_000
    assert len(due) < days + 10
