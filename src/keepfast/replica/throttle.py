"""Limits on what arrives at once: connections, writes under way, bytes of large requests.

Reads are answered as they come and need no limit here (see backpressure.py for their replies), so
the requests that count as under way are writes.

    connections   a bucket of tokens that fills with time, and on top of it BLUE: while the bucket
                  is empty the share of connections that are refused by chance grows
    writes        above the limit the requests of a connection are held, in order, until there is
                  room; what waited too long is answered by THROTTLED_OP if that is configured
    strangers     a connection that has no session by a deadline is closed
    large         a request above a size is taken only while all such requests together, those that
                  are still arriving included, stay below a number of bytes; otherwise its sender is
                  cut off
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec

from keepfast.replica.connection import PendingWrite, Phase
from keepfast.wire import ErrorCode, OpCode, encode_reply

if TYPE_CHECKING:
    from keepfast.replica.connection import Connection
    from keepfast.replica.replica import Replica

_REQUEST_HEADER: Final = Struct(">ii")
# What is never answered by THROTTLED_OP.
_SPARED: Final = frozenset((OpCode.PING.value, OpCode.CLOSE_SESSION.value))
# Knuth's MMIX generator: chance without an import of it, and the same for the same start.
_FACTOR: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_MASK: Final = (1 << 64) - 1


class ThrottleOptions(msgspec.Struct, frozen=True):
    """Apache's settings of the same purpose; the defaults throttle nothing."""

    # Connections that may come at once; 0: no limit. Low: clients that come back together wait.
    connection_tokens: int = 0
    # So many tokens are added in so many ms.
    fill_count: int = 1
    fill_ms: int = 1
    # How often the chance of a refusal changes; -1: nobody is refused by chance.
    freeze_ms: int = -1
    drop_increase: float = 0.02
    drop_decrease: float = 0.002
    # The chance falls when at most this share of the tokens is gone.
    decrease_ratio: float = 0.0
    # What a new session and a session that comes back cost, in tokens.
    new_session_weight: int = 1
    renewal_weight: int = 1
    # A connection that has no session by then is closed. Low: slow clients never get one. High:
    # connections that do nothing hold places.
    sessionless_ms: int = 10_000
    # Writes under way, of all clients, at which further ones are held; 0: no limit.
    max_requests: int = 0
    # A held request that waited longer is not done, but answered by THROTTLED_OP; 0: never.
    max_wait_ms: int = 0
    # Requests above this size are large; 0 or less: none is.
    large_request_bytes: int = -1
    # Bytes of large requests at one time.
    large_requests_max_bytes: int = 100 << 20


class ConnectionThrottle:
    """Whether one more connection may come now."""

    def __init__(self, options: ThrottleOptions, now_ms: int, seed: int) -> None:
        self._options = options
        self._tokens = options.connection_tokens
        self._filled_ms = self._frozen_ms = now_ms
        self._seed = seed
        # The chance of a refusal, from 0 to 1.
        self.drop = 0.0

    @property
    def deficit(self) -> int:
        """Tokens that are gone."""
        return self._options.connection_tokens - self._tokens

    def admits(self, now_ms: int, is_new: bool) -> bool:
        """Take the tokens of a connection; False: it has to be refused."""
        options = self._options
        most = options.connection_tokens
        if not most:
            return True
        spent_ms = now_ms - self._filled_ms
        if spent_ms > options.fill_ms:
            fresh = spent_ms * options.fill_count // options.fill_ms
            self._tokens = min(self._tokens + fresh, most)
            self._filled_ms = now_ms
        if options.freeze_ms != -1 and self._is_unlucky(now_ms):
            return False
        need = options.new_session_weight if is_new else options.renewal_weight
        if self._tokens < need:
            return False
        self._tokens -= need
        return True

    def _is_unlucky(self, now_ms: int) -> bool:
        options = self._options
        if now_ms - self._frozen_ms > options.freeze_ms:
            self._frozen_ms = now_ms
            if not self._tokens:
                self.drop = min(self.drop + options.drop_increase, 1.0)
            elif self.deficit <= round(options.connection_tokens * options.decrease_ratio):
                self.drop = max(self.drop - options.drop_decrease, 0.0)
        self._seed = (self._seed * _FACTOR + _INCREMENT) & _MASK
        return self._seed / (1 << 64) < self.drop


class Throttle:
    """The limits of one server."""

    def __init__(self, replica: Replica) -> None:
        options = replica.options.throttle
        self._replica = replica
        self._options = options
        self._outstanding_limit = replica.options.outstanding_limit
        self.connections = ConnectionThrottle(options, replica.now_ms, replica.wall_ms)
        self._waiting: dict[Connection, int] = {}
        # Connections without a session, the oldest first.
        self._strangers: dict[Connection, None] = {}
        # Whether the size of requests is looked at.
        self.limits_large = options.large_request_bytes > 0
        self.large_bytes = 0
        # Whether each write is looked at, and not only their number.
        self.is_strict = self.limits_large or options.max_requests > 0

    # -- connections -----------------------------------------------------------------------------

    def arrived(self, connection: Connection) -> None:
        """A connection is there, and nobody knows whose it is."""
        self._strangers[connection] = None

    def welcomed(self, connection: Connection) -> None:
        """It has a session."""
        self._strangers.pop(connection, None)

    def tick(self) -> None:
        """Close the connections that had time enough for a session and have none."""
        replica, longest_ms = self._replica, self._options.sessionless_ms
        for connection in list(self._strangers):
            if replica.now_ms - connection.opened_ms <= longest_ms:
                return
            replica.statistics.sessionless_expired += 1
            replica.close(connection, f"no session within {longest_ms} ms")

    # -- writes ----------------------------------------------------------------------------------

    def holds(self, connection: Connection, payload: bytes) -> bool:
        """Whether a write has to wait; then the connection's further requests do, too."""
        outstanding = self._replica.outstanding
        most = self._options.max_requests
        if (not most or outstanding < most) and (
            outstanding <= self._outstanding_limit or not connection.queue
        ):
            return False
        connection.is_throttled = True
        connection.free_ms = -1
        connection.held.append(payload)
        self._waiting[connection] = self._replica.now_ms
        self._replica.statistics.throttled += 1
        return True

    def release(self) -> None:
        """Let requests go on that there is room for now."""
        replica, options = self._replica, self._options
        for connection, since_ms in list(self._waiting.items()):
            if replica.outstanding > self._outstanding_limit:
                return
            if options.max_requests and replica.outstanding >= options.max_requests:
                return
            del self._waiting[connection]
            connection.is_throttled = False
            if connection.is_stalled or connection.phase is not Phase.OPEN:
                continue
            held, connection.held = connection.held, []
            if options.max_wait_ms and replica.now_ms - since_ms > options.max_wait_ms:
                held = self._refused(connection, held)
            replica.handle_all(connection, held)

    def _refused(self, connection: Connection, held: list[bytes]) -> list[bytes]:
        """Answer what waited too long; gives the requests that are done all the same."""
        replica = self._replica
        for place, payload in enumerate(held):
            xid, op = _REQUEST_HEADER.unpack_from(payload)
            if op in _SPARED:
                return held[place:]
            replica.statistics.throttled_out += 1
            waiting = PendingWrite(replica.now_ms, xid, op)
            connection.queue.append(waiting)
            waiting.reply = encode_reply(xid, replica.last_zxid, ErrorCode.THROTTLED_OP)
            replica.send_ready(connection)
        return []

    # -- large requests --------------------------------------------------------------------------

    def takes_frame(self, connection: Connection) -> bool:
        """Count the request that is arriving; False: there is no room for it."""
        size = connection.frames.arriving
        large = size if size > self._options.large_request_bytes else 0
        grown = large - connection.large_bytes
        connection.large_bytes = large
        self.large_bytes += grown
        return grown <= 0 or self.large_bytes <= self._options.large_requests_max_bytes

    def takes_write(self, waiting: PendingWrite, size: int) -> bool:
        """Count a write that is under way from now on; False: there is no room for it."""
        if size <= self._options.large_request_bytes:
            return True
        if self.large_bytes + size > self._options.large_requests_max_bytes:
            return False
        waiting.large_bytes = size
        self.large_bytes += size
        return True

    def finished(self, waiting: PendingWrite) -> None:
        """A large write is answered."""
        self.large_bytes -= waiting.large_bytes
        waiting.large_bytes = 0

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self._waiting.pop(connection, None)
        self._strangers.pop(connection, None)
        self.large_bytes -= connection.large_bytes
        connection.large_bytes = 0
