"""The server's log: one line an event, with its fields as key=value, or as JSON.

    log.warning("refused", address="10.0.0.7", reason="too many connections")

gives, whatever handlers the program that embeds the server has installed,

    refused server=1 role=standalone epoch=0 address=10.0.0.7 reason="too many connections"

and after `configure_logs` with a time and a level in front, or as one JSON object a line.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TextIO

ROOT_LOGGER: Final = "keepfast"
AUDIT_LOGGER: Final = "keepfast.audit"

# A reader of key=value must find the end of a value.
_NEEDS_QUOTES: Final = frozenset(' "=\\\t\r\n')


class LogFormat(Enum):
    """How lines look."""

    TEXT = "text"
    JSON = "json"


class Event:
    """What happened, with its fields; its text is the line for people."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        pairs = (f"{key}={_quoted(str(value))}" for key, value in self.fields.items())
        return " ".join((self.name, *pairs))


def _quoted(text: str) -> str:
    if text and text.isprintable() and _NEEDS_QUOTES.isdisjoint(text):
        return text
    return json.dumps(text, ensure_ascii=False)


class EventLog:
    """Logs events with a context that every line has; the context is asked for at each one."""

    def __init__(self, context: Callable[[], Mapping[str, object]], name: str) -> None:
        self._context = context
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: object) -> None:
        """Something that is part of normal work."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that somebody may have to look at."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that failed; the server goes on."""
        self._log(logging.ERROR, event, fields)

    def critical(self, event: str, **fields: object) -> None:
        """Something after which the server does not go on."""
        self._log(logging.CRITICAL, event, fields)

    def _log(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, Event(event, {**self._context(), **fields}))


class TextFormatter(logging.Formatter):
    """`2026-11-15T09:17:11.123Z INFO refused server=1 ...`; times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        lines = f"{_time_of(record)} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            lines += "\n" + self.formatException(record.exc_info)
        return lines


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, Event):
            document |= {"event": record.msg.name, **record.msg.fields}
        else:
            document["event"] = record.getMessage()
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def configure_logs(
    format: LogFormat = LogFormat.TEXT,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    audit_file: str | None = None,
) -> None:
    """Send everything that Keepfast logs to a stream (standard error), once a process.

    The audit log goes to its own file, if one is named: each line as Apache writes it, or JSON.
    """
    formatter = JsonFormatter() if format is LogFormat.JSON else TextFormatter()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    logger = logging.getLogger(ROOT_LOGGER)
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    audit = logging.getLogger(AUDIT_LOGGER)
    for old in audit.handlers:
        old.close()
    audit.handlers.clear()
    audit.setLevel(logging.INFO)
    audit.propagate = audit_file is None
    if audit_file is not None:
        file_handler = logging.FileHandler(audit_file, encoding="utf-8", errors="replace")
        file_handler.setFormatter(formatter)
        audit.addHandler(file_handler)
