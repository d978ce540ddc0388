"""ACL lists, each stored once and reference-counted.

A znode holds a number. -1 is the open ACL without an entry in the table, which only the
built-in znodes and txns with a null list have; a list that a client sent has an entry of its own,
even if it is the open one. The numbers are local to a server: they are not part of its state.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from keepfast.tree.digest import acl_weight
from keepfast.tree.errors import TreeError
from keepfast.tree.permissions import kept_acl
from keepfast.wire import ACL, ANYONE, OPEN_ACL, AclList, Perms

OPEN_KEY: Final = -1
# A znode needs one bit of its key for itself (node.py). Servers number keys from 1.
_KEY_LIMIT: Final = 1 << 62
_pack_key: Final = Struct(">q").pack

# Placeholder for a list that is not known yet: it allows nothing to anyone.
_UNKNOWN: Final[AclList] = (ACL(0, ANYONE),)


def world_perms(acl: AclList) -> int:
    """The bits of a list that every connection has; all of them if the list is empty."""
    if not acl:
        return int(Perms.ALL)
    perms = 0
    for entry in acl:
        if entry.id == ANYONE:
            perms |= entry.perms
    return perms


class AclTable:
    """Key <-> list, with the number of znodes that use each; an unused entry is removed.

    `lists`, `weights`, `world_perms` and `world_readable` are for reading; they always hold
    OPEN_KEY too.
    """

    __slots__ = (
        "_keys",
        "_last_key",
        "_recent",
        "_unknown",
        "_uses",
        "lists",
        "weights",
        "world_perms",
        "world_readable",
    )

    def __init__(self) -> None:
        self.lists: dict[int, AclList] = {OPEN_KEY: OPEN_ACL}
        self.weights: dict[int, int] = {OPEN_KEY: acl_weight(OPEN_ACL)}
        # What everybody may do, so that most permission checks are one lookup.
        self.world_perms: dict[int, int] = {OPEN_KEY: world_perms(OPEN_ACL)}
        # The keys of world-readable lists, as stored in a znode.
        self.world_readable: set[bytes] = {_pack_key(OPEN_KEY)}
        self._keys: dict[AclList, int] = {}
        self._uses: dict[int, int] = {}
        self._unknown: set[int] = set()
        self._last_key = 0
        # The last list requested, and its key: nearly all znodes have the same value, and hashing a
        # list takes longer than everything else here.
        self._recent: tuple[AclList | None, int] = (None, OPEN_KEY)

    def __len__(self) -> int:
        return len(self._uses)

    def acquire(self, acl: AclList | None) -> int:
        """The key of a list for one more znode."""
        if acl is None:
            return OPEN_KEY
        recent, key = self._recent
        if recent is acl:
            self._uses[key] += 1
            return key
        return self._acquire_other(acl)

    def _acquire_other(self, acl: AclList) -> int:
        key = self._keys.get(acl)
        if key is None:
            key = self._last_key + 1
            self._enter(key, acl)
            self._uses[key] = 0
        self._uses[key] += 1
        self._recent = (acl, key)
        return key

    def acquire_key(self, key: int, count: int = 1) -> None:
        """Count more uses of an existing entry."""
        if key != OPEN_KEY:
            self._uses[key] += count

    def find_key(self, acl: AclList) -> int | None:
        """The key of a list, if it has one."""
        return self._keys.get(acl)

    def release(self, key: int, count: int = 1) -> None:
        """Count this many fewer uses of an entry."""
        if key == OPEN_KEY:
            return
        self._uses[key] -= count
        if not self._uses[key]:
            self._drop(key)

    def load(self, key: int, acl: AclList) -> None:
        """Enter a list under a given key, not used by any znode yet."""
        if key == OPEN_KEY or key in self.lists:
            raise TreeError(f"ACL {key} is there twice")
        if not -_KEY_LIMIT <= key < _KEY_LIMIT:
            raise TreeError(f"{key} is no key of an ACL")
        self._enter(key, acl)
        self._uses[key] = 0

    def load_unknown(self, key: int) -> None:
        """Enter a key whose list is not known yet."""
        self.load(key, _UNKNOWN)
        # This key must never be returned for the placeholder list.
        del self._keys[_UNKNOWN]
        self._unknown.add(key)

    @property
    def unknown_keys(self) -> frozenset[int]:
        """Keys in use whose list is not known. A tree that has one must not be served."""
        return frozenset(self._unknown)

    def drop_unused(self) -> None:
        """Forget the entries that no znode uses."""
        for key in [key for key, uses in self._uses.items() if not uses]:
            self._drop(key)

    def entries(self) -> dict[int, AclList]:
        """A copy of the table as a snapshot stores it: without OPEN_KEY."""
        entries = dict(self.lists)
        del entries[OPEN_KEY]
        return entries

    def _enter(self, key: int, acl: AclList) -> None:
        self.lists[key] = kept_acl(acl)
        self.weights[key] = acl_weight(acl)
        self.world_perms[key] = perms = world_perms(acl)
        if perms & Perms.READ:
            self.world_readable.add(_pack_key(key))
        self._keys[acl] = key
        self._recent = (None, OPEN_KEY)
        self._last_key = max(self._last_key, key)

    def _drop(self, key: int) -> None:
        acl = self.lists.pop(key)
        self._recent = (None, OPEN_KEY)
        del self.weights[key]
        del self.world_perms[key]
        self.world_readable.discard(_pack_key(key))
        del self._uses[key]
        self._unknown.discard(key)
        # After a load, two keys can hold one list; the list then maps to the one loaded last.
        if self._keys.get(acl) == key:
            del self._keys[acl]
