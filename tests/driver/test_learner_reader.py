"""What a learner sends: in its order, a piece in each turn, and nothing after its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import cast

from keepfast.driver.guard import Guard
from keepfast.driver.learner_reader import LearnerReader
from keepfast.driver.server_world import ServerWorld
from keepfast.driver.turn_times import TurnTimes
from keepfast.quorum import Link

TURN_BYTES = 10
FLOOD = bytes(range(95))


class Turns:
    """A world with nothing but turns."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.turn = 0
        self.is_paused = False
        # The turn and the bytes of each piece that was received.
        self.received: list[tuple[int, bytes]] = []
        world = cast(ServerWorld, self)
        self.reader = LearnerReader(
            Link(1), world, Guard(world, TurnTimes()), self._receive, TURN_BYTES
        )

    def _receive(self, _link: Link, data: bytes) -> None:
        self.received.append((self.turn, data))

    def call_soon(self, action: Callable[[], None]) -> None:
        self.waiting.append(action)

    def now_ns(self) -> int:
        return 0

    def pause_peer(self, _link: Link) -> None:
        self.is_paused = True

    def resume_peer(self, _link: Link) -> None:
        self.is_paused = False

    def end_turn(self) -> None:
        self.turn += 1
        waiting, self.waiting = self.waiting, deque()
        for action in waiting:
            action()

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.received)


def test_flood_of_a_learner__is_handled_a_piece_in_each_turn() -> None:
    turns = Turns()
    assert not turns.reader.is_small(FLOOD)
    turns.reader.take(FLOOD)
    assert turns.is_paused
    while turns.waiting:
        turns.end_turn()
    assert turns.data == FLOOD
    assert [turn for turn, _ in turns.received] == list(range(10))
    assert max(len(data) for _, data in turns.received) == TURN_BYTES
    assert not turns.is_paused
    assert turns.reader.is_small(b"more")


def test_bytes_that_come_while_others_wait__are_handled_after_them() -> None:
    turns = Turns()
    turns.reader.take(FLOOD)
    turns.end_turn()
    # As small as it is, it is not the first.
    assert not turns.reader.is_small(b"more")
    turns.reader.take(b"more")
    while turns.waiting:
        assert turns.is_paused
        turns.end_turn()
    assert turns.data == FLOOD + b"more"
    assert len({turn for turn, _ in turns.received}) == len(turns.received)


def test_flood_of_a_learner_that_goes__ends_with_it() -> None:
    turns = Turns()
    turns.reader.take(FLOOD)
    turns.reader.close()
    while turns.waiting:
        turns.end_turn()
    assert turns.data == FLOOD[:TURN_BYTES]
