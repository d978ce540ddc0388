"""A scenario: what a report said, as steps on a lab."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from keepfast.lab.lab import Lab
from keepfast.lab.lab_setup import LabSetup


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(LabSetup):
    """A failure that can be reproduced, with its expected end."""

    name: str
    # One sentence: what goes wrong where it does.
    title: str
    # Does it, step by step, and ends with all servers running.
    play: Callable[[Lab], None]
    # The znodes whose values are compared in the end.
    keys: tuple[str, ...]
    # Acknowledged values that must not be lost; a server that serves anything else has lost them.
    expected: Mapping[str, str] = field(default_factory=dict)
    # What the audit calls it.
    kind: str = ""
