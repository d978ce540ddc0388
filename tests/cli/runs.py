"""Running the command line, in this process and as a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keepfast.cli import main
from keepfast.wire import (
    LogEntry,
    OpCode,
    SessionId,
    SetDataTxn,
    TxnDigest,
    TxnHeader,
    encode_entry,
    make_zxid,
)
from tests.storage.directories import log_bytes

KEEPFAST = (sys.executable, "-m", "keepfast")
TIMEOUT_SECONDS = 240


class Result(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON document."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    def check_sentence(self, *words: str) -> None:
        """One sentence on standard error, nothing on standard output, all of `words` in it."""
        assert self.out == ""
        assert self.err.startswith("keepfast: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        for word in words:
            assert word in self.err


def plain_environment(**changes: str) -> dict[str, str]:
    # As users have it: output is buffered, and a terminal is one with colours.
    left_out = ("NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    return kept | {"TERM": "xterm"} | changes


def run(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    """Run a command as a process of its own."""
    done = subprocess.run(
        [*KEEPFAST, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=plain_environment(**environment),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


class JsonLinesProcess:
    """A command that keeps running and prints a JSON document per line; `take` is given each."""

    def __init__(
        self, *arguments: str, errors: Path, take: Callable[[dict[str, Any]], None]
    ) -> None:
        # To a file: nobody reads a pipe meanwhile, and a full one would stop the command.
        self._errors = errors.open("w+")
        self._take = take
        self.process = subprocess.Popen(
            [*KEEPFAST, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=plain_environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._take(json.loads(line))

    def errors(self) -> str:
        """What it complained of so far."""
        self._errors.seek(0)
        return self._errors.read()

    def end(self, number: signal.Signals, patience: float) -> Result:
        """Send it a signal and wait for its end; what it printed was taken line by line."""
        self.process.send_signal(number)
        code = self.process.wait(patience)
        self._reader.join(patience)
        assert self.process.stdout is not None
        self.process.stdout.close()
        said = self.errors()
        self._errors.close()
        return Result(code, "", said)


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Result:
    """Run a command in this process."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return Result(code, printed.out, printed.err)


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Size, time of change and hash of everything below `root`, by name."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(root))] = (status.st_size, status.st_mtime_ns, digest)
    return found


def write_long_log(path: Path, count: int) -> None:
    """A log of `count` setData records."""
    entries = []
    for number in range(1, count + 1):
        header = TxnHeader(
            SessionId(0x51), number, make_zxid(1, number), 1_700_000_000_000, OpCode.SET_DATA
        )
        body = SetDataTxn(f"/a/{number % 100}", b"value" * 10, number)
        entries.append(encode_entry(LogEntry(header, body, TxnDigest(2, number))))
    path.write_bytes(log_bytes(entries))
