"""A server as a process of this machine: started, stopped, killed, left hanging.

Of any kind: what is run is given as a command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

_STOP_SECONDS: Final = 15.0
_STILL_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_LAST_BYTES: Final = 4096


class LocalProcess:
    """One process at a time; what it prints is appended to `log_path`."""

    def __init__(self, log_path: Path, death_signal: signal.Signals | None = None) -> None:
        """`death_signal`: sent to it when this process ends, however that happens.

        Linux only, and only if it is launched on a thread that lives as long as this process.
        """
        self.log_path = log_path
        self.is_paused = False
        # Stopped by a command: its absence is expected.
        self.is_wanted = False
        self.environment: dict[str, str] = {}
        self._before_exec = None if death_signal is None else _dying_with_parent(death_signal)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process is not None and self.is_running else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How its last process ended; None: it runs, or there never was one."""
        return None if self._process is None else self._process.poll()

    def launch(self, command: Sequence[str]) -> None:
        """Start it, and do not wait."""
        self.is_wanted, self.is_paused = True, False
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                # Ctrl-C is for the one who runs the servers, and stops them in order.
                start_new_session=True,
                preexec_fn=self._before_exec,  # noqa: PLW1509
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs; one that ends it wakes it first."""
        if self._process is None or not self.is_running:
            return
        if self.is_paused and number is not signal.SIGCONT:
            self._process.send_signal(signal.SIGCONT)
            self.is_paused = False
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stop it in order (SIGTERM), and wait; kill it if it takes too long."""
        self.is_wanted = False
        self.signal(signal.SIGTERM)
        self.wait_stopped()

    def wait_stopped(self) -> None:
        """Wait for its end; after a while end it."""
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.is_wanted = self.is_paused = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Suspend it (SIGSTOP); all its threads are stopped when this returns."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(signal.SIGSTOP)
        self.is_paused = True
        tasks, deadline = Path(f"/proc/{self._process.pid}/task"), time.monotonic() + _STILL_SECONDS
        while not _all_stopped(tasks) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def resume(self) -> None:
        """Let it continue (SIGCONT)."""
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def last_words(self) -> str:
        """The last line that it printed which says something."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
            for line in reversed(lines):
                if line.strip():
                    return line.strip()
        return ""


def stop_all(processes: Iterable[LocalProcess]) -> None:
    """Stop all at once, in order, and wait for all."""
    found = list(processes)
    for process in found:
        process.is_wanted = False
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    for process in found:
        while process.is_running and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        process.kill()


def _all_stopped(tasks: Path) -> bool:
    """Whether every thread of a process is stopped or gone; so where there is no /proc."""
    if not tasks.exists():
        return True
    try:
        states = [
            (tasks / name / "stat").read_text().rpartition(")")[2].split()[0]
            for name in os.listdir(tasks)
        ]
    except OSError:
        return False
    return all(state in "TtZX" for state in states)


def _dying_with_parent(sign: signal.Signals) -> Callable[[], None] | None:
    """What a new process runs before the server: it asks Linux to end it with its parent.

    Everything is loaded here: a process that was forked off threads must not import anything.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    number = int(sign)

    def ask() -> None:
        prctl(_PARENT_DEATH_SIGNAL, number)

    return ask
