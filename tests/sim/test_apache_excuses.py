"""What Apache's protocol cannot show a server is excused, and nothing beside it.

A learner that an Apache leader led across a hole has another tree, and finds that out with the
first digest behind it (docs/decisions/0060-failed-txns-after-a-hole.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from keepfast.sim import Violation
from keepfast.sim.memory_disk import MemoryDisk
from keepfast.storage import Problem, Recovery, Severity, Standing, Store, data_directory, recover
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    CreateSessionTxn,
    CreateTxn,
    DeleteRequest,
    DeleteTxn,
    LogEntry,
    OpCode,
    ServerId,
    SessionId,
    TxnDigest,
    TxnHeader,
    Zxid,
    decode_entry,
    encode_entry,
    make_zxid,
)
from tests.sim.test_checkers import SESSION, Service

_TWO: Final = ServerId(2)


def misled(service: Service) -> Tree:
    """Server 2 has another tree at the head, and all behind the hole is a refusal so far."""
    wrong = service.tree_at(service.zxid)
    header = TxnHeader(SESSION, 9, Zxid(service.zxid + 1), 0, OpCode.DELETE.value)
    wrong.apply(header, DeleteTxn("/a"))
    # A later epoch that begins with a refusal, which has no digest.
    service.zxid = make_zxid(2, 0)
    refused = service.write(OpCode.DELETE, DeleteRequest("/none", -1))
    wrong.apply(service.bodies[refused].header, service.bodies[refused].body)
    return wrong


def test_wrong_tree_under_an_apache_leader__is_excused_until_the_first_digest() -> None:
    service = Service()
    wrong = misled(service)
    with pytest.raises(Violation, match="s2 has other znodes"):
        service.checkers.applied(_TWO, wrong)
    service.ledger.under_apache.add(_TWO)
    service.checkers.applied(_TWO, wrong)
    told = service.write(OpCode.CREATE, CreateRequest("/b", b"", OPEN_ACL, CreateMode.PERSISTENT))
    wrong.apply(service.bodies[told].header, service.bodies[told].body)
    with pytest.raises(Violation, match="s2 has other znodes"):
        service.checkers.applied(_TWO, wrong)


def without_a_session(service: Service, *, logs_it: bool) -> Tree:
    """Server 2 lacks a session that a txn in a hole opened, and has the write after it."""
    lacking = service.tree_at(service.zxid)
    opened = service.propose(OpCode.CREATE_SESSION, CreateSessionTxn(4000))
    session = SessionId(SESSION + 1)
    entry = service.bodies[opened]
    entry = entry._replace(header=entry.header._replace(session_id=session))
    service.tree = service.tree_at(Zxid(opened - 1))
    service.tree.apply(entry.header, entry.body)
    service.entries[opened] = encode_entry(entry)
    for server in (ServerId(1), ServerId(3), *((_TWO,) if logs_it else ())):
        service.log(server, opened)
    service.checkers.applied(ServerId(1), service.tree)
    body = CreateTxn("/b", b"", OPEN_ACL, False, 2)
    header = TxnHeader(SESSION, 9, Zxid(opened + 1), 0, OpCode.CREATE.value)
    lacking.apply(header, body)
    service.log_everywhere(LogEntry(header, body, TxnDigest(2, lacking.digest)))
    return lacking


def test_sessions_lost_in_a_hole__are_excused_under_an_apache_leader_alone() -> None:
    service = Service()
    lacking = without_a_session(service, logs_it=False)
    with pytest.raises(Violation, match="s2 has other sessions"):
        service.checkers.applied(_TWO, lacking)
    service.ledger.under_apache.add(_TWO)
    service.checkers.applied(_TWO, lacking)
    # Beside that, nothing: neither a session that nobody opened nor another znode.
    lacking.sessions[77] = 4000
    with pytest.raises(Violation, match="s2 has other sessions"):
        service.checkers.applied(_TWO, lacking)


def test_session_that_was_sent_and_is_not_there__is_not_excused() -> None:
    service = Service()
    lacking = without_a_session(service, logs_it=True)
    service.ledger.under_apache.add(_TWO)
    with pytest.raises(Violation, match="s2 has other sessions"):
        service.checkers.applied(_TWO, lacking)


def logged_behind(wrong: Tree, *entries: bytes) -> Recovery:
    """What a start finds behind a snapshot of this tree and these records."""
    disk = MemoryDisk()
    store, _ = Store.open(disk, data_directory(disk, "/data"))
    store.install_snapshot(wrong)
    for entry in entries:
        decoded = decode_entry(entry)
        digest = None if decoded.digest is None else decoded.digest.tree_digest
        store.append(decoded.header.zxid, entry, digest)
    store.sync()
    return recover(disk, store.directory)


def after_a_tree(service: Service, wrong: Tree) -> None:
    service.checkers.given_tree(_TWO, service.zxid, False)


def after_the_right_tree(service: Service, wrong: Tree) -> None:
    service.checkers.applied(_TWO, service.tree)


def never_misled(service: Service, wrong: Tree) -> None:
    service.ledger.shadow_of(_TWO).misled_at = None


def misled_only_later(service: Service, wrong: Tree) -> None:
    service.ledger.shadow_of(_TWO).misled_at = Zxid(service.zxid + 1)


_ANOTHER_FILE = Problem("log-damaged", Severity.DAMAGE, "is cut", "log.1", 8, Zxid(9 << 32))
_A_FILE = Problem("history-broken", Severity.DAMAGE, "an old one", "manifest", None, Zxid(9 << 32))


@pytest.mark.parametrize(
    ("outside", "besides"),
    [
        (None, ()),
        (after_a_tree, ()),
        (after_the_right_tree, ()),
        (never_misled, ()),
        (misled_only_later, ()),
        (None, (_ANOTHER_FILE,)),
        (None, (_A_FILE,)),
    ],
)
@pytest.mark.parametrize("is_purge", [False, True])
def test_hole_of_an_apache_leader__is_all_that_a_start_and_a_purge_are_excused_for(
    outside: Callable[[Service, Tree], None] | None, besides: tuple[Problem, ...], is_purge: bool
) -> None:
    service = Service()
    wrong = misled(service)
    service.ledger.under_apache.add(_TWO)
    service.checkers.applied(_TWO, wrong)
    before = service.zxid
    told = service.propose(OpCode.CREATE, CreateRequest("/b", b"", OPEN_ACL, CreateMode.PERSISTENT))
    found = logged_behind(wrong, service.entries[told])
    assert found.standing is Standing.DAMAGED
    service.forget(told)
    service.zxid = before
    if outside is not None:
        outside(service, wrong)
    found = replace(found, problems=(*found.problems, *besides))

    def look() -> None:
        if is_purge:
            service.checkers.purged(_TWO, Standing.WHOLE, found)
        else:
            service.checkers.would_recover(_TWO, found)
            service.checkers.opened(_TWO, found)

    if outside is None and not besides:
        look()
        return
    with pytest.raises(Violation) as caught:
        look()
    assert caught.value.checker == ("purge" if is_purge else "durability")


_A_WRITE: Final = CreateRequest("/b", b"", OPEN_ACL, CreateMode.PERSISTENT)
_A_REFUSAL: Final = DeleteRequest("/none", -1)
_LOST: Final = CreateRequest("/lost", b"", OPEN_ACL, CreateMode.PERSISTENT)
_OP: Final = {CreateRequest: OpCode.CREATE, DeleteRequest: OpCode.DELETE}


def led_across(
    *behind: DeleteRequest | CreateRequest,
    left_out: DeleteRequest | CreateRequest = _LOST,
    leaves_out: bool = True,
    is_sent_all: bool = False,
) -> tuple[Service, Recovery]:
    """Server 2 logs what an Apache leader sends it, and applies nothing of it.

    The first txn of epoch 2 is not in that leader's log, as it was sent a tree that has it; the
    records of `behind` it has. Returns what a start of server 2 finds.
    """
    service = Service()
    before = service.tree_at(service.zxid)
    service.zxid = make_zxid(2, 0)
    lost = service.write(_OP[type(left_out)], left_out)
    shadow = service.ledger.shadow_of(_TWO)
    if leaves_out:
        shadow.cut(Zxid(shadow.records[-2]))
    service.zxid = make_zxid(3, 0)
    sent = [service.propose(_OP[type(request)], request) for request in behind]
    log = {*sent, *((lost,) if is_sent_all else ())}
    service.ledger.under_apache.add(_TWO)
    for zxid in sent:
        service.log(ServerId(1), zxid)
    for zxid in sent:
        service.ledger.led_by_apache(_TWO, zxid, log)
        service.log(_TWO, zxid)
    return service, logged_behind(before, *(service.entries[zxid] for zxid in sent))


def look(service: Service, found: Recovery) -> None:
    """It would start on that, starts on it, and purges."""
    service.checkers.would_recover(_TWO, found)
    service.checkers.purged(_TWO, Standing.WHOLE, found)
    service.checkers.opened(_TWO, found)


@pytest.mark.parametrize("behind", [(_A_WRITE,), (_A_REFUSAL, _A_WRITE)])
def test_hole_that_shows_before_anything_is_applied__is_excused(
    behind: tuple[DeleteRequest | CreateRequest, ...],
) -> None:
    service, found = led_across(*behind)
    assert found.standing is Standing.DAMAGED
    look(service, found)
    # Once it has a tree, the same damage has another cause.
    service.checkers.given_tree(_TWO, service.zxid, False)
    service.checkers.vouched(_TWO, service.zxid)
    with pytest.raises(Violation, match="lost what it vouched for"):
        service.checkers.opened(_TWO, found)


@pytest.mark.parametrize("found_at", [make_zxid(3, 2), make_zxid(1, 2)])
def test_damage_elsewhere_than_in_the_first_sign_of_a_hole__is_not_excused(found_at: Zxid) -> None:
    """In a later record: one with a digest was let pass. Or in one before the hole."""
    later = CreateRequest("/c", b"", OPEN_ACL, CreateMode.PERSISTENT)
    service, found = led_across(_A_WRITE, later)
    (problem,) = [each for each in found.problems if each.severity is Severity.DAMAGE]
    assert problem.zxid == make_zxid(3, 1)
    found = replace(found, problems=(replace(problem, zxid=found_at),))
    with pytest.raises(Violation, match="lost what it vouched for"):
        look(service, found)


def test_record_that_an_apache_leader_sent_and_that_is_not_there__is_not_excused() -> None:
    service, found = led_across(_A_WRITE, is_sent_all=True)
    with pytest.raises(Violation, match="lost what it vouched for"):
        look(service, found)


def test_damage_without_a_hole_under_an_apache_leader__is_not_excused() -> None:
    service, found = led_across(_A_WRITE, leaves_out=False)
    assert service.ledger.shadow_of(_TWO).across == set()
    with pytest.raises(Violation, match="lost what it vouched for"):
        look(service, found)


def test_record_that_follows_less_than_a_server_has__is_no_hole() -> None:
    """What it has beyond that should have been cut off, which no log of a leader hides."""
    service = Service()
    service.zxid = make_zxid(2, 0)
    beyond = service.propose(OpCode.CREATE, _LOST)
    service.log(_TWO, beyond)
    service.forget(beyond)
    service.zxid = make_zxid(3, 0)
    sent = service.propose(OpCode.CREATE, _A_WRITE)
    service.log(ServerId(1), sent)
    service.ledger.led_by_apache(_TWO, sent, {sent})
    assert service.ledger.shadow_of(_TWO).across == set()


def test_hole_that_was_cut_off_again__excuses_nothing() -> None:
    service, found = led_across(_A_WRITE)
    shadow = service.ledger.shadow_of(_TWO)
    assert shadow.across == {make_zxid(3, 1)}
    shadow.cut(make_zxid(1, 2))
    with pytest.raises(Violation, match="lost what it vouched for"):
        look(service, found)


def test_hole_that_cost_nothing__excuses_nothing_after_it() -> None:
    """Only a refusal was left out of that log: with the right tree, later damage is no hole's."""
    service, found = led_across(_A_REFUSAL, _A_WRITE, left_out=_A_REFUSAL)
    refused = make_zxid(3, 1)
    assert service.ledger.shadow_of(_TWO).across == {refused}
    for server in (ServerId(1), _TWO):
        service.checkers.applied(server, service.tree_at(refused))
    assert found.standing is Standing.WHOLE
    damage = Problem("history-broken", Severity.DAMAGE, "", "log.1", 8, make_zxid(3, 2))
    found = replace(found, standing=Standing.DAMAGED, problems=(damage,))
    with pytest.raises(Violation, match="lost what it vouched for"):
        look(service, found)
