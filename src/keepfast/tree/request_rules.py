"""The rules that every request must obey; KeeperError if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from keepfast.tree.create_modes import MODES, Mode
from keepfast.tree.node_bytes import MAX_TTL_MS, signed_int
from keepfast.tree.paths import ROOT, SPECIAL_PATHS, path_problem
from keepfast.tree.prepare_options import PrepareOptions
from keepfast.tree.quota import (
    BYTE_HARD_LIMIT,
    BYTES,
    COUNT,
    COUNT_HARD_LIMIT,
    deepest_quota,
    limits_path,
    parse_counts,
    stats_path,
)
from keepfast.wire import CreateMode, ErrorCode, KeeperError, OpCode

if TYPE_CHECKING:
    from keepfast.tree.tree import Tree

_ANY_VERSION: Final = -1
_CREATE_TTL: Final = OpCode.CREATE_TTL.value
_CREATE_CONTAINER: Final = OpCode.CREATE_CONTAINER.value


def check_path(path: str) -> None:
    """Refuse what is not a path."""
    problem = path_problem(path)
    if problem is not None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path!r} {problem}")


def checked_parent(path: str) -> str:
    """The parent of a znode that may be deleted."""
    slash = path.rfind("/")
    if slash < 0 or "\0" in path or path in SPECIAL_PATHS:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return path[:slash] or ROOT


def next_version(current: int, expected: int, path: str) -> int:
    """The version after a change that expects this one."""
    if expected not in (_ANY_VERSION, current):
        raise KeeperError(ErrorCode.BAD_VERSION, path)
    # Never -1: a client could not request it, because in a request it means any version.
    return signed_int(current + 1) if current != -2 else 0


def checked_mode(options: PrepareOptions, flags: int, type_: int, ttl: int, path: str) -> Mode:
    """What the flags of a create say; `ttl` is -1 where it has none."""
    mode = MODES.get(flags)
    if mode is None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"create flags {flags}")
    if mode.has_ttl:
        if not options.is_ttl_enabled:
            raise KeeperError(ErrorCode.UNIMPLEMENTED, "TTLs are not enabled")
        if not 0 < ttl <= MAX_TTL_MS:
            raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"{path}: a TTL of {ttl} ms")
    elif type_ == _CREATE_TTL or (type_ == _CREATE_CONTAINER and not mode.is_container):
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, f"flags {flags} in request type {type_}")
    if mode.is_container and type_ != _CREATE_CONTAINER:
        return MODES[CreateMode.PERSISTENT.value]
    return mode


def check_quota(tree: Tree, path: str, bytes_diff: int, count_diff: int) -> None:
    """Refuse what exceeds a quota of the tree as it is now."""
    quota = deepest_quota(tree.quotas, path) if tree.quotas else None
    if quota is None:
        return
    limits, stats = tree.find(limits_path(quota)), tree.find(stats_path(quota))
    if limits is None or stats is None:
        return
    allowed, counted = parse_counts(limits.data), parse_counts(stats.data)
    for limit, name, diff in (
        (COUNT_HARD_LIMIT, COUNT, count_diff),
        (BYTE_HARD_LIMIT, BYTES, bytes_diff),
    ):
        most = allowed.get(limit, -1)
        if diff and most > -1 and counted.get(name, -1) + diff > most:
            raise KeeperError(ErrorCode.QUOTA_EXCEEDED, quota)
