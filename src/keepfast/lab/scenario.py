"""A scenario: what a report said, as steps on a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepfast.lab.lab import Lab


@dataclass(frozen=True, slots=True)
class Scenario:
    """A failure that can be reproduced, with its expected end."""

    name: str
    # One sentence: what goes wrong where it does.
    title: str
    # Servers that it needs.
    size: int
    # Does it, step by step, and ends with all servers running.
    play: Callable[[Lab], None]
    # The znodes whose values are compared in the end.
    keys: tuple[str, ...]
    # Java properties and lines of zoo.cfg that the failure needs.
    properties: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    # Acknowledged values that must not be lost; a server that serves anything else has lost them.
    expected: Mapping[str, str] = field(default_factory=dict)
    # What the audit calls it.
    kind: str = ""
    # Whether the servers reach each other over links that can be cut.
    has_wires: bool = False
