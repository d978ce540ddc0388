"""One server under test: its directory, its port and its process."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from keepfast.client import ServerAddress, ask_word
from keepfast.harness import LOCAL_HOST, LocalProcess, Release
from keepfast.wire import KeepfastError

_WORD_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05


class LabError(KeepfastError):
    """The lab could not do what a scenario asked for."""


class ServerRefused(LabError):  # noqa: N818 - it may be right to
    """A server ended instead of serving."""


class LabServer(LocalProcess):
    """One server under test. `is_running` is about the process, `role` about what it answers."""

    def __init__(self, server_id: int, folder: Path, port: int, release: Release) -> None:
        self._work_dir = folder / "run" / str(server_id)
        # Paused servers take no other signal: SIGKILL it is, if the lab itself is killed.
        super().__init__(self._work_dir / "server.log", signal.SIGKILL)
        self.server_id = server_id
        self.data_dir = folder / "data" / str(server_id)
        self.address = ServerAddress(LOCAL_HOST, port)
        self._release = release

    @property
    def version_dir(self) -> Path:
        """Where its logs and snapshots are."""
        return self.data_dir / "version-2"

    def configure(self, lines: list[str]) -> None:
        """Write its configuration file and its id."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "myid").write_text(f"{self.server_id}\n")
        own = [
            f"dataDir={self.data_dir}",
            f"clientPort={self.address.port}",
            f"clientPortAddress={LOCAL_HOST}",
        ]
        for folder in (self._work_dir, self.data_dir):
            # Beside its data as well, where the audit looks for who votes.
            (folder / "zoo.cfg").write_text("\n".join([*own, *lines]) + "\n")

    def start(self, properties: Mapping[str, str]) -> None:
        """Start the process, and do not wait."""
        self.launch(self._release.command(self._work_dir / "zoo.cfg", properties))

    def limit_files(self, size_bytes: int | None) -> None:
        """Have every write after this offset of a file fail; None: no more. Raises LabError."""
        if sys.platform != "linux":
            raise LabError("writes can be made to fail on Linux only")
        from resource import RLIMIT_FSIZE, prlimit

        pid = self.pid
        if pid is not None:
            _, hard = prlimit(pid, RLIMIT_FSIZE)
            prlimit(pid, RLIMIT_FSIZE, (hard if size_bytes is None else size_bytes, hard))

    def role(self) -> str:
        """What it says it is: leader, follower, ...; "" while it does not serve."""
        return self.summary()[0]

    def reason(self) -> str:
        """Why it does not serve, in its own words; "" where it has none for it."""
        return self._facts("kfst", "=").get("reason", "")

    def zxid(self) -> int:
        """The last zxid that it shows; -1 while it does not serve."""
        return self.summary()[1]

    def summary(self) -> tuple[str, int]:
        """Its role and its last zxid at one moment."""
        facts = self._facts("srvr", ":")
        shown = facts.get("Zxid", "")
        return facts.get("Mode", ""), int(shown, 16) if shown else -1

    def _facts(self, word: str, separator: str) -> dict[str, str]:
        """What it answers to a four-letter word, where that is lines of names and values."""
        try:
            answer = ask_word(self.address, word, _WORD_SECONDS)
        except OSError:
            return {}
        lines = (line.partition(separator) for line in answer.splitlines())
        return {key.strip(): value.strip() for key, _, value in lines}

    def log_holds(self, text: bytes) -> bool:
        """Whether one of its logs holds these bytes."""
        return any(text in path.read_bytes() for path in self.version_dir.glob("log.*"))

    def errors_logged(self) -> int:
        """How often it reported a permanently failed log write."""
        return self.log_path.read_text(errors="replace").count(self._release.write_error)


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for something to hold. Raises LabError, with what it was."""
    stop = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > stop:
            raise LabError(f"not within {seconds:g} s: {what}")
        time.sleep(_POLL_SECONDS)
