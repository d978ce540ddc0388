"""Which znodes a session watches, so that a reconnection can restore the watches.

The server forgets watches with the connection; the client keeps the list. Paths here are the
server's: the chroot is before them.

    kind          set by                     goes with
    DATA          getData, exists (found)    the znode's creation, change or deletion
    EXIST         exists (not found)         the same
    CHILD         getChildren                a change of its children, or its deletion
    PERSISTENT    addWatch                   removeWatches only
    RECURSIVE     addWatch                   removeWatches only
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from keepfast.wire import (
    EventType,
    OpCode,
    SetWatches,
    SetWatches2,
    WatcherType,
    Zxid,
    encode_text,
)


class ClientWatchKind(Enum):
    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


_TRIGGERED: Final = {
    EventType.NODE_CREATED: (ClientWatchKind.DATA, ClientWatchKind.EXIST),
    EventType.NODE_DATA_CHANGED: (ClientWatchKind.DATA, ClientWatchKind.EXIST),
    EventType.NODE_CHILDREN_CHANGED: (ClientWatchKind.CHILD,),
    EventType.NODE_DELETED: (ClientWatchKind.DATA, ClientWatchKind.EXIST, ClientWatchKind.CHILD),
}
_KINDS_OF_TYPE: Final = {
    WatcherType.CHILDREN: (ClientWatchKind.CHILD,),
    WatcherType.DATA: (ClientWatchKind.DATA, ClientWatchKind.EXIST),
    WatcherType.PERSISTENT: (ClientWatchKind.PERSISTENT,),
    WatcherType.PERSISTENT_RECURSIVE: (ClientWatchKind.RECURSIVE,),
    WatcherType.ANY: tuple(ClientWatchKind),
}
_EVENT_OF_REMOVAL: Final = {
    ClientWatchKind.DATA: EventType.DATA_WATCH_REMOVED,
    ClientWatchKind.EXIST: EventType.DATA_WATCH_REMOVED,
    ClientWatchKind.CHILD: EventType.CHILD_WATCH_REMOVED,
    ClientWatchKind.PERSISTENT: EventType.PERSISTENT_WATCH_REMOVED,
    ClientWatchKind.RECURSIVE: EventType.PERSISTENT_WATCH_REMOVED,
}
# Far below the longest frame that a server takes (1 MiB), which a site may have set lower.
_LARGEST_BATCH: Final = 128 * 1024


class ClientWatchTable:
    """The watches of one session."""

    def __init__(self) -> None:
        self._paths: dict[ClientWatchKind, set[str]] = {kind: set() for kind in ClientWatchKind}

    def add(self, kind: ClientWatchKind, path: str) -> None:
        self._paths[kind].add(path)

    def count(self) -> int:
        return sum(map(len, self._paths.values()))

    def trigger(self, type: EventType, path: str) -> bool:
        """Note an event of the server; whether anyone here waits for it.

        Nobody does if the watch was removed while the event was on its way.
        """
        is_wanted = False
        for kind in _TRIGGERED.get(type, ()):
            if path in self._paths[kind]:
                self._paths[kind].remove(path)
                is_wanted = True
        if path in self._paths[ClientWatchKind.PERSISTENT]:
            return True
        if type != EventType.NODE_CHILDREN_CHANGED and self._paths[ClientWatchKind.RECURSIVE]:
            is_wanted = is_wanted or any(
                one in self._paths[ClientWatchKind.RECURSIVE] for one in _with_ancestors(path)
            )
        return is_wanted

    def has(self, type: WatcherType, path: str) -> bool:
        return any(path in self._paths[kind] for kind in _KINDS_OF_TYPE[type])

    def remove(self, type: WatcherType, path: str) -> list[EventType]:
        """Forget watches; the events that report it, one per kind of watch."""
        events: list[EventType] = []
        for kind in _KINDS_OF_TYPE[type]:
            if path in self._paths[kind]:
                self._paths[kind].remove(path)
                if _EVENT_OF_REMOVAL[kind] not in events:
                    events.append(_EVENT_OF_REMOVAL[kind])
        return events

    def restoring_requests(self, last_zxid: Zxid) -> list[tuple[OpCode, SetWatches | SetWatches2]]:
        """What to send on a new connection: all watches, in requests that a server takes.

        The older form where it is enough: servers before 3.6 know no other.
        """
        return [_request(batch, last_zxid) for batch in self._batches()]

    def _batches(self) -> Iterator[dict[ClientWatchKind, list[str]]]:
        batch: dict[ClientWatchKind, list[str]] = {}
        size = 0
        for kind, paths in self._paths.items():
            for path in sorted(paths):
                cost = 4 + len(encode_text(path))
                if batch and size + cost > _LARGEST_BATCH:
                    yield batch
                    batch, size = {}, 0
                batch.setdefault(kind, []).append(path)
                size += cost
        if batch:
            yield batch


def _request(
    batch: dict[ClientWatchKind, list[str]], last_zxid: Zxid
) -> tuple[OpCode, SetWatches | SetWatches2]:
    def paths(kind: ClientWatchKind) -> tuple[str, ...]:
        return tuple(batch.get(kind, ()))

    data, exist, child = map(
        paths, (ClientWatchKind.DATA, ClientWatchKind.EXIST, ClientWatchKind.CHILD)
    )
    persistent, recursive = map(paths, (ClientWatchKind.PERSISTENT, ClientWatchKind.RECURSIVE))
    if not persistent and not recursive:
        return OpCode.SET_WATCHES, SetWatches(last_zxid, data, exist, child)
    request = SetWatches2(last_zxid, data, exist, child, persistent, recursive)
    return OpCode.SET_WATCHES2, request


def _with_ancestors(path: str) -> Iterator[str]:
    while path != "/":
        yield path
        path = path[: path.rindex("/")] or "/"
    yield "/"
