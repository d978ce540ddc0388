"""The server's log: one line per event, with its fields as key=value, or as JSON.

    log.warning("refused", address="10.0.0.7", reason="too many connections")

gives, whatever handlers the program that embeds the server has installed,

    refused server=1 role=standalone epoch=0 address=10.0.0.7 reason="too many connections"

and after `configure_logs` with a time and a level in front, or as one JSON object per line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TextIO

from keepfast.wire import safe_json, safe_lines

ROOT_LOGGER: Final = "keepfast"
AUDIT_LOGGER: Final = "keepfast.audit"

# Events that anyone who reaches an open port can cause, or that repeat until there is a leader: one
# line of each kind per minute, unless debug lines are enabled.
ONCE_PER_MINUTE: Final = frozenset(
    (
        *("closed", "refused"),
        *("peer-refused", "peer-broke-protocol", "learner-refused", "notification-dropped"),
        *("stranger-linked", "stranger-unlinked", "vote-of-unknown-state", "vote-of-my-own-id"),
        *("vote-for-no-voter", "vote-of-implausible-round", "vote-of-implausible-epoch"),
        *("vote-with-malformed-config", "vote-without-history", "vote-of-old-round"),
        "leader-not-reached",
    )
)
_MINUTE: Final = 60.0
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]*[0-9][0-9a-fA-F]*")
_KIND_LENGTH: Final = 80
_MAX_KINDS: Final = 256

# A parser of key=value must find the end of a value.
_NEEDS_QUOTES: Final = frozenset(' "=\\\t\r\n')


class LogFormat(Enum):
    """How lines look."""

    TEXT = "text"
    JSON = "json"


class LogEvent:
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
    return safe_json(json.dumps(text, ensure_ascii=False))


class EventLog:
    """Logs events with a context on every line; the context is evaluated for each one."""

    def __init__(self, context: Callable[[], Mapping[str, object]], name: str) -> None:
        self._context = context
        self._logger = logging.getLogger(name)
        self._limit = _MinuteLimit()

    def info(self, event: str, **fields: object) -> None:
        """Something that is part of normal work."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Something that may need attention."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something that failed; the server continues."""
        self._log(logging.ERROR, event, fields)

    def critical(self, event: str, *, error: Exception | None = None, **fields: object) -> None:
        """Something after which the server stops; with an error, also where it arose."""
        self._log(logging.CRITICAL, event, fields, error)

    def _log(
        self,
        level: int,
        event: str,
        fields: Mapping[str, object],
        error: Exception | None = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        # With debug lines enabled, someone is looking for one client and wants all of them.
        if event in ONCE_PER_MINUTE and not self._logger.isEnabledFor(logging.DEBUG):
            left_out = self._limit.count(event, fields.get("reason"))
            if left_out is None:
                return
            if left_out:
                fields = {**fields, "left_out": left_out}
        line = LogEvent(event, {**self._context(), **fields})
        self._logger.log(level, line, exc_info=error)


class _MinuteLimit:
    """Allows one line of each kind per minute."""

    def __init__(self) -> None:
        # Kind -> when one was written last, and how many were left out since.
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def count(self, event: str, reason: object) -> int | None:
        """How many were left out since the last line of this kind; None: leave this out, too."""
        # Numbers in a reason are chosen by clients: they do not make it another kind.
        kind = (event, _NUMBER.sub("#", str(reason))[:_KIND_LENGTH])
        now = time.monotonic()
        since, left_out = self._seen.get(kind, (-_MINUTE, 0))
        if now - since < _MINUTE:
            self._seen[kind] = (since, left_out + 1)
            return None
        if len(self._seen) >= _MAX_KINDS:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        return left_out


class TextFormatter(logging.Formatter):
    """`2026-11-15T09:17:11.123Z INFO refused server=1 ...`; times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        lines = f"{_time_of(record)} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            lines += "\n" + self.formatException(record.exc_info)
        return safe_lines(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, event and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if isinstance(record.msg, LogEvent):
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
    """Send everything that Keepfast logs to a stream (standard error); once per process.

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
