"""The work of a job in parts: which byte ranges of which files a task reads.

A task costs its start whatever it does, so small files share one; a large log is cut, since it can
be entered anywhere. Packing goes by the bytes that are used: closed logs keep their padding.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from keepfast.pipeline.files.access import open_file
from keepfast.pipeline.files.layout import EnsembleFiles, FileEntry, FileKind, is_remote

# Two windows of the decoder: below that a task is mostly its own start.
MIN_TASK_BYTES = 16 << 20
MAX_TASK_BYTES = 256 << 20
# Logs up to here are read by one task; roll-over keeps most of them below.
_WHOLE_LOG_BYTES = 96 << 20
_CUT_BYTES = 64 << 20
# Enough that the last task of a core does not keep the others waiting for long.
_TASKS_A_CORE = 4
_FIRST_ZXID_OFFSET = 16 + 12 + 12


@dataclass(frozen=True, slots=True)
class Part:
    """A range of bytes of one file; of a log the records that begin in it."""

    ensemble: str
    server: str
    path: str
    kind: FileKind
    zxid: int
    size: int
    mtime: float
    start: int = 0
    stop: int | None = None
    weight: int = 0  # bytes to read


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query wants; everything where nothing is said."""

    first_zxid: int | None = None
    last_zxid: int | None = None
    ensembles: frozenset[str] | None = None
    servers: frozenset[str] | None = None
    files: frozenset[str] | None = None

    @property
    def zxids(self) -> tuple[int, int] | None:
        """The range of zxids, if one is asked for."""
        if self.first_zxid is None and self.last_zxid is None:
            return None
        low = -(1 << 63) if self.first_zxid is None else self.first_zxid
        high = (1 << 63) - 1 if self.last_zxid is None else self.last_zxid
        return low, high


def parts_of(
    ensembles: Iterable[EnsembleFiles],
    kinds: Sequence[FileKind],
    bounds: Bounds | None = None,
    *,
    can_cut: bool = True,
) -> list[Part]:
    """The files of these kinds that `bounds` leaves, large logs cut if that is allowed."""
    bounds = bounds or Bounds()
    parts: list[Part] = []
    for ensemble in ensembles:
        if bounds.ensembles is not None and ensemble.name not in bounds.ensembles:
            continue
        for server in ensemble.servers:
            if bounds.servers is not None and server.server not in bounds.servers:
                continue
            entries = [entry for entry in server.files if entry.kind in kinds]
            entries = _between(entries, bounds)
            for entry in entries:
                if bounds.files is None or entry.path in bounds.files:
                    parts += _cut(ensemble.name, server.server, entry, can_cut)
    return parts


def _between(entries: list[FileEntry], bounds: Bounds) -> list[FileEntry]:
    """Leave out logs that cannot hold the wanted zxids.

    A log holds the zxids from its first record to that of the next log: so every server writes
    them, and reads them back. What a fault put elsewhere is the audit's to find, which asks for
    everything.
    """
    wanted = bounds.zxids
    if wanted is None or any(entry.kind != "log" for entry in entries):
        return entries
    firsts = [_first_zxid(entry) for entry in entries]
    kept = []
    for index, entry in enumerate(entries):
        first = firsts[index]
        behind = firsts[index + 1] if index + 1 < len(entries) else None
        if first is not None and first > wanted[1]:
            continue
        if behind is not None and behind <= wanted[0]:
            continue
        kept.append(entry)
    return kept


def _first_zxid(entry: FileEntry) -> int | None:
    """The zxid of the first record, from the record itself: a name may be wrong."""
    try:
        with open_file(entry.path) as file:
            raw = file.read_at(_FIRST_ZXID_OFFSET, 8)
    except OSError:
        return None
    value = int.from_bytes(raw, signed=True)
    return value if len(raw) == 8 and value == entry.zxid else None


def _cut(ensemble: str, server: str, entry: FileEntry, can_cut: bool) -> list[Part]:
    used = used_bytes(entry)

    def part(start: int, stop: int | None, weight: int) -> Part:
        return Part(
            ensemble,
            server,
            entry.path,
            entry.kind,
            entry.zxid or 0,
            entry.size,
            entry.mtime,
            start,
            stop,
            weight,
        )

    if not can_cut or entry.kind != "log" or used <= _WHOLE_LOG_BYTES:
        return [part(0, None, used)]
    starts = range(0, used, _CUT_BYTES)
    # The last part goes to the end of the file, whatever was taken for its used size.
    return [
        part(start, start + _CUT_BYTES if start + _CUT_BYTES < used else None, _CUT_BYTES)
        for start in starts
    ]


def used_bytes(entry: FileEntry) -> int:
    """How many bytes of a file are not a hole, about."""
    if entry.kind != "log" or is_remote(entry.path):
        return entry.size
    try:
        return min(entry.size, os.stat(entry.path).st_blocks * 512)
    except OSError:
        return entry.size


def side_by_side(parts: Iterable[Part]) -> list[Part]:
    """The parts so that what servers wrote at the same time comes together, whoever wrote it.

    A task that reads the same records of several servers takes them apart once (decode/known.py).
    """
    return sorted(parts, key=lambda p: (p.ensemble, p.kind, p.zxid, p.start, p.server, p.path))


def packed(parts: Sequence[Part], cores: int) -> list[tuple[Part, ...]]:
    """The parts in bundles, one per task: about equally heavy, few, and in the given order."""
    total = sum(part.weight for part in parts)
    fair = total // max(1, cores * _TASKS_A_CORE)
    target = min(MAX_TASK_BYTES, max(MIN_TASK_BYTES, fair))
    bundles: list[tuple[Part, ...]] = []
    current: list[Part] = []
    weight = 0
    for part in parts:
        if current and weight + part.weight > target:
            bundles.append(tuple(current))
            current, weight = [], 0
        current.append(part)
        weight += part.weight
    if current:
        bundles.append(tuple(current))
    return bundles
