"""Encoded lists of children, cached for as long as the children stay the same.

A list is asked for far more often than it changes, and to encode one of 100,000 names takes tens of
milliseconds. It is kept with cversion and pzxid of its znode: every txn that creates or deletes a
child changes one of them.

A long list never blocks the loop. It is built in slices, one per call:
`of` raises UnfinishedError until it is complete, and the caller retries when others have had their
turn. The tree records which children are added and removed from the first slice on (`Tree.listed`),
and these are patched in; a list is rebuilt only if very many changed, or if some changed while its
names were still being read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice
from struct import Struct
from typing import Final

from keepfast.replica.unfinished import UnfinishedError
from keepfast.tree import Node, Tree
from keepfast.wire import encode_text, invariant

_pack_int: Final = Struct(">i").pack
_COUNT_SIZE: Final = 4
_NO_CHILDREN: Final = _pack_int(0)
_ROOTS: Final = frozenset(("", "/"))
# Bytes of all lists that are kept. Low: large ones are made again and again. High: memory.
_MAX_BYTES: Final = 32 << 20
_MAX_LISTS: Final = 4096
# Names that are encoded at a time, about 2 ms; a list of up to this many is made at once.
# Not Final, which would put the number into compiled code: tests make it small.
_SLICE = 5_000
# What a name costs, in bytes of a reply that take as long.
_NAME_WORK: Final = 80
# Lists that are being made. Low: lists requested alternately start over again and again.
_MAX_UNFINISHED: Final = 16
# Bytes that are looked through for names to cut out, about 2 ms, before a list is rebuilt.
_MAX_SEARCHED: Final = 8 << 20


class _Unfinished:
    """A long list that is being made."""

    __slots__ = ("changed", "is_copy", "names", "parts")

    def __init__(self, children: Collection[str], changed: list[str], is_copy: bool) -> None:
        self.parts: list[bytes] = []
        # The children that are still to be encoded; unless it is a copy, it must not be asked once
        # any of them changed.
        self.names = iter(children)
        self.is_copy = is_copy
        # Those that came or went since it was begun.
        self.changed = changed


class ChildLists:
    """The lists of one replica's tree, by path."""

    __slots__ = ("_lists", "_size_bytes", "_tree", "_unfinished")

    def __init__(self) -> None:
        # Path -> the children, cversion and pzxid that the list belongs to, and the list.
        self._lists: dict[str, tuple[Collection[str], bytes, bytes]] = {}
        self._size_bytes = 0
        self._unfinished: dict[str, _Unfinished] = {}
        self._tree: Tree | None = None

    def of(self, tree: Tree, path: str, node: Node) -> bytes:
        """The names of a znode's children, as a vector of strings.

        Raises UnfinishedError if that takes longer than a turn may; the next call continues it.
        """
        children = node.children
        if not children:
            return _NO_CHILDREN
        if tree is not self._tree:
            self._forget_all()
            self._tree = tree
        packed = node.packed
        mark = packed[-24:-20] + packed[-8:]
        kept = self._lists.get(path)
        if kept is not None and kept[0] is children and kept[1] == mark:
            return kept[2]
        is_long = len(children) > _SLICE
        made = self._long(tree, path, children) if is_long else encode_children(path, children)
        self._keep(path, children, mark, made)
        if is_long and path in self._lists:
            tree.listed[path] = []
        return made

    def work(self, path: str, node: Node) -> int:
        """About what it costs to give the list, in bytes of a reply that take as long."""
        kept, children = self._lists.get(path), node.children or ()
        if kept is not None and kept[0] is children:
            return len(kept[2])
        return _NAME_WORK * len(children)

    def _long(self, tree: Tree, path: str, children: Collection[str]) -> bytes:
        """A long list: one that was kept, with what changed since, or one that is rebuilt."""
        changed = tree.listed.get(path)
        kept, unfinished = self._lists.get(path), self._unfinished.get(path)
        if kept is not None and changed is not None:
            gone = _flipped(changed, children, is_there=False)
            if len(gone) * len(kept[2]) <= _MAX_SEARCHED:
                return _patched(path, kept[2], children, changed)
        if unfinished is None or unfinished.changed is not changed:
            unfinished = self._begin(tree, path, children, is_copy=False)
        elif unfinished.changed and not unfinished.is_copy:
            unfinished = self._begin(tree, path, list(children), is_copy=True)
        part = list(islice(unfinished.names, _SLICE))
        unfinished.parts.append(encode_children(path, part)[_COUNT_SIZE:])
        if len(part) == _SLICE:
            raise UnfinishedError
        del self._unfinished[path]
        names = b"".join((_pack_int(len(children)), *unfinished.parts))
        # However many: the client must not wait forever.
        return _patched(path, names, children, changed) if changed else names

    def _begin(
        self, tree: Tree, path: str, children: Collection[str], *, is_copy: bool
    ) -> _Unfinished:
        self._drop(path)
        if len(self._unfinished) >= _MAX_UNFINISHED:
            self._drop(next(iter(self._unfinished)))
        changed: list[str] = []
        tree.listed[path] = changed
        self._unfinished[path] = unfinished = _Unfinished(children, changed, is_copy)
        return unfinished

    def _keep(self, path: str, children: Collection[str], mark: bytes, made: bytes) -> None:
        self._drop(path)
        if self._size_bytes + len(made) > _MAX_BYTES or len(self._lists) >= _MAX_LISTS:
            for other in list(self._lists):
                self._drop(other)
        if len(made) <= _MAX_BYTES:
            self._lists[path] = (children, mark, made)
            self._size_bytes += len(made)

    def _drop(self, path: str) -> None:
        """Forget a list, also one that is being made."""
        before = self._lists.pop(path, None)
        if before is not None:
            self._size_bytes -= len(before[2])
        self._unfinished.pop(path, None)
        if self._tree is not None:
            self._tree.listed.pop(path, None)

    def _forget_all(self) -> None:
        for path in [*self._lists, *self._unfinished]:
            self._drop(path)


def _flipped(changed: list[str], children: Collection[str], *, is_there: bool) -> list[str]:
    """Those that are there now and were not, or the other way round."""
    # A child that came and went again, or went and came back, is unchanged.
    odd = [child for child, times in Counter(changed).items() if times % 2]
    return [child for child in odd if (child in children) is is_there]


def _patched(path: str, made: bytes, children: Collection[str], changed: list[str]) -> bytes:
    """A list with what came and went since it was made."""
    cuts: list[tuple[int, int]] = []
    for child in _flipped(changed, children, is_there=False):
        # Found nowhere else: a name has no zero, and a length begins with one.
        name = _encoded_name(path, child)
        at = made.find(name, _COUNT_SIZE)
        invariant(at > 0, "what went was in the list")
        cuts.append((at, at + len(name)))
    # It may have 15 MB, and is copied once.
    names, start = memoryview(made), _COUNT_SIZE
    parts: list[bytes | memoryview] = [_pack_int(len(children))]
    for at, stop in sorted(cuts):
        parts.append(names[start:at])
        start = stop
    parts.append(names[start:])
    parts += [_encoded_name(path, child) for child in _flipped(changed, children, is_there=True)]
    return b"".join(parts)


def _encoded_name(path: str, child: str) -> bytes:
    name = encode_text(child[1 if path in _ROOTS else len(path) + 1 :])
    return _pack_int(len(name)) + name


def encode_children(path: str, children: Collection[str]) -> bytes:
    """The names of the children, which are full paths, as a vector of strings."""
    if not children:
        return _NO_CHILDREN
    prefix = "/" if path in _ROOTS else path + "/"
    # No path has a line break: one cut through all of them gives the names. Nearly all of the time
    # that is left is spent on fetching the paths from all over the memory.
    raw = "\n".join(["", *children]).encode()
    names = raw.split(f"\n{prefix}".encode())
    del names[0]
    parts = [b""] * (2 * len(names))
    parts[0::2] = map(_pack_int, map(len, names))
    parts[1::2] = names
    return _pack_int(len(names)) + b"".join(parts)
