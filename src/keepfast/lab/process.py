"""One server under test: its directory, its ports and its process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from keepfast.client import Address, ask_word
from keepfast.lab.releases import Release
from keepfast.wire import KeepfastError

_STOP_SECONDS: Final = 20
_WORD_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05


class LabError(KeepfastError):
    """The lab could not do what a scenario asked for."""


class LabServer:
    """See the module. `is_running` is about the process, `role` about what it answers."""

    def __init__(self, server_id: int, folder: Path, port: int, release: Release) -> None:
        self.server_id = server_id
        self.data_dir = folder / "data" / str(server_id)
        self.address = Address("127.0.0.1", port)
        self._work_dir = folder / "run" / str(server_id)
        self._release = release
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version_dir(self) -> Path:
        """Where its logs and snapshots are."""
        return self.data_dir / "version-2"

    @property
    def output_file(self) -> Path:
        """Everything that it printed."""
        return self._work_dir / "server.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def configure(self, lines: list[str]) -> None:
        """Write its configuration file and its id."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        own = [
            f"dataDir={self.data_dir}",
            f"clientPort={self.address.port}",
            "clientPortAddress=127.0.0.1",
        ]
        (self._work_dir / "zoo.cfg").write_text("\n".join([*own, *lines]) + "\n")

    def launch(self, properties: Mapping[str, str]) -> None:
        """Start the process."""
        command = self._release.command(self._work_dir / "zoo.cfg", properties)
        with self.output_file.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP, and wait until every thread stands still."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        wait_until(lambda: _all_stopped(tasks), f"server {self.server_id} stands still", 10)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self, sign: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sign)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def role(self) -> str:
        """What it says it is: leader, follower, ...; "" while it does not serve."""
        return self._summary().get("Mode", "")

    def zxid(self) -> int:
        """The last zxid that it shows; -1 while it does not serve."""
        shown = self._summary().get("Zxid", "")
        return int(shown, 16) if shown else -1

    def _summary(self) -> dict[str, str]:
        try:
            answer = ask_word(self.address, "srvr", _WORD_SECONDS)
        except OSError:
            return {}
        lines = (line.partition(":") for line in answer.splitlines())
        return {key.strip(): value.strip() for key, _, value in lines}

    def log_holds(self, text: bytes) -> bool:
        """Whether one of its logs holds these bytes."""
        return any(text in path.read_bytes() for path in self.version_dir.glob("log.*"))

    def last_words(self) -> str:
        """The end of what it printed; for errors."""
        try:
            return self.output_file.read_text(errors="replace")[-400:]
        except OSError:
            return ""


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for something to hold. Raises LabError, with what it was."""
    stop = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > stop:
            raise LabError(f"not within {seconds:g} s: {what}")
        time.sleep(_POLL_SECONDS)


def _all_stopped(tasks: Path) -> bool:
    """Whether every thread of a process is stopped; taken as so where there is no /proc."""
    if not tasks.exists():
        return True
    try:
        states = [
            (tasks / name / "stat").read_text().rpartition(")")[2].split()[0]
            for name in os.listdir(tasks)
        ]
    except OSError:
        return False
    return all(state in "Tt" for state in states)
