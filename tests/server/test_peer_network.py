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
from keepfast.server.peer_network import LearnerPeer, PeerLink
from tests.server.voters import Run, run_on


class Loop:
    """What a link passes on, with the turn in which it does."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.turns: list[int] = []
        self.turn = 0
        self.came = asyncio.Event()
        self.lost = asyncio.Event()

    def link_bytes(self, _link: Link, data: bytes) -> None:
        self.pieces.append(data)
        self.turns.append(self.turn)
        self.came.set()

    def link_drained(self, _link: Link) -> None:
        pass

    async def wait_bytes(self, count: int) -> None:
        while sum(map(len, self.pieces)) < count:
            self.came.clear()
            await self.came.wait()

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, on both kinds of loop."""
    return partial(run_on, request.param)


async def linked(loop: Loop, kind: type[PeerLink]) -> tuple[PeerLink, socket.socket]:
    """A link, and the socket at its other end."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    peer = kind(cast(ServerLoop, loop), Link(1), lambda _link: None, lambda _link: loop.lost.set())
    await asyncio.get_running_loop().connect_accepted_socket(lambda: peer, ours)
    return peer, theirs


def test_flood_of_a_learner__is_handled_a_piece_in_each_turn(run: Run) -> None:
    async def play() -> None:
        loop = Loop()
        counting = asyncio.create_task(loop.count_turns())
        _, learner = await linked(loop, LearnerPeer)
        flood = bytes(range(256)) * 2000
        await asyncio.get_running_loop().sock_sendall(learner, flood)
        await loop.wait_bytes(len(flood))
        assert b"".join(loop.pieces) == flood
        assert max(map(len, loop.pieces)) <= 16 << 10
        assert len(set(loop.turns)) == len(loop.turns)
        # It is read from again.
        await asyncio.get_running_loop().sock_sendall(learner, b"more")
        await loop.wait_bytes(len(flood) + 4)
        learner.close()
        await loop.lost.wait()
        counting.cancel()

    run(play())


def test_flood_of_a_learner_that_goes__ends_with_it(run: Run) -> None:
    async def play() -> None:
        loop = Loop()
        _, learner = await linked(loop, LearnerPeer)
        learner.setblocking(True)
        learner.sendall(bytes(100_000))
        learner.close()
        await loop.lost.wait()
        known = len(loop.pieces)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(loop.pieces) == known

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
        peer, learner = await linked(loop, PeerLink)
        peer.send(bytes(size))
        peer.close()
        left = size
        while reads and left:
            left -= len(await asyncio.get_running_loop().sock_recv(learner, 1 << 16))
        await loop.lost.wait()
        learner.close()

    run(play())
