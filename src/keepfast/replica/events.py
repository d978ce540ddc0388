"""What a client missed while it was away: its watches, compared with the tree."""

from __future__ import annotations

from collections.abc import Iterator

from keepfast.tree import Tree, WatchKind, mzxid_of, pzxid_of
from keepfast.wire import EventType, SetWatches, SetWatches2


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
