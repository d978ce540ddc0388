"""The ensemble's members as they were given: in zoo.cfg, in a dynamic file, or otherwise.

With `dynamicConfigFile` the lines `server.`, `group.` and `weight.` stand in that file and nowhere
else. The version of the membership is the ending of its name, in hexadecimal. Beside zoo.cfg there
may be `zoo.cfg.dynamic.next`: a change that was proposed and that this server did not see agreed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from keepfast.server import config_ensemble as ensemble
from keepfast.server.config_ensemble import Member, Membership, Role
from keepfast.server.config_errors import ConfigError, Origin
from keepfast.server.config_settings import MAX_LONG, decimal
from keepfast.server.config_sources import Given, Sources, parse_text, read_text, trim

_VERSION_KEY: Final = "version"
_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]{1,16}\Z")
_NEXT_SUFFIX: Final = ".dynamic.next"
_MY_ID_FILE: Final = "myid"
_LONGEST_MY_ID: Final = 32


def add_dynamic_file(sources: Sources, path: str) -> int:
    """Read the lines of a dynamic file; the version that its name ends with, 0 if it has none."""
    for prefix in ensemble.MEMBER_PREFIXES:
        for rest, given in sources.family(prefix):
            reason = f"must stand in the file that dynamicConfigFile names, {path}"
            sources.complain(prefix + rest, reason, given=given)
    properties = parse_text(read_text(path, "the dynamic configuration file"), path)
    for name, value, line in properties:
        key = trim(name)
        if not key.startswith(ensemble.MEMBER_PREFIXES):
            reason = "a dynamic file holds server., group. and weight. lines only"
            if key == _VERSION_KEY:
                reason = "the version is the ending of the dynamic file's name"
            origin = Origin(f"{path}:{line}", path, line)
            sources.errors.append(ConfigError.at(origin, key, trim(value), reason))
    sources.add_properties(
        [line for line in properties if trim(line.key).startswith(ensemble.MEMBER_PREFIXES)], path
    )
    _, dot, ending = os.path.basename(path).rpartition(".")
    return int(ending, 16) if dot and _HEXADECIMAL.match(ending) else 0


def read_next_file(config_file: str, *, is_multi_address_enabled: bool) -> Membership | None:
    """What the file of a proposed change says; None if there is none."""
    path = config_file + _NEXT_SUFFIX
    if not os.path.exists(path):
        return None
    sources = Sources(path)
    properties = parse_text(read_text(path, "the proposed membership"), path)
    sources.add_properties([line for line in properties if trim(line.key) != _VERSION_KEY], path)
    versions = [trim(line.value) for line in properties if trim(line.key) == _VERSION_KEY]
    if versions and not _HEXADECIMAL.match(versions[-1]):
        raise ConfigError("must be a hexadecimal number", file=path, key=_VERSION_KEY)
    version = int(versions[-1], 16) if versions else 0
    membership = parse_membership(sources, version, is_multi_address_enabled)
    sources.raise_errors()
    return membership


def parse_membership(sources: Sources, version: int, is_multi_address_enabled: bool) -> Membership:
    """The members; errors are noted in the sources."""
    members: dict[int, Member] = {}
    for server_id, given in _numbered(sources, ensemble.SERVER_PREFIX):
        if server_id in members:
            sources.complain(given.key, f"server {server_id} is there already", given=given)
        try:
            members[server_id] = ensemble.parse_member(
                server_id, given.value, is_multi_address_enabled=is_multi_address_enabled
            )
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
    _add_groups(sources, members)
    _add_weights(sources, members)
    membership = Membership(tuple(members[key] for key in sorted(members)), version)
    _check_groups(sources, membership)
    return membership


def read_my_id(data_dir: str) -> int | None:
    """The id in the file myid; None if there is no such file."""
    path = os.path.join(data_dir, _MY_ID_FILE)
    if not os.path.exists(path):
        return None
    content = read_text(path, "the file myid")
    line = content[:_LONGEST_MY_ID].split(b"\n", 1)[0].decode("ascii", "replace").strip()
    try:
        return decimal(0, MAX_LONG).parse(line)
    except ValueError:
        raise ConfigError(
            f'its first line is "{line}", must be the whole number of this server\'s line',
            file=path,
        ) from None


def _numbered(sources: Sources, prefix: str) -> Iterator[tuple[int, Given]]:
    for rest, given in sources.family(prefix):
        try:
            yield decimal(0, MAX_LONG).parse(rest), given
        except ValueError:
            reason = f'"{rest}" must be a whole number from 0 to {MAX_LONG}'
            sources.complain(given.key, reason, given=given)


def _add_groups(sources: Sources, members: dict[int, Member]) -> None:
    for group, given in _numbered(sources, ensemble.GROUP_PREFIX):
        try:
            ids = ensemble.parse_group(given.value)
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
            continue
        for server_id in ids:
            member = members.get(server_id)
            if member is None:
                sources.complain(given.key, f"there is no line server.{server_id}", given=given)
            elif member.group is not None:
                reason = f"server {server_id} is in group {member.group} already"
                sources.complain(given.key, reason, given=given)
            else:
                members[server_id] = replace(member, group=group)


def _add_weights(sources: Sources, members: dict[int, Member]) -> None:
    for server_id, given in _numbered(sources, ensemble.WEIGHT_PREFIX):
        try:
            weight = ensemble.parse_weight(given.value)
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
            continue
        if server_id in members:
            members[server_id] = replace(members[server_id], weight=weight)
        else:
            sources.complain(given.key, f"there is no line server.{server_id}", given=given)


def _check_groups(sources: Sources, membership: Membership) -> None:
    has_weights = any(True for _ in sources.family(ensemble.WEIGHT_PREFIX))
    if not membership.is_hierarchical and not has_weights:
        return
    for member in membership.members:
        if member.group is None and member.role is Role.PARTICIPANT:
            reason = "with groups or weights every voter must be in a group"
            sources.complain(f"{ensemble.SERVER_PREFIX}{member.id}", reason)
    if membership.voters and not any(member.weight for member in membership.voters):
        key = f"{ensemble.WEIGHT_PREFIX}{membership.voters[0].id}"
        sources.complain(key, "one voter at least must have a weight above 0")
