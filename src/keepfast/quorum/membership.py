"""Who belongs to the ensemble, who votes, and which sets of servers are a quorum.

A membership is what the config text of /zookeeper/config, of NEWLEADER and of election
notifications says, byte for byte as Apache writes it:

    server.1=127.0.0.1:2888:3888:participant;0.0.0.0:2181
    server.2=127.0.0.1:2889:3889:observer
    group.1=1:2                             only where groups are in use
    weight.1=1
    version=100000000                       hexadecimal, no line end after it

Lines are ordered by id. (Apache orders them by hash, which is the same for the ids that people use;
the order of others depends on how its hash map grew.)

Majority: more than half of the voters. With groups: more than half of the weight in more than half
of the groups, groups of no weight left out. Observers never count.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from keepfast.quorum.member_spec import (
    Address,
    BadNumberError,
    MemberRole,
    MemberSpec,
    parse_member,
    parse_whole,
)
from keepfast.wire import (
    ErrorCode,
    KeeperError,
    MalformedRecord,
    ServerId,
    Zxid,
    decode_text,
    invariant,
)

# The version of a membership that comes from files and was never committed.
NEVER_AGREED: Final = Zxid(0)

_SERVER: Final = "server."
_GROUP: Final = "group"
_WEIGHT: Final = "weight"
_VERSION: Final = "version"
_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]{1,16}\Z")
# As Java's properties: the first of these that follows a key ends it.
_LINE: Final = re.compile(r"([^=:\s]+)\s*[=:\s]\s*(.*)\Z")


@dataclass(frozen=True, slots=True)
class Membership:
    """The members as of a version, which is the zxid of the change that made it.

    Version 0: as the files of the servers say, never committed. `groups` and `weights` are empty
    where a majority decides. Two memberships are equal if all their fields are.
    """

    members: tuple[MemberSpec, ...]
    version: Zxid = NEVER_AGREED
    groups: tuple[tuple[int, tuple[ServerId, ...]], ...] = ()
    weights: tuple[tuple[ServerId, int], ...] = ()
    voters: frozenset[ServerId] = field(init=False, compare=False, repr=False)
    observers: frozenset[ServerId] = field(init=False, compare=False, repr=False)
    _by_id: dict[ServerId, MemberSpec] = field(init=False, compare=False, repr=False)
    _weight: dict[ServerId, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        members = tuple(sorted(self.members))
        by_id = {member.server_id: member for member in members}
        invariant(len(by_id) == len(members), "two members have the same id")
        _set = object.__setattr__
        _set(self, "members", members)
        _set(self, "groups", tuple(sorted((group, tuple(ids)) for group, ids in self.groups)))
        _set(self, "weights", tuple(sorted(self.weights)))
        _set(self, "voters", frozenset(_ids(members, MemberRole.PARTICIPANT)))
        _set(self, "observers", frozenset(_ids(members, MemberRole.OBSERVER)))
        _set(self, "_by_id", by_id)
        _set(self, "_weight", dict(self.weights))

    def find(self, server_id: ServerId) -> MemberSpec | None:
        """The member with that id, if there is one."""
        return self._by_id.get(server_id)

    def weight(self, server_id: ServerId) -> int:
        """The weight of this server's vote: 0 for a non-voter."""
        return self._weight.get(server_id, 1) if server_id in self.voters else 0

    @property
    def is_hierarchical(self) -> bool:
        return bool(self.groups)

    def is_quorum(self, ids: Collection[ServerId]) -> bool:
        """Whether these servers may decide; non-voters among them do not count."""
        voters = self.voters.intersection(ids)
        if not self.groups:
            return len(voters) > len(self.voters) // 2
        weighty = agreed = 0
        for _, group in self.groups:
            total = sum(map(self.weight, group))
            weighty += total > 0
            agreed += 2 * sum(self.weight(id) for id in voters.intersection(group)) > total
        return 2 * agreed > weighty

    def has_same_members(self, other: Membership) -> bool:
        """Whether they differ at most in their versions."""
        return self == replace(other, version=self.version)

    def with_version(self, version: Zxid) -> Membership:
        """The same members, as of another version."""
        return replace(self, version=version)

    def text(self) -> bytes:
        """The config text."""
        lines = [f"{key}={value}" for key, value in self.lines()]
        return "\n".join([*lines, f"{_VERSION}={self.version:x}"]).encode()

    def lines(self) -> Iterator[tuple[str, str]]:
        """Keys and values of the config text, but for the version."""
        for member in self.members:
            yield f"{_SERVER}{member.server_id}", member.text()
        for group, ids in self.groups:
            yield f"{_GROUP}.{group}", ":".join(map(str, sorted(ids)))
        if self.groups:
            for server_id in sorted(self.voters | self._weight.keys()):
                yield f"{_WEIGHT}.{server_id}", str(self._weight.get(server_id, 1))

    def with_changes(
        self,
        joining: str | None,
        leaving: str | None,
        new_members: str | None,
        *,
        version: Zxid,
        is_standalone_enabled: bool = True,
        is_multi_address_enabled: bool = False,
    ) -> Membership:
        """What a client's reconfig request makes of this membership; `version` is its zxid.

        Raises KeeperError with the code that Apache answers. The leader checks whether a quorum of
        the result is connected and up to date.
        """
        if new_members is not None:
            changed = _replacement(new_members, is_standalone_enabled)
        else:
            changed = _incremented(self, joining, leaving)
        if not is_multi_address_enabled and any(len(one.quorum) > 1 for one in changed.members):
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, "several addresses of a server are off")
        least = 2 if is_standalone_enabled else 1
        if len(changed.voters) < least:
            raise KeeperError(
                ErrorCode.BAD_ARGUMENTS, f"the new configuration has fewer than {least} voters"
            )
        return changed.with_version(version)


def parse_membership(text: bytes) -> Membership:
    """The membership that a config text describes; MalformedRecord if it describes none."""
    try:
        return _parse(decode_text(text))
    except ValueError as error:
        raise MalformedRecord(f"config text: {error}", 0) from None


def _ids(members: Iterable[MemberSpec], role: MemberRole) -> Iterator[ServerId]:
    return (member.server_id for member in members if member.role is role)


def _parse(text: str) -> Membership:
    members: dict[ServerId, MemberSpec] = {}
    groups: dict[int, tuple[ServerId, ...]] = {}
    weights: dict[ServerId, int] = {}
    version = 0
    for key, value in _properties(text):
        if key.startswith(_SERVER):
            server_id = ServerId(parse_whole(key.removeprefix(_SERVER)))
            members[server_id] = parse_member(server_id, value)
        elif key.startswith(_GROUP):
            groups[parse_whole(key.partition(".")[2])] = tuple(
                ServerId(parse_whole(id)) for id in value.split(":")
            )
        elif key.startswith(_WEIGHT):
            weights[ServerId(parse_whole(key.partition(".")[2]))] = parse_whole(value)
        elif key == _VERSION:
            if not _HEXADECIMAL.match(value):
                raise BadNumberError(f'version "{value}" is not hexadecimal')
            version = int(value, 16)
        else:
            raise ValueError(f'unknown key "{key}"')
    membership = Membership(
        tuple(members.values()), Zxid(version), tuple(groups.items()), tuple(weights.items())
    )
    if groups or weights:
        _check_groups(membership)
    return membership


def _check_groups(membership: Membership) -> None:
    grouped = [id for _, ids in membership.groups for id in ids]
    if len(set(grouped)) < len(grouped):
        raise ValueError("a server is in two groups")
    lonely = membership.voters.difference(grouped)
    if lonely:
        raise ValueError(f"server {min(lonely)} is in no group")
    if any(weight < 0 for _, weight in membership.weights):
        raise ValueError("a weight is below 0")


def _properties(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values, as Java reads a file of properties (but for its escapes)."""
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            match = _LINE.match(line)
            yield (match[1], match[2]) if match else (line, "")


def _replacement(new_members: str, is_standalone_enabled: bool) -> Membership:
    try:
        changed = _parse(new_members.replace(",", "\n"))
    except ValueError as error:
        raise _refusal(error) from None
    if changed.observers and len(changed.voters) < (2 if is_standalone_enabled else 1):
        raise KeeperError(ErrorCode.MARSHALLING_ERROR, "observers without a quorum")
    return changed


def _incremented(current: Membership, joining: str | None, leaving: str | None) -> Membership:
    if current.is_hierarchical:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, "groups can only be replaced as a whole")
    members = {member.server_id: member for member in current.members}
    for leaver in _split(leaving, ","):
        members.pop(_server_id(leaver), None)
    for joiner in _split(joining, ","):
        parts = _split(joiner, "=")
        if len(parts) != 2:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f'"{joiner}" is not server.N=...')
        server_id = _server_id(parts[0].rpartition(".")[2])
        try:
            member = parse_member(server_id, parts[1])
        except ValueError as error:
            raise _refusal(error) from None
        if member.client is None:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f'"{joiner}" names no client port')
        others = [other for other in members.values() if other.server_id != server_id]
        _refuse_shared_address(member, others)
        members[server_id] = member
    return Membership(tuple(members.values()))


def _refuse_shared_address(member: MemberSpec, others: Iterable[MemberSpec]) -> None:
    mine = _distinctive(member)
    for other in others:
        if shared := mine & _distinctive(other):
            raise KeeperError(
                ErrorCode.BAD_ARGUMENTS,
                f"server {other.server_id} has the address {min(shared)} already",
            )


def _distinctive(member: MemberSpec) -> set[Address]:
    """Where a member listens; without wildcard and loopback addresses, which many may have."""
    addresses = {*member.quorum, *member.election}
    if member.client is not None:
        addresses.add(member.client)
    return {address for address in addresses if not _is_special(address.host)}


def _is_special(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return address.is_loopback or address.is_unspecified


def _split(text: str | None, separator: str) -> list[str]:
    return [part for part in map(str.strip, (text or "").split(separator)) if part]


def _server_id(text: str) -> ServerId:
    try:
        return ServerId(parse_whole(text))
    except ValueError as error:
        raise _refusal(error) from None


def _refusal(error: ValueError) -> KeeperError:
    """What a client is answered: a bad number makes Apache take the request for unreadable."""
    is_number = isinstance(error, BadNumberError)
    code = ErrorCode.MARSHALLING_ERROR if is_number else ErrorCode.BAD_ARGUMENTS
    return KeeperError(code, str(error))
