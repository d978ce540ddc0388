"""Where answers go: text or JSON on standard output, everything else on standard error.

Two threads print: the one that runs commands and the session's, which reports events. Each piece
goes out whole, under one lock. The lock also guards an exchange of `sys.stdout`, which the
interactive loop makes while its prompt is up.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Final, TextIO

from keepfast.client import ClientEvent
from keepfast.shell.formats import Document, event_document, event_text
from keepfast.wire import safe_json, safe_lines

SCHEMA: Final = "keepfast.shell/1"


class Output:
    """Prints; with `is_json` one document per command and one per event, each on a line."""

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        self.lock = threading.RLock()

    def say(self, text: str) -> None:
        """A line of the answer, in text. JSON has the same in its document."""
        if not self.is_json:
            self._write(sys.stdout, text + "\n")

    def note(self, text: str) -> None:
        """A line that is not part of the answer."""
        with self.lock:
            sys.stdout.flush()
            self._write(sys.stderr, text + "\n")
            sys.stderr.flush()

    def document(self, document: Document) -> None:
        """The answer of one command, or an event, in JSON."""
        if self.is_json:
            text = json.dumps({"schema": SCHEMA, **document}, ensure_ascii=False)
            self._write(sys.stdout, text + "\n")

    def event(self, event: ClientEvent) -> None:
        with self.lock:
            if self.is_json:
                self.document({"event": event_document(event)})
            else:
                self.say(f"\nWATCHER::\n\n{event_text(event)}")
            self.flush()

    def flush(self) -> None:
        with self.lock:
            sys.stdout.flush()

    def _write(self, stream: TextIO, text: str) -> None:
        with self.lock:
            if stream.isatty():
                text = safe_json(text) if self.is_json else safe_lines(text)
            stream.write(text)
