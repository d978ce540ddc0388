"""Who votes, as far as the files show, and which servers together decide.

A quorum is one of the voters, by the ensemble's own rule (`quorum.Membership`): more than half of
them, or with `group.N` and `weight.N` more than half of the weight in more than half of the groups.
An observer holds what it was sent, and does not vote. The members are in /zookeeper/config
(3.5 and later), in `zoo.cfg`, in its dynamic part and in Keepfast's manifest; `myid` says which
member a directory is, or its name does. Where no file says, every server is counted as a voter.

Of several configurations the newest counts, also for records that are older than it: who took part
in a quorum of voters that have left since is mostly not to be asked any more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from keepfast.quorum import Membership, parse_membership
from keepfast.wire import MalformedRecord, ServerId

_KEY = re.compile(r"(?:(server|group|weight)\.-?\d+|(version))\s*[=:\s]")
_NUMBER = re.compile(r"(\d+)\D*\Z")
_DYNAMIC = re.compile(r"zoo\.cfg\.dynamic\.([0-9a-fA-F]{1,16})\Z")
_BAD_GROUPS = "no server starts with such groups of voters: a majority is counted by heads"

# How much supports a claim: whether a quorum does, in how many groups most of the weight
# does, and the weight.
Support = tuple[bool, int, int]
# Name of a directory, and the id in its `myid`, if there is one.
Known = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Electorate:
    """The servers whose directories were given, and the membership by which they are counted.

    `config` is that membership as a text; empty if no file names the members. `doubt` says what of
    it could not be read. With `least` above 0 it decides nothing: so many of `heads` are a quorum,
    whoever they are; `is_asked_for` if a person wants it so.
    """

    servers: tuple[Known, ...] = ()
    config: str = ""
    doubt: str = ""
    heads: tuple[str, ...] = ()
    least: int = 0
    is_asked_for: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The servers that were given."""
        return tuple(name for name, _ in self.servers)

    @property
    def version(self) -> int:
        """The version of the membership: the zxid that made it, 0 if none did."""
        membership = membership_of(self.config)
        return 0 if membership is None else membership.version

    @property
    def observers(self) -> frozenset[str]:
        """The servers, of those given, that are known not to vote."""
        counted = _counted(self.servers, self.config)
        return frozenset() if counted is None else counted.others

    @property
    def voters(self) -> int:
        """How many servers vote, with those whose directories were not given, if it is known."""
        membership = membership_of(self.config)
        if membership is None or self._is_untold(membership):
            return len(self.servers)
        counted = _counted(self.servers, self.config)
        known = len(membership.voters)
        return known if counted is not None else max(known, len(self.servers))

    @property
    def counted(self) -> str:
        """Who is counted, in words."""
        if self.is_asked_for:
            return f"{len(self.heads)} servers, {self.least} of which are asked for"
        if self.least:
            return f"{len(self.heads)} servers that were given"
        return f"{self.voters} voters"

    @property
    def absent(self) -> tuple[str, ...]:
        """The ids of the voters whose directories were not given, as far as that is known."""
        counted = _counted(self.servers, self.config)
        return () if counted is None else counted.absent

    @property
    def absent_count(self) -> int:
        """How many voters' directories were not given."""
        if _counted(self.servers, self.config) is not None:
            return len(self.absent)
        return self.voters - len(self.servers)

    @property
    def note(self) -> str:
        """What is not known about who votes; empty if all is."""
        membership = membership_of(self.config)
        if membership is None:
            return "no file says who the members are: all servers are counted as voters"
        if not self._is_untold(membership):
            return self.doubt
        what = "the members are in groups"
        if membership.observers:
            listed = ", ".join(map(str, sorted(membership.observers)))
            what = f"{listed} of the members are observers"
        return (
            f"{what}, but no file says whose directories these are: all servers are counted as "
            "voters"
        )

    def _is_untold(self, membership: Membership) -> bool:
        """Whether it matters whose directories these are, and no file says."""
        is_plain = not membership.observers and not membership.is_hierarchical
        return _counted(self.servers, self.config) is None and not is_plain

    def is_quorum(self, names: Collection[str]) -> bool:
        """Whether these servers decide, as the ensemble would have it."""
        if self.least:
            return len(set(names).intersection(self.heads)) >= self.least
        counted = _counted(self.servers, self.config)
        if counted is None:
            return len(set(names)) > self.voters // 2
        return counted.membership.is_quorum(counted.ids_of(names))

    def support(self, names: Collection[str]) -> Support:
        """The weight behind what these servers hold; comparable."""
        counted = _counted(self.servers, self.config)
        if self.least or counted is None:
            heads = set(names).intersection(self.heads) if self.least else set(names)
            return self.is_quorum(names), 0, len(heads)
        membership, ids = counted.membership, set(counted.ids_of(names))
        groups = [
            2 * sum(membership.weight(id) for id in ids.intersection(group))
            > sum(map(membership.weight, group))
            for _, group in membership.groups
        ]
        return self.is_quorum(names), sum(groups), sum(map(membership.weight, ids))

    def reached(self, heads: Mapping[str, int]) -> int | None:
        """The greatest zxid that a quorum has come to, by the last one of each; None if none has.

        Servers with nothing are at -1.
        """
        ordered = sorted((-zxid, name) for name, zxid in heads.items() if zxid >= 0)
        for count, (zxid, _) in enumerate(ordered, 1):
            if self.is_quorum([name for _, name in ordered[:count]]):
                return -zxid
        return None

    @property
    def is_represented(self) -> bool:
        """Whether the servers that were given could decide anything together."""
        return self.is_quorum(self.names)

    def by_heads(self, least: int) -> Electorate:
        """The same servers, so many of which decide, whoever they are."""
        return replace(self, heads=self.names, least=least, is_asked_for=True)

    def of_given(self) -> Electorate:
        """The voters that were given by themselves, if they are too few to be a quorum.

        What they then agree on is their own word; `caution` says so.
        """
        if self.is_represented:
            return self
        voting = tuple(name for name in self.names if name not in self.observers) or self.names
        return replace(self, heads=voting, least=len(voting) // 2 + 1)

    @property
    def caution(self) -> str:
        """What has to be said about whatever these servers agree on; empty if nothing has."""
        whole = replace(self, heads=(), least=0)
        if self.is_asked_for or whole.is_represented:
            return ""
        given = len(self.servers) - len(self.observers)
        return (
            f"of the {self.voters} voters the files of {given} were given, which is no quorum: "
            "whether it was committed cannot be known"
        )

    def changed(self, text: str) -> Electorate:
        """By a configuration that a record made, if it is newer than what is known."""
        found = membership_of(text)
        if found is None or found.version <= self.version or self.is_asked_for:
            return self
        return electorate_of(self.servers, [text]).of_given()


@dataclass(frozen=True, slots=True)
class _Counted:
    """A membership, and which of its members the directories are."""

    membership: Membership
    ids: dict[str, ServerId]

    @property
    def others(self) -> frozenset[str]:
        """Observers, and servers that are no members any more."""
        voters = self.membership.voters
        return frozenset(name for name, id in self.ids.items() if id not in voters)

    @property
    def absent(self) -> tuple[str, ...]:
        missing = self.membership.voters.difference(self.ids.values())
        return tuple(map(str, sorted(missing)))

    def ids_of(self, names: Iterable[str]) -> list[ServerId]:
        return [self.ids[name] for name in names if name in self.ids]


@lru_cache(maxsize=256)
def _counted(servers: tuple[Known, ...], config: str) -> _Counted | None:
    """Which members the servers are; None if no file says for sure.

    A server whose `myid` no configuration names is none of the members any more. A name is believed
    only if it is a member's.
    """
    membership = membership_of(config)
    if membership is None:
        return None
    found: dict[str, ServerId] = {}
    for name, own in servers:
        number = _NUMBER.search(name)
        if own is not None:
            found[name] = ServerId(int(own))
        elif number is not None and membership.find(ServerId(int(number[1]))) is not None:
            found[name] = ServerId(int(number[1]))
        else:
            return None
    return _Counted(membership, found) if len(set(found.values())) == len(found) else None


@lru_cache(maxsize=256)
def membership_of(text: str) -> Membership | None:
    """The members that a configuration names, with groups and weights; None if it names none.

    Other lines of a `zoo.cfg` are passed over. Groups that no server would start with are too, and
    so are weights without groups, as 3.4 has it.
    """
    lines = list(_lines(text))
    for kinds in (("server", "group", "weight", "version"), ("server", "version"), ("server",)):
        wanted = "\n".join(line for kind, line in lines if kind in kinds)
        try:
            membership = parse_membership(wanted.encode())
        except MalformedRecord:
            continue
        return membership if membership.members else None
    return None


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        found = _KEY.match(line.strip())
        if found is not None:
            yield found[1] or found[2], line


def version_of(text: str) -> int:
    """The version of a configuration; 0 where it has none."""
    membership = membership_of(text)
    return 0 if membership is None else membership.version


def with_version_of_name(name: str, text: str) -> str:
    """A configuration file's text; the version of a dynamic one is the ending of its name."""
    found = _DYNAMIC.match(name)
    return text if found is None else f"{text}\nversion={found[1]}"


def is_configuration(name: str) -> bool:
    """Whether a file says who the members are; `.next` is a proposal, `.bak` what was before."""
    is_one = name == "zoo.cfg" or name.startswith("zoo.cfg.dynamic")
    return is_one and not name.endswith((".next", ".bak"))


def own_id(text: str) -> str | None:
    """The id in a file `myid`; None if it holds none."""
    text = text.strip()
    return text if text.isdecimal() and len(text) < 19 else None


def quorums_of(membership: Membership) -> tuple[object, ...]:
    """Equal for memberships with the same members and quorums, wherever their members listen."""
    weights = tuple((id, membership.weight(id)) for id in sorted(membership.voters))
    groups = tuple((group, frozenset(ids)) for group, ids in membership.groups)
    return membership.voters, membership.observers, groups, weights if groups else ()


def electorate_of(servers: Sequence[Known], texts: Iterable[str]) -> Electorate:
    """Who votes, by the newest of configurations; by most of them, if those differ."""
    known = [(one, text) for text in texts if (one := membership_of(text)) is not None]
    newest = max((membership.version for membership, _ in known), default=0)
    # Each member writes its own address as it likes: what counts is who decides.
    found: dict[tuple[object, ...], list[tuple[bytes, str]]] = {}
    for membership, text in known:
        if membership.version == newest:
            found.setdefault(quorums_of(membership), []).append((membership.text(), text))
    if not found:
        return Electorate(tuple(servers))
    chosen = min(found.values(), key=lambda said: (-len(said), min(said)))
    config, text = min(chosen)
    is_whole = any(kind == "group" for kind, _ in _lines(text)) == (b"\ngroup." in config)
    doubt = "" if is_whole else _BAD_GROUPS
    return Electorate(tuple(servers), config.decode(), doubt)
