"""Servers in the simulator's world, under a test's control, and clients that send raw frames.

The code is that of production, with the simulator's checkers on. Nothing is random, and nothing
takes long: a write is answered within a few milliseconds, a leader is elected within a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from keepfast.replica import Member
from keepfast.sim.agenda import MS
from keepfast.sim.host import Host
from keepfast.sim.network import Endpoint, Stream
from keepfast.sim.options import SimOptions
from keepfast.sim.process import Process
from keepfast.sim.script import Script, quiet_options
from keepfast.tree import Tree
from keepfast.wire import (
    OPEN_ACL,
    ConnectResponse,
    CreateMode,
    CreateRequest,
    FrameParser,
    OpCode,
    codec_of,
    encode_frame,
)
from tests.replica.plain_frames import greeting_of, replies_in, request_of

_FIRST_PLACE: Final = 200
# A request is answered within this time, or not before something changes.
_ANSWER_MS: Final = 20


def local_sessions(options: SimOptions) -> SimOptions:
    """With sessions that their server alone knows, until they make an ephemeral."""
    return replace(
        options,
        replica=replace(options.replica, has_local_sessions=True, has_session_upgrades=True),
    )


class Ensemble(Script):
    """A few servers, all of them voters."""

    def __init__(self, options: SimOptions | None = None) -> None:
        super().__init__(options)
        self.clients = 0

    @property
    def hosts(self) -> list[Host]:
        return list(self.world.hosts.values())

    def up(self) -> list[Host]:
        """The servers that are up."""
        return [host for host in self.hosts if host.is_up]

    def leading(self) -> Host:
        """The server that leads and serves."""
        host = self.world.leading_host()
        assert host is not None
        return host

    def followers(self) -> list[Host]:
        """The servers that are up and do not lead."""
        leader = self.leading()
        return [host for host in self.up() if host is not leader]

    def wait_all(self, what: str) -> None:
        """Let time pass until one leads, and all that are up serve what is committed."""

        def is_done() -> bool:
            servers = [host.server_id for host in self.up()]
            return self.world.leading_host() is not None and self.are_current(servers)

        self.wait(is_done, what)

    def pass_ms(self, ms: int) -> None:
        self.pass_ticks(ms * MS / self.world.tick_us)

    def hang_disks(self, *hosts: Host, ms: int) -> None:
        """Delay every disk call of these servers by this much from now on."""
        for host in hosts:
            host.disk_hangs_until_us = self.world.agenda.now_us + ms * MS

    def part_unnoticed(self, *hosts: Host) -> None:
        """Cut these off: the others notice at once, these only when their timeouts expire."""
        network = self.world.network
        inside = {host.place for host in hosts}
        outside = {host.place for host in self.hosts} - inside
        network.part(inside, outside)
        for one in sorted(inside):
            for other in sorted(outside):
                for stream in network.streams_between(one, other):
                    side = stream.places.index(other)
                    end = stream.ends[side]
                    stream.abandon(side)
                    if end is not None:
                        end.on_lost()

    def digests(self) -> set[tuple[int, int, int]]:
        """One value if all servers have the same state."""
        trees = [tree_of(host) for host in self.up()]
        return {(tree.last_zxid, tree.digest, tree.state_digest) for tree in trees}

    def write(self, path: str) -> None:
        """Create a znode through the leader."""
        client = PlainClient(self, self.leading())
        assert client.ask(1, OpCode.CREATE, create(path)) == [(1, 0)]
        client.leave()


def started(count: int = 3, options: SimOptions | None = None) -> Ensemble:
    """An ensemble all of whose servers serve."""
    ensemble = Ensemble(options or quiet_options(count))
    ensemble.start(*ensemble.world.hosts)
    return ensemble


def process_of(host: Host) -> Process:
    assert host.process is not None
    return host.process


def member_of(host: Host) -> Member:
    member = process_of(host).member
    assert member is not None
    return member


def tree_of(host: Host) -> Tree:
    tree = member_of(host).state.tree
    assert tree is not None
    return tree


def run(host: Host, event: Callable[[Member], object]) -> None:
    """Run something in a server, as an event of its loop."""
    process = process_of(host)
    process.run(lambda: process.loop.run(lambda: event(member_of(host))))


def create(path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT) -> CreateRequest:
    return CreateRequest(path, data, OPEN_ACL, mode.value)


class PlainClient:
    """One connection to one server, and what was received on it."""

    def __init__(
        self,
        ensemble: Ensemble,
        host: Host,
        *,
        session: ConnectResponse | None = None,
        timeout_ms: int = 10_000,
        read_only: bool = False,
    ) -> None:
        self.ensemble = ensemble
        self.is_open = False
        self.greeting: ConnectResponse | None = None
        self._first = greeting_of(session, timeout_ms, read_only=read_only)
        self.stream: Stream | None = None
        self._frames = FrameParser(1 << 24)
        self._received: list[bytes] = []
        ensemble.clients += 1
        world = ensemble.world
        world.network.dial(
            _FIRST_PLACE + ensemble.clients,
            host.place,
            lambda stream: world.accept_client(host.server_id, stream),
            self._dialled,
        )
        self._wait(lambda: self.greeting is not None)

    def _dialled(self, stream: Stream | None) -> Endpoint | None:
        if stream is None:
            return None
        self.stream, self.is_open = stream, True
        stream.send(0, encode_frame(self._first))
        return self

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        payloads = self._frames.feed(data)
        if payloads and self.greeting is None:
            self.greeting = codec_of(ConnectResponse).decode(payloads.pop(0))
        self._received += payloads

    def on_lost(self) -> None:
        """See Endpoint."""
        self.is_open = False

    def _wait(self, is_done: Callable[[], bool]) -> None:
        agenda = self.ensemble.world.agenda
        agenda.run_until(agenda.now_us + _ANSWER_MS * MS, is_done)

    def leave(self) -> None:
        """Close the connection without a closeSession; the session stays."""
        if self.stream is not None:
            self.stream.close(0)
        self.is_open = False

    def send(self, xid: int, op: int, request: Any = None) -> None:
        """Send a request."""
        self.send_raw(request_of(xid, op, request))

    def send_raw(self, payload: bytes) -> None:
        """Send one frame."""
        assert self.stream is not None
        self.stream.send(0, encode_frame(payload))

    def ask(self, xid: int, op: int, request: Any = None) -> list[tuple[int, int]]:
        """Send a request and wait briefly for its reply; returns all that was received."""
        self.send(xid, op, request)
        self._wait(lambda: bool(self._received))
        return self.replies()

    def take(self) -> list[bytes]:
        """The payloads received since the last call."""
        received, self._received = self._received, []
        return received

    def replies(self) -> list[tuple[int, int]]:
        """xid and error of each reply, and (-1, type) of each event, in order."""
        return replies_in(self.take())
