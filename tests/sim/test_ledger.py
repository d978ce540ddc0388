"""The agreed order, where what a server applies first came to it in a leader's tree."""

from __future__ import annotations

import pytest

from keepfast.sim import Violation
from keepfast.tree import Tree
from keepfast.wire import OpCode, ServerId, SetDataRequest, Zxid, make_zxid
from tests.sim.test_checkers import Service

_ONE, _TWO, _THREE = ServerId(1), ServerId(2), ServerId(3)


def proposed_by(service: Service, server: ServerId, value: bytes) -> Zxid:
    """A txn that no other server logs."""
    zxid = service.propose(OpCode.SET_DATA, SetDataRequest("/a", value, -1))
    service.log(server, zxid)
    return zxid


def give_tree(service: Service, *servers: ServerId) -> None:
    """A leader sends its tree and dies; these servers agree to the next epoch with it."""
    for server in servers:
        service.checkers.given_tree(server, service.zxid, False)
        service.ledger.shadow_of(server).agreeing = service.zxid
        service.checkers.vouched(server, make_zxid(5, 0))


def complaint(service: Service, tree: Tree) -> str:
    with pytest.raises(Violation) as caught:
        service.checkers.applied(_TWO, tree)
    return caught.value.checker


def test_txns_that_a_leader_alone_logged__are_agreed_on_with_the_tree_that_holds_them() -> None:
    service = Service()
    agreed = list(service.ledger.order)
    service.zxid = make_zxid(2, 0)
    service.forget(proposed_by(service, _THREE, b"of another leader, and given up"))
    service.zxid = make_zxid(3, 0)
    requests = [SetDataRequest("/a", value, -1) for value in (b"2", b"3")]
    first, second = (service.propose(OpCode.SET_DATA, request) for request in requests)
    # A leader may send some txns before it logs the first of them.
    for zxid in (first, second):
        service.checkers.proposed(_ONE, zxid, service.entries[zxid])
    for zxid in (first, second):
        service.log(_ONE, zxid)
    service.zxid = make_zxid(4, 0)
    third = proposed_by(service, _ONE, b"4")
    give_tree(service, _TWO, _THREE)
    service.checkers.applied(_TWO, service.tree)
    assert service.ledger.order == [*agreed, first, second, third]
    # What follows the tree is in the log again, as is what follows that.
    service.zxid = make_zxid(5, 0)
    service.set(b"5")
    service.checkers.applied(_THREE, service.tree)


def test_tree_and_a_record_after_it__are_agreed_on_at_once() -> None:
    service = Service()
    held = proposed_by(service, _ONE, b"2")
    give_tree(service, _TWO, _THREE)
    service.zxid = make_zxid(5, 0)
    zxid = proposed_by(service, _TWO, b"3")
    service.log(_THREE, zxid)
    service.checkers.applied(_TWO, service.tree)
    assert service.ledger.order[-2:] == [held, zxid]


def test_tree_of_a_leader_that_lacked_an_agreed_txn__is_reported() -> None:
    service = Service()
    lacking = service.zxid
    agreed = service.set(b"2")
    service.ledger.shadow_of(_ONE).cut(lacking)
    service.forget(agreed)
    service.zxid = make_zxid(2, 0)
    proposed_by(service, _ONE, b"3")
    give_tree(service, _TWO, _THREE)
    assert complaint(service, service.tree) == "prefix"


def test_tree_that_nobody_proposed__is_reported() -> None:
    service = Service()
    service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    give_tree(service, _TWO, _THREE)
    assert complaint(service, service.tree) == "prefix"


def test_tree_that_its_txns_do_not_make__is_reported() -> None:
    service = Service()
    wrong = service.tree_at(service.zxid)
    proposed_by(service, _ONE, b"2")
    wrong.last_zxid = service.zxid
    give_tree(service, _TWO, _THREE)
    assert complaint(service, wrong) == "state"


def test_tree_that_one_server_was_given__is_not_agreed_on() -> None:
    service = Service()
    held = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    service.checkers.logged(_ONE, held, service.entries[held])
    give_tree(service, _TWO)
    assert complaint(service, service.tree) == "commit quorum"
