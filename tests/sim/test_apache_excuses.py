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
