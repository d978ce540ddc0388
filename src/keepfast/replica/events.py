"""Who is notified of a change, and what a client missed while it was away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from keepfast.replica.connection import MissedEvent
from keepfast.replica.service import Service
from keepfast.tree import Change, Tree, WatchKind, is_allowed, mzxid_of, pzxid_of
from keepfast.wire import EventType, MalformedRecord, Perms, Reader, encode_event

_LENGTH_SIZE: Final = 4
# Paths that are read while one watch could be set.
_READ_AT_ONCE: Final = 2


def tell(service: Service, change: Change, zxid: int) -> None:
    """Notify watchers that may read the znode; a one-time watch is used up in any case."""
    statistics = service.statistics
    for alert in service.watches.trigger(change):
        frame = encode_event(alert.type, alert.path, zxid)
        statistics.watchers_told[alert.type].add(len(alert.watchers))
        service.spent += len(alert.watchers)
        for watcher in alert.watchers:
            if service.skips_acls or is_allowed(alert.acl, Perms.READ, watcher.ids):
                statistics.watch_bytes += len(frame) - _LENGTH_SIZE
                service.send(watcher, frame)


def missed_events(
    tree: Tree, payload: bytes, offset: int, lists: int
) -> Iterator[MissedEvent | None]:
    """Each watch that a client re-registers, with the event it missed; no event: set the watch.

    None stands for some that were read: a request of a megabyte has very many. Raises
    MalformedRecord before the first watch.
    """
    reader = Reader(payload, offset)
    since = reader.read_long("relativeZxid")
    paths: list[list[str]] = []
    for _ in range(lists):
        paths.append([])
        for number in range(reader.read_count(_LENGTH_SIZE, "watches") or 0):
            path = reader.read_string("path of a watch")
            if path is None:
                raise MalformedRecord("null path of a watch", reader.offset)
            paths[-1].append(path)
            if not number % _READ_AT_ONCE:
                yield None
    data, exist, child, *persistent = paths
    for path in data:
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.DATA, path, EventType.NODE_DELETED
        elif mzxid_of(node.stat) > since:
            yield WatchKind.DATA, path, EventType.NODE_DATA_CHANGED
        else:
            yield WatchKind.DATA, path, None
    for path in exist:
        found = tree.find(path or "/") is not None
        yield WatchKind.DATA, path, EventType.NODE_CREATED if found else None
    for path in child:
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.CHILD, path, EventType.NODE_DELETED
        elif pzxid_of(node.stat) > since:
            yield WatchKind.CHILD, path, EventType.NODE_CHILDREN_CHANGED
        else:
            yield WatchKind.CHILD, path, None
    for kind, listed in zip((WatchKind.PERSISTENT, WatchKind.RECURSIVE), persistent, strict=False):
        for path in listed:
            yield kind, path, None
