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
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from keepfast.harness.local_ports import LOCAL_HOST
from keepfast.harness.local_process import LocalProcess
from keepfast.storage import RealDisk

MARKER_NAME: Final = "keepfast-ensemble.json"
_LOCK_NAME: Final = "keepfast-ensemble.lock"
_FORMAT: Final = "keepfast.ensemble/1"
DEFAULT_SIZE: Final = 3
DEFAULT_BASE_PORT: Final = 2181
# Each kind of port has ten numbers of its own.
_KIND_STEP: Final = 10
_TICK_MS: Final = 1000


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
class EnsembleLayout:
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


def open_layout(
    root: Path, size: int | None = None, base_port: int | None = None
) -> EnsembleLayout:
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
    layout = EnsembleLayout(root, {id: Ports.of(first, id) for id in range(1, count + 1)})
    root.mkdir(parents=True, exist_ok=True)
    write_configurations(layout)
    document = {"schema": _FORMAT, "size": count, "base_port": first}
    marker.write_text(json.dumps(document, indent=1) + "\n")
    return layout


def _has_data(root: Path) -> bool:
    return (root / "version-2").is_dir() or (root / "myid").exists()


def _continued(root: Path, marker: Path, size: int | None, base_port: int | None) -> EnsembleLayout:
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
    return EnsembleLayout(root, {id: Ports.of(found_port, id) for id in range(1, found_size + 1)})


def write_configurations(
    layout: EnsembleLayout,
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


def check_ports(layout: EnsembleLayout) -> None:
    """Raise LocalEnsembleError if somebody listens on one of the ports already."""
    in_use = []
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
                    in_use.append(f"{port} ({kind} port of server {server_id})")
    if in_use:
        raise LocalEnsembleError(
            f"somebody listens already on {', '.join(in_use)}; stop that, or use a new directory "
            "with another --base-port",
            is_usage=False,
        )


@contextlib.contextmanager
def held(layout: EnsembleLayout) -> Iterator[None]:
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


class ServerProcess(LocalProcess):
    """One server of a layout as a process."""

    def __init__(
        self, layout: EnsembleLayout, server_id: int, *, dies_with_us: bool = False
    ) -> None:
        """`dies_with_us`: also if this process is killed; then start it on the main thread."""
        directory = layout.directory(server_id)
        super().__init__(directory / "server.log", signal.SIGTERM if dies_with_us else None)
        self.layout = layout
        self.server_id = server_id
        self.ports = layout.ports[server_id]
        self.directory = directory
        # Put before the command, such as `unshare -m`.
        self.wrapper: tuple[str, ...] = ()

    def start(self) -> None:
        """Start it, and do not wait."""
        self.launch(
            [
                *self.wrapper,
                *(sys.executable, "-m", "keepfast", "serve", str(self.directory / "zoo.cfg")),
                *("--data-dir", str(self.directory)),
            ]
        )
