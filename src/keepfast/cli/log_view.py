"""`keepfast inspect` on a transaction log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

import msgspec

from keepfast.cli.output import CommandFailed, DocumentStream, ExitCode, Out, to_json
from keepfast.cli.record_lines import (
    TEXT_HEAD,
    RecordFilter,
    Selected,
    record_fields,
    record_text,
)
from keepfast.cli.values import counted, optional_zxid, size_text, zxid_span
from keepfast.storage import Ending, Frame, LogReader, ReadFile
from keepfast.wire import MalformedRecord, Zxid

_HEADER = struct.Struct(">4siq")
_BATCH = 64


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What to show of a log, and how."""

    only: RecordFilter = field(default_factory=RecordFilter)
    limit: int | None = None
    redact: bool = False
    as_json: bool = False
    as_lines: bool = False


class LogView:
    """Reads one log from its first record to its end, skipping damaged places, and counts."""

    def __init__(self, file: ReadFile, path: str, options: LogOptions) -> None:
        self._file = file
        self._options = options
        self.path = path
        self.count = 0
        self.shown = 0
        self.undecodable = 0
        self.first: Zxid | None = None
        self.last: Zxid | None = None
        self.damage: list[Ending] = []
        self.ending: Ending | None = None  # None: not reached

    def header(self) -> dict[str, object]:
        """What the file says about itself."""
        magic, version, dbid = _HEADER.unpack(self._file.read_at(0, _HEADER.size))
        return {
            "size": self._file.size(),
            "magic": magic.decode("ascii"),
            "format_version": version,
            "dbid": dbid,
        }

    @property
    def is_torn(self) -> bool:
        """Whether the log ends as a crash leaves it."""
        ending = self.ending
        return ending is not None and ending.torn and ending.valid_after is None

    def _frames(self) -> Iterator[Frame]:
        count, start, frame = 0, None, None
        try:
            while True:
                reader = LogReader(self._file) if start is None else LogReader(self._file, start)
                try:
                    for frame in reader:
                        if not count:
                            self.first = Zxid(frame.zxid)
                        count += 1
                        yield frame
                    ending = reader.ending
                except OSError as error:
                    offset = _HEADER.size if frame is None else frame.end
                    ending = Ending(offset, error.strerror or "cannot be read")
                if ending.valid_after is None:
                    break
                # No server reads past this point, but someone looking for lost data wants to see
                # it.
                self.damage.append(ending)
                start = ending.valid_after
            if not ending.is_plain and not ending.torn:
                self.damage.append(ending)
            self.ending = ending
        finally:
            # Once, not per record: this loop decides how fast a long log is shown.
            self.count = count
            self.last = None if frame is None else Zxid(frame.zxid)

    def records(self) -> Iterator[Selected]:
        """The requested records, up to the limit."""
        return islice(self._options.only.select(self._frames()), self._options.limit)

    def note(self, batch: list[Selected]) -> None:
        """Count records that are shown."""
        self.shown += len(batch)
        self.undecodable += sum(isinstance(entry, MalformedRecord) for _, entry in batch)

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for the part of the log that was read."""
        return ExitCode.WRONG if self.damage or self.undecodable else ExitCode.OK


def show_log(file: ReadFile, path: str, options: LogOptions, out: Out) -> ExitCode:
    """Print a log; returns the exit code."""
    view = LogView(file, path, options)
    records = view.records()
    first = next(records, None)
    if view.count == 0 and view.ending is not None and not view.ending.is_plain:
        raise CommandFailed(
            f"{path}: no record in it can be read: {view.ending.reason} (offset "
            f"{view.ending.offset}); keepfast verify shows what the other files prove"
        )
    if first is None and (options.only.at is not None or options.only.at_time_ms is not None):
        _fail_not_found(view)
    if options.as_lines:
        _print_lines(view, first, records, options, out)
    elif options.as_json:
        _print_document(view, first, records, options, out)
    else:
        _print_text(view, first, records, options, out)
    return view.exit_code


def _fail_not_found(view: LogView) -> None:
    held = "no record"
    if view.first is not None and view.last is not None:
        held = zxid_span(view.first, view.last)
    raise CommandFailed(
        f"{view.path}: there is no such record; the log holds {held}", ExitCode.REFUSED
    )


def _batches(
    view: LogView, first: Selected | None, records: Iterator[Selected]
) -> Iterator[list[Selected]]:
    """All records in batches, each counted."""
    waiting = records if first is None else chain((first,), records)
    while batch := list(islice(waiting, _BATCH)):
        view.note(batch)
        yield batch


def _print_text(
    view: LogView,
    first: Selected | None,
    records: Iterator[Selected],
    options: LogOptions,
    out: Out,
) -> None:
    out.line(out.paint(TEXT_HEAD, "bold"))
    redact, reported = options.redact, 0
    for batch in _batches(view, first, records):
        if len(view.damage) == reported:
            out.write("".join([record_text(frame, entry, redact) for frame, entry in batch]))
            continue
        for frame, entry in batch:
            if reported < len(view.damage) and frame.offset > view.damage[reported].offset:
                reported = _print_damage(view, reported, frame.offset, out)
            out.write(record_text(frame, entry, redact))
    _print_damage(view, reported, None, out)
    out.line(_summary(view))


def _print_damage(view: LogView, reported: int, before: int | None, out: Out) -> int:
    """Print the damage before the offset `before` that was not printed yet."""
    for ending in view.damage[reported:]:
        if before is not None and ending.offset > before:
            break
        reported += 1
        text = f"DAMAGE at offset {ending.offset}: {ending.reason}"
        if ending.valid_after is not None:
            text += f"; a server stops here, sound records follow at offset {ending.valid_after}"
        out.line(out.paint(text, "bad"))
    return reported


def _summary(view: LogView) -> str:
    ending = view.ending
    if ending is None:
        return f"{counted(view.shown, 'record')} shown; the rest of the log was not read"
    span = ""
    if view.first is not None and view.last is not None:
        span = f", {zxid_span(view.first, view.last)}"
    shown = "" if view.shown == view.count else f", {view.shown} shown"
    if ending.is_plain:
        how = f"plain end at offset {ending.offset}"
    elif view.is_torn:
        how = f"torn tail at offset {ending.offset}: {ending.reason} (a crash explains it)"
    else:
        how = f"ends in damage at offset {ending.offset}"
    return f"{counted(view.count, 'record')}{span}{shown}; {size_text(ending.offset)}; {how}"


def _ending_fields(view: LogView) -> dict[str, object]:
    ending = view.ending
    if ending is None:
        kind = "not read"
    elif ending.is_plain:
        kind = "plain"
    else:
        kind = "torn" if view.is_torn else "damage"
    return {
        "shown": view.shown,
        "count": None if ending is None else view.count,
        "first_zxid": optional_zxid(view.first),
        "last_zxid": None if ending is None else optional_zxid(view.last),
        "ending": {
            "kind": kind,
            "offset": None if ending is None else ending.offset,
            "reason": "" if ending is None else ending.reason,
        },
        "damage": [
            {"offset": e.offset, "reason": e.reason, "sound_records_at": e.valid_after}
            for e in view.damage
        ],
        "undecodable": view.undecodable,
        "exit_code": int(view.exit_code),
    }


def _encoded(
    view: LogView, first: Selected | None, records: Iterator[Selected], redact: bool, between: str
) -> Iterator[str]:
    """The records as JSON, many in one string."""
    encode, separator = msgspec.json.Encoder().encode, between.encode()
    for batch in _batches(view, first, records):
        parts = [encode(record_fields(frame, entry, redact)) for frame, entry in batch]
        yield separator.join(parts).decode()


def _print_document(
    view: LogView,
    first: Selected | None,
    records: Iterator[Selected],
    options: LogOptions,
    out: Out,
) -> None:
    document = DocumentStream(out)
    document.fields({"schema": "keepfast.log/1", "file": view.path})
    document.fields(view.header())
    document.array("records", _encoded(view, first, records, options.redact, ",\n"))
    document.fields(_ending_fields(view))
    document.end()


def _print_lines(
    view: LogView,
    first: Selected | None,
    records: Iterator[Selected],
    options: LogOptions,
    out: Out,
) -> None:
    """One JSON value per line: the records, and at last how the log ends."""
    for lines in _encoded(view, first, records, options.redact, "\n"):
        out.line(lines)
    out.line(to_json({"schema": "keepfast.log/1", "file": view.path, **_ending_fields(view)}))
