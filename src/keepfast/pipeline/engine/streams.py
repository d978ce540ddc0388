"""The data sources as streams: directories that servers write to, followed record by record.

An offset says for each server up to which byte of which file its records were read (logs), or what
its newest snapshot is that was read. Both grow only; what lies between two offsets is the same
bytes whenever it is read, so that a query that starts again from its checkpoint loses nothing and
repeats nothing.

Only whole records that pass their checks count. At the padding, or the torn end, of a file the
stream waits, and continues with the next file once there is one. A record may still be undone
(by a TRUNC) after it was read: this source gives what each server logged, not what was committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from keepfast.pipeline.decode import FileOrigin, Frames, SnapshotReader, open_file, read_frames
from keepfast.pipeline.decode.frames import FILE_HEADER_SIZE, is_sound
from keepfast.pipeline.engine.source_files import FilesPartition, files_of
from keepfast.pipeline.engine.tables import TXNS, ZNODES
from keepfast.pipeline.files.layout import FileEntry, ServerFiles
from keepfast.pipeline.files.parts import Bounds, Part

# Bytes of one server that one micro-batch takes, unless the option maxBytes says otherwise. Less:
# more batches, each with its overhead; more: the first rows of a long history come later.
_MAX_BYTES = 64 << 20
_UNSIGNED = (1 << 64) - 1


class Place(TypedDict):
    """A place in the logs of one server: `zxid` of the file's name in hex, and a byte in it."""

    zxid: str
    position: int


Offset = dict[str, Place]


def _key(server: ServerFiles) -> str:
    return json.dumps([server.ensemble, server.server])


def _servers(options: dict[str, str]) -> dict[str, ServerFiles]:
    return {_key(server): server for ensemble in files_of(options) for server in ensemble.servers}


def _order(zxid: int) -> int:
    """File names count as unsigned."""
    return zxid & _UNSIGNED


def _part(server: ServerFiles, entry: FileEntry, start: int, stop: int | None) -> Part:
    return Part(
        server.ensemble,
        server.server,
        entry.path,
        entry.kind,
        entry.zxid or 0,
        entry.size,
        entry.mtime,
        start,
        stop,
        entry.size,
    )


class LogStream(DataSourceStreamReader):
    """The records of logs, from the oldest file on, as servers write them."""

    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._limit = int(options.get("maxBytes") or _MAX_BYTES)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        """Nothing was read of any server; servers that join later start there too."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many bytes of each server."""
        return ReadMaxBytes(self._limit)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the sound records of each server reach."""
        most = None if isinstance(limit, ReadAllAvailable) else self._limit
        end: Offset = dict(start)
        for key, server in _servers(self._options).items():
            place = _reach(server, start.get(key), most)
            if place is not None:
                end[key] = place
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The byte ranges between two offsets, one task per server."""
        servers = _servers(self._options)
        tasks: list[InputPartition] = []
        for key, place in end.items():
            if start.get(key) != place and key in servers:
                parts = tuple(_between(servers[key], start.get(key), place))
                tasks.append(FilesPartition(parts))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, FilesPartition):
            yield from TXNS.rows(partition.parts, self._columns, Bounds())


def _later(server: ServerFiles, place: Place | None) -> list[FileEntry]:
    """The logs from a place on, its own file first."""
    if place is None:
        return list(server.logs)
    first = _order(int(place["zxid"], 16))
    return [entry for entry in server.logs if _order(entry.zxid or 0) >= first]


def _reach(server: ServerFiles, start: Place | None, most: int | None) -> Place | None:
    """The place after the last sound record that is there now, or `most` bytes on."""
    place = start
    left = most
    for entry in _later(server, start):
        name = f"{_order(entry.zxid or 0):x}"
        is_same = start is not None and start["zxid"] == name
        begin = start["position"] if start is not None and is_same else FILE_HEADER_SIZE
        end = _sound_end(entry.path, begin, left)
        if end is None:
            # Purged a moment ago, or without a header yet.
            continue
        if end > begin or is_same:
            place = {"zxid": name, "position": end}
        if left is not None:
            left -= end - begin
            if left <= 0:
                break
    return place


def _sound_end(path: str, begin: int, most: int | None) -> int | None:
    """Where the sound records from `begin` on end; None if the file cannot be read."""
    end = begin
    try:
        with open_file(path) as file:
            if file.read_at(0, 4) != b"ZKLG":
                return None
            if not is_sound(file, begin):
                # The padding, mostly: nobody has to look for a record after it.
                return begin
            for item in read_frames(file, begin):
                if not isinstance(item, Frames) or item.base != end:
                    break
                end = item.end
                if most is not None and end - begin >= most:
                    break
    except OSError:
        return None
    return end


def _between(server: ServerFiles, start: Place | None, end: Place) -> Iterator[Part]:
    last = _order(int(end["zxid"], 16))
    for entry in _later(server, start):
        order = _order(entry.zxid or 0)
        if order > last:
            return
        is_first = start is not None and _order(int(start["zxid"], 16)) == order
        begin = start["position"] if start is not None and is_first else FILE_HEADER_SIZE
        # A file that was left behind ends where its sound records do: the stream waited there
        # until the next file appeared, and no server appends to a log that is not its last.
        stop = end["position"] if order == last else None
        if stop is None or stop > begin:
            yield _part(server, entry, begin, stop)


class SnapshotStream(DataSourceStreamReader):
    """The znodes of snapshots, each snapshot once, when it is complete."""

    def __init__(self, options: dict[str, str], columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        """No snapshot was read of any server."""
        return {}

    def latestOffset(  # noqa: N802
        self, start: dict[str, str], limit: ReadLimit
    ) -> dict[str, str]:
        """The newest whole snapshot of each server."""
        end = dict(start)
        for key, server in _servers(self._options).items():
            known = _order(int(start[key], 16)) if key in start else -1
            for entry in reversed(server.snapshots):
                order = _order(entry.zxid or 0)
                if order <= known:
                    break
                if _is_whole(entry):
                    end[key] = f"{order:x}"
                    break
        return end

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        """One task per server: its snapshots between two offsets."""
        servers = _servers(self._options)
        tasks: list[InputPartition] = []
        for key, until in end.items():
            known = _order(int(start[key], 16)) if key in start else -1
            last = _order(int(until, 16))
            parts = tuple(
                _part(servers[key], entry, 0, None)
                for entry in (servers[key].snapshots if key in servers else ())
                if known < _order(entry.zxid or 0) <= last
            )
            if parts:
                tasks.append(FilesPartition(parts))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if isinstance(partition, FilesPartition):
            yield from ZNODES.rows(partition.parts, self._columns, Bounds())


def _is_whole(entry: FileEntry) -> bool:
    """Whether a snapshot is there to its last seal: Apache writes it under its final name."""
    try:
        with open_file(entry.path) as file:
            reader = SnapshotReader(file, FileOrigin(file=entry.path))
            for _ in reader.batches(["offset"]):
                continue
    except OSError:
        return False
    return reader.problem is None
