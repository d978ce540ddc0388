"""The checkers of lasting watches, of wide reads and of limits fire, and not without a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from keepfast.quorum import QuorumOptions
from keepfast.sim import Violation
from keepfast.sim.invariants import check_catch_ups
from keepfast.sim.operations import Operation, Watch
from keepfast.sim.script import Script
from keepfast.tree import WatchKind
from keepfast.wire import (
    OPEN_ACL,
    AddWatchMode,
    AddWatchRequest,
    CreateMode,
    CreateRequest,
    ErrorCode,
    EventType,
    GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse,
    GetDataRequest,
    GetDataResponse,
    GetEphemeralsRequest,
    GetEphemeralsResponse,
    MultiOp,
    MultiResult,
    OpCode,
    RemoveWatchesRequest,
    ServerId,
    Stat,
    WatcherType,
    codec_of,
)
from tests.sim.test_checkers import Service

_CHANGED = EventType.NODE_DATA_CHANGED
_MISSING = MultiResult(OpCode.ERROR, None, ErrorCode.NO_NODE)


def _watch(service: Service, kind: WatchKind = WatchKind.PERSISTENT, path: str = "/a") -> None:
    service.session.watches[kind, path] = Watch(kind, path, service.zxid)


def _answer(service: Service, op: OpCode, request: object, reply: object, error: int = 0) -> None:
    operation: Operation = service.operation(op, service.zxid, reply, error)
    operation.request = request
    service.checkers.answered(service.session, operation)


def _add(service: Service, error: int = 0) -> None:
    _answer(service, OpCode.ADD_WATCH, AddWatchRequest("/a", AddWatchMode.PERSISTENT), None, error)


def _create(service: Service, path: str) -> None:
    create = CreateRequest(path, b"", OPEN_ACL, CreateMode.EPHEMERAL)
    service.write(OpCode.CREATE, create)


def event_lost(service: Service) -> None:
    _watch(service, WatchKind.RECURSIVE, "/")
    service.checkers.shown(service.session, service.set(b"2"))


def event_told_twice(service: Service) -> None:
    _watch(service)
    zxid = service.set(b"2")
    for _ in range(2):
        service.checkers.told(service.session, _CHANGED, "/a", zxid)
    service.checkers.shown(service.session, zxid)


def event_of_another_kind(service: Service) -> None:
    _watch(service)
    zxid = service.set(b"2")
    service.checkers.told(service.session, EventType.NODE_DELETED, "/a", zxid)
    service.checkers.shown(service.session, zxid)


def events_out_of_order(service: Service) -> None:
    _watch(service)
    for zxid in reversed([service.set(b"2"), service.set(b"3")]):
        service.checkers.told(service.session, _CHANGED, "/a", zxid)


def event_of_children_below_a_recursive_watch(service: Service) -> None:
    _watch(service, WatchKind.RECURSIVE)
    service.checkers.told(service.session, EventType.NODE_CHILDREN_CHANGED, "/a", service.set(b"2"))


def watches_refused_after_a_move(service: Service) -> None:
    service.checkers.rewatched(service.session, service.zxid, ErrorCode.QUOTA_EXCEEDED)


def removal_of_no_watch(service: Service) -> None:
    _watch(service)
    _answer(service, OpCode.REMOVE_WATCHES, RemoveWatchesRequest("/a", WatcherType.DATA), None)


def watch_that_is_not_found(service: Service) -> None:
    _watch(service)
    request = RemoveWatchesRequest("/a", WatcherType.ANY)
    _answer(service, OpCode.REMOVE_WATCHES, request, None, ErrorCode.NO_WATCHER)


def one_read_answered_by_another(service: Service) -> None:
    reads = tuple(MultiOp(OpCode.GET_DATA, GetDataRequest(path, False)) for path in ("/b", "/a"))
    stat = codec_of(Stat).decode(service.ledger.state_at("/a", service.zxid).stat or b"")
    results = (MultiResult(OpCode.GET_DATA, GetDataResponse(b"1", stat)), _MISSING)
    _answer(service, OpCode.MULTI_READ, reads, results)


def fewer_results_than_reads(service: Service) -> None:
    read = MultiOp(OpCode.GET_DATA, GetDataRequest("/b", False))
    _answer(service, OpCode.MULTI_READ, (read, read), (_MISSING,))


def more_reads_than_allowed(service: Service) -> None:
    service.checkers.reads.max_multi_reads = 1
    read = MultiOp(OpCode.GET_DATA, GetDataRequest("/b", False))
    _answer(service, OpCode.MULTI_READ, (read, read), (_MISSING, _MISSING))


def ephemeral_that_is_not_named(service: Service) -> None:
    _create(service, "/e")
    _answer(service, OpCode.GET_EPHEMERALS, GetEphemeralsRequest("/"), GetEphemeralsResponse(()))


def number_that_is_wrong(service: Service) -> None:
    service.write(OpCode.CREATE, CreateRequest("/a/b", b"", OPEN_ACL, CreateMode.PERSISTENT))
    request = GetAllChildrenNumberRequest("/a")
    _answer(service, OpCode.GET_ALL_CHILDREN_NUMBER, request, GetAllChildrenNumberResponse(2))


def watch_beyond_the_limit(service: Service) -> None:
    service.checkers.watch_limit.max_bytes = 401
    _add(service)


def watch_refused_below_the_limit(service: Service) -> None:
    service.checkers.watch_limit.max_bytes = 402
    _add(service, ErrorCode.QUOTA_EXCEEDED)


def ephemeral_beyond_the_limit(service: Service) -> None:
    service.checkers.ephemeral_limit.max_count = 1
    _create(service, "/e")
    _create(service, "/f")


def ephemeral_refused_below_the_limit(service: Service) -> None:
    service.checkers.ephemeral_limit.max_count = 2
    service.checkers.ephemeral_limit.is_only_limit = True
    _create(service, "/e")
    create = CreateRequest("/a", b"", OPEN_ACL, CreateMode.EPHEMERAL)
    operation = service.operation(OpCode.CREATE, service.zxid, None, ErrorCode.QUOTA_EXCEEDED)
    operation.request = create
    service.checkers.ephemeral_limit.on_answered(service.session, operation)


@pytest.mark.parametrize(
    ("checker", "breach"),
    [
        ("watches", event_lost),
        ("watches", event_told_twice),
        ("watches", event_of_another_kind),
        ("watches", events_out_of_order),
        ("watches", event_of_children_below_a_recursive_watch),
        ("watches", watches_refused_after_a_move),
        ("watches", removal_of_no_watch),
        ("watches", watch_that_is_not_found),
        ("reads", one_read_answered_by_another),
        ("reads", fewer_results_than_reads),
        ("reads", more_reads_than_allowed),
        ("reads", ephemeral_that_is_not_named),
        ("reads", number_that_is_wrong),
        ("watch limit", watch_beyond_the_limit),
        ("watch limit", watch_refused_below_the_limit),
        ("ephemeral limit", ephemeral_beyond_the_limit),
        ("ephemeral limit", ephemeral_refused_below_the_limit),
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
    _watch(service)
    _watch(service, WatchKind.RECURSIVE, "/")
    zxid = service.set(b"2")
    service.checkers.told(service.session, _CHANGED, "/a", zxid)
    later = service.set(b"3")
    # A reply that waits comes after an event that is later than it.
    service.checkers.told(service.session, _CHANGED, "/a", later)
    service.checkers.shown(service.session, zxid)
    service.checkers.shown(service.session, later)
    _answer(service, OpCode.REMOVE_WATCHES, RemoveWatchesRequest("/a", WatcherType.ANY), None)
    _add(service)
    _create(service, "/e")
    service.checkers.told(service.session, EventType.NODE_CREATED, "/e", service.zxid)
    reply = GetEphemeralsResponse(("/e",))
    _answer(service, OpCode.GET_EPHEMERALS, GetEphemeralsRequest("/"), reply)


def test_leader_that_serves_clients_against_its_options__is_reported() -> None:
    script = Script()
    script.start(1, 2, 3)
    process = script.world.hosts[ServerId(script.leader)].process
    assert process is not None
    process.check_leader()
    options = script.world.options
    script.world.options = replace(
        options, replica=replace(options.replica, is_leader_serving=False)
    )
    with pytest.raises(Violation, match="busy leader"):
        process.check_leader()


def test_more_observers_catch_up_than_may__is_reported() -> None:
    script = Script()
    script.start(1, 2, 3)
    process = script.world.hosts[ServerId(script.leader)].process
    assert process is not None
    assert process.member is not None
    assert process.member.leader is not None
    check_catch_ups("s", process.member.leader, QuorumOptions())
    with pytest.raises(Violation, match="too many observers"):
        check_catch_ups("s", process.member.leader, QuorumOptions(max_snapshot_catch_ups=-1))
