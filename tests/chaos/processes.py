"""An ensemble of real server processes with wires between them that can be cut."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from keepfast.client import (
    Client,
    ClientOptions,
    EnsembleStatus,
    OperationFailed,
    ServerAddress,
    ServerStatus,
    look_at,
    probe,
)
from keepfast.harness import (
    LOCAL_HOST,
    EnsembleLayout,
    HeldPorts,
    Network,
    Ports,
    ServerProcess,
    stop_all,
    write_configurations,
)
from tests.apache.words import NotReadyError, wait_until
from tests.chaos.clocks import make_clocks
from tests.chaos.power import make_power

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.05
TICK_MS = 200
SMALL_DISK = "48m"
# Small, so that snapshots and new log segments come often.
SETTINGS: Mapping[str, object] = {
    "tickTime": TICK_MS,
    "initLimit": 50,
    "syncLimit": 10,
    "snapCount": 1000,
    "autopurge.purgeInterval": 1,
    "autopurge.snapRetainCount": 3,
    "minSessionTimeout": 2 * TICK_MS,
    "maxSessionTimeout": 60_000,
    "maxClientCnxns": 0,
    "admin.enableServer": "false",
    "keepfast.diskReserveKb": 4096,
}


def make_layout(root: Path, ports: list[int]) -> EnsembleLayout:
    """A layout on these ports, four for each server, with its folders."""
    numbers = iter(ports)
    root.mkdir(parents=True, exist_ok=True)
    ids = range(1, len(ports) // 4 + 1)
    return EnsembleLayout(root, {id: Ports(*(next(numbers) for _ in range(4))) for id in ids})


def free_base_port(count: int = 34) -> int:
    """A number from which on this many ports are free."""
    rng = random.Random()
    while True:
        base = rng.randrange(20_000, 30_000)
        try:
            for port in range(base, base + count):
                with socket.socket() as probe_socket:
                    probe_socket.bind((LOCAL_HOST, port))
        except OSError:
            continue
        return base


class RealEnsemble:
    """Processes, their wires, and what to ask of them. For a `with` block: nothing stays behind."""

    def __init__(
        self,
        root: Path,
        size: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        with_small_disk: bool = False,
        with_clocks: bool = False,
        with_power: bool = False,
    ) -> None:
        """`with_small_disk`, `with_clocks`, `with_power`: where this machine allows it."""
        self._ports = HeldPorts(4 * size)
        self.layout = make_layout(root, self._ports.numbers)
        # The server whose files are on a small file system of their own; None: there is none.
        self.small_disk = size if with_small_disk and self._mount(size) else None
        self.network = Network()
        routes: dict[tuple[int, int], tuple[int, int]] = {}
        for me in self.layout.ports:
            for other, ports in self.layout.ports.items():
                if me != other:
                    routes[me, other] = (
                        self.network.route(me, other, ports.quorum),
                        self.network.route(me, other, ports.election),
                    )
                else:
                    routes[me, me] = (ports.quorum, ports.election)
        write_configurations(
            self.layout, lambda me, other: routes[me, other], {**SETTINGS, **(settings or {})}
        )
        # Also if this process is killed nothing stays behind.
        self.servers = {
            id: ServerProcess(self.layout, id, dies_with_us=True) for id in self.layout.ports
        }
        for id, server in self.servers.items():
            # Not on a disk that may be full.
            server.log_path = root / f"server-{id}.log"
        self.clocks = make_clocks(root, list(self.servers)) if with_clocks else {}
        for id, clock in self.clocks.items():
            self.servers[id].environment = clock.environment
        self.power = make_power(root, list(self.servers)) if with_power else {}
        for id, power in self.power.items():
            self.servers[id].environment = power.add_to(self.servers[id].environment)

    def _mount(self, id: int) -> bool:
        """Put a small file system in the place of a server's directory."""
        place = self.layout.directory(id)
        place.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "keepfast-chaos", str(place)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stop_all(self.servers.values())
        self.network.close()
        self._ports.close()
        if self.small_disk is not None:
            place = str(self.layout.directory(self.small_disk))
            subprocess.run(["umount", place], capture_output=True, check=False)

    # -- asking ----------------------------------------------------------------------------------

    def address(self, id: int) -> ServerAddress:
        return ServerAddress(LOCAL_HOST, self.layout.ports[id].client)

    def ask(self, id: int) -> ServerStatus:
        """What a server says about itself."""
        return probe(self.address(id), 2.0, self.layout.ports[id].admin)

    def look(self) -> EnsembleStatus:
        """What all servers say."""
        return look_at([self.address(id) for id in self.servers], 2.0)

    def leader(self) -> int | None:
        """The server that leads, of the newest epoch if there are two."""
        found = [self.ask(id) for id, server in self.servers.items() if server.is_running]
        leading = [one for one in found if one.role == "leader" and one.is_serving]
        best = max(leading, key=lambda one: one.epoch or 0, default=None)
        return None if best is None else best.server_id

    def with_client(self, work: Callable[[Client], T]) -> T:
        """What some work gives, with a client of its own at each attempt.

        Work has to stand that it is done again: on a busy machine servers of so short a tick may
        elect at any time, and then connections are lost.
        """
        hosts = ",".join(str(self.address(id)) for id in self.servers)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                with Client(hosts, ClientOptions(session_timeout_ms=30_000)) as client:
                    return work(client)
            except OperationFailed as error:
                if not error.is_connection_failure or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    # -- doing -----------------------------------------------------------------------------------

    def start(self, ids: Iterable[int] | None = None) -> None:
        """Start servers, and wait until they serve."""
        chosen = list(self.servers if ids is None else ids)
        for id in chosen:
            self.servers[id].start()
        self.wait_serving(chosen)

    def wait_serving(self, ids: Collection[int] | None = None) -> None:
        """Wait until these servers serve, or all."""
        for id in self.servers if ids is None else ids:
            wait_until(
                lambda id=id: self.ask(id).is_serving,  # type: ignore[misc]
                f"server {id} serves",
                timeout=PATIENCE_SECONDS,
            )

    def wait_leader(self) -> int:
        """The leader, as soon as there is one."""
        wait_until(lambda: self.leader() is not None, "a leader", timeout=PATIENCE_SECONDS)
        leader = self.leader()
        return self.wait_leader() if leader is None else leader

    def wait_well(self) -> EnsembleStatus:
        """Wait until all serve, one leads, and all have the same tree."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (verdict := self.look()).is_healthy:
            if time.monotonic() > deadline:
                found = "; ".join(finding.sentence for finding in verdict.findings)
                raise NotReadyError(f"not well in {PATIENCE_SECONDS:g} s: {found}")
            time.sleep(_PAUSE_SECONDS)
        return verdict

    def wait_equal(self) -> EnsembleStatus:
        """Wait until all is well and every server shows the same last zxid."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            verdict = self.wait_well()
            zxids = {one.zxid or 0 for one in verdict.servers}
            if len(zxids) == 1:
                return verdict
            if time.monotonic() > deadline:
                shown = ", ".join(f"{zxid:#x}" for zxid in sorted(zxids))
                raise NotReadyError(f"not equal in {PATIENCE_SECONDS:g} s: {shown}")
            time.sleep(_PAUSE_SECONDS)

    def wipe(self, id: int) -> None:
        """Lose the data of a server that is stopped."""
        assert not self.servers[id].is_running
        shutil.rmtree(self.data(id), ignore_errors=True)

    def data(self, id: int) -> Path:
        """Where a server's files are."""
        return self.layout.directory(id) / "version-2"

    def files(self, id: int, prefix: str) -> list[Path]:
        """Logs or snapshots of a server, by their zxids."""
        found = self.data(id).glob(f"{prefix}.*")
        return sorted(found, key=lambda path: int(path.suffix[1:], 16))

    def log_text(self, id: int) -> str:
        """What a server has logged."""
        return self.servers[id].log_path.read_text(errors="replace")
