"""The election connections: one per pair of servers, dialled by the one with the greater id.

    dialler                                   acceptor
    hello: my id, my election addresses  ->
    (SASL, where it is on)              <->
    my id is greater:  notifications    <->   keeps it, instead of an older one
    my id is smaller:  closes                 dials back

So a server of smaller id can ask for a connection, but there are never two. A lost connection is
re-established by the side with the greater id, if the other is a member; the side with the smaller
id does so when it has something to send.

One notification at most waits for each peer, the newest. When a connection is there, `on_link` is
called before anything is sent: the election machine sends its current vote, which replaces the
pending one. (Apache's servers repeat their last notification instead, however old it is.)
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from keepfast.quorum import Address, comes_from
from keepfast.server.listening import UnresolvedHostError
from keepfast.server.logs import EventLog
from keepfast.server.peer_sasl import PeerSasl
from keepfast.server.peer_stream import PeerListener, PeerStream, connect
from keepfast.server.peer_tls import PeerTls
from keepfast.server.tasks import spawn
from keepfast.wire import (
    MAX_NOTIFICATION_SIZE,
    Hello,
    HelloForm,
    MalformedRecord,
    Notification,
    PeerProtocolError,
    ServerId,
    decode_hello,
    decode_notification,
    encode_hello,
    encode_notification,
)

_LENGTH: Final = struct.Struct(">i")
_WILDCARDS: Final = frozenset(("0.0.0.0", "::", "0:0:0:0:0:0:0:0"))
_BIND_PAUSE_SECONDS: Final = 1.0
# How often somebody is dialled back who is not a member, before it is forgotten.
_STRANGER_ATTEMPTS: Final = 5
# Notifications of one peer that are handled at once, and then in a second; the rest waits in its
# socket. Low: an election with many changes of mind takes longer. High: a flood holds up clients.
_MAX_BURST: Final = 50
_MAX_PER_SECOND: Final = 20.0


class LinkOptions(msgspec.Struct, frozen=True):
    """Timeouts and limits of the connections. Times in ms."""

    # Low: distant servers are never reached; high: a dead address delays the next one.
    connect_timeout_ms: int = 5_000
    # How long a hello (and SASL) may take. Low: slow servers are refused; high: strangers stay.
    identify_timeout_ms: int = 10_000
    # Pause after a first failure, which doubles. Low: packets for nothing; high: a server that
    # comes back is noticed late.
    first_retry_ms: int = 50
    longest_retry_ms: int = 1_000
    # How long the other side may take to dial back before it is asked again. Low: connections that
    # were just made are rebuilt.
    dial_back_ms: int = 1_000
    # Servers that are no members and are remembered, as long as they are connected; for one more,
    # one of those from the address that has most of them goes. Low: who wants to join may have to
    # ask again.
    max_strangers: int = 64
    # See QuorumOptions.
    is_address_checked: bool = True
    # Attempts to listen, a second apart; 0: forever.
    bind_attempts: int = 3
    # Announce all our addresses (multiAddress.enabled); 3.5 and older do not understand that.
    is_multi_address: bool = False
    is_keep_alive: bool = False


class LinkSecurity(msgspec.Struct, frozen=True):
    """What protects the connections; None: nothing."""

    tls: PeerTls | None = None
    sasl: PeerSasl | None = None


class _Peer:
    """Another server, as a connection endpoint."""

    def __init__(self, server_id: ServerId) -> None:
        self.server_id = server_id
        self.is_member = False
        self.addresses: tuple[Address, ...] = ()
        # Where it claims to be, if that is not where the membership says.
        self.announced: tuple[Address, ...] = ()
        # Where it came from last; of strangers.
        self.source = ""
        self.stream: PeerStream | None = None
        self.waiting: Notification | None = None
        # A connection is wanted.
        self.is_wanted = False
        self.dialling: asyncio.Task[None] | None = None
        self.is_linked = asyncio.Event()
        self.last_failure = ""


class ElectionLinks:
    """All election connections of one server.

    `on_link` is called with a peer's id when a connection with it has been made, `on_notification`
    with what comes. Both are called by the event loop and may call `send`. `listen` is where this
    server listens, `addresses` what it says about that to others (one, or several).
    """

    def __init__(
        self,
        my_id: ServerId,
        listen: Sequence[Address],
        addresses: Sequence[Address],
        *,
        on_link: Callable[[ServerId], None],
        on_notification: Callable[[ServerId, Notification], None],
        log: EventLog,
        options: LinkOptions | None = None,
        security: LinkSecurity | None = None,
    ) -> None:
        self.my_id = my_id
        self._listen = tuple(listen)
        self._addresses = tuple(addresses)
        self._on_link = on_link
        self._on_notification = on_notification
        self._log = log
        self._options = options or LinkOptions()
        self._security = security or LinkSecurity()
        self._peers: dict[ServerId, _Peer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        self._listener = PeerListener(
            self._welcome,
            log,
            tls=self._security.tls,
            is_keep_alive=self._options.is_keep_alive,
        )

    @property
    def linked(self) -> frozenset[ServerId]:
        """The servers with a connection."""
        return frozenset(id for id, peer in self._peers.items() if peer.stream is not None)

    async def start(self) -> None:
        """Listen. Raises OSError if the port stays taken."""
        attempt = 0
        while True:
            attempt += 1
            try:
                await self._listener.open(self._listen)
            except UnresolvedHostError:
                raise
            except OSError as error:
                if attempt == self._options.bind_attempts:
                    raise
                self._log.warning("election-port-taken", reason=error, attempt=attempt)
                await asyncio.sleep(_BIND_PAUSE_SECONDS)
            else:
                return

    async def stop(self) -> None:
        """End all connections."""
        self._is_stopped = True
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        for peer in self._peers.values():
            if peer.stream is not None:
                peer.stream.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.wait_closed()

    def set_members(self, members: Mapping[ServerId, Sequence[Address]]) -> None:
        """Who belongs to the ensemble, and where each takes election connections."""
        for server_id, peer in self._peers.items():
            peer.is_member = server_id in members
        for server_id, addresses in members.items():
            if server_id != self.my_id:
                peer = self._peers.setdefault(server_id, _Peer(server_id))
                peer.is_member = True
                peer.addresses = tuple(addresses)

    def send(self, server_id: ServerId, notification: Notification) -> None:
        """Send a vote to a peer as soon as possible; it replaces a pending one.

        A server that is not a member and has no connection is not notified.
        """
        peer = self._peers.get(server_id)
        if peer is None or self._is_stopped:
            return
        peer.waiting = notification
        if peer.stream is not None:
            self._flush(peer)
        else:
            self._want(peer)

    # -- making connections ----------------------------------------------------------------------

    def _want(self, peer: _Peer) -> None:
        peer.is_wanted = True
        if peer.dialling is None and not self._is_stopped and (peer.addresses or peer.announced):
            peer.dialling = self._spawn(self._dial(peer))

    async def _dial(self, peer: _Peer) -> None:
        """Retry until there is a connection or none is wanted."""
        delay_ms = self._options.first_retry_ms
        attempts = 0
        try:
            while peer.stream is None and peer.is_wanted:
                attempts += 1
                if not peer.is_member and attempts > _STRANGER_ATTEMPTS:
                    peer.dialling = None
                    self._forget(peer)
                    return
                pause_ms = delay_ms
                try:
                    stream = await self._introduce(peer)
                except (OSError, PeerProtocolError) as error:
                    self._log_failure(peer, error)
                    delay_ms = min(2 * delay_ms, self._options.longest_retry_ms)
                else:
                    peer.last_failure = ""
                    if peer.server_id < self.my_id:
                        self._keep(peer, stream)
                        return
                    stream.close()
                    pause_ms = self._options.dial_back_ms
                await self._wait_linked(peer, pause_ms)
        finally:
            peer.dialling = None

    async def _introduce(self, peer: _Peer) -> PeerStream:
        """A new connection on which the other side knows who we are."""
        options = self._options
        stream = await connect(
            [*dict.fromkeys((*peer.addresses, *peer.announced))],
            timeout_seconds=options.connect_timeout_ms / 1000,
            tls=self._security.tls,
            is_keep_alive=options.is_keep_alive,
        )
        try:
            stream.write(encode_hello(self._hello()))
            if self._security.sasl is not None:
                async with asyncio.timeout(options.identify_timeout_ms / 1000):
                    await self._security.sasl.prove(stream)
        except BaseException:
            stream.abort()
            raise
        return stream

    def _hello(self) -> Hello:
        if self._options.is_multi_address:
            return Hello(HelloForm.V2, self.my_id, tuple(map(str, self._addresses)))
        return Hello(HelloForm.V1, self.my_id, (str(self._addresses[0]),))

    async def _wait_linked(self, peer: _Peer, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await peer.is_linked.wait()
        except TimeoutError:
            return

    def _log_failure(self, peer: _Peer, error: Exception) -> None:
        """Log why a server cannot be reached; once, as long as the reason is the same."""
        reason = str(error) or type(error).__name__
        if reason != peer.last_failure:
            self._log.info("peer-not-reached", peer=peer.server_id, reason=reason)
        peer.last_failure = reason

    async def _welcome(self, stream: PeerStream) -> None:
        """Identify the dialler, and keep the connection or dial back."""
        try:
            async with asyncio.timeout(self._options.identify_timeout_ms / 1000):
                hello = await _read_hello(stream)
                if hello is None:
                    stream.abort()
                    return
                if self._security.sasl is not None:
                    await self._security.sasl.check(stream)
        except TimeoutError:
            raise TimeoutError("it did not say in time who it is") from None
        server_id = hello.server_id
        if server_id == self.my_id:
            raise PeerProtocolError(f"{stream.address} says it is server {server_id}, as we are")
        peer = self._known(server_id, stream.host)
        peer.announced = _addresses_in(hello)
        if not peer.is_member:
            # A stranger may not have us dial others.
            peer.announced = tuple(Address(stream.host, port) for _, port in peer.announced)
        if server_id > self.my_id:
            self._keep(peer, stream)
            return
        stream.close()
        # It has no connection, or it would not ask: ours, if there is one, is dead.
        if peer.stream is not None:
            peer.stream.abort()
            self._forget_stream(peer)
        self._want(peer)

    def _known(self, server_id: ServerId, source: str) -> _Peer:
        """The server that comes from an address. Raises PeerProtocolError if it cannot be."""
        peer = self._peers.get(server_id)
        if peer is None:
            strangers = [one for one in self._peers.values() if not one.is_member]
            if len(strangers) >= self._options.max_strangers:
                # Not the newcomer: a peer that invents ids would lock everyone else out.
                counts = Counter(one.source for one in strangers)
                self._forget(max(strangers, key=lambda one: counts[one.source]))
            peer = self._peers[server_id] = _Peer(server_id)
        elif peer.is_member and self._options.is_address_checked:
            hosts = [address.host for address in peer.addresses]
            if not comes_from(source, hosts):
                raise PeerProtocolError(
                    f"by the membership, server {server_id} does not come from {source}; "
                    "keepfast.quorum.checkAddresses=false accepts it"
                )
        peer.source = source
        return peer

    def _forget(self, peer: _Peer) -> None:
        """Remember nothing of a server that is not a member."""
        del self._peers[peer.server_id]
        peer.is_wanted = False
        stream, peer.stream = peer.stream, None
        if stream is not None:
            stream.abort()
        if peer.dialling is not None:
            peer.dialling.cancel()

    # -- connections that are there --------------------------------------------------------------

    def _keep(self, peer: _Peer, stream: PeerStream) -> None:
        if peer.stream is not None:
            peer.stream.abort()
        peer.stream = stream
        peer.is_wanted = False
        peer.is_linked.set()
        stream.on_drained = lambda: self._flush(peer)
        self._spawn(self._listen_to(peer, stream))
        event = "peer-linked" if peer.is_member else "stranger-linked"
        self._log.info(event, peer=peer.server_id, address=stream.address)
        # What waits may be old; the answer to this call, if there is one, replaces it.
        self._on_link(peer.server_id)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        stream = peer.stream
        if stream is None or peer.waiting is None or stream.is_congested:
            return
        payload = encode_notification(peer.waiting)
        peer.waiting = None
        stream.write(_LENGTH.pack(len(payload)) + payload)

    async def _listen_to(self, peer: _Peer, stream: PeerStream) -> None:
        reason = ""
        loop = asyncio.get_running_loop()
        # When it has made up for all that it has sent.
        even = loop.time()
        try:
            while peer.stream is stream:
                notification = await self._read_notification(peer, stream)
                even = max(even, loop.time()) + 1 / _MAX_PER_SECOND
                await asyncio.sleep(even - loop.time() - _MAX_BURST / _MAX_PER_SECOND)
                if notification is not None and peer.stream is stream:
                    self._on_notification(peer.server_id, notification)
        except (OSError, PeerProtocolError) as error:
            reason = str(error)
        finally:
            stream.abort()
        if peer.stream is stream:
            event = "peer-unlinked" if peer.is_member else "stranger-unlinked"
            self._log.info(event, peer=peer.server_id, reason=reason)
            self._forget_stream(peer)
            if not peer.is_member:
                self._forget(peer)
            elif peer.server_id < self.my_id:
                self._want(peer)

    async def _read_notification(self, peer: _Peer, stream: PeerStream) -> Notification | None:
        (length,) = _LENGTH.unpack(await stream.read_exactly(_LENGTH.size))
        if not 0 < length <= MAX_NOTIFICATION_SIZE:
            raise PeerProtocolError(f"a notification of {length} bytes")
        payload = await stream.read_exactly(length)
        try:
            return decode_notification(payload)
        except MalformedRecord as error:
            self._log.warning("notification-dropped", peer=peer.server_id, reason=error)
            return None

    def _forget_stream(self, peer: _Peer) -> None:
        peer.stream = None
        peer.is_linked.clear()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _read_hello(stream: PeerStream) -> Hello | None:
    """The hello that a connection begins with; None if it ends without one."""
    while True:
        # Before waiting: all of it may be there already.
        had = stream.unread
        try:
            found = decode_hello(had)
        except MalformedRecord as error:
            raise PeerProtocolError(f"{stream.address}: {error}") from None
        if found is not None:
            hello, used = found
            stream.skip(used)
            return hello
        if len(await stream.fill(len(had) + 1)) == len(had):
            if not had:
                return None
            raise PeerProtocolError(f"{stream.address} ends inside its hello")


def _addresses_in(hello: Hello) -> tuple[Address, ...]:
    """Where the other side claims to listen; what cannot be parsed or dialled is left out."""
    addresses = []
    for text in hello.addresses:
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if colon and host and host not in _WILDCARDS and port.isdecimal() and len(port) < 6:
            addresses.append(Address(host, int(port)))
    return tuple(addresses)
