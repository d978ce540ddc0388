"""Links of learners on real sockets, of which some send or read as no server does."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import cast

import pytest

from keepfast.driver import ServerLoop
from keepfast.quorum import Link
from keepfast.server import farewell
from keepfast.server.peer_network import PeerLink
from tests.server.voters import Run, run_on


class Loop:
    """What a link passes on."""

    def __init__(self) -> None:
        self.received = b""
        self.came = asyncio.Event()
        self.lost = asyncio.Event()

    def link_bytes(self, _link: Link, data: bytes) -> None:
        self.received += data
        self.came.set()

    def link_drained(self, _link: Link) -> None:
        pass

    async def wait_bytes(self, count: int) -> None:
        while len(self.received) < count:
            self.came.clear()
            await self.came.wait()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, on both kinds of loop."""
    return partial(run_on, request.param)


async def linked(loop: Loop) -> tuple[PeerLink, socket.socket]:
    """A link, and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    peer = PeerLink(
        cast(ServerLoop, loop), Link(1), lambda _link: None, lambda _link: loop.lost.set()
    )
    await asyncio.get_running_loop().connect_accepted_socket(lambda: peer, ours)
    return peer, theirs


def test_link_that_is_not_read__keeps_its_bytes_and_its_end_in_the_socket(run: Run) -> None:
    async def play() -> None:
        loop = Loop()
        peer, learner = await linked(loop)
        peer.pause()
        learner.send(b"first")
        learner.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(loop.received) == 0
        assert not loop.lost.is_set()
        peer.resume()
        await loop.wait_bytes(5)
        assert loop.received == b"first"
        await loop.lost.wait()
        # One that is gone may still be asked for.
        peer.pause()
        peer.resume()

    run(play())


@pytest.mark.parametrize("reads", [True, False])
def test_link_that_is_closed_with_bytes_unsent__does_not_stay(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """They are sent to one that reads; one that does not is cut off."""
    monkeypatch.setattr(farewell, "_PATIENCE_SECONDS", 0.05)
    size = 20 << 20

    async def play() -> None:
        loop = Loop()
        peer, learner = await linked(loop)
        peer.send(bytes(size))
        peer.close()
        left = size
        while reads and left:
            left -= len(await asyncio.get_running_loop().sock_recv(learner, 1 << 16))
        await loop.lost.wait()
        learner.close()

    run(play())
