"""Znodes as JSON documents: data, Stat, ACL, kind.

Data travels as base64 and is turned into text, JSON or hex by the page: what a znode holds is bytes
of anybody's making, and the page sets all of it as text. Hashes of passwords in ACLs stay here.
"""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from keepfast.console.console_options import ConsoleRefused
from keepfast.shell import permission_bits, permission_letters, stat_document
from keepfast.tree import Kind, kind_of_owner
from keepfast.wire import ACL, AclList, Id, Stat, format_zxid

# What is sent of a value unless all of it is asked for.
SHORT_BYTES: Final = 64 << 10
# Children in one answer.
MAX_PAGE: Final = 200
# What stands for the hash of a password.
_MASK: Final = ":••••"


def data_document(data: bytes | None, limit: int = SHORT_BYTES) -> dict[str, Any]:
    """A value: its length, and its first bytes in base64; null has no bytes and no length 0."""
    if data is None:
        return {"is_null": True, "length": 0, "base64": "", "is_whole": True}
    return {
        "is_null": False,
        "length": len(data),
        "base64": base64.b64encode(data[:limit]).decode("ascii"),
        "is_whole": len(data) <= limit,
    }


def kind_document(stat: Stat) -> dict[str, Any]:
    """What kind of znode it is; clients see containers and TTL znodes as persistent."""
    owner = stat.ephemeral_owner
    kind = kind_of_owner(owner)
    return {
        "kind": kind.name.lower(),
        "owner": format_zxid(owner) if kind is Kind.EPHEMERAL else None,
    }


def acl_document(acl: AclList) -> list[dict[str, Any]]:
    """The entries of an ACL, without hashes of passwords."""
    return [
        {
            "scheme": entry.id.scheme,
            "id": _shown_id(entry.id),
            "perms": permission_letters(entry.perms),
        }
        for entry in acl
    ]


def acl_from(entries: Sequence[Mapping[str, Any]], before: AclList) -> AclList:
    """The ACL that a page sends; what was hidden in it is taken from the one before.

    Raises ConsoleRefused for entries that are none.
    """
    hidden = {(one.id.scheme, _shown_id(one.id)): one.id for one in before}
    found = []
    for entry in entries:
        scheme, id, letters = (str(entry.get(key, "")) for key in ("scheme", "id", "perms"))
        perms, unknown = permission_bits(letters)
        if not scheme or unknown or not perms:
            raise ConsoleRefused(
                f"{scheme}:{id}:{letters} is no ACL entry: a scheme, an id and letters of cdrwa"
            )
        if id.endswith(_MASK) and (scheme, id) not in hidden:
            raise ConsoleRefused(f"the password of {id.removesuffix(_MASK)} is not known here")
        found.append(ACL(perms, hidden.get((scheme, id), Id(scheme, id))))
    if not found:
        raise ConsoleRefused("an ACL needs at least one entry")
    return tuple(found)


def _shown_id(id: Id) -> str:
    if id.scheme != "digest":
        return id.id
    return id.id.partition(":")[0] + _MASK


def znode_document(
    path: str, data: bytes | None, stat: Stat, acl: AclList | None, limit: int
) -> dict[str, Any]:
    """Everything about one znode; `acl` None: it may not be read."""
    return {
        "path": path,
        "data": data_document(data, limit),
        "stat": stat_document(stat),
        **kind_document(stat),
        "acl": None if acl is None else acl_document(acl),
    }


class NotShown(Enum):
    """Why a child has no Stat."""

    GONE = "gone"
    FORBIDDEN = "forbidden"


def child_document(name: str, stat: Stat | NotShown) -> dict[str, Any]:
    """One line of a list of children."""
    if isinstance(stat, NotShown):
        return {"name": name, "not_shown": stat.value}
    return {
        "name": name,
        "children": stat.num_children,
        "length": stat.data_length,
        "version": stat.version,
        "kind": kind_of_owner(stat.ephemeral_owner).name.lower(),
    }


@dataclass(frozen=True, slots=True)
class PageAsked:
    """Which page of a list of children: by number, or the one on which a name stands."""

    text: str = ""
    first: int = 0
    count: int = MAX_PAGE
    around: str = ""


def page_document(
    path: str,
    total: int,
    names: Sequence[str],
    asked: PageAsked,
    stat_of: Callable[[str], Stat | NotShown],
) -> dict[str, Any]:
    """A page of the sorted `names`; `index` is where the name is that was asked for, or -1."""
    first, index = asked.first, -1
    if asked.around:
        index = bisect_left(names, asked.around)
        if index == len(names) or names[index] != asked.around:
            index = -1
        first = max(index, 0) // asked.count * asked.count
    page = names[first : first + asked.count]
    return {
        "path": path,
        "total": total,
        "matching": len(names),
        "first": first,
        "index": index,
        "children": [child_document(name, stat_of(name)) for name in page],
    }
