"""A replica without a driver: frames in, frames out, durability when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.replica import Connection, Replica, ReplicaOptions
from keepfast.tree import Tree
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    FrameParser,
    ReplyHeader,
    SessionId,
    WatcherEvent,
    Xid,
    Zxid,
    codec_of,
    encode,
    encode_frame,
    encode_int,
)

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
        self.replica.tell_time(self.now_ms, self.now_ms)

    def settle(self) -> None:
        """Everything that was appended becomes durable."""
        while self.replica.appends:
            last = self.replica.appends[-1].zxid
            self.replica.appends.clear()
            self.replica.log_durable(Zxid(last))


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
        self.connection: Connection = self.replica.connect("127.0.0.1", 1, subject)
        self._frames = FrameParser(1 << 30)
        self.received: list[bytes] = []
        request = ConnectRequest(
            0,
            Zxid(last_zxid),
            timeout_ms,
            SessionId(session.session_id if session else 0),
            session.password if session else bytes(16),
            read_only,
        )
        self.send_raw(encode(request))

    def connect(self) -> ConnectResponse:
        """Let the session be created; gives the answer."""
        self.machine.settle()
        return codec_of(ConnectResponse).decode(self.take()[0])

    def send_raw(self, payload: bytes) -> None:
        """Send one frame."""
        self.replica.receive(self.connection, encode_frame(payload))

    def send(self, xid: int, op: int, request: Any = None) -> None:
        """Send a request."""
        body = b"" if request is None else encode(request)
        self.send_raw(encode_int(xid) + encode_int(int(op)) + body)

    def take(self) -> list[bytes]:
        """The payloads that were sent to this client since the last look."""
        data = b"".join(self.connection.out)
        self.connection.out.clear()
        return self._frames.feed(data) if data else []

    def replies(self) -> list[tuple[int, int]]:
        """xid and error of each reply, and (-1, type) of each event, in order."""
        seen = []
        for payload in self.take():
            header = codec_of(ReplyHeader).decode(payload)
            if header.xid == Xid.EVENT:
                event = codec_of(WatcherEvent).decode(payload, 16)
                seen.append((int(Xid.EVENT), event.type))
            else:
                seen.append((header.xid, header.err))
        return seen
