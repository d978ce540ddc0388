"""Watches: who is notified of which change.

    kind         set by                     notified of                                  goes
    data         getData, exists            created, deleted, data changed: this znode   on event
    child        getChildren                deleted: this znode; children changed        on event
    persistent   addWatch, mode 0           both of the above                            on removal
    recursive    addWatch, mode 1           created, deleted, data changed: this znode   on removal
                                            and everything below it; never children changed

A watcher is notified once per change, however many of its watches match. Watchers
belong to connections; a table never outlives the server that it is in. Paths may be
watched that no znode has, so the memory of one watcher's watches is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from keepfast.tree.outcome import Change, ChangeKind
from keepfast.tree.paths import ROOT
from keepfast.wire import AclList, ErrorCode, EventType, KeeperError

W = TypeVar("W")

# Memory of a watch without the characters of its path, and the most that a character may take.
_WATCH_BYTES: Final = 400
_CHARACTER_BYTES: Final = 4

# Levels of a path that may be watched recursively: each is looked up for every change.
MAX_LEVELS: Final = 64

# Watches of a disconnected client removed in one turn of the loop: 1 ms.
MAX_FORGOTTEN: Final = 2000

# A client with more watches than this on znodes is not looked up among as many changes.
_MAX_LOOKED_UP: Final = 10_000

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
    """One event and those to be notified of it, if the ACL allows it."""

    type: int
    path: str
    acl: AclList
    # In the order in which their watches were set: sets of connections have another in each run.
    watchers: dict[W, None]


class DataWatches(NamedTuple, Generic[W]):
    """Paths whose data is watched, and by whom; one path may be there more than once.

    To sort it out takes long where there are very many, and can be done in another thread.
    """

    items: list[tuple[str, dict[W, None]]]
    gone: frozenset[W]

    def by_path(self) -> dict[str, set[W]]:
        """Path -> watchers. What is watched may change meanwhile."""
        paths: dict[str, set[W]] = {}
        for path, watchers in self.items:
            # All at once, while no other thread runs.
            left = set(watchers) - self.gone
            if left:
                paths.setdefault(path, set()).update(left)
        return paths


def _size_of(path: str) -> int:
    """The memory that a watch takes, about."""
    return _WATCH_BYTES + len(path) * (1 if path.isascii() else _CHARACTER_BYTES)


class WatchTable(Generic[W]):
    """All watches of one server."""

    __slots__ = (
        "_by_watcher",
        "_deepest",
        "_gone",
        "_last_above",
        "_last_parent",
        "_max_bytes",
        "_sizes",
        "_tables",
        "count",
    )

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: what the watches of one watcher may take."""
        self._tables: tuple[dict[str, dict[W, None]], ...] = ({}, {}, {}, {})
        self._by_watcher: dict[W, tuple[set[str], ...]] = {}
        self._sizes: dict[W, int] = {}
        self._max_bytes = max_bytes
        # Levels of the deepest path that was ever watched recursively.
        self._deepest = 0
        # The answer to the last question of who watches a path or one above it.
        self._last_parent: str | None = None
        self._last_above: dict[W, None] = {}
        # Watchers that have disconnected, and some of whose watches are still to be removed.
        self._gone: dict[W, None] = {}
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, kind: WatchKind, path: str, watcher: W) -> None:
        """Set a watch; setting it again changes nothing. Raises KeeperError if it is too much."""
        table = self._tables[kind]
        watchers = table.get(path)
        if watchers is not None and watcher in watchers:
            return
        levels = 0
        if kind is WatchKind.RECURSIVE:
            levels = path.count("/")
            if levels > MAX_LEVELS:
                raise KeeperError(ErrorCode.QUOTA_EXCEEDED, "a recursive watch of too deep a path")
            self._last_parent = None
        size = self._sizes.get(watcher, 0) + _size_of(path)
        if size > self._max_bytes:
            raise KeeperError(ErrorCode.QUOTA_EXCEEDED, "the connection has too many watches")
        self._sizes[watcher] = size
        if watchers is None:
            watchers = table[path] = {}
        watchers[watcher] = None
        if levels > self._deepest:
            self._deepest = levels
        paths = self._by_watcher.get(watcher)
        if paths is None:
            paths = self._by_watcher[watcher] = (set(), set(), set(), set())
        paths[kind].add(path)
        self.count += 1

    def remove(self, kind: WatchKind, path: str, watcher: W) -> bool:
        """Remove a watch; False if it was not set."""
        table = self._tables[kind]
        watchers = table.get(path)
        if watchers is None or watcher not in watchers:
            return False
        del watchers[watcher]
        if not watchers:
            del table[path]
        self._last_parent = None
        self._by_watcher[watcher][kind].discard(path)
        self._sizes[watcher] -= _size_of(path)
        self.count -= 1
        return True

    def has(self, kind: WatchKind, path: str, watcher: W) -> bool:
        """Whether the watch is set."""
        return watcher in self._tables[kind].get(path, ())

    def drop(self, watcher: W) -> bool:
        """Notify a watcher of nothing more: its connection is gone.

        Gives whether `forget_some` is wanted, because it has too many watches to forget at once.
        """
        if watcher not in self._by_watcher:
            return False
        self._gone[watcher] = None
        if sum(map(len, self._by_watcher[watcher])) > MAX_FORGOTTEN:
            return True
        self._forget(watcher, MAX_FORGOTTEN)
        return False

    def forget_some(self) -> bool:
        """Remove some watches of disconnected clients; returns whether there are more."""
        for watcher in self._gone:
            self._forget(watcher, MAX_FORGOTTEN)
            break
        return bool(self._gone)

    def _forget(self, watcher: W, most: int) -> None:
        """Remove up to this many watches of a disconnected client."""
        left = most
        self._last_parent = None
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
            del self._sizes[watcher]
            del self._gone[watcher]

    def meet(self, paths: Set[str]) -> bool:
        """Whether a change of any of these, or of its children, may be watched."""
        data, child, persistent, recursive = self._tables
        if recursive:
            return True
        return any(not table.keys().isdisjoint(paths) for table in (data, child, persistent))

    @property
    def has_recursive(self) -> bool:
        """Whether any watch is recursive."""
        return bool(self._tables[WatchKind.RECURSIVE])

    def may_concern(self, watcher: W, paths: Set[str], above: Set[str] | None) -> bool:
        """Whether a change of any of these may be one that a watcher is to be notified of.

        `above`: the same with what is above them (`levels`); None: not known yet.
        """
        watched = self._by_watcher.get(watcher)
        if watched is None or not paths:
            return False
        *direct, recursive = watched
        for own in direct:
            if min(len(own), len(paths)) > _MAX_LOOKED_UP or not own.isdisjoint(paths):
                return True
        if not recursive:
            return False
        if above is None or min(len(recursive), len(above)) > _MAX_LOOKED_UP:
            return True
        return not above.isdisjoint(recursive)

    def trigger(self, change: Change, spared: Collection[W] = ()) -> list[Alert[W]]:
        """The events of one change, in the order in which they are sent: znode, then parent.

        None of them is for those who are `spared`, and uses up a watch of theirs.
        """
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
            watchers = self._taken(WatchKind.DATA, path, spared) if path in data else {}
            if kind is _DELETED and path in child:
                watchers |= self._taken(WatchKind.CHILD, path, spared)
            if path in persistent:
                watchers |= persistent[path]
            if recursive:
                watchers |= self._above(parent) if path not in recursive else self._recursive(path)
            watchers = self._left(watchers, spared)
            if watchers:
                alerts.append(Alert(int(kind), path, change.acl, watchers))
        if change.parent_acl is not None:
            watchers = self._taken(WatchKind.CHILD, parent, spared) if parent in child else {}
            if parent in persistent:
                watchers |= persistent[parent]
            watchers = self._left(watchers, spared)
            if watchers:
                event = EventType.NODE_CHILDREN_CHANGED.value
                alerts.append(Alert(event, parent, change.parent_acl, watchers))
        return alerts

    def _left(self, watchers: dict[W, None], spared: Collection[W]) -> dict[W, None]:
        """Those among some who are still connected, and not spared."""
        for watcher in self._gone:
            watchers.pop(watcher, None)
        return {one: None for one in watchers if one not in spared} if spared else watchers

    def _taken(self, kind: WatchKind, path: str, spared: Collection[W]) -> dict[W, None]:
        """The watchers of a path that is watched, whose watches this uses up."""
        watchers = self._tables[kind].pop(path)
        if spared:
            kept = {watcher: None for watcher in watchers if watcher in spared}
            if kept:
                self._tables[kind][path] = kept
                watchers = {watcher: None for watcher in watchers if watcher not in kept}
        size = _size_of(path)
        for watcher in watchers:
            self._by_watcher[watcher][kind].discard(path)
            self._sizes[watcher] -= size
        self.count -= len(watchers)
        return watchers

    def _above(self, parent: str) -> dict[W, None]:
        """Who watches a path or one above it; mostly it is the same one that is asked for."""
        if self._last_parent != parent:
            self._last_parent, self._last_above = parent, self._recursive(parent)
        return self._last_above

    def levels(self, path: str) -> list[str]:
        """A path and what is above it, from the top, as far down as a recursive watch can be."""
        levels = [ROOT]
        stop = 0
        # A path may have thousands of levels below the last one that can be watched.
        for _ in range(self._deepest):
            stop = path.find("/", stop + 1)
            if stop < 0:
                if path != ROOT:
                    levels.append(path)
                break
            levels.append(path[:stop])
        return levels

    def _recursive(self, path: str) -> dict[W, None]:
        """Who watches a path or one above it, the lowest first."""
        watched = map(self._tables[WatchKind.RECURSIVE].get, self.levels(path))
        found: dict[W, None] = {}
        for watchers in reversed(list(watched)):
            if watchers:
                found |= watchers
        return found

    # -- for reports -----------------------------------------------------------------------------

    def reported_count(self) -> int:
        """The number of watches as Apache counts them.

        It keeps two tables. A persistent watch is in both, a recursive one in the table of data
        watches, and a watcher is in a table once per path.
        """
        data, child, persistent, recursive = self._tables
        nobody: dict[W, None] = {}
        total = self.count
        for path, watchers in persistent.items():
            by_child = watchers.keys() - child.get(path, nobody).keys()
            by_data = watchers.keys() - data.get(path, nobody).keys()
            total += len(by_child) + len(by_data) - len(watchers)
        for path, watchers in recursive.items():
            by_data = watchers.keys() - data.get(path, nobody).keys()
            total += len(by_data - persistent.get(path, nobody).keys()) - len(watchers)
        return total

    def data_watches(self) -> DataWatches[W]:
        """Watches on data, which are what Apache reports as watches."""
        kinds = (WatchKind.DATA, WatchKind.PERSISTENT, WatchKind.RECURSIVE)
        items = [item for kind in kinds for item in self._tables[kind].items()]
        return DataWatches(items, frozenset(self._gone))

    def watchers(self) -> Iterator[tuple[W, tuple[set[str], ...]]]:
        """Each watcher with the paths it watches, by kind."""
        for watcher, paths in self._by_watcher.items():
            if watcher not in self._gone:
                yield watcher, paths
