"""What all commands have in common: exit codes, errors, text, JSON, colour and progress.

Answers go to standard output, everything else to standard error. Text is for people and may change;
JSON has a `schema` field and is stable. Colour and progress bars appear on a terminal only, and
colour neither where NO_COLOR is set (no-color.org) nor where TERM is dumb.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Counts and seconds on the command line: what nobody means, and Python's library cannot take.
MAX_COUNT = 1_000_000_000
MAX_SECONDS = 86_400
_FLUSH_CHARACTERS = 1 << 16
_QUIET_SECONDS = 2.0
_ANSI = {"good": "32", "warning": "33", "bad": "31", "dim": "2", "bold": "1"}


class ExitCode(IntEnum):
    """The same in every command."""

    OK = 0
    WRONG = 1  # the check found something wrong
    UNUSABLE = 2  # bad usage or unreadable input
    INCOMPLETE = 3  # nothing wrong in what could be checked, but not everything could be
    REFUSED = 4  # refused, or failed for another reason
    INTERRUPTED = 130  # Ctrl-C
    BROKEN_PIPE = 141  # who read the output has gone


def worst_code(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code of several results: the worst of what each of them ends with."""
    order = (ExitCode.OK, ExitCode.INCOMPLETE, ExitCode.WRONG)
    return max(codes, key=order.index, default=ExitCode.OK)


class CommandFailed(Exception):  # noqa: N818 - it ends a command, it is not a fault in one
    """Ends a command: `sentence` says what is wrong, where, and what to do next."""

    def __init__(self, sentence: str, code: ExitCode = ExitCode.UNUSABLE) -> None:
        super().__init__(sentence, code)
        self.sentence = sentence
        self.code = code


class Out:
    """Standard output, written in large pieces: a log has millions of lines."""

    def __init__(
        self, stream: TextIO | None = None, before: Callable[[], None] | None = None
    ) -> None:
        """`before` is called before output to a terminal: it removes a progress bar."""
        self._stream = stream or sys.stdout
        self._before = before
        self._parts: list[str] = []
        self._size = 0
        # Placeholder for ESC until it is written, so that untrusted text cannot contain one.
        self._escape = f"\x1b{secrets.token_hex(8)}"
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.has_colour = self._stream.isatty() and not is_plain

    def line(self, text: str = "") -> None:
        """Print a line."""
        self.write(text + "\n")

    def write(self, text: str) -> None:
        """Print text; what is not printable in it is escaped."""
        self._parts.append(text)
        self._size += len(text)
        if self._size >= _FLUSH_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        text = "".join(self._parts)
        if not text.replace("\n", "").isprintable():
            # Here, as a command that only shows its help needs none of it.
            from keepfast.wire import safe_lines

            # Our own colours stay; other unprintable characters came from untrusted text.
            text = "\x1b".join(map(safe_lines, text.split(self._escape)))
        self._parts.clear()
        self._size = 0
        if self._before is not None and self._stream.isatty():
            self._before()
        self._stream.write(text)
        self._stream.flush()

    def paint(self, text: str, style: str) -> str:
        """`text` in a colour, where there are colours."""
        escape = self._escape
        return f"{escape}[{_ANSI[style]}m{text}{escape}[0m" if self.has_colour and style else text

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        """Print names and values, one pair per line."""
        rows = list(rows)
        width = max((len(name) for name, _ in rows), default=0)
        for name, value in rows:
            self.line(f"{self.paint(f'{name:<{width}}', 'bold')}  {value}")

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> None:
        """Print columns; `right` has the heads of those that are aligned to the right."""
        numbers = set(right.split())
        widths = [
            max(len(head), *(len(row[column]) for row in rows)) if rows else len(head)
            for column, head in enumerate(heads)
        ]

        def cells(row: Sequence[str]) -> str:
            parts = [
                f"{cell:>{width}}" if head in numbers else f"{cell:<{width}}"
                for cell, width, head in zip(row, widths, heads, strict=True)
            ]
            return "  ".join(parts).rstrip()

        self.line(self.paint(cells(heads), "bold"))
        for row in rows:
            self.line(cells(row))


def to_json(value: object, indent: int | None = None) -> str:
    """One value as JSON."""
    import msgspec

    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # The name of a file that is not UTF-8, on the command line or in a directory.
        return json.dumps(value, indent=indent)
    from keepfast.wire import safe_json

    text = (data if indent is None else msgspec.json.format(data, indent=indent)).decode()
    return safe_json(text)


def print_document(out: Out, document: dict[str, object]) -> None:
    """Print one JSON document, indented."""
    out.line(to_json(document, indent=2))


class DocumentStream:
    """One JSON object that is printed incrementally: memory stays bounded however long it is."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._separator = "{\n"

    def field(self, name: str, value: object) -> None:
        """Print one field."""
        self._out.write(f"{self._separator}{to_json(name)}: {to_json(value)}")
        self._separator = ",\n"

    def fields(self, values: dict[str, object]) -> None:
        """Print several fields."""
        for name, value in values.items():
            self.field(name, value)

    def array(self, name: str, items: Iterable[str]) -> None:
        """Print an array of values that are JSON already, one per line."""
        write = self._out.write
        write(f"{self._separator}{to_json(name)}: [")
        before = "\n"
        for item in items:
            write(before + item)
            before = ",\n"
        write("\n]" if before != "\n" else "]")
        self._separator = ",\n"

    def end(self) -> None:
        """Close the object."""
        self._out.line("\n}" if self._separator != "{\n" else "{}")


class ProgressBar:
    """Shows on standard error how much was read, on a terminal, once the work takes a while."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._start = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._is_shown = sys.stderr.isatty()

    def on_read(self, path: str, size: int) -> None:
        """Record that `size` bytes of `path` were read."""
        self._done += size
        if not self._is_shown:
            return
        if self._bar is None:
            if time.monotonic() - self._start < _QUIET_SECONDS:
                return
            self._open()
        if self._bar is not None and self._task is not None:
            name = path.rpartition("/")[2]
            self._bar.update(self._task, completed=self._done, description=f"{self._what} {name}")

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        ends = TimeElapsedColumn() if self._total is None else TimeRemainingColumn()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            ends,
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._what, total=self._total)
        self._bar.start()

    def close(self) -> None:
        """Remove the bar permanently."""
        self._is_shown = False
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def progress_bar(what: str, total: int | None = None) -> Iterator[ProgressBar]:
    """A progress bar around some work."""
    bar = ProgressBar(what, total)
    try:
        yield bar
    finally:
        bar.close()
