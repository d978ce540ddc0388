"""Fast leader election, case by case: what is said to whom, and when it is decided."""

from __future__ import annotations

import pytest

from keepfast.quorum import (
    ELECTION_NOTES,
    NO_VOTE,
    Candidacy,
    Elected,
    Election,
    ElectionOptions,
    Membership,
    Vote,
)
from keepfast.wire import (
    InvariantViolation,
    Notification,
    PeerState,
    ServerId,
    Zxid,
)
from tests.quorum.electorate import Electorate, Standing, majority, member

LOOKING, FOLLOWING = PeerState.LOOKING, PeerState.FOLLOWING
LEADING, OBSERVING = PeerState.LEADING, PeerState.OBSERVING
ELIGIBLE, EMPTY, BARRED = Candidacy.ELIGIBLE, Candidacy.EMPTY, Candidacy.BARRED
NOBODY = -(1 << 63)


def word(
    leader: int,
    zxid: int = 5,
    *,
    epoch: int = 1,
    round_: int = 1,
    state: int = LOOKING,
    config: bytes | None = b"",
) -> Notification:
    return Notification(state, ServerId(leader), Zxid(zxid), round_, epoch, 2, config)


def looking(
    my_id: int = 1,
    candidacy: Candidacy = ELIGIBLE,
    zxid: int = 5,
    epoch: int = 1,
    *,
    membership: Membership | None = None,
) -> Election:
    """A machine of a three server ensemble that has begun to look; its first words are taken."""
    machine = Election(ServerId(my_id), membership or majority(3))
    machine.look(candidacy, Zxid(zxid), epoch, now_ms=0)
    machine.outbox.clear()
    return machine


def hear(machine: Election, sender: int, notification: Notification, now_ms: int = 0) -> None:
    machine.receive(ServerId(sender), notification, now_ms)


def said(machine: Election) -> list[tuple[int, PeerState, int, int, int]]:
    """Receiver, state, leader, zxid and round of what is to be sent."""
    words: list[tuple[int, PeerState, int, int, int]] = [
        (peer, PeerState(one.state), one.leader, one.zxid, one.election_epoch)
        for peer, one in machine.outbox
    ]
    machine.outbox.clear()
    return words


def noted(machine: Election) -> list[str]:
    return [one.name for one in machine.notes]


def test_look__votes_for_itself_and_tells_all_voters() -> None:
    machine = Election(ServerId(2), majority(3, observers=[9]))

    machine.look(ELIGIBLE, Zxid(7), 4, now_ms=100)

    config = majority(3, observers=[9]).text()
    expected = Notification(LOOKING, ServerId(2), Zxid(7), 1, 4, 2, config)
    assert machine.outbox == [(1, expected), (3, expected)]
    assert machine.result is None
    assert machine.deadline_ms == 300


def test_better_vote__is_taken_over_and_told() -> None:
    machine = looking(1)

    hear(machine, 2, word(2))

    assert machine.vote == Vote(ServerId(2), Zxid(5), 1)
    assert said(machine) == [(2, LOOKING, 2, 5, 1), (3, LOOKING, 2, 5, 1)]


@pytest.mark.parametrize(
    ("mine", "other", "is_taken"),
    [
        ((1, 5), (2, 4), True),  # newer epoch, whatever the zxid
        ((2, 4), (1, 5), False),
        ((1, 5), (1, 6), True),  # longer history
        ((1, 6), (1, 5), False),
        ((1, 5), (1, 5), True),  # greater id
    ],
)
def test_order_of_votes(mine: tuple[int, int], other: tuple[int, int], is_taken: bool) -> None:
    machine = looking(1, epoch=mine[0], zxid=mine[1])

    hear(machine, 2, word(2, other[1], epoch=other[0]))

    assert machine.vote.leader == (2 if is_taken else 1)


def test_quorum__waits_a_moment_for_a_better_vote() -> None:
    machine = looking(2)
    hear(machine, 1, word(2), now_ms=10)

    assert machine.result is None
    assert machine.deadline_ms == 200  # the votes are sent again before
    machine.tick(209)
    assert machine.result is None
    machine.tick(210)

    assert machine.result == Elected(ServerId(2), LEADING, Zxid(5), 1, 1)
    assert machine.state is LEADING
    assert machine.deadline_ms is None


def test_better_vote_while_waiting__starts_over() -> None:
    machine = looking(2)
    hear(machine, 1, word(2), now_ms=0)
    hear(machine, 3, word(3), now_ms=150)
    machine.tick(200)

    assert machine.result is not None or machine.vote.leader == 3
    assert machine.state is not LEADING
    assert "finalizing-interrupted" in noted(machine)


def test_supporter_that_starts_anew_while_waiting__does_not_count_any_more() -> None:
    machine = looking(2)
    hear(machine, 1, word(2), now_ms=0)
    hear(machine, 1, word(1, 4), now_ms=100)

    machine.tick(250)

    assert machine.result is None
    assert machine.deadline_ms is not None


def test_all_voters_agree__nothing_is_waited_for() -> None:
    machine = looking(3)
    hear(machine, 1, word(3))
    assert machine.result is None
    hear(machine, 2, word(3))

    assert machine.result == Elected(ServerId(3), LEADING, Zxid(5), 1, 1)


def test_only_voter__elects_itself_at_once() -> None:
    machine = looking(1, membership=majority(1))

    assert machine.result == Elected(ServerId(1), LEADING, Zxid(5), 1, 1)


def test_silence__votes_are_sent_again_at_growing_intervals() -> None:
    machine = Election(ServerId(1), majority(3), ElectionOptions(200, 1000))
    machine.look(ELIGIBLE, Zxid(5), 1, now_ms=0)
    machine.outbox.clear()
    times = []
    for now_ms in range(0, 4000, 100):
        machine.tick(now_ms)
        if said(machine):
            times.append(now_ms)

    assert times == [200, 600, 1400, 2400, 3400]


def test_server_that_only_asks__asks_often() -> None:
    machine = looking(1, BARRED)
    times = []
    for now_ms in range(0, 10_000, 100):
        machine.tick(now_ms)
        if said(machine):
            times.append(now_ms)

    assert times == [200, 600, 1400, 3000, 5000, 7000, 9000]


def test_later_round__is_joined_with_the_better_of_its_vote_and_our_own() -> None:
    machine = looking(2)
    hear(machine, 3, word(3, 9))
    said(machine)

    hear(machine, 1, word(1, 4, round_=7))

    assert machine.election_epoch == 7
    assert machine.vote == Vote(ServerId(2), Zxid(5), 1)  # what 3 said belongs to the old round
    assert said(machine) == [(1, LOOKING, 2, 5, 7), (3, LOOKING, 2, 5, 7)]


def test_vote_of_an_old_round__is_answered_and_not_counted() -> None:
    machine = looking(2)
    machine.look(ELIGIBLE, Zxid(5), 1, now_ms=0)
    said(machine)

    hear(machine, 1, word(2, round_=1))
    machine.tick(10_000)

    assert (1, LOOKING, 2, 5, 2) in said(machine)
    assert machine.result is None
    assert "vote-of-old-round" in noted(machine)


def test_settled_server__answers_who_looks_and_nobody_else() -> None:
    machine = looking(3)
    hear(machine, 1, word(3))
    hear(machine, 2, word(3))
    machine.settle(LEADING, ServerId(3), 2)
    said(machine)

    hear(machine, 1, word(1, round_=4))
    hear(machine, 2, word(3, state=FOLLOWING))

    assert said(machine) == [(1, LEADING, 3, 5, 1)]
    assert machine.vote.peer_epoch == 2


def test_late_server__joins_the_leader_that_a_quorum_follows() -> None:
    machine = looking(1, zxid=9)
    hear(machine, 2, word(3, round_=6, epoch=2, state=FOLLOWING))
    assert machine.result is None
    hear(machine, 3, word(3, round_=6, epoch=2, state=LEADING))

    assert machine.result == Elected(ServerId(3), FOLLOWING, Zxid(5), 2, 6)
    assert machine.election_epoch == 6


def test_leader_that_does_not_say_so_itself__is_not_joined() -> None:
    machine = looking(1, membership=majority(5))
    for sender in (2, 4, 5):
        hear(machine, sender, word(3, round_=6, state=FOLLOWING))

    assert machine.result is None


def test_settled_votes_of_different_epochs__are_not_counted_together() -> None:
    machine = looking(1, membership=majority(5))
    hear(machine, 2, word(3, round_=5, epoch=1, state=FOLLOWING))
    hear(machine, 4, word(3, round_=6, epoch=2, state=FOLLOWING))
    hear(machine, 3, word(3, round_=6, epoch=2, state=LEADING))
    assert machine.result is None

    hear(machine, 5, word(3, round_=6, epoch=2, state=FOLLOWING))
    assert machine.result is not None


def test_server_of_3_4_without_the_new_epoch__counts_for_the_leader() -> None:
    machine = looking(1)
    old = Notification(FOLLOWING, ServerId(3), Zxid(5), 6, 1, 1, None)
    hear(machine, 2, old)
    hear(machine, 3, word(3, round_=7, epoch=2, state=LEADING))

    assert machine.result is not None
    assert machine.result.leader == 3


def test_settled_vote_of_this_round__counts_with_our_own() -> None:
    machine = looking(1)
    hear(machine, 3, word(3))
    assert machine.result is None
    hear(machine, 3, word(3, state=LEADING))

    assert machine.result == Elected(ServerId(3), FOLLOWING, Zxid(5), 1, 1)


def test_observing_servers__are_not_counted() -> None:
    machine = looking(1)
    hear(machine, 3, word(3, round_=6, state=LEADING))
    hear(machine, 2, word(3, round_=6, state=OBSERVING))

    assert machine.result is None


def test_observer__asks_and_is_told_but_never_counts() -> None:
    membership = majority(3, observers=[9])
    asker = Election(ServerId(9), membership)
    asker.look(ELIGIBLE, Zxid(99), 9, now_ms=0)

    assert asker.candidacy is BARRED
    assert {peer for peer, _ in asker.outbox} == {1, 2, 3}
    assert all(one[1:3] == (NOBODY, NOBODY) for _, one in asker.outbox)
    assert asker.vote == NO_VOTE
    voter = looking(1, membership=membership)
    hear(voter, 9, asker.outbox[0][1])
    assert said(voter) == [(9, LOOKING, 1, 5, 1)]
    assert voter.vote.leader == 1

    hear(asker, 1, word(3, state=FOLLOWING))
    hear(asker, 3, word(3, state=LEADING))
    assert asker.result is not None
    assert asker.result.state is OBSERVING


@pytest.mark.parametrize("candidacy", [EMPTY, BARRED])
def test_server_that_is_not_whole__does_not_count_votes_of_who_looks(candidacy: Candidacy) -> None:
    machine = looking(1, candidacy)
    for now_ms in (0, 1000, 5000):
        hear(machine, 2, word(3), now_ms)
        hear(machine, 3, word(3), now_ms)
        machine.tick(now_ms + 900)

    assert machine.result is None
    assert machine.state is LOOKING


@pytest.mark.parametrize("candidacy", [EMPTY, BARRED])
def test_server_that_is_not_whole__never_leads_whatever_others_say(candidacy: Candidacy) -> None:
    machine = looking(1, candidacy)
    for sender in (2, 3):
        hear(machine, sender, word(1, state=FOLLOWING))

    assert machine.result is None
    assert "told-to-lead-while-barred" in noted(machine)

    hear(machine, 2, word(2, state=LEADING))
    hear(machine, 3, word(2, state=FOLLOWING))
    assert machine.result == Elected(ServerId(2), OBSERVING, Zxid(5), 1, 1)


@pytest.mark.parametrize("candidacy", [EMPTY, BARRED])
def test_vote_of_a_server_that_is_not_whole__is_worth_nothing(candidacy: Candidacy) -> None:
    doubtful = Election(ServerId(3), majority(3))
    doubtful.look(candidacy, Zxid(99), 9, now_ms=0)
    machine = looking(2)

    hear(machine, 3, doubtful.outbox[-1][1])
    machine.tick(10_000)

    assert machine.vote.leader == 2
    assert machine.result is None


def test_empty_server__says_zxid_minus_one() -> None:
    machine = Election(ServerId(3), majority(3))
    machine.look(EMPTY, Zxid(0), 0, now_ms=0)

    assert said(machine) == [(1, LOOKING, 3, -1, 1), (2, LOOKING, 3, -1, 1)]


def test_eligible_without_history__is_our_own_bug() -> None:
    with pytest.raises(InvariantViolation):
        looking(1, ELIGIBLE, -1)


def test_server_without_weight__is_not_voted_for() -> None:
    plain = majority(3)
    groups = ((1, tuple(sorted(plain.voters))),)
    membership = Membership(plain.members, groups=groups, weights=((ServerId(3), 0),))
    machine = looking(2, membership=membership)

    hear(machine, 3, word(3, 99, epoch=9))

    assert machine.vote.leader == 2


def test_vote_for_or_from_a_stranger__does_not_count() -> None:
    machine = looking(2)
    hear(machine, 1, word(77, 99))
    assert machine.vote.leader == 2
    assert said(machine) == []
    assert noted(machine) == ["vote-for-no-voter"]

    hear(machine, 77, word(2, round_=0))
    assert said(machine) == [(77, LOOKING, 2, 5, 1)]
    hear(machine, 77, word(3, 99))
    assert said(machine) == []
    assert machine.vote.leader == 2
    machine.tick(10_000)
    assert machine.result is None


def test_words_that_mean_nothing__are_noted() -> None:
    machine = Election(ServerId(1), majority(3))
    hear(machine, 2, word(2))
    machine.look(ELIGIBLE, Zxid(5), 1, 0)
    machine.outbox.clear()
    hear(machine, 2, word(2, state=4))
    hear(machine, 1, word(1))
    hear(machine, 2, word(1, 4, config=b"nonsense"))

    assert machine.outbox == []
    assert noted(machine) == [
        "vote-before-first-look",
        "vote-of-unknown-state",
        "vote-of-my-own-id",
        "vote-with-malformed-config",
    ]
    assert set(noted(machine)) <= set(ELECTION_NOTES)


def test_fresh_ensemble__is_taken_for_new_only_when_every_voter_was_heard_twice() -> None:
    machine = looking(1, EMPTY, epoch=0)
    assert machine.waiting_for == {2, 3}
    for sender, zxid in ((2, -1), (3, 0), (2, -1)):
        assert not machine.may_initialise
        hear(machine, sender, word(sender, zxid, epoch=0))
    assert machine.waiting_for == {3}

    hear(machine, 3, word(3, 0, epoch=0))

    assert machine.may_initialise
    machine.look(ELIGIBLE, Zxid(0), 0, now_ms=500)
    assert not machine.may_initialise
    assert machine.waiting_for == frozenset()


@pytest.mark.parametrize(
    "later",
    [
        word(3, 1, epoch=0),
        word(3, 0, epoch=1),
        word(3, 0, epoch=0, state=FOLLOWING),
        word(3, 0, epoch=0, state=OBSERVING),
        word(NOBODY, NOBODY, epoch=NOBODY),
    ],
)
def test_voter_with_a_history__or_that_cannot_tell__ends_the_hope_of_a_new_ensemble(
    later: Notification,
) -> None:
    machine = looking(1, EMPTY, epoch=0)
    for sender in (2, 3, 2, 3):
        hear(machine, sender, word(sender, -1, epoch=0))
    assert machine.may_initialise

    hear(machine, 3, later)

    assert not machine.may_initialise


def test_first_word_on_a_new_connection__proves_nothing() -> None:
    machine = looking(1, EMPTY, epoch=0)
    for sender in (2, 3, 2, 3):
        hear(machine, sender, word(sender, -1, epoch=0))

    machine.peer_linked(ServerId(3))
    assert machine.waiting_for == {3}
    hear(machine, 3, word(3, 0, epoch=0))
    assert machine.waiting_for == {3}
    hear(machine, 3, word(3, 0, epoch=0))
    assert machine.may_initialise


def test_new_ensemble__is_known_as_soon_as_all_are_connected() -> None:
    world = Electorate(majority(3), {id: Standing(EMPTY) for id in (1, 2, 3)})
    for id in (1, 2, 3):
        world.start(id)

    world.deliver_all()

    assert world.now_ms == 1000
    assert all(machine.may_initialise for machine in world.machines.values())


def test_empty_server_that_once_had_an_epoch__never_takes_the_ensemble_for_new() -> None:
    machine = looking(1, EMPTY, epoch=3)
    for sender in (2, 3, 2, 3):
        hear(machine, sender, word(sender, -1, epoch=0))

    assert not machine.may_initialise


def test_new_connection__is_told_what_we_say_now() -> None:
    machine = looking(1)

    machine.peer_linked(ServerId(3))

    assert said(machine) == [(3, LOOKING, 1, 5, 1)]


def test_restart_of_a_follower__finds_the_leader_again() -> None:
    world = Electorate(majority(3), {id: Standing() for id in (1, 2, 3)})
    for id in (1, 2, 3):
        world.start(id)
    world.run()
    assert world.leaders() == {3}
    for id, machine in world.machines.items():
        machine.settle(machine.state, ServerId(3), 1)
        assert (machine.state is LEADING) == (id == 3)

    world.start(1)
    world.deliver_all()

    result = world.machines[ServerId(1)].result
    assert result is not None
    assert (result.leader, result.state, result.peer_epoch) == (3, FOLLOWING, 1)


@pytest.mark.parametrize("asker", [1, 9, 77])
@pytest.mark.parametrize("candidacy", [ELIGIBLE, EMPTY, BARRED])
@pytest.mark.parametrize("rounds", [(1, 1), (1, 3), (3, 1)])
def test_two_servers__never_answer_each_other_forever(
    asker: int, candidacy: Candidacy, rounds: tuple[int, int]
) -> None:
    membership = majority(3, observers=[9])
    # The stranger belongs to another ensemble: neither takes the other for a voter.
    elsewhere = Membership((member(77), member(78)))
    one = Election(ServerId(asker), elsewhere if asker == 77 else membership)
    other = Election(ServerId(2), membership)
    for machine, count in zip((one, other), rounds, strict=True):
        for _ in range(count):
            machine.look(candidacy, Zxid(5), 1, now_ms=0)
        machine.outbox.clear()
    one.peer_linked(other.my_id)
    other.peer_linked(one.my_id)

    for _ in range(20):
        for speaker, listener in ((one, other), (other, one)):
            words = [word for peer, word in speaker.outbox if peer == listener.my_id]
            speaker.outbox.clear()
            for said_ in words:
                listener.receive(speaker.my_id, said_, 0)

    assert all(peer != other.my_id for peer, _ in one.outbox)
    assert all(peer != one.my_id for peer, _ in other.outbox)
