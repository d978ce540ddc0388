"""Elections while the membership changes: what is learned, and who decides."""

from __future__ import annotations

from keepfast.quorum import Membership
from keepfast.wire import Zxid
from tests.quorum.electorate import majority, member
from tests.quorum.test_election import (
    BARRED,
    ELIGIBLE,
    FOLLOWING,
    LEADING,
    LOOKING,
    NOBODY,
    hear,
    looking,
    said,
    word,
)


def test_newer_config__is_told_to_the_caller_once() -> None:
    newer = Membership((*majority(3).members, member(4)), Zxid(9))
    machine = looking(2)

    hear(machine, 1, word(2, config=newer.text()))
    assert machine.learned_config == newer
    assert said(machine) == []  # not counted: the electorate may have changed
    machine.learned_config = None
    hear(machine, 1, word(2, config=newer.text()))
    assert machine.learned_config is None
    machine.tick(1000)
    assert machine.result is not None


def test_config_with_the_same_members__does_not_cost_the_vote() -> None:
    machine = looking(2)

    hear(machine, 1, word(2, config=majority(3, version=9).text()))
    machine.tick(1000)

    assert machine.learned_config == majority(3, version=9)
    assert machine.result is not None


def test_old_config__is_not_learned() -> None:
    machine = looking(2, membership=majority(3, version=9))

    hear(machine, 1, word(2, config=majority(5, version=8).text()))

    assert machine.learned_config is None


def test_changed_electorate__begins_a_round() -> None:
    machine = looking(2)
    hear(machine, 1, word(2))
    wider = Membership(tuple(map(member, range(1, 6))), Zxid(9))

    machine.reconfigure(wider)
    machine.tick(1000)

    assert machine.election_epoch == 2
    assert machine.result is None
    assert {peer for peer, *_ in said(machine)} == {1, 3, 4, 5}
    machine.reconfigure(wider.with_version(Zxid(10)))
    assert machine.election_epoch == 2


def test_pending_change__the_agreed_voters_elect() -> None:
    """The others may not know that they are to vote; the leader needs them, and counts them."""
    machine = looking(2)
    machine.reconfigure(majority(3), Membership(tuple(map(member, (2, 4, 5))), Zxid(9)))

    for sender in (4, 5):
        hear(machine, sender, word(2, round_=2))
    machine.tick(1000)
    assert machine.result is None
    hear(machine, 1, word(2, round_=2), now_ms=1000)
    machine.tick(2000)
    assert machine.result is not None


def test_change_that_only_we_have__a_leader_of_the_others_is_followed() -> None:
    machine = looking(2)
    machine.reconfigure(majority(3), Membership(tuple(map(member, (1, 2, 3, 4, 5))), Zxid(9)))

    for sender, state in ((1, FOLLOWING), (3, LEADING)):
        hear(machine, sender, word(3, round_=7, state=state))
    assert machine.result is not None
    assert machine.result.leader == 3


def test_removed_server__only_asks() -> None:
    machine = looking(3)

    machine.reconfigure(majority(2, version=9))

    assert machine.candidacy is BARRED
    assert said(machine) == [(1, LOOKING, NOBODY, NOBODY, 2), (2, LOOKING, NOBODY, NOBODY, 2)]
    machine.reconfigure(majority(3, version=10))
    assert machine.candidacy is ELIGIBLE
