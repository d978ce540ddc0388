"""A znode, and the 60 bytes that hold its numbers.

    offset  size  field                     changed by
         0     8  czxid                     create
         8     8  mzxid                     create, setData
        16     8  ctime                     create
        24     8  mtime                     create, setData
        32     4  version                   setData
        36     4  cversion                  create of a child
        40     4  aversion                  setACL
        44     8  ephemeralOwner            create
        52     8  pzxid                     create and delete of a child

That is StatPersisted as it lies on disk, big endian. A znode keeps the bytes and not nine integers:
they are what a snapshot stores, what the digest hashes and nearly what a reply carries, and they
take a fifth of the memory. Who needs a number unpacks it; who changes one rebuilds the
bytes, so that a stat taken earlier (by a pending change, by a frozen tree) never changes.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from keepfast.wire import StatPersisted

STAT_SIZE: Final = 60
# The key of the ACL and the stat, as they stand behind the data.
TAIL_SIZE: Final = 8 + STAT_SIZE
# See `Node`.
_NULL_BIT: Final = 1 << 62
NEW_STAT: Final = bytes(STAT_SIZE)

_STAT: Final = Struct(">qqqqiiiqq")
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_MTIME_VERSION: Final = Struct(">qi")
_LENGTH_CHILDREN: Final = Struct(">ii")

_NO_OWNER: Final = bytes(8)
# cversion, aversion and ephemeralOwner of a znode that has none of them.
_PLAIN_MARKS: Final = bytes(16)

# Marks in ephemeralOwner. A session id never equals them: its first byte is the id of the server
# that gave it out, which is below 0x80 for a container's mark and at most 254 where TTLs are on.
CONTAINER_OWNER: Final = -(1 << 63)
TTL_MARK: Final = -(1 << 56)  # 0xff00000000000000 as a signed long
MAX_TTL_MS: Final = (1 << 40) - 1


class Kind(IntEnum):
    """What ephemeralOwner says about a znode."""

    PERSISTENT = 0
    EPHEMERAL = 1
    CONTAINER = 2
    TTL = 3


class Node(msgspec.Struct, gc=False, eq=False):
    """One znode: data, the key of its ACL and its stat in one piece, and its children.

    `packed` is what a snapshot has: the data, 8 bytes of the key, 60 bytes of the stat. A million
    znodes take 48 MB less than with an object for each; code in a hurry cuts out what it needs.
    Null data is told from empty data by bit 62 of the key, which no key uses (`AclTable`).

    `children` holds full paths: the very strings that are keys of the node map. A znode that was
    loaded has a list of them, which takes a quarter of the memory of a set, until the first change.

    A Struct, not a class with slots: it is made in a third of the time, and the cycle collector
    does not know it. A tree of a million znodes would otherwise stop the server for a tenth of a
    second now and then, to find no cycle: a znode refers to bytes and to a collection of strings.
    """

    packed: bytes
    children: set[str] | list[str] | None = None

    @property
    def data(self) -> bytes | None:
        """The data; null is not empty."""
        packed = self.packed
        if len(packed) == TAIL_SIZE and _is_null(packed):
            return None
        return packed[:-TAIL_SIZE]

    @property
    def acl(self) -> int:
        """The key of the ACL in the tree's table."""
        packed = self.packed
        size = len(packed) - TAIL_SIZE
        key: int = _LONG.unpack_from(packed, size)[0]
        return key if size or not _is_null(packed) else key ^ _NULL_BIT

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


def packed_node(data: bytes | None, acl: int, stat: bytes) -> bytes:
    """The one piece that a znode keeps; see `Node`."""
    if data is None:
        return _LONG.pack(acl ^ _NULL_BIT) + stat
    return b"".join((data, _LONG.pack(acl), stat))


def _is_null(tail: bytes) -> bool:
    """Whether a key and a stat with no data in front belong to null data."""
    # The two highest bits of the key are equal otherwise.
    return 0x40 <= tail[0] < 0xC0


def persisted(node: Node) -> StatPersisted:
    """The numbers of a znode as they are stored."""
    return StatPersisted(*_STAT.unpack(node.stat))


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
    stat = packed[-STAT_SIZE:]
    count = len(children) if children else 0
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


def signed_int(value: int) -> int:
    """`value` as Java's 32-bit arithmetic leaves it."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def stat_of_create(zxid: int, time_ms: int, owner: int) -> bytes:
    """The stat of a znode that was just created."""
    return _STAT.pack(zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, zxid)


def stat_after_set_data(stat: bytes, zxid: int, time_ms: int, version: int) -> bytes:
    """The stat after a setData."""
    return b"".join(
        (
            stat[:8],
            _LONG.pack(zxid),
            stat[16:24],
            _MTIME_VERSION.pack(time_ms, version),
            stat[36:],
        )
    )


def stat_after_set_acl(stat: bytes, aversion: int) -> bytes:
    """The stat after a setACL."""
    return stat[:40] + _INT.pack(aversion) + stat[44:]


def stat_after_create(stat: bytes, cversion: int, zxid: int) -> bytes:
    """The stat of a parent after a child was created."""
    return b"".join((stat[:36], _INT.pack(cversion), stat[40:52], _LONG.pack(zxid)))


def stat_after_delete(stat: bytes, zxid: int) -> bytes:
    """The stat of a parent after a child was deleted: pzxid alone changes, and never falls."""
    return stat[:52] + _LONG.pack(zxid) if zxid > _LONG.unpack_from(stat, 52)[0] else stat


def with_owner(stat: bytes, owner: int) -> bytes:
    """The stat with another ephemeralOwner."""
    return stat[:44] + _LONG.pack(owner) + stat[52:]


def mzxid_of(stat: bytes) -> int:
    value: int = _LONG.unpack_from(stat, 8)[0]
    return value


def mtime_of(stat: bytes) -> int:
    value: int = _LONG.unpack_from(stat, 24)[0]
    return value


def version_of(stat: bytes) -> int:
    value: int = _INT.unpack_from(stat, 32)[0]
    return value


def cversion_of(stat: bytes) -> int:
    value: int = _INT.unpack_from(stat, 36)[0]
    return value


def aversion_of(stat: bytes) -> int:
    value: int = _INT.unpack_from(stat, 40)[0]
    return value


def owner_of(stat: bytes) -> int:
    """ephemeralOwner as it is stored: a session id, or the mark of a container or TTL znode."""
    value: int = _LONG.unpack_from(stat, 44)[0]
    return value


def pzxid_of(stat: bytes) -> int:
    value: int = _LONG.unpack_from(stat, 52)[0]
    return value


def is_ephemeral(stat: bytes) -> bool:
    """Whether a session owns the znode."""
    return stat[44:52] != _NO_OWNER and kind_of(stat) == Kind.EPHEMERAL


def kind_of(stat: bytes) -> Kind:
    """What kind of znode a stat belongs to."""
    return kind_of_owner(owner_of(stat))


def kind_of_owner(owner: int) -> Kind:
    """What kind of znode has this ephemeralOwner."""
    if owner == 0:
        return Kind.PERSISTENT
    if owner == CONTAINER_OWNER:
        return Kind.CONTAINER
    # Behind the first byte, a TTL has 16 reserved bits, all zero. In a session id they are a part
    # of a clock, so that even the sessions of a server with id 255 are told apart from TTLs.
    if owner >> 40 == TTL_MARK >> 40:
        return Kind.TTL
    return Kind.EPHEMERAL


def ttl_owner(ttl_ms: int) -> int:
    """The ephemeralOwner of a znode with a TTL of `ttl_ms`."""
    return TTL_MARK | ttl_ms


def ttl_of(stat: bytes) -> int:
    """The TTL in milliseconds of a znode of Kind.TTL."""
    return owner_of(stat) & MAX_TTL_MS
