"""Who may do what: matching ids against ACLs, and the ACLs that a client may set.

A connection holds ids, `ip:<address>` from the start and more as it authenticates. An entry of an
ACL gives permissions to ids that it matches; how, depends on its scheme:

    world    `anyone`: every connection
    digest   user:hash, exactly
    sasl     the name exactly; the id `super` matches every entry
    x509     the name exactly
    ip       address, or address/bits; v4 or v6
    auth     only in requests: stands for the ids that the connection has authenticated

An id of the scheme `super` may do anything.

Clients choose the length of both lists. A check costs one lookup per id or per entry, whichever are
fewer, never their product: a long ACL is kept with an index (`LargeAcl`), many ids are treated as a
set.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple

from keepfast.tree.prepare_options import PrepareOptions
from keepfast.wire import ACL, ANYONE, OPEN_ACL, AclList, ErrorCode, Id, KeeperError, Perms

_PROVING_SCHEMES: Final = frozenset(("digest", "sasl", "x509"))
_SUPER: Final = "super"
_SASL_SUPER: Final = Id("sasl", _SUPER)
_ALL: Final = int(Perms.ALL)
# Lists up to this length are walked over as they are.
_FEW: Final = 16
# Bounds memory only: clients choose the texts. What is evicted is parsed again.
_REMEMBERED_ADDRESSES: Final = 4096


def is_allowed(acl: AclList, perm: int, ids: tuple[Id, ...]) -> bool:
    """Whether one of `ids` has one of the bits of `perm`. An empty list allows everything."""
    if acl is OPEN_ACL or not acl:
        return True
    if isinstance(acl, LargeAcl):
        return bool(acl.granted(ids) & perm)
    if len(ids) > _FEW:
        return bool(_granted_to_many(acl, ids) & perm)
    for perms, who in acl:
        if perms & perm and who == ANYONE:
            return True
    for held in ids:
        if held.scheme == _SUPER:
            return True
        for perms, who in acl:
            if perms & perm and who.scheme == held.scheme and _matches(held, who.id):
                return True
    return False


class LargeAcl(tuple[ACL, ...]):
    """A long list that is equal to a plain one and has an index, made by the first check.

    `kept_acl` makes one of every list that is long enough to need it.
    """

    _index: _AclIndex | None = None
    # The ids checked last, and what they are granted: one client often repeats a check.
    _last: tuple[tuple[Id, ...], int] | None = None

    def granted(self, ids: tuple[Id, ...]) -> int:
        """The bits that the list gives to these ids together."""
        last = self._last
        if last is not None and last[0] is ids:
            return last[1]
        index = self._index
        if index is None:
            index = self._index = _AclIndex(self)
        granted = index.granted(ids)
        self._last = (ids, granted)
        return granted


def kept_acl(acl: AclList) -> AclList:
    """The same list in the form in which it is stored."""
    return acl if len(acl) <= _FEW or isinstance(acl, LargeAcl) else LargeAcl(acl)


class _AclIndex:
    """What an ACL grants, by id; networks by the number of bits that count in them."""

    __slots__ = ("_by_id", "_networks", "_sasl", "_world")

    def __init__(self, acl: AclList) -> None:
        self._by_id: dict[Id, int] = {}
        self._networks: dict[tuple[int, int], dict[int, int]] = {}
        self._world = self._sasl = 0
        for perms, who in acl:
            if who == ANYONE:
                self._world |= perms
            elif who.scheme == "ip":
                network = _network(who.id)
                if network is not None:
                    of_size = self._networks.setdefault((network.version, network.prefixlen), {})
                    address = int(network.network_address)
                    of_size[address] = of_size.get(address, 0) | perms
            else:
                self._by_id[who] = self._by_id.get(who, 0) | perms
                if who.scheme == "sasl":
                    self._sasl |= perms

    def granted(self, ids: tuple[Id, ...]) -> int:
        granted = self._world
        for held in ids:
            if held.scheme == _SUPER:
                return _ALL
            if held.scheme == "ip":
                granted |= self._granted_to_address(held.id)
            elif held.scheme in _PROVING_SCHEMES:
                granted |= self._by_id.get(held, 0)
                if held == _SASL_SUPER:
                    granted |= self._sasl
        return granted

    def _granted_to_address(self, text: str) -> int:
        try:
            address = ip_address(text)
        except ValueError:
            return 0
        granted, value = 0, int(address)
        for (version, bits), of_size in self._networks.items():
            if version == address.version:
                rest = address.max_prefixlen - bits
                granted |= of_size.get(value >> rest << rest, 0)
        return granted


def _granted_to_many(acl: AclList, ids: tuple[Id, ...]) -> int:
    """What a short list grants to many ids."""
    held = _set_of(ids)
    if any(who.scheme == _SUPER for who in held.others):
        return _ALL
    granted = 0
    for perms, who in acl:
        if (
            who == ANYONE
            or who in held.proving
            or (who.scheme == "sasl" and _SASL_SUPER in held.proving)
            or any(who.scheme == other.scheme and _matches(other, who.id) for other in held.others)
        ):
            granted |= perms
    return granted


class _HeldIds(NamedTuple):
    """Ids of a connection: those that match exactly, and the few others."""

    ids: tuple[Id, ...]
    proving: frozenset[Id]
    others: tuple[Id, ...]


# The ids checked last: requests of one client come in groups.
_last_held = _HeldIds((), frozenset(), ())


def _set_of(ids: tuple[Id, ...]) -> _HeldIds:
    global _last_held  # noqa: PLW0603 - a memory of one value, which changes no result
    if _last_held.ids is not ids:
        proving = frozenset(held for held in ids if held.scheme in _PROVING_SCHEMES)
        others = tuple(held for held in ids if held.scheme not in _PROVING_SCHEMES)
        _last_held = _HeldIds(ids, proving, others)
    return _last_held


def fixed_acl(acl: AclList | None, ids: Iterable[Id], options: PrepareOptions) -> AclList:
    """The list as it is stored: without duplicates, with `auth` replaced by ids.

    Raises KeeperError(INVALID_ACL) for a list that is null or empty, that has an entry which could
    never match, or that is too long with all that `auth` stands for.
    """
    if not acl:
        raise KeeperError(ErrorCode.INVALID_ACL, "no ACL")
    if acl is OPEN_ACL or (len(acl) == 1 and acl[0].id == ANYONE):
        return acl
    schemes = options.schemes
    # In list order; the ids that `auth` stands for occur once, however often it is used.
    fixed: dict[ACL, None] = {}
    proven: list[Id] | None = None
    expanded: set[int] = set()
    for entry in dict.fromkeys(acl):
        who = entry.id
        if who.scheme == "auth":
            if proven is None:
                proven = [held for held in ids if _proves(held, schemes)]
            if not proven:
                raise KeeperError(ErrorCode.INVALID_ACL, "auth without an authenticated id")
            if entry.perms in expanded:
                continue
            expanded.add(entry.perms)
            if len(fixed) + len(proven) > options.max_acl_entries:
                raise KeeperError(ErrorCode.INVALID_ACL, "auth stands for too many ids")
            fixed.update((ACL(entry.perms, held), None) for held in proven)
        elif who == ANYONE or (who.scheme in schemes and _is_valid(who)):
            fixed[entry] = None
        else:
            raise KeeperError(ErrorCode.INVALID_ACL, f"{who.scheme}:{who.id}")
    return kept_acl(tuple(fixed))


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
        # Otherwise a netmask would be accepted, which Java does not understand.
        return None
    try:
        ip_address(address)
        return ip_network(expression, strict=False)
    except ValueError:
        return None
