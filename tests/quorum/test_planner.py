"""How servers that tell no more than their last zxid catch up."""

from __future__ import annotations

import pytest

from keepfast.quorum import CatchUp, Chain, LearnerHistory, plan_catch_up
from keepfast.quorum.chains import Run
from keepfast.wire import Zxid, make_zxid


class Own:
    """A leader's history: epoch 1 to record 4, then epoch 2."""

    def __init__(self, last: int) -> None:
        """`last`: the last record of epoch 2; 0: it has none yet."""
        runs = [Run(make_zxid(1, 1), make_zxid(1, 4))]
        if last:
            runs.append(Run(make_zxid(2, 1), make_zxid(2, last)))
        self._chain = Chain(Zxid(0), tuple(runs))

    def chain(self) -> Chain:
        return self._chain

    def serves_after(self, _zxid: Zxid) -> bool:
        return True

    def bytes_after(self, _zxid: Zxid) -> int:
        return 0

    def tree_bytes(self) -> int:
        return 0


def planned(own: Own, last: Zxid, chain: Chain | None = None) -> CatchUp:
    committed = own.chain().head
    own_last = max(committed, make_zxid(2, 0))
    learner = LearnerHistory(last, chain)
    return plan_catch_up(own, own_last, committed, own_last, learner, 0.33).kind


@pytest.mark.parametrize("records", [1, 7])
def test_fork_of_a_server_that_tells_no_chain__a_tree_beyond_all_that_it_has(records: int) -> None:
    assert planned(Own(records), make_zxid(1, 5)) is CatchUp.SNAP


def test_fork_of_a_server_that_tells_its_chain__is_cut() -> None:
    chain = Chain(Zxid(0), (Run(make_zxid(1, 1), make_zxid(1, 5)),))
    assert planned(Own(1), make_zxid(1, 5), chain) is CatchUp.TRUNC


def test_fork_without_a_tree_beyond_it__is_cut() -> None:
    # Its old log would bring the record back after a tree that ends before it.
    assert planned(Own(0), make_zxid(1, 5)) is CatchUp.TRUNC


def test_no_fork__records() -> None:
    assert planned(Own(3), make_zxid(1, 4)) is CatchUp.DIFF


def test_start_of_the_epoch_before__lacks_what_was_proposed_since() -> None:
    """It has no record of this term, so none of them counts as acknowledged by it."""

    class Term3(Own):
        def chain(self) -> Chain:
            return Chain(Zxid(0), (*super().chain().runs, Run(make_zxid(3, 1), make_zxid(3, 2))))

    committed, start = make_zxid(1, 4), make_zxid(2, 0)
    plan = plan_catch_up(Term3(0), start, committed, start, LearnerHistory(start, None), 0.33)
    assert (plan.kind, plan.point) == (CatchUp.DIFF, committed)


def test_record_of_this_term_that_our_own_disk_lacks__is_no_fork() -> None:
    """The leader's disk is full or slow; the others have logged what it proposed."""
    own, last = Own(1), make_zxid(3, 2)
    committed, proposed = own.chain().head, make_zxid(3, 4)
    plan = plan_catch_up(own, committed, committed, proposed, LearnerHistory(last, None), 0.33)
    assert (plan.kind, plan.point) == (CatchUp.DIFF, last)


def test_record_of_this_term_that_was_never_proposed__is_a_fork() -> None:
    own = Own(1)
    committed, proposed = own.chain().head, make_zxid(3, 4)
    learner = LearnerHistory(make_zxid(3, 5), None)
    plan = plan_catch_up(own, committed, committed, proposed, learner, 0.33)
    assert plan.kind is CatchUp.SNAP
