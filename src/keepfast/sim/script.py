"""Scripts: a world in which nothing happens except what a script requests.

The field reports are played with this, step by step, and the exhaustive small worlds. Servers are
numbered from 1. Each step waits until its effect is there, or fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from keepfast.quorum import ElectionOptions
from keepfast.replica import ReplicaOptions
from keepfast.sim.ledger import Violation
from keepfast.sim.network import NetworkOptions
from keepfast.sim.operations import Operation
from keepfast.sim.options import DiskOptions, SimOptions, WorkloadOptions
from keepfast.sim.simulated_client import SimulatedClient
from keepfast.sim.simulated_world import World
from keepfast.sim.tree_differences import differences
from keepfast.storage import StoreOptions
from keepfast.wire import (
    OPEN_ACL,
    CreateMode,
    CreateRequest,
    OpCode,
    ServerId,
    SetDataRequest,
)

TICK_MS: Final = 100
_PATIENCE_TICKS: Final = 300
# Sessions that outlive every outage: a session that ends would log what no report has.
_LONG_SESSION_MS: Final = 600_000


def quiet_options(servers: int = 3, clients: int = 1) -> SimOptions:
    """Nothing fails, nothing is slow, no snapshot is taken but on request."""
    return SimOptions(
        servers=servers,
        snapshot_every=0,
        retain=0,
        crash_check_chance=1.0,
        election=ElectionOptions(
            min_interval_ms=TICK_MS,
            max_interval_ms=8 * TICK_MS,
            max_asking_interval_ms=4 * TICK_MS,
            finalize_wait_ms=TICK_MS // 2,
        ),
        replica=ReplicaOptions(
            tick_ms=TICK_MS,
            min_session_timeout_ms=2 * TICK_MS,
            max_session_timeout_ms=_LONG_SESSION_MS,
        ),
        store=StoreOptions(grow_bytes=512, segment_bytes=4096, reserve_bytes=0),
        network=NetworkOptions(min_delay_us=200, max_delay_us=200),
        disk=DiskOptions(min_latency_us=100, max_latency_us=100),
        workload=WorkloadOptions(clients=clients, session_timeout_ms=_LONG_SESSION_MS),
    )


class Script:
    """A world under the control of a script."""

    def __init__(self, options: SimOptions | None = None, seed: int = 0) -> None:
        self.world = World(seed, options or quiet_options())
        self.client: SimulatedClient = self.world.clients[0]

    # -- servers ---------------------------------------------------------------------------------

    def start(self, *servers: int) -> None:
        """Start servers and wait until all of them serve, at the end of the agreed history."""
        for server in servers:
            self.world.hosts[ServerId(server)].start()
        self.wait(lambda: self.are_current(servers), f"servers {servers} to serve")

    def are_current(self, servers: Iterable[int]) -> bool:
        """Whether these servers serve the whole agreed history."""
        ledger = self.world.checkers.ledger
        return all(
            self.world.is_serving(host)
            and host.process is not None
            and ledger.position(host.process.seen) == ledger.last
            for host in (self.world.hosts[ServerId(s)] for s in servers)
        )

    def stop(self, *servers: int) -> None:
        """Stop servers cleanly."""
        for server in servers:
            self.world.hosts[ServerId(server)].stop()

    def kill(self, *servers: int) -> None:
        """kill -9."""
        for server in servers:
            self.world.hosts[ServerId(server)].kill()

    def cut_power(self, *servers: int) -> None:
        """Pull the plug."""
        for server in servers:
            self.world.hosts[ServerId(server)].cut_power()

    def pause(self, *servers: int) -> None:
        """SIGSTOP."""
        for server in servers:
            process = self.world.hosts[ServerId(server)].process
            if process is not None:
                process.pause()

    @property
    def leader(self) -> int:
        """The server that leads and serves; 0: none does."""
        for server, host in self.world.hosts.items():
            process = host.process
            if process is not None and process.replica.proposer is not None:
                return server
        return 0

    def lead(self, server: int, *others: int) -> None:
        """Have a server lead: the others are started once it has their votes for itself."""
        self.start(server, *others)
        if self.leader != server:
            raise Violation("script", f"s{self.leader} leads, not s{server}")

    # -- writes ----------------------------------------------------------------------------------

    def connect(self, server: int) -> None:
        """Connect the client to one server."""
        client = self.client
        client.only = (ServerId(server),)
        streams = self.world.network.streams_of(client.place)
        # After a power cut the client may hold on to a stream whose other end is gone.
        if not any(server in stream.places and None not in stream.ends for stream in streams):
            for stream in streams:
                stream.reset()
            client.connect()
        self.wait(lambda: client.is_open, f"the client to reach s{server}")

    def create(self, path: str, value: bytes) -> Operation:
        """Create a znode and wait for the answer."""
        request = CreateRequest(path, value, OPEN_ACL, CreateMode.PERSISTENT)
        return self._answered(self.client.ask(OpCode.CREATE, path, request))

    def set(self, path: str, value: bytes) -> Operation:
        """Set a znode and wait for the answer."""
        return self._answered(self.set_async(path, value))

    def set_async(self, path: str, value: bytes) -> Operation:
        """Ask to set a znode, and do not wait."""
        operation = self.client.ask(OpCode.SET_DATA, path, SetDataRequest(path, value, -1))
        if operation is None:
            raise Violation("script", "the client is not connected")
        return operation

    def _answered(self, operation: Operation | None) -> Operation:
        if operation is None:
            raise Violation("script", "the client is not connected")
        self.wait(lambda: operation.is_answered, f"an answer to {operation}")
        return operation

    def wait_logged(self, server: int, count: int) -> None:
        """Wait until a server's own log holds this many durable records."""
        shadow = self.world.checkers.ledger.shadow_of(ServerId(server))
        self.wait(
            lambda: len(shadow.records) >= count and shadow.durable == shadow.head,
            f"s{server} to log",
        )

    # -- time and verdict ------------------------------------------------------------------------

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        """Let time pass until a condition holds; it is a violation if it never does."""
        agenda = self.world.agenda
        limit_us = agenda.now_us + _PATIENCE_TICKS * self.world.tick_us
        if not agenda.run_until(limit_us, is_done):
            raise Violation("progress", f"waited in vain for {what}: {self.world.ails()}")

    def pass_ticks(self, ticks: float) -> None:
        """Let some time pass."""
        agenda = self.world.agenda
        agenda.run_until(agenda.now_us + int(ticks * self.world.tick_us))

    def value(self, server: int, path: str) -> bytes | None:
        """What a server's own tree says."""
        process = self.world.hosts[ServerId(server)].process
        node = None if process is None else process.replica.tree.find(path)
        return None if node is None else node.data

    def check_equal(self) -> None:
        """Every server has the agreed tree, znode by znode."""
        found = differences(self.world)
        if found:
            raise Violation("convergence", found)
