"""A znode."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from keepfast.tree.node_bytes import NULL_BIT, STAT, STAT_SIZE, TAIL_SIZE, is_null, packed_node
from keepfast.wire import StatPersisted

_LONG: Final = Struct(">q")


class Node(msgspec.Struct, gc=False, eq=False):
    """One znode: data, the key of its ACL and its stat in one piece, and its children.

    `packed` is what a snapshot has: the data, 8 bytes of the key, 60 bytes of the stat. A million
    znodes take 48 MB less than with separate objects; hot code slices out what it needs. Bit 62 of
    the key, which no key uses (`AclTable`), distinguishes null data from empty data.

    `children` holds full paths: the very strings that are keys of the node map. A znode that was
    loaded has a list of them, which takes a quarter of the memory of a set, until the first change.

    A Struct, not a class with slots: it is constructed in a third of the time, and the cycle
    collector does not track it. A tree of a million znodes would otherwise stall the server for a
    tenth of a second now and then, only to find no cycle: a znode refers to bytes and to a
    collection of strings.
    """

    packed: bytes
    children: set[str] | list[str] | None = None

    @property
    def data(self) -> bytes | None:
        """The data; null is not empty."""
        packed = self.packed
        if len(packed) == TAIL_SIZE and is_null(packed):
            return None
        return packed[:-TAIL_SIZE]

    @property
    def acl(self) -> int:
        """The key of the ACL in the tree's table."""
        packed = self.packed
        size = len(packed) - TAIL_SIZE
        key: int = _LONG.unpack_from(packed, size)[0]
        return key if size or not is_null(packed) else key ^ NULL_BIT

    @property
    def stat(self) -> bytes:
        """The 60 bytes of StatPersisted."""
        return self.packed[-STAT_SIZE:]

    def put(self, data: bytes | None, stat: bytes) -> None:
        """Replace data and stat."""
        old = self.packed
        if data and len(old) > TAIL_SIZE:
            self.packed = b"".join((data, old[-TAIL_SIZE:-STAT_SIZE], stat))
        else:
            self.packed = packed_node(data, self.acl, stat)

    def put_stat(self, stat: bytes) -> None:
        """Replace the stat."""
        self.packed = self.packed[:-STAT_SIZE] + stat

    def changing_children(self) -> set[str]:
        """The children, to be changed."""
        children = self.children
        if not isinstance(children, set):
            children = self.children = set(children or ())
        return children


def make_node(data: bytes | None, acl: int, stat: bytes) -> Node:
    """A znode without children, from its parts."""
    return Node(packed_node(data, acl, stat))


def persisted(node: Node) -> StatPersisted:
    """The numbers of a znode as they are stored."""
    return StatPersisted(*STAT.unpack(node.stat))
