"""Clients that come back while their writes are under way, on real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from keepfast.testing import Ensemble, EnsembleServer
from keepfast.wire import (
    OPEN_ACL,
    ConnectRequest,
    ConnectResponse,
    CreateMode,
    CreateRequest,
    FrameParser,
    OpCode,
    ReplyHeader,
    SessionId,
    Zxid,
    codec_of,
    encode,
    encode_frame,
    encode_int,
)

PATIENCE_SECONDS = 30.0
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def ensemble() -> Iterator[Ensemble]:
    # Long ticks: nobody gives up a leader that hangs for as long as a test needs.
    with Ensemble(tick_ms=1000) as ensemble:
        yield ensemble


def connect_request(session: ConnectResponse | None = None) -> bytes:
    id, password = (session.session_id, session.password) if session else (0, bytes(16))
    return encode_frame(
        encode(ConnectRequest(0, Zxid(0), TIMEOUT_MS, SessionId(id), password, False))
    )


def create_request(xid: int, path: str) -> bytes:
    request = CreateRequest(path, b"", OPEN_ACL, CreateMode.PERSISTENT.value)
    return encode_frame(encode_int(xid) + encode_int(OpCode.CREATE.value) + encode(request))


def opened(server: EnsembleServer) -> socket.socket:
    host, port = server.hosts.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_SECONDS)


def received(near: socket.socket, count: int) -> list[bytes]:
    """The next frames that the server sends; fewer if it closes the connection."""
    frames = FrameParser(1 << 20)
    found: list[bytes] = []
    while len(found) < count and (data := near.recv(1 << 16)):
        found += frames.feed(data)
    return found


def requests_read(server: EnsembleServer) -> int:
    return server._on_loop(lambda real: real.running.replica.statistics.received)


def wait_until_read(server: EnsembleServer, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while requests_read(server) < count:
        assert time.monotonic() < deadline, "the server does not read"
        time.sleep(0.005)


def test_same_xid_on_a_new_connection__gets_its_own_answer(ensemble: Ensemble) -> None:
    leader, follower = ensemble.wait_for_leader(), ensemble.followers[0]
    with closing(opened(follower)) as first:
        first.sendall(connect_request())
        session = codec_of(ConnectResponse).decode(received(first, 1)[0])
        before = requests_read(follower)
        leader.pause()
        first.sendall(create_request(1, "/old"))
        wait_until_read(follower, before + 1)
    with closing(opened(follower)) as second:
        # The leader gets the old write, the question for the session and, as soon as it has
        # answered that, the new write: all before the old one can be committed.
        second.sendall(connect_request(session) + create_request(1, "/new"))
        wait_until_read(follower, before + 2)
        leader.resume()
        _, reply = received(second, 2)
        assert codec_of(ReplyHeader).decode(reply)[::2] == (1, 0)
        assert reply.endswith(b"/new")
