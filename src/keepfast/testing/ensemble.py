"""A whole ensemble in the test's process, with faults."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from keepfast.harness import LOCAL_HOST, HeldPorts, Network
from keepfast.quorum import Address, ElectionOptions, Membership, MemberSpec, QuorumOptions
from keepfast.server import EnsembleOptions, LinkSecurity, ListeningServer, ServerOptions
from keepfast.testing.server import Server, Started, poll
from keepfast.testing.server_faults import Pause, crash
from keepfast.wire import ServerId

_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one server listens for its peers."""

    quorum: int
    election: int


class EnsembleServer(Server):
    """One server of an ensemble: everything that `Server` has, besides its own data directory."""

    def __init__(
        self,
        id: int,
        data_dir: str,
        tick_ms: int,
        ensemble: EnsembleOptions,
        security: LinkSecurity | None = None,
    ) -> None:
        super().__init__(data_dir, tick_ms=tick_ms)
        self.id = id
        self._ensemble = ensemble
        self._security = security

    def _options(self) -> ServerOptions:
        options = super()._options()
        return replace(
            options,
            ensemble=self._ensemble,
            security=self._security,
            replica=replace(options.replica, server_id=self.id),
        )

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped or killed since."""
        return self._server is not None

    @property
    def is_paused(self) -> bool:
        return self._pause is not None

    @property
    def mode(self) -> str:
        """`leader`, `follower`, `looking`, or `stopped`."""
        server = self._server
        return "stopped" if server is None else server.running.mode

    @property
    def is_serving(self) -> bool:
        """Whether it serves clients."""
        server = self._server
        return server is not None and not self.is_paused and server.running.is_serving

    def state(self) -> tuple[int, int, int]:
        """Its last zxid, and both digests of its tree at it."""

        def look(server: ListeningServer) -> tuple[int, int, int]:
            tree = server.running.replica.tree
            return tree.last_zxid, tree.digest, tree.shared_digest

        return self._on_loop(look)

    def kill(self) -> None:
        """End it as kill -9 does: nothing more is written, everybody is cut off."""
        server = self._server
        if server is not None:
            self.resume()
            self._await(crash(server))
            self._server = None
            self._end_loop()

    def stop(self) -> None:
        """Stop it in order; its data stay."""
        self._stop_server()

    def restart(self) -> None:
        """Stop it, if it runs, and start it again on the same port and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Let it hang until `resume`; its sessions are the leader's, and may end meanwhile."""
        if self._loop is not None and self._pause is None:
            self._pause = Pause(self._loop, lambda: None)


class Ensemble(Started):
    """Servers that form an ensemble. Use it in a `with` block, or call `start` and `stop`.

    Args:
        size: how many servers; their ids are 1 to `size`.
        tick_ms: as in `Server`; a silent server is given up after ten ticks.
        security: what protects the connections between them; by default nothing does.
    """

    def __init__(
        self, size: int = 3, *, tick_ms: int = 200, security: LinkSecurity | None = None
    ) -> None:
        self._security = security
        self._directory = Path(tempfile.mkdtemp(prefix="keepfast-ensemble-"))
        self._clients: list[Any] = []
        self.network = Network()
        self._ports = HeldPorts(2 * size)
        numbers = iter(self._ports.numbers)
        places = {id: _Place(next(numbers), next(numbers)) for id in range(1, size + 1)}
        self._servers = {
            id: self._make(id, places, tick_ms, self._directory / str(id)) for id in places
        }

    def _make(
        self, me: int, places: dict[int, _Place], tick_ms: int, directory: Path
    ) -> EnsembleServer:
        def seen(id: int, port: int) -> tuple[Address, ...]:
            reached = port if id == me else self.network.route(me, id, port)
            return (Address(LOCAL_HOST, reached),)

        members = tuple(
            MemberSpec(ServerId(id), seen(id, place.quorum), seen(id, place.election))
            for id, place in places.items()
        )
        own = places[me]
        options = EnsembleOptions(
            server_id=me,
            membership=Membership(members),
            quorum_addresses=(Address(LOCAL_HOST, own.quorum),),
            election_addresses=(Address(LOCAL_HOST, own.election),),
            quorum=QuorumOptions(
                tick_ms=tick_ms,
                init_limit=50,
                sync_limit=10,
                dial_interval_ms=20,
                dial_attempts=100,
                # Loopback: nobody is far away, and a test should not wait.
                election=ElectionOptions(
                    min_interval_ms=50, max_interval_ms=1000, finalize_wait_ms=100
                ),
            ),
        )
        directory.mkdir()
        return EnsembleServer(me, str(directory), tick_ms, options, self._security)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all servers, and return when all of them serve."""
        try:
            for server in self._servers.values():
                server.start()
            self.wait_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop clients and servers; the data go with them."""
        self._stop_clients()
        for server in self._servers.values():
            server.stop()
        self.network.close()
        self._ports.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- looking ---------------------------------------------------------------------------------

    def __getitem__(self, id: int) -> EnsembleServer:
        return self._servers[id]

    @property
    def servers(self) -> list[EnsembleServer]:
        """All servers, by id."""
        return list(self._servers.values())

    @property
    def hosts(self) -> str:
        """What a client connects to."""
        return ",".join(server.hosts for server in self._servers.values())

    @property
    def leader(self) -> EnsembleServer | None:
        """The server that leads now; with a partition, the one of the newest epoch."""
        leaders = [s for s in self._servers.values() if s.is_serving and s.mode == "leader"]
        return max(leaders, key=lambda one: one.state()[0], default=None)

    @property
    def followers(self) -> list[EnsembleServer]:
        """The servers that follow now."""
        return [s for s in self._servers.values() if s.is_serving and s.mode == "follower"]

    def wait_for_leader(
        self, *, other_than: EnsembleServer | None = None, timeout: float = _TIMEOUT_SECONDS
    ) -> EnsembleServer:
        """The leader, as soon as there is one."""

        def found() -> bool:
            return self.leader is not None and self.leader is not other_than

        self._wait(found, "a leader", timeout)
        leader = self.leader
        return self.wait_for_leader(timeout=timeout) if leader is None else leader

    def wait_serving(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Wait until every server that runs and is not paused takes clients."""
        self._wait(lambda: all(one.is_serving for one in self._present()), "all serve", timeout)

    def wait_equal(self, timeout: float = _TIMEOUT_SECONDS) -> None:
        """Wait until all that run serve the same tree, by zxid and digests."""

        def are_equal() -> bool:
            present = self._present()
            if not all(one.is_serving for one in present):
                return False
            return len({one.state() for one in present}) == 1

        self._wait(are_equal, "all have the same tree", timeout)

    def _present(self) -> list[EnsembleServer]:
        return [s for s in self._servers.values() if s.is_running and not s.is_paused]

    def _wait(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        def told() -> str:
            return f"{what} ({', '.join(f'{s.id} {s.mode}' for s in self._servers.values())})"

        poll(condition, timeout, told)

    # -- clients and faults ----------------------------------------------------------------------

    def client(self, server: EnsembleServer | None = None, **arguments: Any) -> Any:
        """A started kazoo client, of one server or of all; `stop` stops it."""
        return self._start_client(self.hosts if server is None else server.hosts, **arguments)

    def expire(self, client: Any) -> None:
        """End the session of a client (a kazoo client, or a session id) as if it had timed out."""
        self.wait_for_leader().expire(client)

    def partition(self, *groups: Collection[int], silent: bool = False) -> None:
        """Let only servers of one group reach each other; clients reach all.

        By default connections break immediately; if `silent`, packets just vanish.
        """
        self.network.partition(*groups, silent=silent)

    def isolate(self, server: EnsembleServer, *, silent: bool = False) -> None:
        """Cut one server off from all others."""
        others = [id for id in self._servers if id != server.id]
        self.partition([server.id], others, silent=silent)

    def heal(self) -> None:
        """End all partitions."""
        self.network.heal()
