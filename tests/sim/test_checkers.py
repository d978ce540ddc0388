"""Each checker fires on what it is there for: a run that breaks exactly one promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.sim import SimOptions, Violation
from keepfast.sim.checkers import Checkers
from keepfast.sim.members import initial_membership
from keepfast.sim.operations import Operation, SessionView, Watch
from keepfast.storage import Epochs, Recovery, Standing
from keepfast.tree import Caller, Preparer, Tree, WatchKind
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    CreateSessionTxn,
    ErrorCode,
    EventType,
    GetDataResponse,
    LogEntry,
    MultiOp,
    OpCode,
    ServerId,
    SessionId,
    SetDataRequest,
    Stat,
    Zxid,
    codec_of,
    encode_entry,
    make_zxid,
)

_ONE, _TWO, _THREE = ServerId(1), ServerId(2), ServerId(3)
_SESSION = SessionId(0x51)


class Service:
    """Three honest servers without any protocol: what they do is told to the checkers."""

    def __init__(self) -> None:
        self.checkers = Checkers(initial_membership(SimOptions(servers=3)))
        self.ledger = self.checkers.ledger
        self.tree = Tree()
        self.entries: dict[Zxid, bytes] = {}
        self.bodies: dict[Zxid, LogEntry] = {}
        self._preparer = Preparer(self.tree)
        self.xid = 0
        self.session = SessionView(1, _SESSION, 4000, b"")
        for server in (_ONE, _TWO, _THREE):
            self.checkers.installed(server, Zxid(0))
            self.checkers.vouched(server, Zxid(0))
        self.zxid = make_zxid(1, 0)
        self.write(OpCode.CREATE_SESSION, CreateSessionTxn(4000))
        self.write(OpCode.CREATE, CreateRequest("/a", b"1", OPEN_ACL, CreateMode.PERSISTENT))

    def propose(self, op: OpCode, request: object) -> Zxid:
        """A txn, applied to the honest tree, that no server has logged yet."""
        self.zxid = Zxid(self.zxid + 1)
        self.xid += 1
        entry = self._preparer.prepare(
            Caller(_SESSION), self.xid, self.zxid, 1_700_000_000_000, op.value, request
        )
        self.tree.apply(entry.header, entry.body)
        self._preparer.applied(self.zxid)
        self.entries[self.zxid] = encode_entry(entry)
        self.bodies[self.zxid] = entry
        return self.zxid

    def forget(self, zxid: Zxid) -> None:
        """The last txn was never agreed on: the honest history goes on without it."""
        del self.bodies[zxid]
        self.tree = self.tree_at(Zxid(zxid - 1))
        self._preparer = Preparer(self.tree)

    def log(self, server: ServerId, zxid: Zxid) -> None:
        """A server logs a record durably, and says so."""
        self.checkers.logged(server, zxid, self.entries[zxid])
        self.ledger.shadow_of(server).durable = zxid
        self.checkers.vouched(server, zxid)

    def write(self, op: OpCode, request: object) -> Zxid:
        """A txn that all servers log and the first applies."""
        zxid = self.propose(op, request)
        for server in (_ONE, _TWO, _THREE):
            self.log(server, zxid)
        self.checkers.applied(_ONE, self.tree)
        return zxid

    def set(self, value: bytes) -> Zxid:
        """A write to /a."""
        return self.write(OpCode.SET_DATA, SetDataRequest("/a", value, -1))

    def operation(self, op: OpCode, zxid: int, reply: object = None, error: int = 0) -> Operation:
        """An operation of the client, as if it had been answered."""
        operation = Operation(1, _SESSION, self.xid, op, "/a", None, 0, 0)
        operation.completed_us, operation.zxid = 1, zxid
        operation.reply, operation.error = reply, error
        return operation

    def tree_at(self, zxid: Zxid) -> Tree:
        """The honest tree at an earlier zxid."""
        tree = Tree()
        for each in sorted(self.bodies):
            if each <= zxid:
                tree.apply(self.bodies[each].header, self.bodies[each].body)
        return tree

    def recovery(self, head: Zxid, standing: Standing = Standing.WHOLE) -> Recovery:
        """What a server finds on its disk."""
        tree = self.tree_at(head) if standing is Standing.WHOLE else None
        return Recovery(standing, head, tree, epochs=Epochs(1, 1))


def other_bytes(service: Service) -> None:
    zxid = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    service.log(_ONE, zxid)
    service.entries[zxid] = service.entries[zxid].replace(b"2", b"3")
    service.log(_TWO, zxid)


def superseded_write(service: Service) -> None:
    """A record of an old epoch is applied although a later one was agreed on without it."""
    stale = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"stale", -1))
    service.log(_ONE, stale)
    tree = service.tree_at(stale)
    service.forget(stale)
    service.zxid = make_zxid(2, 0)
    zxid = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"new", -1))
    for server in (_TWO, _THREE):
        service.log(server, zxid)
    service.checkers.applied(_TWO, service.tree)
    service.checkers.applied(_ONE, tree)


def hole_in_the_log(service: Service) -> None:
    """A server applies a record, and its log lacks the one before, which was agreed on."""
    missed = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    for server in (_ONE, _THREE):
        service.log(server, missed)
    service.checkers.applied(_ONE, service.tree)
    service.log(_ONE, service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"3", -1)))
    service.log(_TWO, service.zxid)
    service.checkers.applied(_TWO, service.tree)


def other_tree(service: Service) -> None:
    tree = service.tree_at(Zxid(service.zxid - 1))
    tree.last_zxid = service.zxid
    service.checkers.applied(_TWO, tree)


def two_primaries(service: Service) -> None:
    service.log(_ONE, service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1)))
    service.log(_TWO, service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"3", -1)))


def commit_without_quorum(service: Service) -> None:
    service.log(_ONE, service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1)))
    service.checkers.applied(_ONE, service.tree)


def commit_with_a_wiped_server(service: Service) -> None:
    service.checkers.damaged(_TWO)
    service.checkers.opened(_TWO, service.recovery(Zxid(-1), Standing.EMPTY))
    service.checkers.installed(_TWO, service.zxid)
    zxid = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    service.log(_ONE, zxid)
    service.log(_TWO, zxid)
    service.checkers.applied(_ONE, service.tree)


def wiped_server_starts_anew(service: Service) -> None:
    service.checkers.damaged(_TWO)
    service.checkers.opened(_TWO, service.recovery(Zxid(-1), Standing.EMPTY))
    service.checkers.begun(_TWO)


def ack_before_durable(service: Service) -> None:
    zxid = service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    service.log(_ONE, zxid)
    service.checkers.logged(_TWO, zxid, service.entries[zxid])
    service.checkers.vouched(_TWO, zxid)


def lost_by_a_crash(service: Service) -> None:
    service.checkers.opened(_TWO, service.recovery(Zxid(service.zxid - 1)))


def damaged_by_a_crash(service: Service) -> None:
    service.checkers.opened(_TWO, service.recovery(Zxid(-1), Standing.DAMAGED))


def unnoticed_damage(service: Service) -> None:
    service.checkers.damaged(_TWO)
    service.checkers.opened(_TWO, service.recovery(Zxid(service.zxid - 1)))


def epoch_lost(service: Service) -> None:
    service.ledger.shadow_of(_TWO).agreeing = service.zxid
    service.checkers.vouched(_TWO, make_zxid(2, 0))
    service.checkers.opened(_TWO, service.recovery(service.zxid))


def back_in_time(service: Service) -> None:
    service.checkers.shown(service.session, service.zxid)
    service.checkers.shown(service.session, service.zxid - 1)


def write_that_nobody_agreed_on(service: Service) -> None:
    service.checkers.answered(service.session, service.operation(OpCode.SET_DATA, service.zxid + 5))


def write_of_somebody_else(service: Service) -> None:
    operation = service.operation(OpCode.SET_DATA, service.set(b"2"))
    operation.xid += 1
    service.checkers.answered(service.session, operation)


def write_out_of_real_time(service: Service) -> None:
    operation = service.operation(OpCode.SET_DATA, service.set(b"2"))
    operation.floor_zxid = service.zxid
    service.checkers.answered(service.session, operation)


def wrong_answer(service: Service) -> None:
    operation = service.operation(
        OpCode.SET_DATA, service.set(b"2"), error=ErrorCode.BAD_VERSION.value
    )
    service.checkers.answered(service.session, operation)


def stale_read(service: Service) -> None:
    stat = codec_of(Stat).decode(service.ledger.state_at("/a", service.zxid).stat or b"")
    zxid = service.set(b"2")
    reply = GetDataResponse(b"1", stat)
    service.checkers.answered(service.session, service.operation(OpCode.GET_DATA, zxid, reply))


def read_of_nothing(service: Service) -> None:
    operation = service.operation(OpCode.GET_DATA, service.zxid, error=ErrorCode.NO_NODE.value)
    service.checkers.answered(service.session, operation)


def sync_that_lags(service: Service) -> None:
    operation = service.operation(OpCode.SYNC, service.zxid - 1)
    operation.floor_zxid = service.zxid
    service.checkers.answered(service.session, operation)


def _watch(service: Service) -> None:
    service.session.watches[WatchKind.DATA, "/a"] = Watch(WatchKind.DATA, "/a", service.zxid)


def lost_event(service: Service) -> None:
    _watch(service)
    service.checkers.shown(service.session, service.set(b"2"))


def doubled_event(service: Service) -> None:
    service.checkers.told(service.session, EventType.NODE_DATA_CHANGED, "/a", service.set(b"2"))


def event_of_nothing(service: Service) -> None:
    _watch(service)
    service.checkers.told(service.session, EventType.NODE_DATA_CHANGED, "/a", service.zxid)


def missed_event(service: Service) -> None:
    service.session.last_zxid = service.zxid
    _watch(service)
    service.checkers.rewatched(service.session, service.set(b"2"))


def orphan(service: Service) -> None:
    """An ephemeral znode whose session is ended without it."""
    create = CreateRequest("/e", b"", OPEN_ACL, CreateMode.EPHEMERAL)
    service.write(OpCode.CREATE, create)
    del service.ledger.tree.sessions[_SESSION]
    service.set(b"2")


def session_ended_too_early(service: Service) -> None:
    expiry = service.checkers.expiry
    expiry.calm_since_us = 0
    expiry.now_us = 60_000_000
    service.checkers.shown(service.session, service.zxid)
    service.xid = -1
    service.write(OpCode.CLOSE_SESSION, None)


def partial_multi(service: Service) -> None:
    good = MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    bad = MultiOp(OpCode.SET_DATA, SetDataRequest("/none", b"2", -1))
    service.write(OpCode.MULTI, (good, bad))
    service.ledger.digests[service.zxid] = (1, 1)
    service.checkers.multi.on_committed(_ONE, service.zxid)


def last_path_purged(service: Service) -> None:
    service.checkers.purged(_ONE, service.recovery(service.zxid, Standing.DAMAGED))


@pytest.mark.parametrize(
    ("checker", "breach"),
    [
        ("agreement", other_bytes),
        ("total order", superseded_write),
        ("prefix", hole_in_the_log),
        ("state", other_tree),
        ("primary order", two_primaries),
        ("commit quorum", commit_without_quorum),
        ("commit quorum", commit_with_a_wiped_server),
        ("standing", wiped_server_starts_anew),
        ("durability", ack_before_durable),
        ("durability", lost_by_a_crash),
        ("durability", damaged_by_a_crash),
        ("durability", unnoticed_damage),
        ("durability", epoch_lost),
        ("session order", back_in_time),
        ("linearizable writes", write_that_nobody_agreed_on),
        ("linearizable writes", write_of_somebody_else),
        ("linearizable writes", write_out_of_real_time),
        ("linearizable writes", wrong_answer),
        ("reads", stale_read),
        ("reads", read_of_nothing),
        ("sync", sync_that_lags),
        ("watches", lost_event),
        ("watches", doubled_event),
        ("watches", event_of_nothing),
        ("watches", missed_event),
        ("ephemerals", orphan),
        ("sessions", session_ended_too_early),
        ("multi", partial_multi),
        ("purge", last_path_purged),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_broken_promise__is_reported_by_its_checker(
    checker: str, breach: Callable[[Service], None]
) -> None:
    service = Service()
    with pytest.raises(Violation) as caught:
        breach(service)
    assert caught.value.checker == checker, str(caught.value)


def test_honest_service__is_not_complained_about() -> None:
    service = Service()
    for value in (b"2", b"3"):
        zxid = service.set(value)
        service.checkers.answered(service.session, service.operation(OpCode.SET_DATA, zxid))
    for server in (_TWO, _THREE):
        service.checkers.applied(server, service.tree)
        service.checkers.opened(server, service.recovery(service.zxid))
