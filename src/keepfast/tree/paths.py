"""Paths of znodes: their syntax, their parents, and the reserved ones."""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
QUOTA: Final = "/zookeeper/quota"
CONFIG: Final = "/zookeeper/config"
# What lies below is not in Apache's digest; /zookeeper itself is.
RESERVED_PREFIX: Final = "/zookeeper/"

QUOTA_PREFIX: Final = "/zookeeper/quota/"
LIMITS_SUFFIX: Final = "/zookeeper_limits"
STATS_SUFFIX: Final = "/zookeeper_stats"

# Apache's built-in znodes, which no client may delete.
SPECIAL_PATHS: Final = frozenset((ROOT, ZOOKEEPER, QUOTA, CONFIG))

# Code units that a path may not contain; surrogates, and with them all characters above U+FFFF.
_REFUSED: Final = re.compile(
    r"[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
)
_RELATIVE: Final = re.compile(r"/\.{1,2}(?:/|\Z)")


def path_problem(path: str) -> str | None:
    """Why `path` does not name a znode, or None if it may."""
    if not path.startswith("/"):
        return "does not start with /"
    if len(path) > 1 and path.endswith("/"):
        return "ends with /"
    if "//" in path:
        return "has an empty component"
    if "/." in path and _RELATIVE.search(path):
        return "has a relative component"
    if (not path.isascii() or not path.isprintable()) and _REFUSED.search(path):
        return "has a character that is not allowed"
    return None


def parent_of(path: str) -> str:
    """The path of the parent. The root, which has none, gives itself."""
    return path[: path.rfind("/")] or ROOT


def name_of(path: str) -> str:
    """The last component; empty for the root."""
    return path[path.rfind("/") + 1 :]


def is_quota_stats(path: str) -> bool:
    """Whether `path` is a znode whose data servers rewrite on their own."""
    return path.endswith(STATS_SUFFIX) and path.startswith(QUOTA_PREFIX)
