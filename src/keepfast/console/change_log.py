"""The console's audit log: who changed what through it, one line each, as servers write theirs.

    2026-11-17T02:30:00Z user=digest:alice ip=10.0.0.7 operation=setData znode=/a result=success

with tabs between the fields.
"""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from keepfast.console.console_options import ConsoleRefused
from keepfast.wire import safe_text


class ChangeLog:
    """Appends to a file, or to standard error."""

    def __init__(self, path: str | None) -> None:
        """Raises ConsoleRefused if the file cannot be written."""
        self._lock = threading.Lock()
        self._path = None if path is None else Path(path)
        self.check()

    def write(self, user: str, address: str, operation: str, path: str, result: str) -> None:
        """One change, or one attempt; it is on its way to the disk when this returns."""
        fields = {
            "user": user,
            "ip": address,
            "operation": operation,
            "znode": path,
            "result": result,
        }
        # A path may hold any character: a tab or a line end must not forge the next field or line,
        # nor an escape sequence reach the reader's terminal.
        shown = "\t".join(f"{key}={safe_text(value)}" for key, value in fields.items())
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._append(f"{now}\t{shown}\n")

    def check(self) -> None:
        """Raise ConsoleRefused if nothing can be written there: then nothing may be changed."""
        self._append("")

    def _append(self, text: str) -> None:
        """Opened for each line, so that the file can be rotated by renaming it."""
        with self._lock:
            if self._path is None:
                print(text, end="", file=sys.stderr, flush=True)
                return
            try:
                with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
            except OSError as error:
                raise ConsoleRefused(f"--audit-log {self._path}: {error.strerror}") from error
