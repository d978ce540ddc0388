"""Ensembles of Apache's servers and ours, alternately on the same data directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from keepfast.harness import HeldPorts
from tests.apache import reader, words
from tests.apache.server import ApacheServer
from tests.conformance.waiting import applied
from tests.keepfast_server import KeepfastServer

APACHE = "apache"
KEEPFAST = "keepfast"
PATIENCE_SECONDS = 150.0

# Half a minute, and less: nobody gives up a leader because the machine is busy. Those that are
# killed are missed at once.
_LIMITS = {"tickTime": "500", "initLimit": "60", "syncLimit": "40"}


class MixedEnsemble:
    """Servers 1..n, each of the kind that is asked for; the kind may change between two runs."""

    def __init__(
        self,
        root: Path,
        kinds: Mapping[int, str],
        *,
        observers: tuple[int, ...] = (),
        properties: Mapping[str, str] | None = None,
        configuration: Mapping[str, str] | None = None,
        keeps_files: bool = False,
        host: str = "127.0.0.1",
        client: str = "",
    ) -> None:
        """`keeps_files`: a server starts on its zoo.cfg as the one before it left it.

        `client`: the host for clients in the members' lines, which say nothing of them without it.
        """
        self._root = root
        self._keeps_files = keeps_files
        self._configuration = {**_LIMITS, **(configuration or {})}
        self._properties = properties
        self._held = HeldPorts(3 * len(kinds))
        ports = iter(self._held.numbers)
        self._client_ports = {id: next(ports) for id in kinds}
        self._members = [
            f"server.{id}={host}:{next(ports)}:{next(ports)}"
            f":{'observer' if id in observers else 'participant'}"
            f"{f';{client}:{self._client_ports[id]}' if client else ''}"
            for id in kinds
        ]
        self._observers = observers
        self.servers: dict[int, ApacheServer] = {}
        for id, kind in kinds.items():
            self.place(id, kind)

    def place(self, id: int, kind: str) -> ApacheServer:
        """Have a server of this kind on the directory of that id; the old one must be stopped."""
        data_dir = self._root / str(id)
        data_dir.mkdir(parents=True, exist_ok=True)
        (data_dir / "myid").write_text(f"{id}\n")
        made = KeepfastServer if kind == KEEPFAST else ApacheServer
        configuration = dict(self._configuration)
        if id in self._observers:
            configuration["peerType"] = "observer"
        self.servers[id] = made(
            data_dir,
            properties=self._properties,
            configuration=configuration,
            members=self._members,
            port=self._client_ports[id],
        )
        self.servers[id].keeps_files = self._keeps_files
        return self.servers[id]

    @property
    def hosts(self) -> str:
        """All members, for a client."""
        return ",".join(server.hosts for server in self.servers.values())

    def start(self, *ids: int) -> Self:
        """Start these, or all; wait until one leads and all that run serve."""
        for id in ids or self.servers:
            if not self.servers[id].is_running:
                self.servers[id].launch()
        self.wait_serving()
        return self

    def wait_serving(self) -> None:
        """Wait until one server leads and all that run serve."""
        words.wait_until(self._all_serve, "a leader and its followers", timeout=PATIENCE_SECONDS)

    def _all_serve(self) -> bool:
        running = [server for server in self.servers.values() if server.is_running]
        for server in self.servers.values():
            server.raise_if_ended()
        modes = [server.mode() for server in running]
        return None not in modes and modes.count("leader") == 1

    def wait_leader(self) -> int:
        """Who leads, as soon as somebody does."""
        found: list[int] = []

        def is_there() -> bool:
            running = ((id, one) for id, one in self.servers.items() if one.is_running)
            found.extend(id for id, one in running if one.mode() == "leader")
            return bool(found)

        words.wait_until(is_there, "a leader", timeout=PATIENCE_SECONDS)
        return found[0]

    def make_lead(self, id: int) -> None:
        """Have the server with the greatest id lead; all run, before and afterwards.

        Whoever leads in its place is killed: of those that have the same history, the greatest id
        is elected.
        """
        while True:
            self.settle()
            leader = self.wait_leader()
            if leader == id:
                return
            self.servers[leader].kill()
            self.wait_serving()
            self.start()

    def settle(self) -> None:
        """Wait until every member that runs has applied the same last txn."""
        running = [server for server in self.servers.values() if server.is_running]
        with reader.connect(",".join(server.hosts for server in running)):
            pass

        def is_settled() -> bool:
            zxids = {applied(server) for server in running}
            return len(zxids) == 1 and None not in zxids

        words.wait_until(
            is_settled, "all members have applied the same last txn", timeout=PATIENCE_SECONDS
        )

    def trees(self) -> dict[int, dict[str, reader.Znode]]:
        """What each server that runs serves, without what a server writes by itself."""
        found = {}
        for id, server in self.servers.items():
            if server.is_running:
                tree = server.read_tree()
                found[id] = {p: z for p, z in tree.items() if not p.startswith("/zookeeper")}
        return found

    def assert_equal(self) -> None:
        """Every server serves the same tree, and no Apache server saw a digest that is off."""
        self.settle()
        trees = self.trees()
        first = next(iter(trees))
        for id, tree in trees.items():
            assert tree == trees[first], f"server {id} differs from server {first}"
        for id, server in self.servers.items():
            if server.is_running and not isinstance(server, KeepfastServer):
                assert server.digest_mismatches() == 0, f"server {id} counted mismatches"

    def stop(self) -> None:
        """Stop all, for good."""
        for server in self.servers.values():
            server.kill()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
