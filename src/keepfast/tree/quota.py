"""Quotas: limits on the number of znodes and bytes below a path.

Clients create them as ordinary znodes:

    /zookeeper/quota/p/zookeeper_limits    count=10,bytes=-1
    /zookeeper/quota/p/zookeeper_stats     count=3,bytes=17

Creating the limits znode enables the quota on /p, deleting it disables it. The stats znode is
counted when it is created; from then on each server rewrites its data in place whenever something
below /p changes, with no txn and no new version. Only the deepest quota on a path counts a change.
All quotas are recounted when a snapshot is loaded. So the stats are derived, and may differ between
servers: no digest covers them.
"""

from __future__ import annotations

import re
from typing import Final

from keepfast.tree.paths import LIMITS_SUFFIX, QUOTA, QUOTA_PREFIX, ROOT, STATS_SUFFIX

COUNT: Final = "count"
BYTES: Final = "bytes"
COUNT_HARD_LIMIT: Final = "countHardLimit"
BYTE_HARD_LIMIT: Final = "byteHardLimit"

_SEPARATORS: Final = re.compile("[,;]+")
_COUNT: Final = re.compile("[A-Za-z]+=-?[0-9]{1,18}=?")


def parse_counts(data: bytes | None) -> dict[str, int]:
    """The numbers of a limits or stats znode. What cannot be read is left out.

    Java stops the server on a value that is not a number; clients can write any.
    """
    counts: dict[str, int] = {}
    for pair in _SEPARATORS.split((data or b"").decode("utf-8", "replace")):
        # `bytes=5=` has an empty third part, which keeps readers of 3.4 going.
        key, _, value = pair.partition("=")
        value = value.partition("=")[0]
        try:
            counts[key] = int(value) if value else -1
        except ValueError:
            continue
    counts.pop("", None)
    return counts


def format_counts(counts: dict[str, int]) -> bytes:
    """The data of a limits or stats znode."""
    text = f"{COUNT}={counts.get(COUNT, -1)},{BYTES}={counts.get(BYTES, -1)}"
    others = sorted(key for key in counts if key not in (COUNT, BYTES))
    if others:
        text += "=" + "".join(f";{key}={counts[key]}" for key in others)
    return text.encode()


def limits_path(path: str) -> str:
    """The znode with the limits of the quota on `path`."""
    return f"{QUOTA}{path}{LIMITS_SUFFIX}"


def stats_path(path: str) -> str:
    """The znode with the statistics of the quota on `path`."""
    return f"{QUOTA}{path}{STATS_SUFFIX}"


def limited_path(path: str) -> str | None:
    """The path that a znode sets limits for, or None for any other znode."""
    # Empty right below /zookeeper/quota: the root has no quota.
    return _subject(path, LIMITS_SUFFIX) or None


def counted_path(path: str) -> str | None:
    """The path that a znode has the statistics of, or None for any other znode.

    Empty for the root: it has no quota, but a znode with its statistics is counted once.
    """
    return _subject(path, STATS_SUFFIX)


def _subject(path: str, suffix: str) -> str | None:
    if not path.startswith(QUOTA_PREFIX) or not path.endswith(suffix):
        return None
    return path[len(QUOTA) : -len(suffix)]


def stops_apache(data: bytes | None) -> bool:
    """Whether Java servers stop when they count on from this data of a stats znode.

    They do so at every start again, once a txn below the quota is in their log.
    """
    if data is None:
        return True
    parts = _SEPARATORS.split(data.decode("utf-8", "replace").rstrip(",;"))
    return data != b"" and not all(_COUNT.fullmatch(part) for part in parts)


def deepest_quota(quotas: set[str], path: str) -> str | None:
    """The longest of `quotas` that is `path` or an ancestor of it."""
    while path not in quotas:
        path = path[: path.rfind("/")] or ROOT
        if path == ROOT:
            return None
    return path
