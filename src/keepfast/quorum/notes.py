"""Notes: what the machines report about their rare branches, for logs and traces."""

from __future__ import annotations

import msgspec


class Note(msgspec.Struct, frozen=True):
    """A rare branch was taken: something was ignored, repaired or given up.

    `fields` are names and values in the order in which they should be shown. The server logs a
    note; the simulator shows it in its trace and counts by `name` which branches were reached.
    """

    name: str
    fields: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value}" for name, value in self.fields)])


def note(name: str, /, **fields: object) -> Note:
    """A Note with these fields, in this order."""
    return Note(name, tuple(fields.items()))
