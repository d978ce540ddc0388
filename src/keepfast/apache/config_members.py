"""The ensemble's members as configured: in zoo.cfg, in a dynamic file, or otherwise.

With `dynamicConfigFile` the lines `server.`, `group.` and `weight.` stand in that file and nowhere
else. The version of the membership is the ending of its name, in hexadecimal. What may lie beside
it as `zoo.cfg.dynamic.next` is not read: a change that is under way is known from the log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from keepfast.apache import config_ensemble as ensemble
from keepfast.apache.config_errors import ConfigError, ValueOrigin
from keepfast.apache.config_settings import MAX_LONG, decimal
from keepfast.apache.config_sources import GivenValue, Sources, parse_text, read_text, trim
from keepfast.quorum import Membership, MemberSpec
from keepfast.wire import ServerId, Zxid

_VERSION_KEY: Final = "version"
_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]{1,16}\Z")
_MY_ID_FILE: Final = "myid"
_MAX_MY_ID_BYTES: Final = 32


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
            origin = ValueOrigin(f"{path}:{line}", path, line)
            sources.errors.append(ConfigError.at(origin, key, trim(value), reason))
    sources.add_properties(
        [line for line in properties if trim(line.key).startswith(ensemble.MEMBER_PREFIXES)], path
    )
    _, dot, ending = os.path.basename(path).rpartition(".")
    return int(ending, 16) if dot and _HEXADECIMAL.match(ending) else 0


def parse_members(sources: Sources, version: int, is_multi_address_enabled: bool) -> Membership:
    """The members; errors are noted in the sources."""
    members: dict[int, MemberSpec] = {}
    for server_id, given in _numbered(sources, ensemble.SERVER_PREFIX):
        if server_id in members:
            sources.complain(given.key, f"server {server_id} is there already", given=given)
        try:
            members[server_id] = ensemble.parse_member_line(
                server_id, given.value, is_multi_address_enabled=is_multi_address_enabled
            )
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
    groups = _groups(sources, members)
    weights = _weights(sources, members)
    plain = Membership(tuple(members.values()), Zxid(version))
    if groups or any(True for _ in sources.family(ensemble.WEIGHT_PREFIX)):
        _check_groups(sources, plain.voters, groups, weights)
    if not groups:
        return plain
    return replace(
        plain,
        groups=tuple(
            (group, tuple(id for id, of in groups.items() if of == group))
            for group in set(groups.values())
        ),
        weights=tuple((id, weights.get(id, 1)) for id in plain.voters),
    )


def read_my_id(data_dir: str) -> int | None:
    """The id in the file myid; None if there is no such file."""
    path = os.path.join(data_dir, _MY_ID_FILE)
    if not os.path.exists(path):
        return None
    content = read_text(path, "the file myid")
    line = content[:_MAX_MY_ID_BYTES].split(b"\n", 1)[0].decode("ascii", "replace").strip()
    try:
        return decimal(0, MAX_LONG).parse(line)
    except ValueError:
        raise ConfigError(
            f'its first line is "{line}", must be the whole number of this server\'s line',
            file=path,
        ) from None


def _numbered(sources: Sources, prefix: str) -> Iterator[tuple[int, GivenValue]]:
    for rest, given in sources.family(prefix):
        try:
            yield decimal(0, MAX_LONG).parse(rest), given
        except ValueError:
            reason = f'"{rest}" must be a whole number from 0 to {MAX_LONG}'
            sources.complain(given.key, reason, given=given)


def _groups(sources: Sources, members: Collection[int]) -> dict[ServerId, int]:
    """The group of each server that is in one."""
    groups: dict[ServerId, int] = {}
    for group, given in _numbered(sources, ensemble.GROUP_PREFIX):
        try:
            ids = ensemble.parse_group(given.value)
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
            continue
        for server_id in map(ServerId, ids):
            if server_id not in members:
                sources.complain(given.key, f"there is no line server.{server_id}", given=given)
            elif server_id in groups:
                reason = f"server {server_id} is in group {groups[server_id]} already"
                sources.complain(given.key, reason, given=given)
            else:
                groups[server_id] = group
    return groups


def _weights(sources: Sources, members: Collection[int]) -> dict[ServerId, int]:
    weights: dict[ServerId, int] = {}
    for server_id, given in _numbered(sources, ensemble.WEIGHT_PREFIX):
        try:
            weight = ensemble.parse_weight(given.value)
        except ValueError as error:
            sources.complain(given.key, str(error), given=given)
            continue
        if server_id in members:
            weights[ServerId(server_id)] = weight
        else:
            sources.complain(given.key, f"there is no line server.{server_id}", given=given)
    return weights


def _check_groups(
    sources: Sources,
    voters: Collection[ServerId],
    groups: Mapping[ServerId, int],
    weights: Mapping[ServerId, int],
) -> None:
    for voter in sorted(voters):
        if voter not in groups:
            reason = "with groups or weights every voter must be in a group"
            sources.complain(f"{ensemble.SERVER_PREFIX}{voter}", reason)
    if voters and not any(weights.get(voter, 1) for voter in voters):
        key = f"{ensemble.WEIGHT_PREFIX}{min(voters)}"
        sources.complain(key, "one voter at least must have a weight above 0")
