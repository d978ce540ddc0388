"""What a lab has to be for a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSetup:
    """The servers that a failure needs."""

    # How many.
    size: int
    # Java properties and lines of zoo.cfg that the failure needs.
    properties: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    # Whether the servers reach each other over links that can be cut.
    has_wires: bool = False
