"""Elections while a server gives up its role: what it sends, and which votes count."""

from __future__ import annotations

import pytest

from keepfast.wire import ServerId, Zxid
from tests.quorum.test_election import (
    ELIGIBLE,
    FOLLOWING,
    LEADING,
    LOOKING,
    hear,
    looking,
    said,
    word,
)


def test_role_that_is_over__nobody_is_told_of_it() -> None:
    machine = looking(3)
    machine.settle(LEADING, ServerId(3), 1)
    hear(machine, 1, word(1, round_=2), now_ms=10)
    assert [(peer, state) for peer, state, *_ in said(machine)] == [(1, LEADING)]

    # Its disk is still busy: a server that was told that it leads would wait for it in vain.
    machine.leave()
    hear(machine, 1, word(1, round_=2), now_ms=20)
    machine.peer_linked(ServerId(2))
    assert said(machine) == []

    machine.look(ELIGIBLE, Zxid(5), 1, now_ms=30)
    assert {state for _, state, *_ in said(machine)} == {LOOKING}


@pytest.mark.parametrize(("heard_ms", "is_counted"), [(100, True), (0, False)])
def test_vote_that_came_before_this_server_looked__counts_while_it_is_fresh(
    heard_ms: int, is_counted: bool
) -> None:
    machine = looking(2)
    machine.settle(FOLLOWING, ServerId(3), 1)

    # The leader hands over, and says so before the others know that it is gone.
    hear(machine, 3, word(2, round_=2), now_ms=heard_ms)
    machine.look(ELIGIBLE, Zxid(5), 1, now_ms=210)
    hear(machine, 1, word(2, round_=2), now_ms=211)

    # With all three votes there is nothing to wait for.
    assert (machine.result is not None) is is_counted
