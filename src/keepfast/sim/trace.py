"""What happened in a run, step by step: for people, and to compare two runs byte by byte.

    12.345  s2      appends 0x100000003 (setData)
    |       |       what happened; words as in docs/simulation.md
    |       who: s<server>, c<client>, net, ops
    virtual time in ms

A step is kept as a template and its values and is formatted only on demand: most runs succeed, and
nobody reads their traces.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from keepfast.sim.agenda import Agenda


class TraceLine(NamedTuple):
    """One line of a trace. The values must not change any more."""

    time_us: int
    who: str
    template: str
    values: tuple[object, ...]

    def __str__(self) -> str:
        text = self.template % self.values if self.values else self.template
        return f"{self.time_us / 1000:12.3f}  {self.who:<4}  {text}"


class Trace:
    """The steps of one run, in order."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.steps: list[TraceLine] = []

    def add(self, who: str, template: str, *values: object) -> None:
        """Note a step; `template` takes `values` as `%` does."""
        self.steps.append(TraceLine(self._agenda.now_us, who, template, values))

    def lines(self) -> Iterator[str]:
        """The steps as text."""
        return map(str, self.steps)

    def digest(self) -> str:
        """A hash of the whole text: equal for equal runs."""
        text = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            text.update(line.encode())
            text.update(b"\n")
        return text.hexdigest()
