"""The bytes that a znode keeps: its data, the key of its ACL, and 60 that hold its numbers.

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

That is StatPersisted as it is on disk, big endian. A znode keeps the bytes and not nine integers:
they are what a snapshot stores, what the digest hashes and almost what a reply carries, and they
take a fifth of the memory. Code that needs a number unpacks it; code that changes one rebuilds the
bytes, so that a stat taken earlier (by a pending change, by a frozen tree) never changes.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

STAT_SIZE: Final = 60
# The key of the ACL and the stat, as they stand after the data.
TAIL_SIZE: Final = 8 + STAT_SIZE
# Of the key: the data is null (`Node`).
NULL_BIT: Final = 1 << 62
NEW_STAT: Final = bytes(STAT_SIZE)

STAT: Final = Struct(">qqqqiiiqq")
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_MTIME_VERSION: Final = Struct(">qi")
# What a create of a child leaves, cversion, what it leaves, pzxid.
_AFTER_CREATE: Final = Struct(">36si12sq")

# Marks in ephemeralOwner. A session id never equals them: its first byte is the id of the server
# that gave it out, which is below 0x80 for a container's mark and at most 254 where TTLs are on.
CONTAINER_OWNER: Final = -(1 << 63)
TTL_MARK: Final = -(1 << 56)  # 0xff00000000000000 as a signed long
MAX_TTL_MS: Final = (1 << 40) - 1
# The last cversion: creates after that change neither it nor the pzxid of the parent.
MAX_CVERSION: Final = (1 << 31) - 1
_NO_SESSIONS: Final = frozenset((0, CONTAINER_OWNER))


class Kind(IntEnum):
    """What ephemeralOwner says about a znode."""

    PERSISTENT = 0
    EPHEMERAL = 1
    CONTAINER = 2
    TTL = 3


def packed_node(data: bytes | None, acl: int, stat: bytes) -> bytes:
    """The bytes that a znode keeps; see `Node`."""
    if data is None:
        return _LONG.pack(acl ^ NULL_BIT) + stat
    return b"".join((data, _LONG.pack(acl), stat))


def is_null(tail: bytes) -> bool:
    """Whether a key and a stat with no data in front belong to null data."""
    # The two highest bits of the key are equal otherwise.
    return 0x40 <= tail[0] < 0xC0


def signed_int(value: int) -> int:
    """`value` as Java's 32-bit arithmetic leaves it."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def stat_of_create(zxid: int, time_ms: int, owner: int) -> bytes:
    """The stat of a znode that was just created."""
    return STAT.pack(zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, zxid)


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
    return _AFTER_CREATE.pack(stat[:36], cversion, stat[40:52], zxid)


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
    owner: int = _LONG.unpack_from(stat, 44)[0]
    return owner not in _NO_SESSIONS and owner >> 40 != TTL_MARK >> 40


def kind_of(stat: bytes) -> Kind:
    """What kind of znode a stat belongs to."""
    return kind_of_owner(owner_of(stat))


def kind_of_owner(owner: int) -> Kind:
    """What kind of znode has this ephemeralOwner."""
    if owner == 0:
        return Kind.PERSISTENT
    if owner == CONTAINER_OWNER:
        return Kind.CONTAINER
    # After the first byte, a TTL has 16 reserved bits, all zero. In a session id they are a part
    # of a clock, so that even the sessions of a server with id 255 can be distinguished from TTLs.
    if owner >> 40 == TTL_MARK >> 40:
        return Kind.TTL
    return Kind.EPHEMERAL


def ttl_owner(ttl_ms: int) -> int:
    """The ephemeralOwner of a znode with a TTL of `ttl_ms`."""
    return TTL_MARK | ttl_ms


def ttl_of(stat: bytes) -> int:
    """The TTL in milliseconds of a znode of Kind.TTL."""
    return owner_of(stat) & MAX_TTL_MS
