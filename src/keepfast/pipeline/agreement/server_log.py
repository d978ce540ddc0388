"""The records of one server's logs, in the order in which they lie there, also while it writes.

A log that is being written ends in zeros, or in a record that is not complete yet: both mean "no
more for now". A log is finished when a later one is there; only then is a bad record in it damage,
and only then are sound records after the damage looked for. A server may also take records back
(TRUNC) or lose its files: the last record that was read is looked at again before the next one, and
if it is gone, the logs are read again from where the caller stands.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from keepfast.storage import (
    DataDirectory,
    Disk,
    LogReader,
    ReadFile,
    list_directory,
    load_manifest,
    parse_log_name,
)
from keepfast.wire import CorruptManifest, StorageError

_FIRST_OFFSET = 16
_FRAME = struct.Struct(">qi")
_NOTHING = bytes(_FRAME.size)
# Read at a time. More than one record nearly always; and little enough that the padding after
# the last record of a live log is not looked through at each poll.
_WINDOW_BYTES = 4 << 20
_OVERHEAD_BYTES = _FRAME.size + 1
_LARGEST_BYTES = 128 << 20  # as storage has it: a length beyond it is damage


class Record(NamedTuple):
    """A sound record, and where it lies."""

    zxid: int
    entry: bytes
    file: str
    offset: int


class ServerLog:
    """The records of one server after the zxid that the caller has reached, read as they come."""

    def __init__(
        self,
        disk: Disk,
        directory: DataDirectory,
        server: str,
        unread: dict[str, None] | None = None,
    ) -> None:
        """What is there and cannot be read is added to `unread`, a sentence each."""
        self.server = server
        self._unread = {} if unread is None else unread
        self._disk = disk
        self._directory = directory
        self._frames: Iterator[Record] = iter(())
        self._next: Record | None = None
        # The last record that was read: proof that the log is still the one that was read.
        self._seen: Record | None = None
        self._name: str | None = None
        self._offset = _FIRST_OFFSET
        # The zxid of the record before `peek()`, in this log; None if there is none.
        self.before: int | None = None

    def start(self, after: int) -> None:
        """Start over, at the log in which the records after `after` must be."""
        self._frames, self._next, self._seen = iter(()), None, None
        self._name, self._offset, self.before = None, _FIRST_OFFSET, None
        for name in self._names():
            zxid = parse_log_name(name) or 0
            if self._name is None or zxid <= after:
                self._name = name

    def peek(self) -> Record | None:
        """The next record; None if there is none now."""
        if self._next is None:
            self._next = next(self._frames, None)
        return self._next

    def pop(self) -> None:
        """Step over the record that `peek` gave."""
        if self._next is not None:
            self.before, self._next = self._next.zxid, None

    def skip_to(self, zxid: int) -> None:
        """Step over all records up to `zxid`."""
        while (record := self.peek()) is not None and record.zxid <= zxid:
            self.pop()

    def poll(self, reached: int) -> None:
        """Look for what was written since; the caller stands at `reached`."""
        known = self.peek() or self._seen
        if known is not None and not self._is_still_there(known):
            # Taken back, also if it waits to be asked for: a vote for it would be a dead one.
            self.start(reached)
        if self._next is None:
            self._frames = self._read()
            self.skip_to(reached)

    def find(self, zxid: int) -> bytes | None:
        """The record with this zxid, wherever it lies in the logs."""
        other = ServerLog(self._disk, self._directory, self.server)
        other.start(zxid)
        other.poll(zxid - 1)
        record = other.peek()
        return record.entry if record is not None and record.zxid == zxid else None

    def _names(self) -> list[str]:
        """The logs that count, in zxid order; none if the server has no files now."""
        try:
            names = list(list_directory(self._disk, self._directory).logs)
            manifest = load_manifest(self._disk, self._directory)
        except CorruptManifest:
            return names
        except (StorageError, OSError):
            return []
        if manifest is None:
            return names
        # What a Keepfast server retired does not exist any more; the newest log may be newer than
        # the manifest that was just read.
        retired = {entry.name for entry in manifest.retired}
        return [name for name in names if name not in retired]

    def _is_still_there(self, seen: Record) -> bool:
        head = _FRAME.pack(zlib.adler32(seen.entry), len(seen.entry))
        try:
            with closing(self._disk.open_read(seen.file)) as file:
                return file.read_at(seen.offset, _FRAME.size) == head
        except OSError:
            return False

    def _read(self) -> Iterator[Record]:
        """Records from the current place to the last one that is complete now."""
        # Listed before anything is read: a log is finished once a later one is there.
        names = self._names()
        while True:
            if self._name is None:
                if not names:
                    return
                self._name = names[0]
            later = [name for name in names if _order(name) > _order(self._name)]
            try:
                yield from self._read_file(self._name, is_finished=bool(later))
            except FileNotFoundError:
                # Purged, or taken away, since it was listed. What comes next shows it.
                pass
            except OSError as error:
                path = self._directory.in_logs(self._name)
                why = error.strerror or error
                self._unread[f"server {self.server}: {path} cannot be read: {why}"] = None
            if not later:
                return
            self._name, self._offset = later[0], _FIRST_OFFSET

    def _read_file(self, name: str, is_finished: bool) -> Iterator[Record]:
        path = self._directory.in_logs(name)
        with closing(self._disk.open_read(path)) as file:
            while True:
                head = file.read_at(self._offset, _FRAME.size)
                if len(head) < _FRAME.size or head == _NOTHING:
                    return
                before = self._offset
                wanted = min(max(_FRAME.unpack(head)[1] + _OVERHEAD_BYTES, 0), _LARGEST_BYTES)
                stop = before + max(_WINDOW_BYTES, wanted)
                for frame in LogReader(file, before, stop):
                    self._offset = frame.end
                    self._seen = Record(frame.zxid, frame.entry, path, frame.offset)
                    yield self._seen
                if self._offset == before:
                    behind = _behind_damage(file, before) if is_finished else None
                    if behind is None:
                        return
                    self._offset = behind


def _order(name: str) -> int:
    return parse_log_name(name) or 0


def _behind_damage(file: ReadFile, offset: int) -> int | None:
    """Where sound records continue after a bad one, in a log that is finished."""
    reader = LogReader(file, offset)
    for _ in reader:
        return offset  # it became complete a moment ago
    return reader.ending.valid_after
