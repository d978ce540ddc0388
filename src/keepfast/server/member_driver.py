"""A member of an ensemble in the real world: its ports, its peers, its disk and its clock.

It carries out what `replica.Member` asks for and passes in what happens; it decides nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from keepfast.quorum import (
    Address,
    Dial,
    DiskOrder,
    Hangup,
    Link,
    Membership,
    Note,
    Notify,
    PrepareTree,
    QuorumOptions,
    RecordStream,
    StoreMembership,
    TreeStream,
    UseMembership,
    parse_membership,
)
from keepfast.replica import Append, Member, Role, StoreFacts
from keepfast.server.dynamic_files import DynamicFileKeeper, DynamicFiles
from keepfast.server.election_links import ElectionLinks, LinkOptions, LinkSecurity
from keepfast.server.peer_link import PeerLink
from keepfast.server.peer_stream import PeerListener, PeerStream, connect
from keepfast.storage import (
    Recovery,
    carry_out,
    fitting_snapshot,
    is_recent,
    record_packets,
    tree_packets,
)
from keepfast.wire import (
    BrokenHistory,
    CorruptSnapshot,
    DiskFull,
    Notification,
    PeerProtocolError,
    ServerId,
    StorageError,
    Zxid,
)

if TYPE_CHECKING:
    from keepfast.server.server import Server

_MODES: Final = {
    Role.LEADING: "leader",
    Role.FOLLOWING: "follower",
    Role.OBSERVING: "observer",
}


class EnsembleOptions(msgspec.Struct, frozen=True):
    """This server's place among its peers."""

    server_id: int
    membership: Membership
    # Where it listens; by default at the addresses of its own line.
    quorum_addresses: tuple[Address, ...]
    election_addresses: tuple[Address, ...]
    quorum: QuorumOptions = msgspec.field(default_factory=QuorumOptions)
    links: LinkOptions = msgspec.field(default_factory=LinkOptions)
    # The file beside which the membership is written when it changes; None: it is not.
    config_file: str | None = None


class MemberDriver:
    """See the module."""

    def __init__(
        self,
        server: Server,
        options: EnsembleOptions,
        recovery: Recovery,
        security: LinkSecurity | None = None,
    ) -> None:
        self._server = server
        self._options = options
        self._security = security or LinkSecurity()
        self._links: dict[Link, PeerLink] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        store = server.syncer.store
        facts = StoreFacts(
            recovery.standing,
            recovery.tree,
            recovery.head,
            recovery.epochs.accepted,
            recovery.epochs.current,
            store.manifest.ensemble,
            store.manifest.membership,
            lambda: store.history,
        )
        self.member = Member(
            server.replica,
            options.membership,
            options.quorum,
            facts,
            lambda: secrets.token_hex(16),
        )
        self._election = ElectionLinks(
            ServerId(options.server_id),
            options.election_addresses,
            options.election_addresses,
            on_link=self._on_peer_linked,
            on_notification=self._on_notification,
            log=server.log,
            options=options.links,
            security=self._security,
        )
        self._listener = PeerListener(self._welcome, server.log, tls=self._security.tls)
        self._files: DynamicFileKeeper | None = None
        if options.config_file is not None:
            me = ServerId(options.server_id)
            files = DynamicFiles(options.config_file, me, options.membership.version)
            self._files = DynamicFileKeeper(files, me, options.membership, server.log)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin to look for a leader. Raises OSError."""
        await self._listener.open(self._options.quorum_addresses)
        self._tell_members()
        try:
            await self._election.start()
        except OSError:
            self._listener.close()
            raise
        tls = self._security.tls
        if tls is not None and tls.is_reloading:
            self._spawn(tls.watch())
        if self._files is not None:
            self._files.start(self.member.quorums.current)
        self._run(self.member.start)
        self._tick()

    async def stop(self) -> None:
        """End all connections to peers."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._listener.close()
        await self._election.stop()
        for peer in list(self._links.values()):
            peer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._files is not None:
            await self._files.stop()

    @property
    def mode(self) -> str:
        """What this server is, by Apache's word."""
        if self._server.replica.is_read_only:
            return "read-only"
        return _MODES.get(self.member.role, "looking")

    def hand_over(self) -> ServerId | None:
        """Have another server lead; gives whom, None if that cannot be."""
        successors: list[ServerId | None] = []
        self._run(lambda: successors.append(self.member.hand_over()))
        return successors[0] if successors else None

    def _tick(self) -> None:
        if self._is_stopped:
            return
        self._run(self.member.tick)
        self._arm()

    def _arm(self) -> None:
        """Wake at the member's deadline, and a few times a tick in any case."""
        if self._timer is not None:
            self._timer.cancel()
        member = self.member
        delay_ms = max(self._options.quorum.tick_ms // 4, 1)
        if member.deadline_ms is not None:
            delay_ms = min(delay_ms, max(member.deadline_ms - self._server.now_ms(), 1))
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _run(self, action: Callable[[], None]) -> None:
        """Pass something in, and do what the member asks for."""
        if self._is_stopped or self._server.failure is not None:
            return
        self._server.tell_time()
        deadline = self.member.deadline_ms
        try:
            action()
            self._server.flush()
        except Exception as error:  # the outermost loop of what peers can reach
            # A member that stopped half-way through a step must not go on to vote or to lead.
            self._server.disk_failed(StorageError(f"a bug in keepfast: {error!r}"))
            raise
        if self.member.deadline_ms != deadline and self._timer is not None:
            self._arm()

    # -- election --------------------------------------------------------------------------------

    def _on_peer_linked(self, peer: ServerId) -> None:
        self._run(lambda: self.member.on_peer_linked(peer))

    def _on_notification(self, sender: ServerId, notification: Notification) -> None:
        self._run(lambda: self.member.on_notification(sender, notification))

    def _tell_members(self) -> None:
        members = self.member.quorums.members
        self._election.set_members({m.server_id: m.election for m in members})

    # -- learner links ---------------------------------------------------------------------------

    async def _welcome(self, stream: PeerStream) -> None:
        if self._security.sasl is not None:
            async with asyncio.timeout(self._options.links.identify_timeout_ms / 1000):
                await self._security.sasl.check(stream)
        # The member knows the link before its first bytes are passed on: some may be there already.
        stream.hand_over(PeerLink(self, self._new_link(), self.member.link_accepted))

    def _new_link(self) -> Link:
        self._number += 1
        return Link(self._number)

    async def _dial(self, server_id: ServerId) -> None:
        spec = self.member.quorums.find(server_id)
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
            self._server.log.info("leader-not-reached", leader=server_id, reason=error)
            self._run(self.member.dial_failed)
            return
        stream.hand_over(PeerLink(self, self._new_link(), self.member.link_dialled))

    def linked(self, peer: PeerLink, begin: Callable[[Link], None]) -> None:
        """A connection is there."""
        self._links[peer.link] = peer
        self._run(lambda: begin(peer.link))

    def received(self, link: Link, data: bytes) -> None:
        """Bytes of a peer."""
        self._run(lambda: self.member.receive_packets(link, data))

    def lost(self, link: Link) -> None:
        """A connection is gone."""
        if self._links.pop(link, None) is not None:
            self._run(lambda: self.member.link_lost(link))

    async def pieces_of(self, item: RecordStream | TreeStream) -> Iterator[bytes]:
        """What stands for a stream on the wire. Raises StorageError."""
        store = self._server.syncer.store
        if isinstance(item, RecordStream):
            return record_packets(store.history, item)
        entry = fitting_snapshot(store.history, item.up_to)
        if entry is None or not is_recent(store.history, entry):
            # One that fits better was begun in time (`_prepare_tree`), unless that failed.
            await self._server.snapshots.wait_until_idle()
            entry = fitting_snapshot(store.history, item.up_to)
        if entry is None:
            raise CorruptSnapshot("there is no snapshot that a tree could be sent from")
        return tree_packets(store.history, entry, item)

    def _prepare_tree(self, up_to: Zxid) -> None:
        """See that there is a snapshot to send: one that begins later may be too new."""
        history = self._server.syncer.store.history
        entry = fitting_snapshot(history, up_to)
        if entry is None or not is_recent(history, entry):
            self._server.snapshots.begin()

    def stream_failed(self, link: Link, error: StorageError) -> None:
        """What a peer was to be sent cannot be read."""
        self._server.log.error("stream-failed", link=link.number, reason=error)
        peer = self._links.get(link)
        if peer is not None:
            peer.close()

    # -- effects ---------------------------------------------------------------------------------

    @property
    def gathers(self) -> bool:
        """Whether what clients wrote may wait for more of it before it is proposed."""
        return self.member.leader is not None and not self.member.is_handing_over

    def flush(self, is_held: bool) -> list[Append]:
        """Do what the member asks for; gives the records to store, none if they are held."""
        member = self.member
        if not is_held:
            member.propose_new()
        if member.effects:
            effects = member.effects.copy()
            member.effects.clear()
            for effect in effects:
                self._perform(effect)
        if member.dirty_links:
            # At once: peers work while this server calls its disk and answers its own clients.
            self._send_all()
        records = member.take_appends() if member.replica.appends and not is_held else []
        if self._files is not None:
            self._files.note_proposals(record.entry for record in records)
        return records

    def _send_all(self) -> None:
        member = self.member
        for link in member.dirty_links:
            out, link.out = link.out, []
            peer = self._links.get(link)
            if peer is not None:
                peer.send(out)
        member.dirty_links.clear()

    def _perform(self, effect: object) -> None:
        if isinstance(effect, Note):
            self._server.log.info(effect.name, **dict(effect.fields))
        elif isinstance(effect, Notify):
            self._election.send(effect.server_id, effect.notification)
        elif isinstance(effect, Dial):
            self._spawn(self._dial(effect.server_id))
        elif isinstance(effect, Hangup):
            peer = self._links.pop(effect.link, None)
            if peer is not None:
                peer.close()
        elif isinstance(effect, UseMembership):
            self._tell_members()
            if self._files is not None:
                self._files.follow(effect.quorums)
        elif isinstance(effect, PrepareTree):
            self._prepare_tree(effect.up_to)
        elif isinstance(effect, DiskOrder):
            self._spawn(self._carry_out(effect))

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, order: DiskOrder) -> None:
        syncer = self._server.syncer
        try:
            tree = await syncer.run(lambda: carry_out(syncer.store, order))
        except (BrokenHistory, DiskFull) as error:
            refusal = error
            self._run(lambda: self.member.disk_refused(order, refusal))
        except StorageError as error:
            self._server.disk_failed(error)
        else:
            if isinstance(order, StoreMembership) and self._files is not None:
                self._files.use(parse_membership(order.text))
            self._run(lambda: self.member.disk_done(order, tree))

    def flush_all(self) -> None:
        """What was held is due."""
        self._run(self._server.flush)

    def on_durable(self, zxid: Zxid) -> None:
        """Records up to `zxid` are on disk."""
        self._run(lambda: self.member.log_durable(zxid))
