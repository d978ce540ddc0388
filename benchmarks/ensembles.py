"""Three servers of either kind on this machine, for the benchmarks of ensembles."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

from benchmarks.common import ROOT, apache_command
from tests.apache import words
from tests.apache.server import free_ports

APACHE = "Apache"
KEEPFAST = "Keepfast"

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_INT = Struct(">i")
# protocol, last zxid seen, timeout, session, length and password, read only.
_HELLO = Struct(">iqiqi16s?")
_PAGE_KB = 4
_HEAP_MB = 1024


class BenchEnsemble:
    """Servers 1 to 3; leaving the `with` block ends them. Defaults, but for tickTime."""

    def __init__(
        self, kind: str, place: Path, tick_ms: int = 2000, sends_records: bool = False
    ) -> None:
        """`sends_records`: a learner is sent the records that it lacks, however many."""
        self.kind = kind
        self._place = place
        self._properties = "-Dzookeeper.snapshotSizeFactor=0" if sends_records else ""
        ports = free_ports(12)
        self.ports = dict(zip((1, 2, 3), ports[:3], strict=True))
        self._admin_ports = dict(zip((1, 2, 3), ports[9:], strict=True))
        members = "".join(
            f"server.{id}=127.0.0.1:{ports[2 + id]}:{ports[5 + id]}\n" for id in self.ports
        )
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for id, port in self.ports.items():
            folder = self.folder(id)
            folder.mkdir(parents=True)
            (folder / "myid").write_text(str(id))
            (folder / "zoo.cfg").write_text(
                f"tickTime={tick_ms}\ninitLimit=30\nsyncLimit=10\ndataDir={folder}\n"
                f"clientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
                f"4lw.commands.whitelist=*\n{members}"
                + (f"admin.serverPort={self._admin_ports[id]}\n" if kind == KEEPFAST else "")
                + ("snapshotSizeFactor=0\n" if sends_records and kind == KEEPFAST else "")
                + ("admin.enableServer=false\n" if kind == APACHE else "")
            )

    def folder(self, id: int) -> Path:
        """Where a server's data is."""
        return self._place / str(id)

    @property
    def hosts(self) -> str:
        """All servers, as zkload takes them."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, id: int) -> None:
        """Start one server, and do not wait."""
        if id in self._processes:
            raise SystemExit(f"server {id} runs already: a second one would outlive this run")
        configuration = str(self.folder(id) / "zoo.cfg")
        command = [sys.executable, "-m", "keepfast", "serve", configuration]
        if self.kind == APACHE:
            command = apache_command(
                _MAIN_CLASS, configuration, heap_mb=_HEAP_MB, properties=self._properties
            )
        with (self.folder(id) / "output").open("ab") as output:
            self._processes[id] = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )

    def kill(self, id: int) -> None:
        """SIGKILL."""
        process = self._processes.pop(id)
        process.kill()
        process.wait()

    def hand_over(self, id: int) -> None:
        """Ask one of ours to hand over, and wait until it no longer leads."""
        url = f"http://127.0.0.1:{self._admin_ports[id]}/commands/hand_over"
        asked = urllib.request.Request(url, method="POST", headers={"Authorization": "ip"})
        urllib.request.urlopen(asked).close()
        words.wait_until(lambda: self.mode(id) != "leader", "the leader hands over")

    def wipe(self, id: int) -> None:
        """Remove a stopped server's data."""
        for path in self.folder(id).iterdir():
            if path.is_dir():
                shutil.rmtree(path)

    def mode(self, id: int) -> str | None:
        """The role that a server reports."""
        return words.serving_mode(self.ports[id])

    def wait_until_whole(self, timeout: float = 300) -> None:
        """Wait until one leads and two follow."""
        words.wait_until(
            lambda: sorted(str(self.mode(id)) for id in self.ports) == _MODES,
            f"three servers of {self.kind} serve",
            timeout=timeout,
        )

    def leader(self) -> int:
        """The leader."""
        return next(id for id in self._processes if self.mode(id) == "leader")

    def follower(self) -> int:
        """A follower."""
        return next(id for id in self._processes if self.mode(id) == "follower")

    @property
    def pids(self) -> list[int]:
        """The processes of all servers that run."""
        return [process.pid for process in self._processes.values()]

    def resident_mb(self) -> float:
        """Resident memory of all three."""
        pages = 0
        for pid in self.pids:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * _PAGE_KB / 1024

    def __enter__(self) -> Self:
        for id in self.ports:
            self.start(id)
        self.wait_until_whole()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for id in list(self._processes):
            self.kill(id)


_MODES = ["follower", "follower", "leader"]


def wait_for_write(ports: list[int], path: str, timeout: float = 120) -> float:
    """Seconds until one of the servers takes a write on an existing znode in a new session."""
    started = time.perf_counter()
    while time.perf_counter() - started < timeout:
        for port in ports:
            if _try_write(port, path):
                return time.perf_counter() - started
        time.sleep(0.002)
    raise words.NotReadyError(f"no write was accepted within {timeout:g} s")


def _try_write(port: int, path: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5) as connection:
            _send(connection, _HELLO.pack(0, 0, 10_000, 0, 16, bytes(16), False))
            if not _receive(connection):
                return False
            name = path.encode()
            head = _INT.pack(1) + _INT.pack(5) + _INT.pack(len(name)) + name
            _send(connection, head + _INT.pack(1) + b"x" + _INT.pack(-1))
            reply = _receive(connection)
            return len(reply) >= 16 and _INT.unpack_from(reply, 12)[0] == 0
    except OSError:
        return False


def _send(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(_INT.pack(len(payload)) + payload)


def _receive(connection: socket.socket) -> bytes:
    """The next frame; empty when the server hung up."""
    data = b""
    while len(data) < 4 or len(data) < 4 + _INT.unpack_from(data)[0]:
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        data += chunk
    return data[4:]
