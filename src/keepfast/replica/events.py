"""Who is told of a change, and what a client missed while it was away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from keepfast.tree import Change, Tree, WatchKind, is_allowed, mzxid_of, pzxid_of
from keepfast.wire import EventType, Perms, SetWatches, SetWatches2, encode_event

if TYPE_CHECKING:
    from keepfast.replica.replica import Replica

_LENGTH_SIZE: Final = 4


def tell(replica: Replica, change: Change, zxid: int) -> None:
    """Tell those who watch and may read; a watch that is used up is gone in any case."""
    statistics = replica.statistics
    for alert in replica.watches.trigger(change):
        frame = encode_event(alert.type, alert.path, zxid)
        statistics.watchers_told[alert.type].add(len(alert.watchers))
        for watcher in alert.watchers:
            if replica.skips_acls or is_allowed(alert.acl, Perms.READ, watcher.ids):
                statistics.watch_bytes += len(frame) - _LENGTH_SIZE
                replica.send(watcher, frame)


def missed_events(
    tree: Tree, request: SetWatches | SetWatches2
) -> Iterator[tuple[WatchKind, str, EventType | None]]:
    """Each watch that a client sets again, with the event it missed; None: set the watch."""
    since = request.relative_zxid
    for path in request.data_watches or ():
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.DATA, path, EventType.NODE_DELETED
        elif mzxid_of(node.stat) > since:
            yield WatchKind.DATA, path, EventType.NODE_DATA_CHANGED
        else:
            yield WatchKind.DATA, path, None
    for path in request.exist_watches or ():
        found = tree.find(path or "/") is not None
        yield WatchKind.DATA, path, EventType.NODE_CREATED if found else None
    for path in request.child_watches or ():
        node = tree.find(path or "/")
        if node is None:
            yield WatchKind.CHILD, path, EventType.NODE_DELETED
        elif pzxid_of(node.stat) > since:
            yield WatchKind.CHILD, path, EventType.NODE_CHILDREN_CHANGED
        else:
            yield WatchKind.CHILD, path, None
