"""Which paths a client sends. The reasons are worded as ZooKeeper's own clients word them."""

from __future__ import annotations

import re

from keepfast.client.client_errors import InvalidPath

# What a component may not hold: controls, surrogates and private use, the specials block.
_REFUSED = re.compile("[\x01-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_LAST_OF_BMP = "\uffff"


def validate_path(path: str) -> None:
    """InvalidPath unless a znode can have this path."""
    reason = _first_fault(path)
    if reason is not None:
        raise InvalidPath(path, reason)


def _first_fault(path: str) -> str | None:
    if not path:
        return "Path length must be > 0"
    if not path.startswith("/"):
        return "Path must start with / character"
    if path == "/":
        return None
    if path.endswith("/"):
        return "Path must not end with / character"
    offset = 1
    for name in path[1:].split("/"):
        fault = _fault_of_name(name)
        if fault is not None:
            what, position = fault
            return f'Invalid path string "{path}" caused by {what} @{offset + position}'
        offset += len(name) + 1
    return None


def _fault_of_name(name: str) -> tuple[str, int] | None:
    """What is wrong with one component, and where in it."""
    if not name:
        return "empty node name specified", 0
    if name in (".", ".."):
        return "relative paths not allowed", len(name) - 1
    for position, character in enumerate(name):
        if character == "\0":
            return "null character not allowed", position
        # A character beyond U+FFFF is a pair of surrogates for a Java server.
        if character > _LAST_OF_BMP or _REFUSED.match(character):
            return "invalid character", position
    return None
