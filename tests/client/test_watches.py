"""The table of watches: what an event uses up, and what a reconnection asks for."""

from __future__ import annotations

import pytest

from keepfast.client.client_watches import ClientWatchKind, ClientWatchTable
from keepfast.wire import EventType, OpCode, SetWatches, WatcherType, Zxid, encode


@pytest.mark.parametrize(
    ("kind", "type", "is_wanted", "is_used_up"),
    [
        (ClientWatchKind.DATA, EventType.NODE_CREATED, True, True),
        (ClientWatchKind.DATA, EventType.NODE_DATA_CHANGED, True, True),
        (ClientWatchKind.DATA, EventType.NODE_CHILDREN_CHANGED, False, False),
        (ClientWatchKind.DATA, EventType.NODE_DELETED, True, True),
        (ClientWatchKind.EXIST, EventType.NODE_CREATED, True, True),
        (ClientWatchKind.CHILD, EventType.NODE_DATA_CHANGED, False, False),
        (ClientWatchKind.CHILD, EventType.NODE_CHILDREN_CHANGED, True, True),
        (ClientWatchKind.CHILD, EventType.NODE_DELETED, True, True),
        (ClientWatchKind.PERSISTENT, EventType.NODE_CHILDREN_CHANGED, True, False),
        (ClientWatchKind.PERSISTENT, EventType.NODE_DELETED, True, False),
        (ClientWatchKind.RECURSIVE, EventType.NODE_DELETED, True, False),
        (ClientWatchKind.RECURSIVE, EventType.NODE_CHILDREN_CHANGED, False, False),
    ],
)
def test_event__is_wanted_and_uses_up_its_watch(
    kind: ClientWatchKind, type: EventType, is_wanted: bool, is_used_up: bool
) -> None:
    table = ClientWatchTable()
    table.add(kind, "/a")
    assert table.trigger(type, "/b") is False
    assert table.trigger(type, "/a") is is_wanted
    assert table.count() == (0 if is_used_up else 1)


def test_recursive_watch__wants_events_of_all_below() -> None:
    table = ClientWatchTable()
    table.add(ClientWatchKind.RECURSIVE, "/a")
    assert table.trigger(EventType.NODE_CREATED, "/a/b/c")
    assert not table.trigger(EventType.NODE_CREATED, "/ab")
    table.add(ClientWatchKind.RECURSIVE, "/")
    assert table.trigger(EventType.NODE_CREATED, "/ab")
    assert table.trigger(EventType.NODE_DATA_CHANGED, "/")


def test_removal__tells_once_a_kind() -> None:
    table = ClientWatchTable()
    for kind in ClientWatchKind:
        table.add(kind, "/a")
    assert table.has(WatcherType.DATA, "/a")
    assert table.remove(WatcherType.CHILDREN, "/a") == [EventType.CHILD_WATCH_REMOVED]
    assert table.remove(WatcherType.CHILDREN, "/a") == []
    assert table.remove(WatcherType.ANY, "/a") == [
        EventType.DATA_WATCH_REMOVED,
        EventType.PERSISTENT_WATCH_REMOVED,
    ]
    assert table.count() == 0


def test_many_watches__are_set_again_in_requests_that_a_server_takes() -> None:
    table = ClientWatchTable()
    paths = {f"/{number:05d}-{'x' * 200}" for number in range(3000)}
    for path in paths:
        table.add(ClientWatchKind.CHILD, path)
    requests = table.restoring_requests(Zxid(9))
    assert len(requests) > 4
    restored: set[str] = set()
    for type, request in requests:
        assert type == OpCode.SET_WATCHES
        assert isinstance(request, SetWatches)
        assert request.relative_zxid == 9
        assert len(encode(request)) < 140_000
        restored.update(request.child_watches or ())
    assert restored == paths


def test_no_watches__need_no_request() -> None:
    assert ClientWatchTable().restoring_requests(Zxid(9)) == []
