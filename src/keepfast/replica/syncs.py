"""Replies that wait for the writes of others: syncs, and refusals that are not txns."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from keepfast.quorum import Confirmations
from keepfast.replica.connection import Connection
from keepfast.replica.pending_write import PendingWrite
from keepfast.replica.reply_order import answer_sync
from keepfast.replica.service import Service
from keepfast.wire import Zxid


class _Answer(NamedTuple):
    connection: Connection
    waiting: PendingWrite
    xid: int
    body: bytes
    code: int


class _Waiting(NamedTuple):
    # Answered when this txn is applied and this round is confirmed (quorum/confirmations.py).
    zxid: Zxid
    round_number: int
    answer: _Answer


class Syncs:
    """What is answered when everything that was under way when it came has been applied.

    A sync is also confirmed by a quorum: a leader that was deposed without knowing it answers none.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: deque[_Waiting] = deque()
        # Asks the others whether this server still leads; None: it is alone, or does not lead.
        self.confirmations: Confirmations | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is anything to release."""
        return bool(self._waiting)

    def ask(self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes) -> None:
        """Handle a sync of a client of this server, which leads or is alone."""
        round_ = 0 if self.confirmations is None else self.confirmations.ask()
        self._wait(_Answer(connection, waiting, xid, body, 0), round_)

    def answer_after_writes(
        self, connection: Connection, waiting: PendingWrite, xid: int, body: bytes, code: int = 0
    ) -> None:
        """Answer when all txns that are proposed now are applied."""
        self._wait(_Answer(connection, waiting, xid, body, code), 0)

    def _confirmed(self) -> int:
        return 0 if self.confirmations is None else self.confirmations.last

    def _wait(self, answer: _Answer, round_: int) -> None:
        zxid = self._service.last_proposed if self._service.proposals else Zxid(0)
        if zxid or self._waiting or round_ > self._confirmed():
            self._waiting.append(_Waiting(zxid, round_, answer))
        else:
            answer_sync(self._service, *answer)

    def release(self, applied: Zxid) -> None:
        """Answer what waited for txns up to this one, and for a quorum."""
        confirmed = self._confirmed() if self._waiting else 0
        while self._waiting:
            zxid, round_, answer = self._waiting[0]
            if zxid > applied or round_ > confirmed:
                return
            self._waiting.popleft()
            answer_sync(self._service, *answer)

    def next_stop(self, zxid: Zxid) -> Zxid:
        """How far to continue the way to `zxid`: not past a sync that nobody has confirmed."""
        if self._waiting and self._waiting[0].round_number > self._confirmed():
            return min(self._waiting[0].zxid, zxid)
        return zxid

    def clear(self) -> None:
        """Forget all of it: the connections are gone."""
        self._waiting.clear()
        self.confirmations = None
