"""The network between servers and clients: ordered byte streams that are late, held up or cut.

A *stream* is a TCP connection. Bytes arrive in order, in pieces of any size. Where a direction is
blocked (a partition, one-way or not) nothing is lost: bytes wait, as in a kernel that transmits
again, and arrive when the block ends, if both ends still hold the connection. A *reset* ends a
stream at once, with all that was on its way. Whoever closes an end sends a farewell after its
bytes; a machine that loses power sends nothing, and its peers find out when they next talk to its
successor, or by their own timeouts.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from keepfast.sim.agenda import Agenda

Place = int

_FAREWELL: Final = b""
_NO_ANSWER_US: Final = 400_000


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How a network behaves; all times in us."""

    # The latency is between these two. Far apart: streams overtake each other a lot.
    min_delay_us: int = 100
    max_delay_us: int = 500
    # How often (of 1) a piece takes `spike_us` longer.
    spike_chance: float = 0.0
    spike_us: int = 50_000
    # How often a send arrives in several pieces.
    split_chance: float = 0.0
    # The longest time that a peer stops reading a stream; 0: it never stops.
    max_stall_us: int = 0
    # How often it does so, of the pieces that it is sent.
    stall_chance: float = 0.7


class Endpoint(Protocol):
    """One end of a stream."""

    def on_data(self, data: bytes) -> None:
        """Bytes have come."""

    def on_lost(self) -> None:
        """The stream is gone; nothing comes any more."""


class _Pipe:
    """One direction of a stream."""

    __slots__ = ("last_us", "queue", "source", "target")

    def __init__(self, source: Place, target: Place) -> None:
        self.source = source
        self.target = target
        self.queue: deque[tuple[int, bytes]] = deque()
        self.last_us = 0


class Stream:
    """One connection. Side 0 has dialled, side 1 was dialled."""

    __slots__ = ("ends", "is_open", "network", "number", "on_taken", "pipes", "places")

    def __init__(
        self, network: SimulatedNetwork, number: int, dialler: Place, dialled: Place
    ) -> None:
        self.network = network
        self.number = number
        self.places = (dialler, dialled)
        # The bytes that side 0 sends are in pipe 0.
        self.pipes = (_Pipe(dialler, dialled), _Pipe(dialled, dialler))
        self.ends: list[Endpoint | None] = [None, None]
        self.is_open = True
        # Called when side 0 has taken bytes.
        self.on_taken: Callable[[], None] | None = None

    def unsent_bytes(self, side: int) -> int:
        """What a side has sent and the other has not taken yet."""
        return sum(len(data) for _, data in self.pipes[side].queue)

    def send(self, side: int, data: bytes) -> None:
        """Send bytes from a side; a no-op once the stream is gone."""
        if self.is_open and data:
            self.network.transmit(self, side, data)

    def close(self, side: int) -> None:
        """This side ends the stream; the other is notified after the bytes that were sent."""
        if self.is_open and self.ends[side] is not None:
            self.ends[side] = None
            self.network.transmit(self, side, _FAREWELL)

    def abandon(self, side: int) -> None:
        """This side disappears silently."""
        self.ends[side] = None

    def reset(self) -> None:
        """Both sides lose the stream, and what was on its way is gone."""
        if not self.is_open:
            return
        self.is_open = False
        self.network.forget(self)
        for end in self.ends:
            if end is not None:
                end.on_lost()
        self.ends = [None, None]


class SimulatedNetwork:
    """All streams of a world, and which directions are blocked."""

    def __init__(self, agenda: Agenda, rng: random.Random, options: NetworkOptions) -> None:
        self._agenda = agenda
        self._rng = rng
        self.options = options
        self.blocked: set[tuple[Place, Place]] = set()
        # Extra delay of all that a place sends and gets.
        self.lag_us: dict[Place, int] = {}
        # And in one direction alone.
        self.way_lag_us: dict[tuple[Place, Place], int] = {}
        self._streams: dict[int, Stream] = {}
        self._count = 0
        # Called when blocked directions may have become free.
        self.on_healed: list[Callable[[], None]] = []

    # -- the state of the network ----------------------------------------------------------------

    def calm_down(self) -> None:
        """From now on nothing takes unusually long."""
        self.options = replace(self.options, spike_chance=0.0)

    def block(self, source: Place, target: Place) -> None:
        """Hold up everything in one direction."""
        self.blocked.add((source, target))

    def part(self, left: set[Place], right: set[Place]) -> None:
        """Hold up everything between two groups, both ways."""
        for one in left:
            for other in right:
                self.blocked.add((one, other))
                self.blocked.add((other, one))

    def heal(self) -> None:
        """Free all directions; what was held up arrives."""
        if not self.blocked:
            return
        self.blocked.clear()
        for stream in list(self._streams.values()):
            for side in (0, 1):
                if stream.pipes[side].queue:
                    self._agenda.after(
                        self.delay_us(*self._way(stream, side)), self._arrival(stream, side)
                    )
        for action in self.on_healed:
            action()

    def is_blocked(self, source: Place, target: Place) -> bool:
        """Whether nothing gets through in this direction."""
        return (source, target) in self.blocked

    def streams_between(self, one: Place, other: Place) -> list[Stream]:
        """The open streams between two places."""
        wanted = {one, other}
        return [s for s in self._streams.values() if set(s.places) == wanted]

    def streams_of(self, place: Place) -> list[Stream]:
        """The open streams that a place has an end of."""
        return [s for s in self._streams.values() if place in s.places]

    # -- traffic ---------------------------------------------------------------------------------

    def delay_us(self, source: Place, target: Place) -> int:
        """How long the next piece takes on this way."""
        options = self.options
        delay = self._rng.randint(options.min_delay_us, options.max_delay_us)
        if options.spike_chance and self._rng.random() < options.spike_chance:
            delay += options.spike_us
        if self.way_lag_us:
            delay += self.way_lag_us.get((source, target), 0)
        if self.lag_us:
            delay += self.lag_us.get(source, 0) + self.lag_us.get(target, 0)
        return delay

    def dial(
        self,
        source: Place,
        target: Place,
        accept: Callable[[Stream], Endpoint | None],
        done: Callable[[Stream | None], Endpoint | None],
    ) -> None:
        """Open a stream: `accept` gives the end of the dialled, `done` that of the dialler.

        `accept` gives None where nobody listens; then, and where no way leads there, `done` is
        called with None.
        """
        there = self.delay_us(source, target)
        self._agenda.after(there, lambda: self._dialled(source, target, accept, done))

    def _dialled(
        self,
        source: Place,
        target: Place,
        accept: Callable[[Stream], Endpoint | None],
        done: Callable[[Stream | None], Endpoint | None],
    ) -> None:
        if self.is_blocked(source, target) or self.is_blocked(target, source):
            self._agenda.after(_NO_ANSWER_US, lambda: self._refuse(done))
            return
        self._count += 1
        stream = Stream(self, self._count, source, target)
        end = accept(stream)
        back = self.delay_us(target, source)
        if end is None:
            self._agenda.after(back, lambda: self._refuse(done))
            return
        stream.ends[1] = end
        self._streams[stream.number] = stream

        def answer() -> None:
            if not stream.is_open:
                self._refuse(done)
                return
            stream.ends[0] = done(stream)
            if stream.ends[0] is None:
                # The dialler is gone or no longer wants it.
                self.transmit(stream, 0, _FAREWELL)

        self._agenda.after(back, answer)

    def _refuse(self, done: Callable[[Stream | None], Endpoint | None]) -> None:
        done(None)

    def transmit(self, stream: Stream, side: int, data: bytes) -> None:
        """Send bytes, or the end of the stream."""
        pieces = [data]
        options = self.options
        if len(data) > 1 and options.split_chance and self._rng.random() < options.split_chance:
            at = self._rng.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        pipe = stream.pipes[side]
        for piece in pieces:
            time_us = self._agenda.now_us + self.delay_us(pipe.source, pipe.target)
            pipe.last_us = max(pipe.last_us, time_us)
            pipe.queue.append((pipe.last_us, piece))
            self._agenda.at(pipe.last_us, self._arrival(stream, side))

    def forget(self, stream: Stream) -> None:
        """The stream is gone."""
        self._streams.pop(stream.number, None)

    def _way(self, stream: Stream, side: int) -> tuple[Place, Place]:
        pipe = stream.pipes[side]
        return pipe.source, pipe.target

    def _arrival(self, stream: Stream, side: int) -> Callable[[], None]:
        return lambda: self._arrive(stream, side)

    def _arrive(self, stream: Stream, side: int) -> None:
        pipe = stream.pipes[side]
        queue = pipe.queue
        while queue and queue[0][0] <= self._agenda.now_us and stream.is_open:
            if self.is_blocked(pipe.source, pipe.target):
                return
            data = queue.popleft()[1]
            end = stream.ends[1 - side]
            if end is None:
                # Nobody is there: the kernel answers with a reset.
                if data or stream.ends[side] is None:
                    stream.reset()
                return
            if data:
                end.on_data(data)
                if side == 1 and stream.on_taken is not None:
                    stream.on_taken()
                continue
            stream.is_open = False
            stream.ends[1 - side] = None
            self.forget(stream)
            end.on_lost()
