"""A machine of a page's own, in namespaces of the kernel, and a shell in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from tests.docs.inside import HOME
from tests.docs.pages import PROJECT, Command, is_shown

# How long a command may take: the longest is a minute on a machine at rest, and ten times that on
# a busy one.
_PATIENCE_SECONDS: Final = 600.0
_LOOK_SECONDS: Final = 0.02
_MARK: Final = "==ended=="
# What has to be printed before a reader would press Ctrl-C; for others the first line.
_READY: Final = {"keepfast ensemble": "leads"}


def _unshare(*command: str) -> list[str]:
    # A user namespace lends the rights to mount; who has them needs none, and inside a chroot
    # there could be none.
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *user, *kinds, *command]


def why_no_machine() -> str | None:
    """Why machines cannot be made here; None if they can."""
    if shutil.which("unshare") is None or shutil.which("bash") is None:
        return "needs unshare (Linux) and bash"
    done = subprocess.run(_unshare("true"), capture_output=True, text=True, check=False)
    return f"needs namespaces: {done.stderr.strip()}" if done.returncode else None


class Ended(NamedTuple):
    """What a command did."""

    code: int
    printed: str


class Machine:
    """Runs commands one after the other in one shell, until the end of the `with` block."""

    def __init__(self, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name in ("keepfast", "python", "pytest"):
            module = "" if name == "python" else f"-m {name}"
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            (programs / name).chmod(0o755)
        root = folder / "root"
        root.mkdir()
        # Opened apart from what the shell writes to: one open file has one position, and looking at
        # it from here would move the place at which the shell writes next.
        outputs = [(folder / name).open("wb") for name in ("output", "errors")]
        self._output = (folder / "output").open("rb")
        self._errors = (folder / "errors").open("rb")
        self._seen = 0
        self._shell = subprocess.Popen(
            _unshare(sys.executable, "-m", "tests.docs.inside", str(root)),
            stdin=subprocess.PIPE,
            stdout=outputs[0],
            # The shell's own: that a job was killed, for example.
            stderr=outputs[1],
            cwd=PROJECT,
            env={
                "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": HOME,
                "TZ": "UTC",
                "LC_ALL": "C.UTF-8",
            },
        )
        for output in outputs:
            output.close()
        # Each job is a group of processes of its own, as in a shell on a terminal, so that one can
        # be interrupted.
        self._write("set -m")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()
        self._output.close()
        self._errors.close()

    def run(self, command: Command) -> Ended:
        """Run a command as it is printed; one that is endless until it is ready, then Ctrl-C."""
        if not command.is_endless:
            self._write(f"{{ {command.line}\n}} </dev/null 2>&1")
            if command.bare.endswith("&"):
                self._wait(lambda text: is_shown(command.shown, text), command)
            return self._end(command)
        self._write(f"exec {command.bare} </dev/null 2>&1 &")
        words = " ".join(command.bare.split()[:2])
        ready = _READY.get(words, "\n")
        self._wait(lambda text: ready in text, command)
        self._write("kill -INT -- -$!; wait $!")
        return self._end(command)

    def script(self, line: str) -> str:
        """Run a line of the tests' own, which has to succeed; gives what it printed."""
        ended = self.run(Command(line, ""))
        assert ended.code == 0, f"{line}: {ended.printed}"
        return ended.printed

    def _end(self, command: Command) -> Ended:
        self._write(f"printf '\\n{_MARK}%d\\n' $?")
        mark = f"\n{_MARK}"
        text = self._wait(lambda text: mark in text and "\n" in text.rpartition(mark)[2], command)
        printed, _, rest = text.rpartition(mark)
        # After the code: what a command in the background has printed since.
        code = rest.partition("\n")[0]
        self._seen = self._output.tell()
        return Ended(int(code), printed)

    def _wait(self, is_met: Callable[[str], bool], command: Command) -> str:
        """Wait until what was printed since the last command's end meets a condition."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._output.seek(self._seen)
            text = self._output.read().decode(errors="replace")
            if is_met(text):
                return text
            self._errors.seek(0)
            errors = self._errors.read().decode(errors="replace")
            assert self._shell.poll() is None, f"the machine ended: {errors}"
            assert time.monotonic() < deadline, f"{command.line}: printed only {text!r} {errors}"
            time.sleep(_LOOK_SECONDS)

    def _write(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line.encode() + b"\n")
        self._shell.stdin.flush()
