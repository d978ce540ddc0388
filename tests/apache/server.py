"""Start, watch and stop real Apache ZooKeeper 3.9.5 servers, alone or as an ensemble.

    with ApacheServer(data_dir) as server, server.connect() as client:
        client.create("/a", b"1")
        tree = server.read_tree()

A server lives on a given data directory, which holds `version-2`, and on ports of 127.0.0.1 that
were free a moment before. It is ready when it answers, not after a sleep. Its configuration and
its output lie in a folder beside the data directory, never inside: the data directory holds
only what Apache puts there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from keepfast.harness import HeldPorts, free_ports
from tests.apache import reader, words
from tests.apache.java import java_command

__all__ = [
    "DEFAULT_CONFIGURATION",
    "DEFAULT_PROPERTIES",
    "ApacheDidNotStartError",
    "ApacheEnsemble",
    "ApacheServer",
    "free_ports",
]

# System properties of every server unless overridden (-D, full names as in Apache's manual).
DEFAULT_PROPERTIES: Mapping[str, str] = {
    "zookeeper.admin.enableServer": "false",
    "zookeeper.4lw.commands.whitelist": "*",
    "zookeeper.extendedTypesEnabled": "true",
    "zookeeper.DigestAuthenticationProvider.superDigest": reader.SUPER_DIGEST,
    # KB. The default of 64 MiB a file would fill a temporary directory with sparse files.
    "zookeeper.preAllocSize": "64",
    # The cleaner of containers and TTL znodes sleeps, so that a tree stands still while it is
    # read. A test that wants its transactions sets a short interval.
    "znode.container.checkIntervalMs": "3600000",
}

# Lines of zoo.cfg of every server unless overridden.
DEFAULT_CONFIGURATION: Mapping[str, str] = {
    "tickTime": "2000",
    "maxClientCnxns": "0",
    # Sessions found on disk have to outlive the reading of the tree.
    "maxSessionTimeout": "600000",
}

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_PORT_ATTEMPTS = 5
_STOP_TIMEOUT = 30
# A busy machine starts a Java server slowly.
_START_SECONDS = 180


class ApacheDidNotStartError(Exception):
    """The process ended before it served; `exit_code` and `output` tell why."""

    def __init__(self, exit_code: int, output: str) -> None:
        super().__init__(f"Apache ZooKeeper exited with {exit_code}:\n{output[-3000:]}")
        self.exit_code = exit_code
        self.output = output


class ApacheServer:
    """One server on a data directory; standalone unless `members` names an ensemble.

    `properties` are system properties by full name, `configuration` further lines of zoo.cfg; both
    go on top of the defaults above, and a value of "" takes a default away. After `start` the
    server serves (an ensemble's member: its process runs). Leaving the `with` block stops it.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        properties: Mapping[str, str] | None = None,
        configuration: Mapping[str, str] | None = None,
        work_dir: Path | None = None,
        java: Path | None = None,
        members: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.work_dir = work_dir or data_dir.with_name(data_dir.name + ".apache")
        self.port = port or 0
        self._has_fixed_port = port is not None
        self._properties = {**DEFAULT_PROPERTIES, **(properties or {})}
        self._configuration = {**DEFAULT_CONFIGURATION, **(configuration or {})}
        self._members = members
        self._java = java
        # A zoo.cfg that is there is used as it is, with what a server made of it.
        self.keeps_files = False
        self._process: subprocess.Popen[bytes] | None = None
        self._output_start = 0

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return f"127.0.0.1:{self.port}"

    @property
    def version_dir(self) -> Path:
        """Where the snapshots and logs are."""
        return self.data_dir / "version-2"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, timeout: float = _START_SECONDS) -> Self:
        """Start the process and wait until it serves; ApacheDidNotStartError if it gives up."""
        for attempt in range(_PORT_ATTEMPTS):
            self.launch()
            try:
                words.wait_until(self._serves, f"server on {self.hosts}", timeout=timeout)
            except ApacheDidNotStartError as error:
                # Someone took the port between our look and Java's bind.
                if "Address already in use" not in error.output or self._has_fixed_port:
                    raise
                if attempt == _PORT_ATTEMPTS - 1:
                    raise
            except BaseException:
                self.kill()
                raise
            else:
                return self
        raise words.NotReadyError("no free port was found")

    def launch(self) -> None:
        """Start the process and do not wait."""
        if self.is_running:
            raise RuntimeError(f"the server on {self.hosts} already runs")
        if not self._has_fixed_port:
            (self.port,) = free_ports(1)
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        configuration = self._write_configuration()
        command = self._command(configuration)
        with self.output_file.open("ab") as output:
            self._output_start = output.tell()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.work_dir
            )

    def _command(self, configuration: Path) -> list[str]:
        """What is run."""
        return java_command(
            _MAIN_CLASS,
            [str(configuration)],
            properties=[(name, value) for name, value in self._properties.items() if value],
            java=self._java,
        )

    @property
    def output_file(self) -> Path:
        """Standard output and error of all runs on this data directory."""
        return self.work_dir / "server.log"

    def output(self) -> str:
        """What this run of the server has printed so far."""
        with self.output_file.open("rb") as output:
            output.seek(self._output_start, os.SEEK_SET)
            return output.read().decode(errors="replace")

    def stop(self) -> None:
        """SIGTERM, and wait. Apache takes no snapshot then; what it acknowledged is on disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def ask(self, word: str) -> str:
        """The answer to a four-letter word."""
        return words.ask(self.port, word)

    def mode(self) -> str | None:
        """`standalone`, `leader`, `follower`; None while it does not serve."""
        return words.serving_mode(self.port)

    def last_zxid(self) -> int:
        return words.last_zxid(self.port)

    def monitor(self) -> dict[str, str]:
        """The metrics of `mntr`, without the `zk_` of their names."""
        return words.monitor(self.port)

    def digest_mismatches(self) -> int:
        """How often this process, loading or serving, found its tree unlike a logged digest."""
        return int(self.monitor()["digest_mismatches_count"])

    def sessions(self) -> dict[int, set[str]]:
        """The live sessions and the ephemerals that each owns."""
        return words.sessions(self.port)

    def connect(
        self, *, credential: str | None = reader.SUPER_CREDENTIAL, timeout: float = 60
    ) -> AbstractContextManager[Any]:
        """A connected kazoo client for a `with` block."""
        return reader.connect(self.hosts, credential=credential, timeout=timeout)

    def read_tree(self) -> dict[str, reader.Znode]:
        """Every znode, through a session of its own (which costs two zxids)."""
        with self.connect() as client:
            return reader.read_tree(client)

    def tree_digest(self) -> int:
        """The tree digest as this server computes it (costs up to 129 zxids)."""
        with self.connect() as client:
            return reader.tree_digest(client, self.port)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def raise_if_ended(self) -> None:
        """ApacheDidNotStartError if the process has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ApacheDidNotStartError(self._process.returncode, self.output())

    def _serves(self) -> bool:
        self.raise_if_ended()
        return self.mode() is not None

    def _end(self, sign: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(sign)
        try:
            process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_TIMEOUT)
        self._process = None

    def _write_configuration(self) -> Path:
        path = self.work_dir / "zoo.cfg"
        if self.keeps_files and path.exists():
            return path
        lines = [
            f"dataDir={self.data_dir.absolute()}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            *(f"{name}={value}" for name, value in self._configuration.items() if value),
            *self._members,
        ]
        path.write_text("\n".join(lines) + "\n")
        return path


class ApacheEnsemble:
    """Servers 1..n of one ensemble, each on a directory of its own below `root`.

    Directories that exist are started on as they are, so that an ensemble can be stopped, its
    files changed, and started again. `servers[id]` is one of them.
    """

    def __init__(
        self,
        root: Path,
        *,
        size: int = 3,
        properties: Mapping[str, str] | None = None,
        configuration: Mapping[str, str] | None = None,
    ) -> None:
        held = HeldPorts(3 * size)
        # Java binds them late, and again after every start: nobody else may get one meanwhile.
        weakref.finalize(self, held.close)
        client_ports, quorum_ports, election_ports = _split(held.numbers, size)
        members = [
            f"server.{id}=127.0.0.1:{quorum}:{election}"
            for id, (quorum, election) in enumerate(
                zip(quorum_ports, election_ports, strict=True), start=1
            )
        ]
        limits = {"initLimit": "10", "syncLimit": "5", **(configuration or {})}
        self.servers: dict[int, ApacheServer] = {}
        for id, port in enumerate(client_ports, start=1):
            data_dir = root / str(id)
            data_dir.mkdir(parents=True, exist_ok=True)
            (data_dir / "myid").write_text(f"{id}\n")
            self.servers[id] = ApacheServer(
                data_dir,
                properties=properties,
                configuration=limits,
                members=members,
                port=port,
            )

    @property
    def hosts(self) -> str:
        """All members, for a client."""
        return ",".join(server.hosts for server in self.servers.values())

    def start(self, *, timeout: float = _START_SECONDS) -> Self:
        """Start every member that does not run; wait until one leads and all serve."""
        try:
            for server in self.servers.values():
                if not server.is_running:
                    server.launch()
            words.wait_until(self._all_serve, "a leader and its followers", timeout=timeout)
        except BaseException:
            self.kill()
            raise
        return self

    def leader(self) -> int | None:
        """The id of the member that leads, if one does."""
        return next((id for id, one in self.servers.items() if one.mode() == "leader"), None)

    def wait_for_leader(self) -> int:
        """The id of the member that leads, as soon as one says so; a slow one says nothing."""
        found: list[int | None] = [None]

        def is_found() -> bool:
            found[0] = self.leader()
            return found[0] is not None

        words.wait_until(is_found, "a leader")
        assert found[0] is not None
        return found[0]

    def settle(self, *, timeout: float = 120) -> int:
        """Wait until every member has applied the same last txn, and return its zxid.

        Opens and closes a session first: right after an election the leader counts from the
        start of its new epoch while its followers still show the last txn of the old one.
        """
        with reader.connect(self.hosts):
            pass
        members = self.servers.values()
        words.wait_until(
            lambda: len({server.last_zxid() for server in members}) == 1,
            "all members have applied the same last txn",
            timeout=timeout,
        )
        return max(server.last_zxid() for server in members)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def kill(self) -> None:
        for server in self.servers.values():
            server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _all_serve(self) -> bool:
        modes = [server.mode() for server in self.servers.values()]
        for server in self.servers.values():
            server.raise_if_ended()
        return None not in modes and modes.count("leader") == 1


def _split(ports: list[int], size: int) -> tuple[list[int], list[int], list[int]]:
    return ports[:size], ports[size : 2 * size], ports[2 * size :]
