"""Each checker fires on what it is there for: a run that breaks exactly one promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from keepfast.sim import SimOptions, Violation
from keepfast.sim.checkers import Checkers
from keepfast.sim.operations import Operation, SessionView, Watch
from keepfast.sim.simulated_members import initial_membership
from keepfast.storage import (
    Epochs,
    Recovery,
    Standing,
)
from keepfast.tree import Caller, PrepareOptions, Preparer, Tree, WatchKind
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    CreateResponse,
    CreateSessionTxn,
    CreateTTLRequest,
    DeleteRequest,
    DeleteTxn,
    ErrorCode,
    ErrorTxn,
    EventType,
    GetDataResponse,
    KeeperError,
    LogEntry,
    MultiOp,
    MultiResult,
    OpCode,
    ServerId,
    SessionId,
    SetDataRequest,
    SetDataResponse,
    Stat,
    TxnHeader,
    Zxid,
    codec_of,
    encode_entry,
    make_zxid,
)

_ONE, _TWO, _THREE = ServerId(1), ServerId(2), ServerId(3)
SESSION = SessionId(0x51)


class Service:
    """Three honest servers without any protocol: what they do is told to the checkers."""

    def __init__(self) -> None:
        self.checkers = Checkers(initial_membership(SimOptions(servers=3)))
        self.ledger = self.checkers.ledger
        self.tree = Tree()
        self.entries: dict[Zxid, bytes] = {}
        self.bodies: dict[Zxid, LogEntry] = {}
        self._preparer = Preparer(self.tree, PrepareOptions(is_ttl_enabled=True))
        self.xid = 0
        self.session = SessionView(1, SESSION, 4000, b"")
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
        try:
            entry = self._preparer.prepare(
                Caller(SESSION), self.xid, self.zxid, 1_700_000_000_000, op.value, request
            )
        except KeeperError as error:
            header = TxnHeader(SESSION, self.xid, self.zxid, 1_700_000_000_000, OpCode.ERROR.value)
            entry = LogEntry(header, ErrorTxn(error.code))
        self._preparer.apply(entry)
        self.entries[self.zxid] = encode_entry(entry)
        self.bodies[self.zxid] = entry
        return self.zxid

    def forget(self, zxid: Zxid) -> None:
        """The last txn was never committed: the honest history continues without it."""
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

    def log_everywhere(self, entry: LogEntry) -> None:
        """A txn that no request asked for is logged by all servers and applied by the first."""
        zxid = entry.header.zxid
        self.tree.apply(entry.header, entry.body)
        self.entries[zxid] = encode_entry(entry)
        for server in (_ONE, _TWO, _THREE):
            self.log(server, zxid)
        self.checkers.applied(_ONE, self.tree)

    def set(self, value: bytes) -> Zxid:
        """A write to /a."""
        return self.write(OpCode.SET_DATA, SetDataRequest("/a", value, -1))

    def operation(self, op: OpCode, zxid: int, reply: object = None, error: int = 0) -> Operation:
        """An operation of the client, as if it had been answered."""
        operation = Operation(1, SESSION, self.xid, op, "/a", None, 0, 0)
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
    """A record of an old epoch is applied although a later one was committed without it."""
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
    """A server applies a record, and its log lacks the one before, which was committed."""
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


def applied_before_durable(service: Service) -> None:
    zxid = service.set(b"2")
    service.ledger.shadow_of(_TWO).durable = Zxid(zxid - 1)
    service.checkers.applied(_TWO, service.tree)


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


def read_that_shows_a_later_write(service: Service) -> None:
    zxid = service.set(b"2")
    stat = codec_of(Stat).decode(service.ledger.state_at("/a", zxid).stat or b"")
    reply = GetDataResponse(b"2", stat)
    service.checkers.answered(service.session, service.operation(OpCode.GET_DATA, zxid, reply))
    service.session.last_zxid = 0
    service.checkers.answered(service.session, service.operation(OpCode.SET_DATA, zxid))


def wrong_answer(service: Service) -> None:
    operation = service.operation(
        OpCode.SET_DATA, service.set(b"2"), error=ErrorCode.BAD_VERSION.value
    )
    service.checkers.answered(service.session, operation)


def _answered(service: Service, zxid: Zxid, request: object, reply: object) -> None:
    """A write to /a is answered under a zxid."""
    operation = service.operation(OpCode.SET_DATA, zxid, reply)
    operation.request = request
    service.checkers.answered(service.session, operation)


def _set_reply(service: Service, zxid: Zxid) -> SetDataResponse:
    stat = service.ledger.state_at("/a", zxid).stat
    return SetDataResponse(codec_of(Stat).decode(stat or b""))


def answer_to_another_request(service: Service) -> None:
    """The same session and xid, and another value: as kazoo numbers its requests."""
    zxid = service.set(b"2")
    _answered(service, zxid, SetDataRequest("/a", b"3", -1), _set_reply(service, zxid))


def answer_told_twice(service: Service) -> None:
    zxid = service.set(b"2")
    request = SetDataRequest("/a", b"2", -1)
    for _ in range(2):
        _answered(service, zxid, request, _set_reply(service, zxid))


def answer_with_another_stat(service: Service) -> None:
    earlier = service.zxid
    zxid = service.set(b"2")
    _answered(service, zxid, SetDataRequest("/a", b"2", -1), _set_reply(service, earlier))


def refusal_without_a_reason(service: Service) -> None:
    refused = SetDataRequest("/a", b"2", 7)
    zxid = service.write(OpCode.SET_DATA, refused)
    operation = service.operation(OpCode.SET_DATA, zxid, error=ErrorCode.BAD_VERSION.value)
    operation.request = SetDataRequest("/a", b"2", -1)
    service.checkers.answered(service.session, operation)


def create_with_another_path(service: Service) -> None:
    mode = CreateMode.PERSISTENT_SEQUENTIAL
    request = CreateRequest("/s", b"", OPEN_ACL, mode)
    zxid = service.write(OpCode.CREATE, request)
    operation = service.operation(OpCode.CREATE, zxid, CreateResponse("/s0000000009"))
    operation.request = request
    service.checkers.answered(service.session, operation)


def half_of_another_multi(service: Service) -> None:
    parts = (MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1)),)
    zxid = service.write(OpCode.MULTI, parts)
    result = MultiResult(OpCode.SET_DATA, _set_reply(service, zxid))
    operation = service.operation(OpCode.MULTI, zxid, (result,))
    operation.request = (MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"3", -1)),)
    service.checkers.answered(service.session, operation)


def state_that_nobody_agreed_on(service: Service) -> None:
    """As from a server without a leader that shows what is only in its own log."""
    service.log(_ONE, service.propose(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1)))
    stat = codec_of(Stat).decode(service.ledger.state_at("/a", service.zxid).stat or b"")
    operation = service.operation(OpCode.GET_DATA, service.zxid, GetDataResponse(b"2", stat))
    service.checkers.answered(service.session, operation)


def expired_and_alive(service: Service) -> None:
    service.checkers.expired(service.session)


def expired_before_it_begins(service: Service) -> None:
    """A local session is upgraded after its client was told that it is gone."""
    other = SessionView(1, SessionId(0x52), 4000, b"")
    service.checkers.expired(other)
    service.zxid = Zxid(service.zxid + 1)
    header = TxnHeader(SessionId(0x52), 0, service.zxid, 1, OpCode.CREATE_SESSION.value)
    service.log_everywhere(LogEntry(header, CreateSessionTxn(4000)))


def cleaned_too_early(service: Service) -> None:
    mode = CreateMode.PERSISTENT_WITH_TTL
    service.write(OpCode.CREATE_TTL, CreateTTLRequest("/t", b"", OPEN_ACL, mode, 60_000))
    service.zxid = Zxid(service.zxid + 1)
    header = TxnHeader(SESSION, 0, service.zxid, 1_700_000_000_000, OpCode.DELETE_CONTAINER.value)
    service.log_everywhere(LogEntry(header, DeleteTxn("/t")))


def cleaned_a_plain_znode(service: Service) -> None:
    service.zxid = Zxid(service.zxid + 1)
    header = TxnHeader(SESSION, 0, service.zxid, 1_700_000_000_000, OpCode.DELETE_CONTAINER.value)
    service.log_everywhere(LogEntry(header, DeleteTxn("/a")))


_QUOTA_LIMITS = "/zookeeper/quota/a/zookeeper_limits"


def make_all(service: Service, *paths: str) -> None:
    limits = b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2"
    for path in paths:
        data = limits if path == _QUOTA_LIMITS else b""
        service.write(OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, CreateMode.PERSISTENT))


def limit_to_two(service: Service) -> None:
    """With /a itself and one below it, and no more."""
    service.checkers.quota.is_enforced = True
    stats = "/zookeeper/quota/a/zookeeper_stats"
    make_all(service, "/zookeeper/quota/a", _QUOTA_LIMITS, stats, "/a/1")


def beyond_the_quota(service: Service) -> None:
    limit_to_two(service)
    make_all(service, "/a/2")


def limit_again(service: Service) -> None:
    """Delete the limits and one znode, make two, and the limits again: one more is allowed then."""
    limit_to_two(service)
    service.write(OpCode.DELETE, DeleteRequest("/a/1", -1))
    service.write(OpCode.DELETE, DeleteRequest(_QUOTA_LIMITS, -1))
    make_all(service, "/a/2", "/a/3", _QUOTA_LIMITS, "/a/4")


def beyond_what_is_not_counted(service: Service) -> None:
    limit_again(service)
    make_all(service, "/a/5")


def beyond_new_statistics(service: Service) -> None:
    limit_again(service)
    stats = "/zookeeper/quota/a/zookeeper_stats"
    service.write(OpCode.DELETE, DeleteRequest(stats, -1))
    service.write(OpCode.DELETE, DeleteRequest("/a/4", -1))
    make_all(service, stats, "/a/4")


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
    del service.ledger.tree.sessions[SESSION]
    service.set(b"2")


def session_ended_too_early(service: Service) -> None:
    expiry = service.checkers.expiry
    expiry.calm_since_us = 0
    expiry.now_us = 60_000_000
    service.checkers.shown(service.session, service.zxid)
    service.xid = -1
    service.write(OpCode.CLOSE_SESSION, None)


def session_ended_by_a_leader_that_slept(service: Service) -> None:
    service.checkers.expiry.guarded.add(SESSION)
    service.xid = -1
    service.write(OpCode.CLOSE_SESSION, None)


def txn_that_others_cannot_read(service: Service) -> None:
    service.checkers.sizes[_ONE] = 200
    service.set(b"2")
    service.set(bytes(200))


def refuse_as_too_large(service: Service, value: bytes) -> None:
    service.checkers.sizes[_ONE] = 200
    service.xid += 1
    service.zxid = Zxid(service.zxid + 1)
    header = TxnHeader(SESSION, service.xid, service.zxid, 1_700_000_000_000, OpCode.ERROR.value)
    error = ErrorCode.MARSHALLING_ERROR.value
    service.log_everywhere(LogEntry(header, ErrorTxn(error)))
    operation = service.operation(OpCode.SET_DATA, service.zxid, error=error)
    operation.request = SetDataRequest("/a", value, -1)
    service.checkers.answered(service.session, operation)


def refused_as_too_large(service: Service) -> None:
    refuse_as_too_large(service, b"2")


def repaired_short_and_voting(service: Service) -> None:
    service.checkers.damaged(_TWO)
    service.checkers.repaired(_TWO, service.recovery(Zxid(service.zxid - 1)))


def partial_multi(service: Service) -> None:
    good = MultiOp(OpCode.SET_DATA, SetDataRequest("/a", b"2", -1))
    bad = MultiOp(OpCode.SET_DATA, SetDataRequest("/none", b"2", -1))
    service.write(OpCode.MULTI, (good, bad))
    service.ledger.digests[service.zxid] = (1, 1)
    service.checkers.multi.on_committed(_ONE, service.zxid)


def last_path_purged(service: Service) -> None:
    found = service.recovery(service.zxid, Standing.DAMAGED)
    service.checkers.purged(_ONE, Standing.WHOLE, found)


def purged_while_fenced(service: Service) -> None:
    service.checkers.purged(_ONE, Standing.DAMAGED, service.recovery(service.zxid))


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
        ("durability", applied_before_durable),
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
        ("linearizable writes", read_that_shows_a_later_write),
        ("answers", answer_to_another_request),
        ("answers", answer_told_twice),
        ("answers", answer_with_another_stat),
        ("answers", refusal_without_a_reason),
        ("answers", create_with_another_path),
        ("answers", half_of_another_multi),
        ("expired", expired_and_alive),
        ("expired", expired_before_it_begins),
        ("cleaning", cleaned_too_early),
        ("cleaning", cleaned_a_plain_znode),
        ("quota", beyond_the_quota),
        ("quota", beyond_what_is_not_counted),
        ("quota", beyond_new_statistics),
        ("reads", state_that_nobody_agreed_on),
        ("reads", stale_read),
        ("reads", read_of_nothing),
        ("sync", sync_that_lags),
        ("watches", lost_event),
        ("watches", doubled_event),
        ("watches", event_of_nothing),
        ("watches", missed_event),
        ("ephemerals", orphan),
        ("sessions", session_ended_too_early),
        ("sessions", session_ended_by_a_leader_that_slept),
        ("tools", repaired_short_and_voting),
        ("multi", partial_multi),
        ("size", txn_that_others_cannot_read),
        ("answers", refused_as_too_large),
        ("purge", last_path_purged),
        ("purge", purged_while_fenced),
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


def test_refusal_of_what_is_too_large_for_a_txn__is_not_complained_about() -> None:
    refuse_as_too_large(Service(), bytes(150))


def test_limits_made_again_while_the_statistics_stay__do_not_count_what_came_in_between() -> None:
    limit_again(Service())
