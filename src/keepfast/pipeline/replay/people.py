"""Who changed a znode: the records that a majority holds, and the people of the audit logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from keepfast.pipeline.replay.changes import ZnodeChange
from keepfast.pipeline.replay.history import EnsembleHistory
from keepfast.pipeline.scan.session_people import People, Person

GAP = "gap"


@dataclass(frozen=True, slots=True)
class NamedChange:
    """One change, and whose it was."""

    change: ZnodeChange
    person: Person


def changes_of(
    history: EnsembleHistory,
    path: str,
    *,
    is_below: bool = False,
    since_ms: int | None = None,
    people: People | None = None,
) -> Iterator[NamedChange]:
    """The changes of a znode (and of those below it) that a majority holds, oldest first.

    Where records are on no server any more, there is a change `gap` without a path that says so.
    Raises HistoryGone and HistoryBroken.
    """
    below = path.rstrip("/") + "/"
    named = people or People()
    for rows in history.read():
        for row in rows:
            is_wanted = row.path == path or (
                is_below and row.path is not None and row.path.startswith(below)
            )
            if (is_wanted or row.change == GAP) and (
                since_ms is None or row.time_ms >= since_ms or row.change == GAP
            ):
                yield NamedChange(row, named.of(row.session_id, row.path))
