"""Audits in the background, one at a time, and past audits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from keepfast.console.console_options import ConsoleRefused
from keepfast.console.hub import Document, Hub

# Written last by the worker: where it is, an audit is complete.
OVERVIEW_NAME: Final = "overview.json"
_NAME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:-\d+)?Z")
_MAX_LISTED: Final = 200
_STOP_SECONDS: Final = 10.0


class Proofs:
    """Audits of the directories at `places`, kept below `directory`."""

    def __init__(self, hub: Hub, places: Sequence[str], directory: str, master: str | None) -> None:
        self._hub = hub
        self._places = tuple(places)
        self._directory = Path(directory)
        self._master = master
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._progress: Document = {"is_running": False}

    def start(self) -> Document:
        """Begin an audit; raises ConsoleRefused if one is under way."""
        with self._lock:
            if self._progress["is_running"]:
                raise ConsoleRefused("an audit is under way; it has to end first")
            name = self._new_name()
            out = self._directory / name
            command = [sys.executable, "-m", "keepfast.console.audit_worker", str(out)]
            self._process = subprocess.Popen(
                [*command, self._master or "", *self._places],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                # Ctrl-C is for the console, which ends it.
                start_new_session=True,
            )
            self._publish(is_running=True, id=name, step="starting", done=0, total=0)
        reader = threading.Thread(
            target=self._read, args=(self._process, name), name="console-audit", daemon=True
        )
        reader.start()
        return self._progress

    def cancel(self) -> None:
        """End the audit that is under way."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()

    def close(self) -> None:
        """End what is under way, with its JVM."""
        process = self._process
        if process is None:
            return
        self.cancel()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()

    def progress(self) -> Document:
        return self._progress

    def listed(self) -> list[Document]:
        """All audits that are kept, the newest first, with what each found."""
        if not self._directory.is_dir():
            return []
        names = sorted(one for one in os.listdir(self._directory) if _NAME.fullmatch(one))
        found = []
        for name in reversed(names[-_MAX_LISTED:]):
            overview = self._load(name)
            if overview is not None:
                keys = ("verdict", "class", "mark", "summary", "finished", "seconds", "is_complete")
                found.append({"id": name, **{key: overview.get(key) for key in keys}})
        return found

    def overview(self, name: str) -> Document:
        """One audit: words, lanes, findings."""
        overview = self._load(name) if _NAME.fullmatch(name) else None
        if overview is None:
            raise ConsoleRefused("there is no such audit")
        return {"id": name, **overview}

    def report(self, name: str) -> str:
        """The audit's own report, one HTML file."""
        path = self._directory / name / "report.html"
        if not _NAME.fullmatch(name) or not path.is_file():
            raise ConsoleRefused("there is no such audit")
        return path.read_text(encoding="utf-8", errors="backslashreplace")

    def _load(self, name: str) -> dict[str, Any] | None:
        try:
            text = (self._directory / name / OVERVIEW_NAME).read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError):
            return None  # one that was cut short
        return found if isinstance(found, dict) else None

    def _new_name(self) -> str:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        name, number = f"{now}Z", 1
        while (self._directory / name).exists():
            number += 1
            name = f"{now}-{number}Z"
        return name

    def _publish(self, **progress: object) -> None:
        self._progress = progress
        self._hub.publish("audit", progress)

    def _read(self, process: subprocess.Popen[str], name: str) -> None:
        """Forward the worker's output, until it ends."""
        failure = ""
        if process.stdout is not None:
            with process.stdout:
                for line in process.stdout:
                    reported = json.loads(line)
                    failure = reported.get("error", failure)
                    self._publish(is_running=True, id=name, **reported)
        code = process.wait()
        if code and not failure:
            failure = "the audit was ended before it was complete"
        self._publish(is_running=False, id=name, error=failure or None)
