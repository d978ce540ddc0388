"""A replica without a driver: frames in, frames out, durability when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.replica import Connection, Replica, ReplicaOptions
from keepfast.tree import Tree
from keepfast.wire import (
    ConnectResponse,
    FrameParser,
    Zxid,
    codec_of,
    encode_frame,
)
from tests.replica.plain_frames import greeting_of, replies_in, request_of

START_MS = 1_000_000


class Machine:
    """One replica and a clock."""

    def __init__(
        self,
        options: ReplicaOptions | None = None,
        tree: Tree | None = None,
        make_nonce: Callable[[], str] = str,
    ) -> None:
        self.now_ms = START_MS
        options = options or ReplicaOptions(
            tick_ms=1000, min_session_timeout_ms=2000, max_session_timeout_ms=60_000
        )
        self.replica = Replica(tree or Tree(), options, self.now_ms, self.now_ms, make_nonce)

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.replica.set_clock(self.now_ms, self.now_ms)

    def tick(self) -> None:
        """Have it do what is due: a call that comes late ends no session, the next one does."""
        self.replica.tick()
        self.replica.tick()

    def settle(self) -> None:
        """What takes many turns is done, and everything that was appended becomes durable."""
        while self.replica.service.has_more_work or self.replica.service.appends:
            while self.replica.service.has_more_work:
                self.continue_work()
            if not self.replica.service.appends:
                return
            last = self.replica.service.appends[-1].zxid
            self.replica.service.appends.clear()
            self.replica.log_durable(Zxid(last))

    def continue_work(self) -> None:
        """Others had their turn."""
        self.replica.service.has_more_work = False
        self.replica.service.spent = self.replica.service.made = 0
        self.replica.continue_work()


class Client:
    """One connection and what it was sent."""

    def __init__(
        self,
        machine: Machine,
        *,
        session: ConnectResponse | None = None,
        timeout_ms: int = 10_000,
        last_zxid: int = 0,
        subject: str | None = None,
        read_only: bool = False,
    ) -> None:
        self.machine = machine
        self.replica = machine.replica
        connection = self.replica.connect("127.0.0.1", 1, subject)
        assert connection is not None
        self.connection: Connection = connection
        self._frames = FrameParser(1 << 30)
        self.received: list[bytes] = []
        self.send_raw(greeting_of(session, timeout_ms, read_only=read_only, last_zxid=last_zxid))

    def connect(self) -> ConnectResponse:
        """Let the session be created; gives the answer."""
        self.machine.settle()
        return codec_of(ConnectResponse).decode(self.take()[0])

    def send_raw(self, payload: bytes) -> None:
        """Send one frame."""
        self.replica.receive(self.connection, encode_frame(payload))

    def send(self, xid: int, op: int, request: Any = None) -> None:
        """Send a request."""
        self.send_raw(request_of(xid, op, request))

    def take(self) -> list[bytes]:
        """The payloads that were sent to this client since the last look."""
        data = b"".join(self.connection.out)
        self.connection.out.clear()
        return self._frames.feed(data) if data else []

    def replies(self) -> list[tuple[int, int]]:
        """xid and error of each reply, and (-1, type) of each event, in order."""
        return replies_in(self.take())
