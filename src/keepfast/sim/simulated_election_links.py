"""The election connections of a world: one per pair of servers, made when there is a vote to send.

As the real ones: the newest connection of a pair counts, and on a new one each side repeats its
last vote. Who dials is a matter of real sockets and left out: a pair has one connection, whoever
was first.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from keepfast.sim.agenda import MS
from keepfast.sim.network import Endpoint, Stream
from keepfast.wire import (
    FrameParser,
    Notification,
    ServerId,
    decode_notification,
    encode_frame,
    encode_notification,
)

if TYPE_CHECKING:
    from keepfast.sim.process import Process
    from keepfast.sim.simulated_world import World

_MIN_RETRY_MS: Final = 20
_MAX_RETRY_MS: Final = 300


class _End:
    """One server's end of an election connection."""

    __slots__ = ("_frames", "links", "peer", "process", "side", "stream")

    def __init__(
        self,
        links: SimulatedElectionLinks,
        process: Process,
        peer: ServerId,
        stream: Stream,
        side: int,
    ) -> None:
        self.links = links
        self.process = process
        self.peer = peer
        self.stream = stream
        self.side = side
        self._frames = FrameParser()

    def on_data(self, data: bytes) -> None:
        for payload in self._frames.feed(data):
            self._take(decode_notification(payload))

    def _take(self, vote: Notification) -> None:
        self.process.run(lambda: self.process.loop.notification(self.peer, vote))

    def greet(self) -> None:
        """The connection is new: the member is notified, and the last vote is repeated."""
        self.process.run(lambda: self.process.loop.peer_linked(self.peer))
        last = self.process.last_votes.get(self.peer)
        if last is not None:
            self.stream.send(self.side, last)

    def on_lost(self) -> None:
        self.links.lost(self)


class SimulatedElectionLinks:
    """Carries votes between the servers of a simulated world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(world.rng.getrandbits(64))
        # (server, peer) -> the server's end; each pair has two.
        self._ends: dict[tuple[ServerId, ServerId], _End] = {}
        self._dialling: set[tuple[Process, ServerId]] = set()

    def send(self, process: Process, peer: ServerId, vote: Notification) -> None:
        """Send a vote, now or when there is a connection."""
        process.last_votes[peer] = encode_frame(encode_notification(vote))
        end = self._ends.get((process.server_id, peer))
        if end is not None and end.process is process:
            end.stream.send(end.side, process.last_votes[peer])
        else:
            self._dial(process, peer)

    def _dial(self, process: Process, peer: ServerId) -> None:
        key = (process, peer)
        if process.is_over or key in self._dialling or peer not in self._world.hosts:
            return
        self._dialling.add(key)
        self._world.network.dial(
            process.server_id,
            peer,
            lambda stream: self._accept(process, peer, stream),
            lambda stream: self._dialled(process, peer, stream),
        )

    def _accept(self, process: Process, peer: ServerId, stream: Stream) -> Endpoint | None:
        other = self._world.running(peer)
        if other is None:
            return None
        return _End(self, other, process.server_id, stream, 1)

    def _dialled(self, process: Process, peer: ServerId, stream: Stream | None) -> Endpoint | None:
        self._dialling.discard((process, peer))
        if process.is_over:
            return None
        known = self._ends.get((process.server_id, peer))
        if known is not None and known.process is process and known.stream.is_open:
            return None  # the peer was faster
        other = None if stream is None else stream.ends[1]
        if stream is None or not isinstance(other, _End):
            self._retry(process, peer)
            return None
        end = _End(self, process, peer, stream, 0)
        for each in (end, other):
            old = self._ends.get((each.process.server_id, each.peer))
            if old is not None and old.stream is not stream:
                old.stream.abandon(old.side)
            self._ends[each.process.server_id, each.peer] = each
        for each in (end, other):
            each.greet()
        return end

    def _retry(self, process: Process, peer: ServerId) -> None:
        delay_us = self._rng.randint(_MIN_RETRY_MS, _MAX_RETRY_MS) * MS
        self._world.agenda.after(delay_us, lambda: self._redial(process, peer))

    def _redial(self, process: Process, peer: ServerId) -> None:
        if (process.server_id, peer) not in self._ends and peer in process.last_votes:
            self._dial(process, peer)

    def lost(self, end: _End) -> None:
        """A connection is gone; whoever has said something says it again."""
        key = (end.process.server_id, end.peer)
        if self._ends.get(key) is end:
            del self._ends[key]
            self._retry(end.process, end.peer)

    def process_ended(self, process: Process) -> None:
        """A server is gone, and its ends with it."""
        for key in [key for key, end in self._ends.items() if end.process is process]:
            del self._ends[key]
