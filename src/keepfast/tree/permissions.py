"""Who may do what: matching ids against ACLs, and the ACLs that a client may set.

A connection holds ids, `ip:<address>` from the start and more as it authenticates. An entry of an
ACL gives permissions to ids that it matches; how, depends on its scheme:

    world    `anyone`: every connection
    digest   user:hash, exactly
    sasl     the name exactly; the id `super` matches every entry
    x509     the name exactly
    ip       address, or address/bits; v4 or v6
    auth     only in requests: stands for the ids of the connection that prove who it is

An id of the scheme `super` may do anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from keepfast.wire import ACL, ANYONE, AclList, ErrorCode, Id, KeeperError

# Schemes that Apache knows without configuration; "world" and "auth" are always there.
DEFAULT_SCHEMES: Final = frozenset(("digest", "ip"))

_PROVING_SCHEMES: Final = frozenset(("digest", "sasl", "x509"))
# Bounds memory only: clients choose the texts. What falls out is parsed again.
_REMEMBERED_ADDRESSES: Final = 4096


def is_allowed(acl: AclList, perm: int, ids: Iterable[Id]) -> bool:
    """Whether one of `ids` has one of the bits of `perm`. An empty list allows everything."""
    if not acl:
        return True
    for perms, who in acl:
        if perms & perm and who == ANYONE:
            return True
    for held in ids:
        if held.scheme == "super":
            return True
        for perms, who in acl:
            if perms & perm and who.scheme == held.scheme and _matches(held, who.id):
                return True
    return False


def fixed_acl(acl: AclList | None, ids: Iterable[Id], schemes: frozenset[str]) -> AclList:
    """The list as it is stored: without duplicates, with `auth` replaced by ids.

    `schemes` are those that this server can check. Raises KeeperError(INVALID_ACL) for a list
    that is null or empty, or that has an entry which could never match.
    """
    if not acl:
        raise KeeperError(ErrorCode.INVALID_ACL, "no ACL")
    if len(acl) == 1 and acl[0].id == ANYONE:
        return acl
    fixed: list[ACL] = []
    for entry in dict.fromkeys(acl):
        who = entry.id
        if who == ANYONE:
            fixed.append(entry)
        elif who.scheme == "auth":
            proven = [ACL(entry.perms, held) for held in ids if _proves(held, schemes)]
            if not proven:
                raise KeeperError(ErrorCode.INVALID_ACL, "auth without an authenticated id")
            fixed.extend(proven)
        elif who.scheme in schemes and _is_valid(who):
            fixed.append(entry)
        else:
            raise KeeperError(ErrorCode.INVALID_ACL, f"{who.scheme}:{who.id}")
    return tuple(fixed)


def _proves(held: Id, schemes: frozenset[str]) -> bool:
    return held.scheme in _PROVING_SCHEMES and held.scheme in schemes


def _matches(held: Id, wanted: str) -> bool:
    if held.scheme == "ip":
        return _address_matches(held.id, wanted)
    if held.scheme not in _PROVING_SCHEMES:
        return False
    return held.id == wanted or (held.scheme == "sasl" and held.id == "super")


def _is_valid(who: Id) -> bool:
    if who.scheme == "digest":
        return who.id.count(":") == 1
    if who.scheme == "ip":
        return _network(who.id) is not None
    return bool(who.id)


@lru_cache(_REMEMBERED_ADDRESSES)
def _address_matches(address: str, expression: str) -> bool:
    network = _network(expression)
    try:
        return network is not None and ip_address(address) in network
    except ValueError:
        return False


def _network(expression: str) -> IPv4Network | IPv6Network | None:
    address, slash, bits = expression.partition("/")
    if slash and not (bits.isascii() and bits.isdigit()):
        # Otherwise a netmask would pass, which Java does not understand.
        return None
    try:
        ip_address(address)
        return ip_network(expression, strict=False)
    except ValueError:
        return None
