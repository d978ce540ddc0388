"""Why Spark failed, in a sentence: what it says itself is a page of Java, and a log."""

from __future__ import annotations

import re
from pathlib import Path

from keepfast.wire import KeepfastError

_MAX_CHARACTERS = 500
_LOG_BYTES = 1 << 20
# The last line of a traceback: the name of an exception, and mostly what it says.
_PYTHON_CAUSE = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Exit)): (.+)$")
_JAVA_CAUSE = re.compile(r"^\s*Caused by: (?:[a-z][\w$]*\.)+[\w$]+(?:: (.+))?$")
_LOG_CAUSE = re.compile(
    r"^(?:Exception in thread \S+ |Caused by: )(?:(?:[a-z][\w$]*\.)+[\w$]+: )?(.+)$|"
    r"^Error: (.+)$|^(Invalid .+|Error occurred during initialization.*|.*: command not found.*)$"
)


class JobFailed(KeepfastError):  # noqa: N818 - says what is wrong, as all errors here
    """A Spark job, or Spark itself, failed; `str()` is one sentence that names the log."""

    def __init__(self, reason: str, log_path: str | None) -> None:
        super().__init__(reason, log_path)
        self.reason = reason
        self.log_path = log_path

    def __str__(self) -> str:
        where = f" Spark's log: {self.log_path}" if self.log_path else ""
        return f"Spark failed: {self.reason}{where}"


def cause_of(error: Exception) -> str:
    """The sentence in a failure of Spark that says what went wrong; the rest is in the log.

    Of a task that failed that is the last line of its own traceback, else the innermost of Java's
    causes.
    """
    lines = str(error).splitlines()
    if any(line.strip().startswith("Traceback (most recent call last)") for line in lines):
        python = [match for line in lines if (match := _PYTHON_CAUSE.match(line.strip()))]
        if python:
            name, text = python[-1].groups()
            return f"{name.rpartition('.')[2]}: {text}"[:_MAX_CHARACTERS]
    found = _last(_JAVA_CAUSE, lines) or _first_line(lines) or type(error).__name__
    return found[:_MAX_CHARACTERS]


def cause_in_log(path: str) -> str:
    """Why a JVM did not start: only its log says it."""
    found = _last(_LOG_CAUSE, _tail(path)) or "it ended, and its log does not say why"
    return f"its JVM did not start: {found}"[:_MAX_CHARACTERS]


def _last(pattern: re.Pattern[str], lines: list[str]) -> str:
    found = [match for line in lines if (match := pattern.match(line.rstrip()))]
    texts = [next((group for group in match.groups() if group), "") for match in found]
    return next((text for text in reversed(texts) if text), "")


def _first_line(lines: list[str]) -> str:
    for line in lines:
        text = line.strip()
        if text and not text.startswith(("at ", "An error occurred while calling")):
            return text.removeprefix(": ")
    return ""


def _tail(path: str) -> list[str]:
    try:
        with Path(path).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
