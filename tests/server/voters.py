"""An election machine on real connections: what a server is as long as it looks for a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self

from keepfast.harness import HeldPorts
from keepfast.quorum import Candidacy, Elected, Election, ElectionOptions, Membership
from keepfast.server.election_links import ElectionLinks, LinkOptions, LinkSecurity
from keepfast.server.logs import EventLog
from keepfast.wire import Notification, PeerState, ServerId, Zxid
from tests.server.secured import LOOPS

# Generous: a loaded machine must not turn a slow election into a failure.
PATIENCE_SECONDS = 60.0


Run = Callable[[Coroutine[Any, Any, None]], None]

# Of the loop: from a connection that the kernel has taken to the end of its socket are about five.
_LAST_TURNS = 10
_opened: list[Callable[[], None]] = []


def close_at_end(close: Callable[[], None]) -> None:
    """Have something closed, on the loop, when the coroutine of `run_on` has ended."""
    _opened.append(close)


def hold_ports(count: int) -> list[int]:
    """Ports that nobody else is given while the coroutine of `run_on` runs."""
    held = HeldPorts(count)
    close_at_end(held.close)
    return held.numbers


def run_on(loop_kind: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine on a loop of that kind, but not forever."""

    async def bounded() -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await work
        finally:
            for _ in range(_LAST_TURNS):
                while _opened:
                    _opened.pop()()
                # Sockets are closed in a later turn, and some were only just accepted.
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=LOOPS[loop_kind]) as runner:
        runner.run(bounded())


class Voter:
    """One server's part in elections, for an `async with` block."""

    def __init__(
        self,
        my_id: int,
        membership: Membership,
        *,
        options: LinkOptions | None = None,
        security: LinkSecurity | None = None,
        patience: ElectionOptions | None = None,
    ) -> None:
        self.my_id = ServerId(my_id)
        self.election = Election(self.my_id, membership, patience)
        self.log = EventLog(lambda: {"server": my_id}, "keepfast.server")
        me = membership.find(self.my_id)
        assert me is not None
        self.links = ElectionLinks(
            self.my_id,
            me.election,
            me.election,
            on_link=self._linked,
            on_notification=self._heard,
            log=self.log,
            options=options,
            security=security,
        )
        self.links.set_members({one.server_id: one.election for one in membership.members})
        self.heard: list[tuple[ServerId, Notification]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.links.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.links.stop()

    def look(
        self, candidacy: Candidacy = Candidacy.ELIGIBLE, zxid: int = 0, epoch: int = 0
    ) -> None:
        self.election.look(candidacy, Zxid(zxid), epoch, self._now_ms())
        self._continue_work()

    def settle(self, state: PeerState, leader: int, epoch: int) -> None:
        self.election.settle(state, ServerId(leader), epoch)

    async def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition that something heard, sent or decided makes true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def wait_elected(self) -> Elected:
        await self.wait_until(lambda: self.election.result is not None)
        assert self.election.result is not None
        return self.election.result

    async def wait_heard(self, sender: int, state: PeerState) -> Notification:
        """The first notification of that sender in that state."""

        def found() -> Notification | None:
            return next(
                (word for id, word in self.heard if id == sender and word.state == state), None
            )

        await self.wait_until(lambda: found() is not None)
        word = found()
        assert word is not None
        return word

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _linked(self, peer: ServerId) -> None:
        self.election.peer_linked(peer)
        self._continue_work()

    def _heard(self, peer: ServerId, notification: Notification) -> None:
        self.heard.append((peer, notification))
        self.election.receive(peer, notification, self._now_ms())
        self._continue_work()

    def _tick(self) -> None:
        self.election.tick(self._now_ms())
        self._continue_work()

    def _continue_work(self) -> None:
        outbox = self.election.outbox
        for peer, notification in outbox:
            self.links.send(peer, notification)
        outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self.election.deadline_ms
        if deadline_ms is not None:
            loop = asyncio.get_running_loop()
            # A little later: the loop's clock is finer than the machine's.
            self._timer = loop.call_at((deadline_ms + 1) / 1000, self._tick)
        self._changed.set()
