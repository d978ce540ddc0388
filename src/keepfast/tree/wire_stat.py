"""What a client sees of a znode's numbers: the 68 bytes of Stat."""

from __future__ import annotations

from struct import Struct
from typing import Final

from keepfast.tree.node import Node
from keepfast.tree.node_bytes import STAT_SIZE, TAIL_SIZE, Kind, kind_of, signed_int

_INT: Final = Struct(">i")
_LENGTH_CHILDREN: Final = Struct(">ii")
_NO_OWNER: Final = bytes(8)
# cversion, aversion and ephemeralOwner of a znode that has none of them.
_PLAIN_MARKS: Final = bytes(16)


def wire_stat(node: Node) -> bytes:
    """The 68 bytes of Stat that a client sees.

    It sees changes of children, deletions included, in `cversion`; and containers and TTL znodes
    as persistent.
    """
    packed, children = node.packed, node.children
    size = len(packed) - TAIL_SIZE
    if not children and packed[-24:-8] == _PLAIN_MARKS:
        # A leaf that never had a child, an owner or another ACL: most of what is read.
        return b"".join((packed[-STAT_SIZE:-8], _LENGTH_CHILDREN.pack(size, 0), packed[-8:]))
    return stat_on_wire(packed[-STAT_SIZE:], size, len(children) if children else 0)


def stat_on_wire(stat: bytes, size: int, count: int) -> bytes:
    """The same for a znode with `size` bytes of data and `count` children."""
    owner = stat[44:52]
    if owner != _NO_OWNER and owner[0] >= 0x80 and kind_of(stat) != Kind.EPHEMERAL:
        owner = _NO_OWNER
    return b"".join(
        (
            stat[:36],
            _INT.pack(signed_int(2 * _INT.unpack_from(stat, 36)[0] - count)),
            stat[40:44],
            owner,
            _LENGTH_CHILDREN.pack(size, count),
            stat[52:],
        )
    )
