"""The meaning of the flags of a create."""

from __future__ import annotations

from typing import Final, NamedTuple

from keepfast.wire import CreateMode, OpCode


class Mode(NamedTuple):
    """One meaning of the flags."""

    is_ephemeral: bool
    is_sequential: bool
    is_container: bool
    has_ttl: bool
    # Whether it has special rules, and whether ephemeralOwner is not 0.
    is_rare: bool
    has_owner: bool


# Looked up for each create, where the properties of CreateMode would show.
MODES: Final = {
    mode.value: Mode(
        mode.is_ephemeral,
        mode.is_sequential,
        mode.is_container,
        mode.has_ttl,
        mode.is_container or mode.has_ttl,
        mode.is_ephemeral or mode.is_container or mode.has_ttl,
    )
    for mode in CreateMode
}

# Types of requests that create a znode; those with special rules.
RARE_CREATES: Final = frozenset((OpCode.CREATE_CONTAINER.value, OpCode.CREATE_TTL.value))
CREATES: Final = RARE_CREATES | {OpCode.CREATE.value, OpCode.CREATE2.value}
