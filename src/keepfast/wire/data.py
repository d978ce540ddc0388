"""Records that several protocols share: ACLs, Stats, ids."""

from __future__ import annotations

from typing import Final, NamedTuple

from keepfast.wire.layout import usual_lists
from keepfast.wire.opcodes import Perms
from keepfast.wire.records import Int, Long, LooseText


class Id(NamedTuple):
    """Who: a scheme (`world`, `digest`, `ip`, …) and a name inside it.

    kazoo sends the empty name of `auth` as null; a log never holds null here. A null scheme is an
    unknown one, like the empty one.
    """

    scheme: LooseText
    id: LooseText


class ACL(NamedTuple):
    """What an id may do, as bits of `Perms`."""

    perms: Int
    id: Id


AclList = tuple[ACL, ...]

ANYONE: Final = Id("world", "anyone")
OPEN_ACL: Final[AclList] = (ACL(Perms.ALL, ANYONE),)
READ_ACL: Final[AclList] = (ACL(Perms.READ, ANYONE),)
usual_lists[ACL] = OPEN_ACL


class Stat(NamedTuple):
    """What a client is sent about a znode. 68 bytes; times are milliseconds since 1970."""

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    data_length: Int
    num_children: Int
    pzxid: Long


class StatPersisted(NamedTuple):
    """What is stored about a znode. 60 bytes.

    `cversion` counts creations of children only; a client sees 2 * cversion - num_children.
    `ephemeral_owner` also marks containers and TTL znodes, which a client sees as 0.
    """

    czxid: Long
    mzxid: Long
    ctime: Long
    mtime: Long
    version: Int
    cversion: Int
    aversion: Int
    ephemeral_owner: Long
    pzxid: Long


class ClientInfo(NamedTuple):
    """One identity of a connection, as whoAmI reports it."""

    auth_scheme: str
    user: str
