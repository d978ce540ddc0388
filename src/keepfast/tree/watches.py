"""Watches: who is told of which change.

    kind         set by                     told of                                      goes
    data         getData, exists            created, deleted, data changed: this znode   when told
    child        getChildren                deleted: this znode; children changed        when told
    persistent   addWatch, mode 0           both of the above                            on removal
    recursive    addWatch, mode 1           created, deleted, data changed: this znode   on removal
                                            and everything below it; never children changed

A watcher is told of one change once, whatever watches of its own the change meets. Watchers belong
to connections; a table never outlives the server that it is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from keepfast.tree.outcome import Change, ChangeKind
from keepfast.tree.paths import ROOT
from keepfast.wire import AclList, EventType

W = TypeVar("W")

# Watches of one who is gone that are forgotten in one turn of the loop: 1 ms.
MOST_FORGOTTEN: Final = 2000

_CREATED: Final = ChangeKind.CREATED
_DELETED: Final = ChangeKind.DELETED
_DATA: Final = ChangeKind.DATA


class WatchKind(IntEnum):
    """What kind of watch; an index into the tables."""

    DATA = 0
    CHILD = 1
    PERSISTENT = 2
    RECURSIVE = 3


class Alert(NamedTuple, Generic[W]):
    """One event and those who are to be told of it, if the ACL lets them."""

    type: int
    path: str
    acl: AclList
    # In the order in which their watches were set: sets of connections have another in each run.
    watchers: dict[W, None]


class WatchTable(Generic[W]):
    """All watches of one server."""

    __slots__ = ("_by_watcher", "_gone", "_tables", "count")

    def __init__(self) -> None:
        self._tables: tuple[dict[str, dict[W, None]], ...] = ({}, {}, {}, {})
        self._by_watcher: dict[W, tuple[set[str], ...]] = {}
        # Those whose connections are gone, and some of whose watches are still to be forgotten.
        self._gone: dict[W, None] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Set a watch; setting it again changes nothing."""
        table = self._tables[kind]
        watchers = table.get(path)
        if watchers is None:
            watchers = table[path] = {}
        elif watcher in watchers:
            return
        watchers[watcher] = None
        paths = self._by_watcher.get(watcher)
        if paths is None:
            paths = self._by_watcher[watcher] = (set(), set(), set(), set())
        paths[kind].add(path)
        self.count += 1

    def remove(self, kind: WatchKind, path: str, watcher: W) -> bool:
        """Take a watch away; False if it was not set."""
        table = self._tables[kind]
        watchers = table.get(path)
        if watchers is None or watcher not in watchers:
            return False
        del watchers[watcher]
        if not watchers:
            del table[path]
        self._by_watcher[watcher][kind].discard(path)
        self.count -= 1
        return True

    def has(self, kind: WatchKind, path: str, watcher: W) -> bool:
        """Whether the watch is set."""
        return watcher in self._tables[kind].get(path, ())

    def drop(self, watcher: W) -> bool:
        """Tell a watcher of nothing more: its connection is gone.

        Gives whether `forget_some` is wanted, because it has too many watches to forget at once.
        """
        if watcher not in self._by_watcher:
            return False
        self._gone[watcher] = None
        if sum(map(len, self._by_watcher[watcher])) > MOST_FORGOTTEN:
            return True
        self._forget(watcher, MOST_FORGOTTEN)
        return False

    def forget_some(self) -> bool:
        """Forget some watches of those who are gone; gives whether there are more."""
        for watcher in self._gone:
            self._forget(watcher, MOST_FORGOTTEN)
            break
        return bool(self._gone)

    def _forget(self, watcher: W, most: int) -> None:
        """Forget up to so many watches of one who is gone."""
        left = most
        for table, watched in zip(self._tables, self._by_watcher[watcher], strict=True):
            count = min(left, len(watched))
            for _ in range(count):
                path = watched.pop()
                watchers = table[path]
                del watchers[watcher]
                if not watchers:
                    del table[path]
            self.count -= count
            left -= count
        if not any(self._by_watcher[watcher]):
            del self._by_watcher[watcher]
            del self._gone[watcher]

    def meet(self, paths: Set[str]) -> bool:
        """Whether a change of any of these, or of its children, may be watched."""
        data, child, persistent, recursive = self._tables
        if recursive:
            return True
        return any(not table.keys().isdisjoint(paths) for table in (data, child, persistent))

    def trigger(self, change: Change) -> list[Alert[W]]:
        """The events of one change, in the order in which they are sent: znode, then parent."""
        kind, path = change.kind, change.path
        data, child, persistent, recursive = self._tables
        parent = path[: path.rfind("/")] or ROOT
        if (
            # Most changes, where others are watched.
            not (path in data or path in child or path in persistent)
            and not (parent in child or parent in persistent or recursive)
        ):
            return []
        alerts: list[Alert[W]] = []
        if kind is _DATA or kind is _CREATED or kind is _DELETED:
            watchers = self._taken(WatchKind.DATA, path)
            if kind is _DELETED:
                watchers |= self._taken(WatchKind.CHILD, path)
            watchers |= persistent.get(path, {})
            if recursive:
                watchers |= self._recursive(path)
            for watcher in self._gone:
                watchers.pop(watcher, None)
            if watchers:
                alerts.append(Alert(int(kind), path, change.acl, watchers))
        if change.parent_acl is not None:
            watchers = self._taken(WatchKind.CHILD, parent)
            watchers |= persistent.get(parent, {})
            for watcher in self._gone:
                watchers.pop(watcher, None)
            if watchers:
                event = EventType.NODE_CHILDREN_CHANGED.value
                alerts.append(Alert(event, parent, change.parent_acl, watchers))
        return alerts

    def _taken(self, kind: WatchKind, path: str) -> dict[W, None]:
        """The watchers of a path, whose watches this uses up."""
        watchers = self._tables[kind].pop(path, None)
        if watchers is None:
            return {}
        for watcher in watchers:
            self._by_watcher[watcher][kind].discard(path)
        self.count -= len(watchers)
        return watchers

    def _recursive(self, path: str) -> dict[W, None]:
        table = self._tables[WatchKind.RECURSIVE]
        found: dict[W, None] = {}
        while True:
            found |= table.get(path, {})
            if path == ROOT:
                return found
            path = path[: path.rfind("/")] or ROOT

    # -- for reports -----------------------------------------------------------------------------

    def reported_count(self) -> int:
        """The number of watches as Apache counts them.

        It keeps two tables. A persistent watch is in both, a recursive one in the table of data
        watches, and a watcher is in a table once a path.
        """
        _, child, persistent, recursive = self._tables
        if not persistent and not recursive:
            return self.count
        both = sum(
            len(watchers | persistent.get(path, {})) for path, watchers in child.items()
        ) + sum(len(watchers) for path, watchers in persistent.items() if path not in child)
        return both + sum(map(len, self.watched_paths().values()))

    def watched_paths(self) -> dict[str, set[W]]:
        """Path -> watchers, for watches on data: what Apache reports as watches."""
        paths: dict[str, set[W]] = {}
        for kind in (WatchKind.DATA, WatchKind.PERSISTENT, WatchKind.RECURSIVE):
            for path, watchers in self._tables[kind].items():
                left = watchers.keys() - self._gone.keys()
                if left:
                    paths.setdefault(path, set()).update(left)
        return paths

    def watchers(self) -> Iterator[tuple[W, tuple[set[str], ...]]]:
        """Each watcher with the paths it watches, by kind."""
        for watcher, paths in self._by_watcher.items():
            if watcher not in self._gone:
                yield watcher, paths
