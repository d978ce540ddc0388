"""Sorted names of children, kept while they are looked at: a list of 100,000 is asked for once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

# Names that are kept in all; the list that was used least goes first. About 100 bytes each.
_MAX_NAMES: Final = 400_000


@dataclass(slots=True)
class NameList:
    """The children of one znode at one moment."""

    mark: Hashable
    names: list[str]
    _filter: str = ""
    _matching: list[str] = field(default_factory=list)

    def matching(self, text: str) -> list[str]:
        """The names that contain a text, whatever their case; the last one is kept."""
        if not text:
            return self.names
        if text != self._filter:
            wanted = text.casefold()
            self._matching = [name for name in self.names if wanted in name.casefold()]
            self._filter = text
        return self._matching


class ChildrenCache:
    """Lists by key. `mark` identifies a state of the children (cversion and pzxid)."""

    def __init__(self) -> None:
        self._lists: OrderedDict[Hashable, NameList] = OrderedDict()
        self._names = 0
        self._lock = threading.Lock()

    def find(self, key: Hashable, mark: Hashable, load: Callable[[], list[str]]) -> NameList:
        """The list of `key` if it is that of `mark`, else a new one."""
        with self._lock:
            found = self._lists.get(key)
            if found is not None and found.mark == mark:
                self._lists.move_to_end(key)
                return found
        loaded = NameList(mark, sorted(load()))
        with self._lock:
            old = self._lists.pop(key, None)
            self._names += len(loaded.names) - (0 if old is None else len(old.names))
            self._lists[key] = loaded
            while self._names > _MAX_NAMES and len(self._lists) > 1:
                _, dropped = self._lists.popitem(last=False)
                self._names -= len(dropped.names)
        return loaded
