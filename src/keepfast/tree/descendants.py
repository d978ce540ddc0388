"""The number of znodes below each znode, updated as znodes are created and deleted.

A client may ask for this number as often as it likes: walking the subtree for each answer would
stall the server. The number of children is known already; what is kept here is the number of deeper
ones, for znodes that have any. A create or a delete costs one addition per ancestor, of which only
the upper ones are kept: each costs slicing and hashing its path, and a client that nests znodes
thousands deep would make every create below them slow. Below that depth, where nobody has large
subtrees, the few znodes are counted on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from keepfast.tree.node import Node
from keepfast.tree.paths import ROOT, parent_of
from keepfast.wire import ErrorCode, KeeperError

# Depth down to which counts are kept. Low: counting walks the tree. High: creates are slow.
_KEPT_DEPTH: Final = 32
# Znodes that one request walks over, about 5 ms.
_MAX_WALKED: Final = 10_000


class DescendantCounts:
    """Path -> znodes below it that are not its children; no entry: none."""

    __slots__ = ("_above", "_deeper", "_parent")

    def __init__(self) -> None:
        self._deeper: dict[str, int] = {}
        # The parent that changed last and the kept znodes above it: the next is often the same.
        self._parent = ROOT
        self._above: list[str] = []

    def __len__(self) -> int:
        """How many numbers are kept."""
        return len(self._deeper)

    def count(self, path: str, node: Node, find: Callable[[str], Node | None]) -> int:
        """All znodes below the one at a path.

        Raises KeeperError for one that is very deep and has very many descendants.
        """
        children = len(node.children or ())
        if path.count("/") <= _KEPT_DEPTH:
            return children + self._deeper.get(path, 0)
        count = 0
        waiting = list(node.children or ())
        while waiting:
            count += len(waiting)
            if count > _MAX_WALKED:
                raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path}: too many znodes below it")
            found = [find(below) for below in waiting]
            waiting = [child for each in found if each is not None for child in each.children or ()]
        return count

    def add(self, parent: str, count: int) -> None:
        """Record this many more children of `parent`; fewer if negative."""
        deeper = self._deeper
        if parent != self._parent:
            self._parent, self._above = parent, _kept_above(parent)
        for path in self._above:
            number = deeper.get(path, 0) + count
            if number:
                deeper[path] = number
            else:
                del deeper[path]

    def load(self, parents: Iterable[str], nodes: Mapping[str, Node]) -> None:
        """Recount from all paths that may have children, each before those below it."""
        deeper = self._deeper = {}
        for path in reversed(list(parents)):
            children = nodes[path].children
            if children and path != ROOT:
                above = parent_of(path)
                deeper[above] = deeper.get(above, 0) + len(children) + deeper.get(path, 0)
        for path in [path for path in deeper if path.count("/") > _KEPT_DEPTH]:
            del deeper[path]


def _kept_above(path: str) -> list[str]:
    """The znodes above a path whose descendants are kept."""
    if path.count("/") > _KEPT_DEPTH:
        path = "/".join(path.split("/", _KEPT_DEPTH + 2)[: _KEPT_DEPTH + 2])
    above = []
    while path != ROOT:
        path = parent_of(path)
        above.append(path)
    return above
