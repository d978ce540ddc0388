"""Who votes, as far as the files tell.

A majority is one of the voters; an observer holds what it was told, and is asked by nobody. The
members and their roles are in /zookeeper/config (3.5 and later), in `zoo.cfg` and in its dynamic
part; `myid` says which member a directory is, or its name does. Where no file tells, every server
is counted as a voter, and that is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MEMBER = re.compile(r"^\s*server\.(\d+)\s*=\s*([^;\s]+)", re.MULTILINE)
_VERSION = re.compile(r"^\s*version\s*=\s*([0-9a-fA-F]+)", re.MULTILINE)
_NUMBER = re.compile(r"(\d+)\D*\Z")


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of the servers whose directories were given; names are those of the directories.

    `voters` is how many voters the ensemble has, with those whose directories were not given; None
    if no file names the members. `absent` are the ids of the latter, `absent_count` their number.
    `note` says what is not known; empty if all is.
    """

    observers: frozenset[str] = frozenset()
    voters: int | None = None
    absent: tuple[str, ...] = ()
    absent_count: int = 0
    note: str = ""


def members_of(text: str) -> dict[str, bool]:
    """The members that a configuration names, and whether each is an observer."""
    return {number: rest.endswith(":observer") for number, rest in _MEMBER.findall(text)}


def version_of(text: str) -> int:
    """The version of a configuration; 0 where it has none."""
    found = _VERSION.search(text)
    return int(found[1], 16) if found else 0


def newest_members(texts: Iterable[str]) -> dict[str, bool]:
    """The members by the newest of configurations; by most of them, if those differ."""
    known = [(version_of(text), tuple(sorted(members_of(text).items()))) for text in texts]
    known = [(version, members) for version, members in known if members]
    if not known:
        return {}
    newest = max(version for version, _ in known)
    counts = Counter(members for version, members in known if version == newest)
    ordered = sorted((-count, members) for members, count in counts.items())
    return dict(ordered[0][1])


def roles_of(servers: Sequence[tuple[str, str | None]], texts: Iterable[str]) -> Roles:
    """The roles of servers, each with the id in its `myid` if there is one, by configurations."""
    members = newest_members(texts)
    if not members:
        return Roles(note="no file names the members: all servers are counted as voters")
    voters = sorted((id for id, is_observer in members.items() if not is_observer), key=int)
    ids = _ids_of(servers, members)
    if ids is None:
        missing = max(len(voters) - len(servers), 0)
        if len(voters) == len(members):
            return Roles(voters=len(voters), absent_count=missing)
        observing = ", ".join(sorted(set(members) - set(voters), key=int))
        return Roles(
            note=f"{observing} of the members are observers, but no file tells whose directories "
            "these are: all servers are counted as voters"
        )
    absent = tuple(id for id in voters if id not in ids.values())
    observers = frozenset(name for name, id in ids.items() if members.get(id, True))
    return Roles(observers, len(voters), absent, len(absent))


def _ids_of(
    servers: Sequence[tuple[str, str | None]], members: dict[str, bool]
) -> dict[str, str] | None:
    """The id of each server; None if they cannot be told for sure.

    A server whose `myid` no configuration names is none of the members any more: it is given an id
    that is not theirs. A name is believed only if it is a member's.
    """
    found: dict[str, str] = {}
    for name, own in servers:
        number = _NUMBER.search(name)
        if own is not None:
            found[name] = own
        elif number is not None and number[1] in members:
            found[name] = number[1]
        else:
            return None
    return found if len(set(found.values())) == len(found) else None
