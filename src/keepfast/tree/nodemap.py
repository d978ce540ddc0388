"""Path -> znode, with exact point-in-time views while writes continue.

Theory of operation. The map is a `dict` in which every parent stands before its children: a znode
can only be created below one that exists, and one that is deleted has no children left. A
snapshot needs just that order, so it is a walk over the dict. Three modes:

    plain     one dict, `base`. Znodes are changed in place.
    frozen    `base` and all its znodes are left alone: somebody walks over them. What changes is
              put into a second dict, `overlay`: a copy of the znode, or TOMBSTONE for a deleted
              one. Reads look there first. Sets of children are shared by a znode and its copy,
              and changed in place: a snapshot does not store them.
    thawing   the walk is over. `overlay` is moved back into `base` in slices; meanwhile changes
              are made in place, wherever the znode is, and new znodes go to `base`.

Very many changes at once (`put_all`) are handed over as an overlay: a map that was plain is thawing
from then on.

No mode copies the tree, so none stalls. What keeps parents before children:

  * the overlay is moved in the order in which its paths first came. A path that is in the overlay
    alone came after its parent, also if both were deleted and created again since.
  * moving a znode over one of the same path in `base` keeps that one's place, and its parent, which
    is in `base` as well, keeps its place before it.
  * thawing: before a new znode goes to `base`, its ancestors that are still in the overlay alone
    are moved there.

The three operations are attributes, replaced with the mode: in plain mode they are the methods of
the dict itself, with nothing in between. Nobody may keep them across a change of mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from keepfast.tree.node import Node, make_node
from keepfast.tree.node_bytes import NEW_STAT
from keepfast.tree.paths import parent_of
from keepfast.wire import invariant

TOMBSTONE: Final = make_node(None, -1, NEW_STAT)


class NodeMap:
    """Path -> znode, in one of the three modes that are described above."""

    __slots__ = ("_base", "_moving", "_order", "_overlay", "find", "insert", "own", "remove")

    # The znode at a path, or None.
    find: Callable[[str], Node | None]
    # Add a znode; its parent is there, itself it is not.
    insert: Callable[[str, Node], None]
    # Take out a znode that is there and has no children.
    remove: Callable[[str], None]
    # In frozen mode: the znode that may be changed instead of the one found. Otherwise None: the
    # one found may be changed.
    own: Callable[[str, Node], Node] | None

    def __init__(self, base: dict[str, Node] | None = None) -> None:
        self._base: dict[str, Node] = {} if base is None else base
        self._overlay: dict[str, Node] = {}
        # The overlay's paths as they came, and those that are still to be moved, last one first.
        # A list of their own: a dict that shrinks cannot be walked over.
        self._order: list[str] = []
        self._moving: list[str] | None = None
        self._become_plain()

    @property
    def is_frozen(self) -> bool:
        return self.own is not None

    @property
    def is_plain(self) -> bool:
        return self.own is None and self._moving is None

    def __len__(self) -> int:
        """The number of znodes. In plain mode O(1); otherwise a walk over the overlay."""
        count = len(self._base)
        base = self._base
        for path, node in self._overlay.items():
            count += (node is not TOMBSTONE) - (path in base)
        return count

    def paths(self) -> Iterator[str]:
        """All paths, parents first unless the map is thawing. The map must not change meanwhile."""
        overlay = self._overlay
        for path in self._base:
            if overlay.get(path) is not TOMBSTONE:
                yield path
        for path, node in overlay.items():
            if node is not TOMBSTONE and path not in self._base:
                yield path

    def freeze(self) -> Mapping[str, Node]:
        """Enter frozen mode; returns the znodes at this point in time, parents first."""
        invariant(self.is_plain, "a map is frozen once at a time, and thawed before the next")
        self._order = []
        self.find = self._find_in_both
        self.insert = self._insert_frozen
        self.remove = self._remove_frozen
        self.own = self._own
        return self._base

    def put_all(self, nodes: dict[str, Node], order: list[str]) -> None:
        """Add and replace znodes, and take out those whose path has TOMBSTONE.

        `order` has their paths, each after its parent. Both are the map's from then on.
        """
        if self.is_plain:
            self._overlay, self._order = nodes, order
            self.find = self._find_in_both
            self._thaw()
        elif self.is_frozen:
            self._overlay.update(nodes)
            self._order += order
        else:
            # What is being moved has a place in the order that these would take.
            for path in order:
                node = nodes[path]
                if node is TOMBSTONE:
                    self.remove(path)
                elif self.find(path) is None:
                    self.insert(path, node)
                elif path in self._overlay:
                    self._overlay[path] = node
                else:
                    self._base[path] = node

    def unfreeze(self) -> None:
        """Leave frozen mode: nobody walks over the frozen znodes any more."""
        invariant(self.is_frozen, "only a frozen map can be unfrozen")
        self.own = None
        self._thaw()

    def _thaw(self) -> None:
        if not self._overlay:
            self._become_plain()
            return
        self.insert = self._insert_thawing
        self.remove = self._remove_thawing
        self._order.reverse()
        self._moving = self._order

    def thaw_step(self, budget: int) -> bool:
        """Move up to `budget` znodes from the overlay to `base`; True when none is left."""
        invariant(not self.is_frozen, "a frozen map cannot thaw")
        moving = self._moving
        if moving is None:
            return True
        for _ in range(min(budget, len(moving))):
            self._move(moving.pop())
        if moving:
            return False
        self._become_plain()
        return True

    def _become_plain(self) -> None:
        self._overlay = {}
        self._order = []
        self._moving = None
        self.find = self._base.get
        self.insert = self._base.__setitem__
        self.remove = self._base.__delitem__
        self.own = None

    def _find_in_both(self, path: str) -> Node | None:
        node = self._overlay.get(path)
        if node is None:
            return self._base.get(path)
        return None if node is TOMBSTONE else node

    def _insert_frozen(self, path: str, node: Node) -> None:
        self._order.append(path)
        self._overlay[path] = node

    def _remove_frozen(self, path: str) -> None:
        if path in self._base:
            self._order.append(path)
            self._overlay[path] = TOMBSTONE
        else:
            del self._overlay[path]

    def _own(self, path: str, node: Node) -> Node:
        if path in self._overlay:
            return node
        children = node.children
        if children is not None:
            # Shared, so that a change shows in both; a list would be replaced in one of them.
            children = node.changing_children()
        copy = Node(node.packed, children)
        self._order.append(path)
        self._overlay[path] = copy
        return copy

    def _insert_thawing(self, path: str, node: Node) -> None:
        overlay, base = self._overlay, self._base
        if overlay.pop(path, None) is not None:
            # The tombstone's path may be in `base`, perhaps before a parent that was created
            # again after it. Without this, the new znode would take that place.
            base.pop(path, None)
        late = []
        parent = parent_of(path)
        while parent not in base:
            late.append(parent)
            parent = parent_of(parent)
        for parent in reversed(late):
            self._move(parent)
        base[path] = node

    def _remove_thawing(self, path: str) -> None:
        self._overlay.pop(path, None)
        self._base.pop(path, None)

    def _move(self, path: str) -> None:
        node = self._overlay.pop(path, None)
        if node is TOMBSTONE:
            self._base.pop(path, None)
        elif node is not None:
            self._base[path] = node
