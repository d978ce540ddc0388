"""An ensemble of real server processes on this machine, below one directory.

    DIR/keepfast-ensemble.json   what it is: number of servers, ports
    DIR/keepfast-ensemble.lock   held while somebody runs it
    DIR/1/zoo.cfg, myid          the configuration of server 1: Apache's files, as they are
    DIR/1/version-2/             its data
    DIR/1/server.log             what it says

The layout is the one that the audit reads as one ensemble. Nothing is done to a directory that is
not of this kind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from keepfast.storage import RealDisk

MARKER_NAME: Final = "keepfast-ensemble.json"
_LOCK_NAME: Final = "keepfast-ensemble.lock"
_FORMAT: Final = "keepfast.ensemble/1"
LOCAL_HOST: Final = "127.0.0.1"
DEFAULT_SIZE: Final = 3
DEFAULT_BASE_PORT: Final = 2181
# Each kind of port has ten numbers of its own.
MAX_SIZE: Final = 9
_KIND_STEP: Final = 10
_STOP_SECONDS: Final = 15.0
_TICK_MS: Final = 1000
_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


class LocalEnsembleError(Exception):
    """It cannot be run; the text says why and what to do. `is_usage`: the caller asked wrongly."""

    def __init__(self, sentence: str, *, is_usage: bool = True) -> None:
        super().__init__(sentence)
        self.is_usage = is_usage


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one server listens."""

    client: int
    quorum: int
    election: int
    admin: int

    @classmethod
    def of(cls, base_port: int, server_id: int) -> Ports:
        """The ports of a server: ten apart by kind, one apart by server."""
        first = base_port + server_id - 1
        return cls(*(first + kind * _KIND_STEP for kind in range(4)))


# How server `me` reaches server `other`: quorum port and election port.
Route = Callable[[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which servers there are, and where."""

    root: Path
    ports: Mapping[int, Ports]

    @property
    def size(self) -> int:
        return len(self.ports)

    def directory(self, server_id: int) -> Path:
        """The data directory of a server, which holds its other files too."""
        return self.root / str(server_id)

    @property
    def connect_string(self) -> str:
        """What a client connects to."""
        return ",".join(f"{LOCAL_HOST}:{ports.client}" for ports in self.ports.values())

    def direct(self, _me: int, other: int) -> tuple[int, int]:
        """The plain route."""
        return self.ports[other].quorum, self.ports[other].election


def open_layout(root: Path, size: int | None = None, base_port: int | None = None) -> Layout:
    """The ensemble below a directory, which is made if there is none.

    Raises LocalEnsembleError if the directory is of another kind, or of another ensemble than the
    one asked for.
    """
    marker = root / MARKER_NAME
    if marker.exists():
        return _continued(root, marker, size, base_port)
    if root.exists() and not root.is_dir():
        raise LocalEnsembleError(f"{root} is a file; name a new directory, or one of an ensemble")
    if root.is_dir() and any(root.iterdir()):
        kind = "the data directory of one server" if _has_data(root) else "not empty"
        raise LocalEnsembleError(
            f"{root} is {kind} and has no {MARKER_NAME}; name a new directory, or one that this "
            "command made"
        )
    count, first = size or DEFAULT_SIZE, base_port or DEFAULT_BASE_PORT
    layout = Layout(root, {id: Ports.of(first, id) for id in range(1, count + 1)})
    root.mkdir(parents=True, exist_ok=True)
    write_configurations(layout)
    document = {"schema": _FORMAT, "size": count, "base_port": first}
    marker.write_text(json.dumps(document, indent=1) + "\n")
    return layout


def _has_data(root: Path) -> bool:
    return (root / "version-2").is_dir() or (root / "myid").exists()


def _continued(root: Path, marker: Path, size: int | None, base_port: int | None) -> Layout:
    try:
        document = json.loads(marker.read_text())
        if document["schema"] != _FORMAT:
            raise LocalEnsembleError(f"{marker} is of another version: {document['schema']}")
        found_size, found_port = int(document["size"]), int(document["base_port"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalEnsembleError(f"{marker} cannot be read: {error}") from error
    if size not in (None, found_size):
        raise LocalEnsembleError(
            f"{root} holds an ensemble of {found_size} servers, not of {size}; leave -n out, or "
            "name another directory"
        )
    if base_port not in (None, found_port):
        # The members may have been changed since: other ports would make it another ensemble.
        raise LocalEnsembleError(
            f"{root} holds an ensemble whose ports begin at {found_port}; leave --base-port out, "
            "or name another directory"
        )
    return Layout(root, {id: Ports.of(found_port, id) for id in range(1, found_size + 1)})


def write_configurations(
    layout: Layout,
    route: Route | None = None,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write every server's zoo.cfg and myid."""
    route = route or layout.direct
    for me, ports in layout.ports.items():
        directory = layout.directory(me)
        directory.mkdir(exist_ok=True)
        (directory / "myid").write_text(f"{me}\n")
        values: dict[str, object] = {
            "tickTime": _TICK_MS,
            "initLimit": 10,
            "syncLimit": 5,
            "dataDir": directory.resolve(),
            "standaloneEnabled": "false",
            "4lw.commands.whitelist": "*",
            "admin.serverAddress": LOCAL_HOST,
            "admin.serverPort": ports.admin,
            **(settings or {}),
        }
        lines = [f"{key}={value}" for key, value in values.items()]
        for other in layout.ports:
            quorum, election = route(me, other)
            if other == me:
                quorum, election = layout.direct(me, me)
            client = layout.ports[other].client
            lines.append(
                f"server.{other}={LOCAL_HOST}:{quorum}:{election}:participant;{LOCAL_HOST}:{client}"
            )
        (directory / "zoo.cfg").write_text("\n".join(lines) + "\n")


def check_ports(layout: Layout) -> None:
    """Raise LocalEnsembleError if somebody listens on one of the ports already."""
    taken = []
    for server_id, ports in layout.ports.items():
        for kind in ("client", "quorum", "election", "admin"):
            port = getattr(ports, kind)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((LOCAL_HOST, port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise LocalEnsembleError(f"port {port}: {error.strerror}") from error
                    taken.append(f"{port} ({kind} port of server {server_id})")
    if taken:
        raise LocalEnsembleError(
            f"somebody listens already on {', '.join(taken)}; stop that, or use a new directory "
            "with another --base-port",
            is_usage=False,
        )


@contextlib.contextmanager
def held(layout: Layout) -> Iterator[None]:
    """Keep others from running the same ensemble; LocalEnsembleError if one does already."""
    disk, path = RealDisk(), str(layout.root / _LOCK_NAME)
    try:
        disk.lock(path)
    except BlockingIOError as error:
        raise LocalEnsembleError(
            f"another keepfast ensemble runs on {layout.root}", is_usage=False
        ) from error
    try:
        yield
    finally:
        disk.unlock(path)


class ServerProcess:
    """One server of a layout as a process; its log is appended to."""

    def __init__(self, layout: Layout, server_id: int, *, dies_with_us: bool = False) -> None:
        """`dies_with_us`: also if this process is killed; then start it on the main thread."""
        self.layout = layout
        self.server_id = server_id
        self.ports = layout.ports[server_id]
        self.directory = layout.directory(server_id)
        self.log_path = self.directory / "server.log"
        self.is_paused = False
        # Stopped by a command: its absence is no news.
        self.is_wanted = False
        self.environment: dict[str, str] = {}
        # Put before the command, such as `unshare -m`.
        self.wrapper: tuple[str, ...] = ()
        self._before_exec = _dying_with_parent() if dies_with_us else None
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

    def start(self) -> None:
        """Start it, and do not wait."""
        self.is_wanted, self.is_paused = True, False
        command = [
            *self.wrapper,
            *(sys.executable, "-m", "keepfast", "serve", str(self.directory / "zoo.cfg")),
            *("--data-dir", str(self.directory)),
        ]
        with self.log_path.open("ab") as log:
            self._process = self._spawn(command, log)

    def _spawn(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | self.environment,
            # Ctrl-C is for the one who runs the ensemble; it stops its servers in order.
            start_new_session=True,
            preexec_fn=self._before_exec,  # noqa: PLW1509
        )

    def stop(self) -> None:
        """Stop it in order, and wait; kill it if it takes too long."""
        self.is_wanted = False
        self.signal(signal.SIGTERM)
        self.wait_stopped()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs; one that ends it wakes it first."""
        if self._process is None or not self.is_running:
            return
        if self.is_paused and number is not signal.SIGCONT:
            self._process.send_signal(signal.SIGCONT)
            self.is_paused = False
        self._process.send_signal(number)

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
        self.is_wanted = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Let it hang (SIGSTOP)."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.signal(signal.SIGCONT)
        self.is_paused = False

    def last_words(self) -> str:
        """The last line of its log that says something."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - 4096, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
            for line in reversed(lines):
                if line.strip():
                    return line.strip()
        return ""


def stop_all(processes: Iterator[ServerProcess] | list[ServerProcess]) -> None:
    """Stop all at once, in order, and wait for all."""
    found = list(processes)
    for process in found:
        process.is_wanted = False
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    for process in found:
        while process.is_running and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()


def _dying_with_parent() -> Callable[[], None] | None:
    """What a new process runs before the server: it asks Linux to end it with its parent.

    Everything is loaded here: a process that was forked off threads must not import anything.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    number = int(signal.SIGTERM)

    def ask() -> None:
        prctl(_PARENT_DEATH_SIGNAL, number)

    return ask
