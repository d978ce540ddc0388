"""A program on a pseudo-terminal: type into it, wait for what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_CONTROL_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[()][AB012]|[=>])")
_ROWS, _COLUMNS = 50, 200
_TIMEOUT_SECONDS = 90.0
# Makes the terminal the one whose Ctrl-C the program gets, then becomes the program.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class NotShownError(Exception):
    """The program did not show what was waited for; the text has what it did show."""


class Terminal:
    """A running program. `shown` is all of its output so far, without control sequences."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        )
        os.close(slave)
        self._raw = b""
        self._seen = 0

    @property
    def shown(self) -> str:
        text = _CONTROL_SEQUENCE.sub("", self._raw.decode(errors="replace"))
        return text.replace("\r", "")

    def write(self, text: str) -> None:
        """Type `text`; "\\r" is the Enter key."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Wait until `text` is shown behind what an earlier call has found."""
        deadline = time.monotonic() + timeout
        while (found := self.shown.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or not self._read(left):
                raise NotShownError(f"{text!r} is not in:\n{self.shown[self._seen :]}")
        self._seen = found + len(text)

    def interrupt(self, until: str, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Ctrl-C, as the terminal itself makes it, until `until` is shown.

        More than once, because Python's own input does not see a signal that comes between two
        keys; a person presses the key again.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.write("\x03")
            try:
                self.wait_for(until, timeout=5)
            except NotShownError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
            else:
                return

    def wait_for_end(self, timeout: float = _TIMEOUT_SECONDS) -> int:
        """The exit code of the program."""
        deadline = time.monotonic() + timeout
        while self._process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        return self._process.wait(1)

    def end_input(self, timeout: float = _TIMEOUT_SECONDS) -> int:
        """Ctrl-D until the program ends, and its exit code.

        More than once, because between two prompts the terminal itself swallows one.
        """
        deadline = time.monotonic() + timeout
        while self._process.poll() is None and time.monotonic() < deadline:
            self.write("\x04")
            self._read(0.2)
        return self.wait_for_end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    def _read(self, timeout: float) -> bool:
        """Take what the program shows next; False once it shows nothing more."""
        ready, _, _ = select.select([self._master], [], [], timeout)
        if not ready:
            return True
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            # What Linux says when the last program has closed the terminal.
            return False
        self._raw += data
        return bool(data)
