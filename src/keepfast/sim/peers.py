"""The links between a simulated server and its peers."""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final

from keepfast.quorum import Link
from keepfast.sim.apache_links import plain
from keepfast.sim.network import Endpoint, Stream
from keepfast.wire import PacketParser, PacketType, QuorumPacket, ServerId

if TYPE_CHECKING:
    from keepfast.sim.process import Process

# Type and zxid of a packet without data and ids, which takes 8 more bytes.
_SHORT_PACKET: Final = Struct(">iq")


class PeerEnd:
    """One end of a connection between a learner and its leader."""

    __slots__ = ("is_paused", "link", "process", "side", "stream", "unread")

    def __init__(self, process: Process, stream: Stream, side: int, link: Link) -> None:
        self.process = process
        self.stream = stream
        self.side = side
        self.link = link
        # Whether it is not read now, and what waits in the socket, in order; None: the end.
        self.is_paused = False
        self.unread: deque[bytes | None] = deque()

    @property
    def peer(self) -> ServerId:
        """Who is at the other end."""
        return ServerId(self.stream.places[1 - self.side])

    def on_data(self, data: bytes) -> None:
        """See Endpoint."""
        self.process.run(lambda: self._hear(data))

    def on_lost(self) -> None:
        """See Endpoint."""
        self.process.run(lambda: self._hear(None))

    def _hear(self, data: bytes | None) -> None:
        self.unread.append(data)
        self.read()

    def read(self) -> None:
        """Read what has come, up to the point where no more is wanted."""
        process = self.process
        while self.unread and not self.is_paused and not process.is_over:
            data = self.unread.popleft()
            if data is None:
                process.links.lost(self)
            else:
                process.loop.link_bytes(self.link, data)


class PeerLinks:
    """All links of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ends: dict[Link, PeerEnd] = {}

    def has_dialled(self, number: object, peer: ServerId) -> bool:
        """Whether the link of this number goes from here to that leader."""
        return any(
            link.number == number and end.side == 0 and end.peer == peer
            for link, end in self._ends.items()
        )

    def dial(self, target: ServerId) -> None:
        """Connect to a peer's quorum port."""
        process, world = self._process, self._process.world
        world.trace.add(process.who, "dials s%d", target)
        world.network.dial(
            process.server_id,
            target,
            lambda stream: world.accept_peer(target, stream),
            self._dialled,
        )

    def accept(self, stream: Stream) -> Endpoint | None:
        """A learner has dialled."""
        process = self._process
        if process.is_over:
            return None
        end = self._new_end(stream, 1)
        # Not before the stream knows its end: it may be closed at once.
        process.call_soon(lambda: process.loop.link_accepted(end.link))
        return end

    def _dialled(self, stream: Stream | None) -> Endpoint | None:
        process = self._process
        if process.is_over:
            return None
        if stream is None:
            process.run(process.loop.dial_failed)
            return None
        end = self._new_end(stream, 0)
        # The stream has to know its end: what the member sends at once must not be lost.
        stream.ends[0] = end
        process.run(lambda: process.loop.link_dialled(end.link))
        return stream.ends[0]

    def _new_end(self, stream: Stream, side: int) -> PeerEnd:
        end = PeerEnd(self._process, stream, side, Link(stream.number))
        self._ends[end.link] = end
        return end

    def lost(self, end: PeerEnd) -> None:
        """A connection is gone."""
        process = self._process
        if self._ends.pop(end.link, None) is not None:
            process.world.trace.add(process.who, "lost its link with s%d", end.peer)
        process.loop.link_lost(end.link)

    def pause(self, link: Link) -> None:
        """Leave what comes in the socket."""
        end = self._ends.get(link)
        if end is not None:
            end.is_paused = True

    def resume(self, link: Link) -> None:
        """Read again."""
        end = self._ends.get(link)
        if end is not None and end.is_paused:
            end.is_paused = False
            self._process.call_soon(end.read)

    def hang_up(self, link: Link, reason: str) -> None:
        """Close a link."""
        process = self._process
        end = self._ends.pop(link, None)
        if end is not None:
            process.world.trace.add(process.who, "hangs up on s%d: %s", end.peer, reason)
            end.stream.close(end.side)

    def stream(self, link: Link, piece: bytes) -> None:
        """Send a piece of what is read from the disk."""
        process = self._process
        end = self._ends.get(link)
        if end is not None:
            process.world.trace.add(process.who, "streams %d bytes to s%d", len(piece), end.peer)
            end.stream.send(end.side, piece)

    def send(self, link: Link, packets: bytes) -> None:
        """Send packets; at each of them a trap may wait."""
        process, world = self._process, self._process.world
        end = self._ends.get(link)
        if end is None:
            return
        if world.options.apache in end.stream.places:
            packets = plain(packets)
        for packet in _packets(packets):
            name = PacketType(packet.type).name
            if packet.type != PacketType.PING:
                world.trace.add(process.who, "sends %s %#x to s%d", name, packet.zxid, end.peer)
            world.reached(f"send {name}", process, end)
            if process.is_over:
                return
            if packet.type == PacketType.ACK and end.side == 0:
                world.vouched(process, packet.zxid)
            elif packet.type == PacketType.PROPOSAL:
                world.checkers.proposed(process.server_id, packet.zxid, packet.data or b"")
        end.stream.send(end.side, packets)


def _packets(data: bytes) -> list[QuorumPacket]:
    """The packets in what is sent at once; most are a type and a zxid."""
    if len(data) == _SHORT_PACKET.size + 8:
        return [QuorumPacket(*_SHORT_PACKET.unpack_from(data))]
    return PacketParser().feed(data)
