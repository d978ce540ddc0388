"""The other servers of an ensemble in the real world: ports, connections, Apache's files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import msgspec

from keepfast.driver import ServerLoop
from keepfast.quorum import (
    Address,
    DiskOrder,
    Link,
    Membership,
    QuorumOptions,
    Quorums,
    StoreMembership,
    parse_membership,
)
from keepfast.replica import Append
from keepfast.server.dynamic_files import DynamicFileKeeper, DynamicFiles
from keepfast.server.election_links import ElectionLinks, LinkOptions, LinkSecurity
from keepfast.server.farewell import Farewell
from keepfast.server.logs import EventLog
from keepfast.server.peer_stream import PeerListener, PeerStream, connect
from keepfast.server.tasks import spawn
from keepfast.wire import Notification, PeerProtocolError, ServerId

# Bytes buffered for one peer while a stream is sent. Low: more waiting; high: memory.
_HIGH_WATER_BYTES: Final = 4 << 20


class EnsembleOptions(msgspec.Struct, frozen=True):
    """This server's place among its peers."""

    server_id: int
    membership: Membership
    # Where it listens; by default at the addresses of its own line.
    quorum_addresses: tuple[Address, ...]
    election_addresses: tuple[Address, ...]
    quorum: QuorumOptions = msgspec.field(default_factory=QuorumOptions)
    links: LinkOptions = msgspec.field(default_factory=LinkOptions)
    # The file beside which a changed membership is written; None: it is not written.
    config_file: str | None = None


class PeerLink(asyncio.Protocol):
    """One connection of the learner protocol."""

    def __init__(
        self,
        driver: ServerLoop,
        link: Link,
        begin: Callable[[Link], None],
        on_lost: Callable[[Link], None],
    ) -> None:
        """`begin` is called once the link is there, `on_lost` when it is gone."""
        self.link = link
        self._on_lost = on_lost
        self._driver = driver
        self._begin = begin
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._farewell = Farewell()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._begin(self.link)

    def data_received(self, data: bytes) -> None:
        self._driver.link_bytes(self.link, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._farewell.is_over()
        self._on_lost(self.link)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._driver.link_drained(self.link)

    def send(self, data: bytes) -> bool:
        """Write to the socket; False: it has to empty first."""
        if self._transport is not None:
            self._transport.write(data)
        return not self._is_full

    def pause(self) -> None:
        """Leave what comes in the socket."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._farewell.begin(self._transport)


class PeerNetwork:
    """Connects a server with its peers."""

    def __init__(
        self,
        driver: ServerLoop,
        options: EnsembleOptions,
        security: LinkSecurity | None,
        log: EventLog,
    ) -> None:
        self._driver = driver
        self._options = options
        self._security = security or LinkSecurity()
        self._log = log
        self._quorums = Quorums(options.membership)
        self._links: dict[Link, PeerLink] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        me = ServerId(options.server_id)
        self._election = ElectionLinks(
            me,
            options.election_addresses,
            options.election_addresses,
            on_link=driver.peer_linked,
            on_notification=driver.notification,
            log=log,
            options=options.links,
            security=self._security,
        )
        self._listener = PeerListener(self._welcome, log, tls=self._security.tls)
        self._files: DynamicFileKeeper | None = None
        if options.config_file is not None:
            files = DynamicFiles(options.config_file, me, options.membership.version)
            self._files = DynamicFileKeeper(files, me, options.membership, log)

    # -- life ------------------------------------------------------------------------------------

    async def start(self, quorums: Quorums) -> None:
        """Listen, and talk to these peers. Raises OSError."""
        await self._listener.open(self._options.quorum_addresses)
        self._set_members(quorums)
        try:
            await self._election.start()
        except OSError:
            self._listener.close()
            raise
        tls = self._security.tls
        if tls is not None and tls.is_reloading:
            self._spawn(tls.watch())
        if self._files is not None:
            self._files.start(quorums.current)

    async def stop(self) -> None:
        """End all connections to peers."""
        self._listener.close()
        await self._election.stop()
        for peer in list(self._links.values()):
            peer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._files is not None:
            await self._files.stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- as part of a ServerWorld ----------------------------------------------------------------

    def notify(self, server_id: ServerId, vote: Notification) -> None:
        """See ServerWorld."""
        self._election.send(server_id, vote)

    def use_members(self, quorums: Quorums) -> None:
        """See ServerWorld."""
        self._set_members(quorums)
        if self._files is not None:
            self._files.follow(quorums)

    def _set_members(self, quorums: Quorums) -> None:
        self._quorums = quorums
        self._election.set_members({m.server_id: m.election for m in quorums.members})

    def logging(self, records: list[Append]) -> None:
        """See ServerWorld."""
        if self._files is not None:
            self._files.note_proposals(record.entry for record in records)

    def order_done(self, order: DiskOrder) -> None:
        """See ServerWorld."""
        if isinstance(order, StoreMembership) and self._files is not None:
            self._files.use(parse_membership(order.text))

    def send_peer(self, link: Link, packets: bytes) -> bool:
        """See ServerWorld."""
        peer = self._links.get(link)
        return peer is None or peer.send(packets)

    def stream_peer(self, link: Link, piece: bytes) -> bool:
        """See ServerWorld."""
        return self.send_peer(link, piece)

    def pause_peer(self, link: Link) -> None:
        """See ServerWorld."""
        peer = self._links.get(link)
        if peer is not None:
            peer.pause()

    def resume_peer(self, link: Link) -> None:
        """See ServerWorld."""
        peer = self._links.get(link)
        if peer is not None:
            peer.resume()

    def hang_up(self, link: Link, reason: str) -> None:
        """See ServerWorld."""
        peer = self._links.pop(link, None)
        if peer is not None:
            peer.close()

    def dial(self, server_id: ServerId) -> None:
        """See ServerWorld."""
        self._spawn(self._dial(server_id))

    # -- learner links ---------------------------------------------------------------------------

    async def _welcome(self, stream: PeerStream) -> None:
        if self._security.sasl is not None:
            async with asyncio.timeout(self._options.links.identify_timeout_ms / 1000):
                await self._security.sasl.check(stream)
        # The loop knows the link before its first bytes are passed on: some may be there already.
        stream.hand_over(self._new_link(self._driver.link_accepted, stream.host))

    def _new_link(self, begin: Callable[[Link], None], address: str = "") -> PeerLink:
        self._number += 1
        peer = PeerLink(self._driver, Link(self._number, address), begin, self._lost)
        self._links[peer.link] = peer
        return peer

    def _lost(self, link: Link) -> None:
        self._links.pop(link, None)
        self._driver.link_lost(link)

    async def _dial(self, server_id: ServerId) -> None:
        spec = self._quorums.find(server_id)
        addresses = () if spec is None else spec.quorum
        options, sasl = self._options, self._security.sasl
        try:
            stream = await connect(
                addresses,
                timeout_seconds=options.quorum.sync_ms / 1000,
                tls=self._security.tls,
            )
            if sasl is not None:
                try:
                    async with asyncio.timeout(options.links.identify_timeout_ms / 1000):
                        await sasl.prove(stream)
                except BaseException:
                    stream.abort()
                    raise
        except (OSError, PeerProtocolError) as error:
            self._log.info("leader-not-reached", leader=server_id, reason=error)
            self._driver.dial_failed()
            return
        stream.hand_over(self._new_link(self._driver.link_dialled))
