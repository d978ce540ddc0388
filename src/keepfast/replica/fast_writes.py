"""The fast path of plain setData requests: from a client's bytes to a txn.

Most writes take it (tree/plain_sets.py says which). It differs from `Proposer.propose` only in
cost: one call makes the txn. Whatever is not plain takes the slow path; both share one order, and
what is committed is applied and answered in one place (commits.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from keepfast.replica.connection import Connection
from keepfast.replica.proposals import Append, PlainWrite
from keepfast.replica.service import Service
from keepfast.tree import Caller, PlainSets
from keepfast.wire import OpCode, ServerId, Zxid

_SET_DATA: Final = OpCode.SET_DATA.value
_REQUEST_HEADER_SIZE: Final = 8
# What a txn has besides its request: header and digest, rounded up.
_TXN_OVERHEAD_BYTES: Final = 64
_COUNTER: Final = 0xFFFFFFFF
# A little before the end of an epoch's counter, where the slow path checks more closely.
_LAST_COUNTER: Final = 0xFFFFFF00

# The constructor of a NamedTuple takes twice as long.
_new_tuple: Final[Callable[[type[Any], tuple[Any, ...]], Any]] = tuple.__new__


class FastWrites:
    """Makes txns of plain setData requests. A part of a Proposer, for one leader's term."""

    __slots__ = (
        "_largest",
        "_max_waiting",
        "_owners",
        "_prepare",
        "_server_id",
        "_service",
    )

    def __init__(self, service: Service, owners: dict[int, ServerId], sets: PlainSets) -> None:
        """`owners`: session -> the server that its client is connected to, once it is known."""
        self._service = service
        self._owners = owners
        self._prepare = sets.prepare
        self._server_id = service.server_id
        # Beyond these the slow path decides who has to wait (throttle.py).
        throttle = service.options.throttle
        self._max_waiting = service.options.outstanding_limit
        if throttle.max_requests:
            self._max_waiting = min(self._max_waiting, throttle.max_requests)
        most = service.options.prepare.max_txn_bytes - _TXN_OVERHEAD_BYTES
        self._largest = min(service.max_field, most)
        if throttle.large_request_bytes > 0:
            self._largest = min(self._largest, throttle.large_request_bytes)

    def propose(self, connection: Connection, xid: int, payload: bytes) -> bool:
        """Make a txn of a client's setData; False: nothing was done, take the slow path."""
        service = self._service
        caller, proposals = connection.caller, service.proposals
        zxid: Zxid = service.last_proposed + 1  # type: ignore[assignment]  # a call less
        if (
            not service.is_writable
            or len(proposals) >= self._max_waiting
            or service.is_busy
            or self._owners.get(caller.session_id) != self._server_id
            or zxid & _COUNTER >= _LAST_COUNTER
            or len(payload) > self._largest
        ):
            return False
        plain = self._prepare(caller, xid, zxid, service.wall_ms, payload, _REQUEST_HEADER_SIZE)
        if plain is None:
            return False
        service.last_proposed = zxid
        service.appends.append(_new_tuple(Append, (zxid, plain[0], plain[5])))
        write = PlainWrite(
            service.now_ms, xid, _SET_DATA, None, None, 0, False, zxid, plain, connection
        )
        proposals.append(write)
        connection.queue.append(write)
        return True

    def propose_forwarded(self, caller: Caller, xid: int, body: bytes) -> bool:
        """The same for a client of another server, which answers it."""
        service = self._service
        zxid = Zxid(service.last_proposed + 1)
        if zxid & _COUNTER >= _LAST_COUNTER or len(body) > self._largest:
            return False
        plain = self._prepare(caller, xid, zxid, service.wall_ms, body, 0)
        if plain is None:
            return False
        service.last_proposed = zxid
        service.appends.append(_new_tuple(Append, (zxid, plain[0], plain[5])))
        service.proposals.append(PlainWrite(service.now_ms, zxid=zxid, plain=plain))
        return True
