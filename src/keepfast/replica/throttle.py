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

from collections.abc import Iterator
from struct import Struct
from typing import Final

from keepfast.replica.connection import Connection, Phase
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.replica_options import ThrottleOptions
from keepfast.replica.reply_order import send_ready
from keepfast.replica.service import Service
from keepfast.wire import ErrorCode, OpCode, encode_reply

_REQUEST_HEADER: Final = Struct(">ii")
# What is never answered by THROTTLED_OP.
_SPARED: Final = frozenset((OpCode.PING.value, OpCode.CLOSE_SESSION.value))
# Knuth's MMIX generator: chance without an import of it, and the same for the same start.
_FACTOR: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_MASK: Final = (1 << 64) - 1


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

    def __init__(self, service: Service) -> None:
        options = service.options.throttle
        self._service = service
        self._options = options
        self._outstanding_limit = service.options.outstanding_limit
        self.connections = ConnectionThrottle(options, service.now_ms, service.wall_ms)
        # With fewer writes under way, none has to wait.
        most = self._outstanding_limit + 1
        self._room = min(most, options.max_requests) if options.max_requests else most
        # Whether the size of requests is checked.
        self.limits_large = options.large_request_bytes > 0

    def tick(self) -> None:
        """Close connections without a session after the deadline."""
        service, longest_ms = self._service, self._options.sessionless_ms
        for connection in list(service.strangers):
            if service.now_ms - connection.opened_ms <= longest_ms:
                return
            service.statistics.sessionless_expired += 1
            service.close(connection, f"no session within {longest_ms} ms")

    # -- writes ----------------------------------------------------------------------------------

    def holds(self, connection: Connection, payload: bytes) -> bool:
        """Whether a write has to wait; then the connection's further requests do, too."""
        service = self._service
        outstanding = service.outstanding
        if outstanding < self._room:
            return False
        most = self._options.max_requests
        if (not most or outstanding < most) and (
            outstanding <= self._outstanding_limit or not connection.queue
        ):
            return False
        connection.is_throttled = True
        connection.free_until = -1
        connection.held.append(payload)
        service.held_since[connection] = service.now_ms
        service.statistics.throttled += 1
        return True

    def released(self) -> Iterator[tuple[Connection, list[bytes]]]:
        """The requests that there is room for now, each when those before it are handled."""
        service, options = self._service, self._options
        for connection, since_ms in list(service.held_since.items()):
            outstanding = service.outstanding
            if outstanding > self._outstanding_limit:
                return
            if options.max_requests and outstanding >= options.max_requests:
                return
            if service.held_since.pop(connection, None) is None:
                continue
            connection.is_throttled = False
            if connection.is_held_up or connection.phase is not Phase.OPEN:
                continue
            held, connection.held = connection.held, []
            if options.max_wait_ms and service.now_ms - since_ms > options.max_wait_ms:
                held = self._refused(connection, held)
            yield connection, held

    def _refused(self, connection: Connection, held: list[bytes]) -> list[bytes]:
        """Answer what waited too long; returns the requests that are done all the same."""
        service = self._service
        for place, payload in enumerate(held):
            xid, op = _REQUEST_HEADER.unpack_from(payload)
            if op in _SPARED:
                return held[place:]
            service.statistics.throttled_out += 1
            waiting = PendingWrite(service.now_ms, xid, op)
            connection.queue.append(waiting)
            # No zxid: it may be sent after a write that shows a later one than is known now.
            waiting.reply = encode_reply(xid, -1, ErrorCode.THROTTLED_OP)
            send_ready(service, connection)
        return []

    # -- large requests --------------------------------------------------------------------------

    def takes_frame(self, connection: Connection) -> bool:
        """Count the request that is arriving; False: there is no room for it."""
        size = connection.frames.arriving
        large = size if size > self._options.large_request_bytes else 0
        grown = large - connection.large_bytes
        connection.large_bytes = large
        self._service.large_bytes += grown
        return grown <= 0 or self._service.large_bytes <= self._options.large_requests_max_bytes

    def takes_write(self, waiting: PendingWrite, size: int) -> bool:
        """Count a write that is under way from now on; False: there is no room for it."""
        if size <= self._options.large_request_bytes:
            return True
        if self._service.large_bytes + size > self._options.large_requests_max_bytes:
            return False
        waiting.large_bytes = size
        self._service.large_bytes += size
        return True
