"""Ensembles of real Apache servers in which one place is left for us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from keepfast.harness import HeldPorts
from keepfast.quorum import Address, Membership, parse_membership
from keepfast.server.election_links import LinkSecurity
from keepfast.server.logs import EventLog
from keepfast.server.peer_stream import PeerListener, PeerStream
from keepfast.wire import LearnerInfo, PacketParser, QuorumPacket, decode
from tests.apache import ApacheServer, wait_until
from tests.server.voters import PATIENCE_SECONDS

# Half a minute, and less: nobody gives up the leader because the machine is busy.
_LIMITS = {"initLimit": "15", "syncLimit": "10"}


class Mixed(NamedTuple):
    """Apache's servers by id, and the members as all of them see it."""

    servers: Mapping[int, ApacheServer]
    membership: Membership

    def launch(self, *ids: int) -> None:
        """Start these, or all."""
        for id in ids or tuple(self.servers):
            self.servers[id].launch()

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()

    def modes(self) -> dict[int, str | None]:
        return {id: server.mode() for id, server in self.servers.items()}

    def wait_modes(self, **modes: str) -> None:
        """Wait until `server_1="leader"` and so on holds."""
        wanted = {int(name.removeprefix("server_")): mode for name, mode in modes.items()}
        wait_until(lambda: self.modes() == wanted, f"modes {wanted}", timeout=PATIENCE_SECONDS)


@contextmanager
def mixed_ensemble(
    root: Path,
    mine: int,
    *,
    size: int = 3,
    is_observer: bool = False,
    properties: Mapping[str, str] | None = None,
    configuration: Mapping[str, str] | None = None,
) -> Iterator[Mixed]:
    """Servers 1..size without ours, not started; stopped at the end whatever happens."""
    ids = range(1, size + 1)
    held = HeldPorts(3 * size)
    ports = iter(held.numbers)
    places = {id: (next(ports), next(ports), next(ports)) for id in ids}
    lines = []
    for id, (quorum, election, _) in places.items():
        role = "observer" if is_observer and id == mine else "participant"
        lines.append(f"server.{id}=127.0.0.1:{quorum}:{election}:{role}")
    servers = {}
    for id in ids:
        if id == mine:
            continue
        data_dir = root / str(id)
        data_dir.mkdir(parents=True)
        (data_dir / "myid").write_text(f"{id}\n")
        servers[id] = ApacheServer(
            data_dir,
            properties=properties,
            configuration={**_LIMITS, **(configuration or {})},
            members=lines,
            port=places[id][2],
        )
    mixed = Mixed(servers, parse_membership("\n".join([*lines, "version=0"]).encode()))
    try:
        yield mixed
    finally:
        for server in servers.values():
            server.kill()
        held.close()


class _Ear(asyncio.Protocol):
    """Takes what learners say first."""

    def __init__(self, port: QuorumPort) -> None:
        self._port = port
        self._parser = PacketParser()

    def data_received(self, data: bytes) -> None:
        for packet in self._parser.feed(data):
            if packet.data is not None:
                self._port.take(packet)


class QuorumPort:
    """Our quorum port, as far as a test needs one."""

    def __init__(self, security: LinkSecurity | None = None) -> None:
        self.learners: dict[int, QuorumPacket] = {}
        self._security = security or LinkSecurity()
        self._listener = PeerListener(
            self._welcome, EventLog(dict, "keepfast.server"), tls=self._security.tls
        )
        self._streams: list[PeerStream] = []
        self._came = asyncio.Event()

    async def open(self, membership: Membership, mine: int) -> None:
        await self._listener.open(quorum_addresses(membership, mine))

    async def close(self) -> None:
        self._listener.close()
        for stream in self._streams:
            stream.abort()
        await self._listener.wait_closed()

    async def wait_learners(self, ids: set[int]) -> None:
        """Wait until all of these have come."""
        while set(self.learners) != ids:
            self._came.clear()
            await self._came.wait()

    def take(self, packet: QuorumPacket) -> None:
        self.learners[decode(LearnerInfo, packet.data or b"").server_id] = packet
        self._came.set()

    async def _welcome(self, stream: PeerStream) -> None:
        self._streams.append(stream)
        if self._security.sasl is not None:
            await self._security.sasl.check(stream)
        stream.hand_over(_Ear(self))


def quorum_addresses(membership: Membership, server_id: int) -> tuple[Address, ...]:
    return next(one.quorum for one in membership.members if one.server_id == server_id)


def play(work: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, but not forever."""

    async def bounded() -> None:
        async with asyncio.timeout(3 * PATIENCE_SECONDS):
            await work()

    asyncio.run(bounded())
