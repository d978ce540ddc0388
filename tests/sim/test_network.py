"""The simulated network keeps order, holds up, cuts, and says goodbye only where it should."""

from __future__ import annotations

import random

from keepfast.sim.agenda import Agenda
from keepfast.sim.network import NetworkOptions, SimulatedNetwork, Stream


class End:
    """What one end of a stream saw."""

    def __init__(self) -> None:
        self.data = b""
        self.losses = 0

    def on_data(self, data: bytes) -> None:
        self.data += data

    def on_lost(self) -> None:
        self.losses += 1


class Pair:
    """Two places and a stream between them, if it came about."""

    def __init__(self, options: NetworkOptions | None = None, seed: int = 0) -> None:
        self.agenda = Agenda()
        options = options or NetworkOptions(100, 5000, split_chance=0.5)
        self.network = SimulatedNetwork(self.agenda, random.Random(seed), options)
        self.dialler, self.dialled = End(), End()
        self.stream: Stream | None = None
        self.answers = 0

    def dial(self, *, is_listening: bool = True) -> None:
        def done(stream: Stream | None) -> End | None:
            self.answers += 1
            self.stream = stream
            return None if stream is None else self.dialler

        self.network.dial(1, 2, lambda _: self.dialled if is_listening else None, done)
        self.wait()

    def wait(self, ms: int = 1000) -> None:
        self.agenda.run_until(self.agenda.now_us + ms * 1000)

    @property
    def open_stream(self) -> Stream:
        assert self.stream is not None
        return self.stream


def test_bytes__arrive_in_order_whatever_the_delays_and_pieces() -> None:
    for seed in range(20):
        pair = Pair(seed=seed)
        pair.dial()
        for number in range(50):
            pair.open_stream.send(0, b"%d," % number)
            pair.open_stream.send(1, b"%d;" % number)
        pair.wait()
        assert pair.dialled.data == b"".join(b"%d," % n for n in range(50))
        assert pair.dialler.data == b"".join(b"%d;" % n for n in range(50))


def test_nobody_listens__the_dialler_is_refused() -> None:
    pair = Pair()
    pair.dial(is_listening=False)
    assert (pair.stream, pair.answers) == (None, 1)


def test_blocked_direction__holds_bytes_up_and_lets_the_others_pass() -> None:
    pair = Pair()
    pair.dial()
    pair.network.block(1, 2)
    pair.open_stream.send(0, b"held")
    pair.open_stream.send(1, b"passes")
    pair.wait()
    assert (pair.dialled.data, pair.dialler.data) == (b"", b"passes")
    pair.network.heal()
    pair.wait()
    assert pair.dialled.data == b"held"


def test_part__dialling_across_it_fails() -> None:
    pair = Pair()
    pair.network.part({1}, {2})
    pair.dial()
    assert (pair.stream, pair.answers) == (None, 1)


def test_reset__both_lose_the_stream_and_what_was_on_its_way() -> None:
    pair = Pair()
    pair.dial()
    pair.open_stream.send(0, b"lost")
    pair.open_stream.reset()
    pair.wait()
    assert pair.dialled.data == b""
    assert (pair.dialler.losses, pair.dialled.losses) == (1, 1)


def test_close__comes_behind_the_bytes() -> None:
    pair = Pair(NetworkOptions(100, 100))
    pair.dial()
    pair.open_stream.send(1, b"farewell")
    pair.open_stream.close(1)
    pair.wait()
    assert (pair.dialler.data, pair.dialler.losses) == (b"farewell", 1)
    assert pair.dialled.losses == 0


def test_abandoned_end__is_noticed_only_when_somebody_talks_to_it() -> None:
    pair = Pair()
    pair.dial()
    pair.open_stream.abandon(1)
    pair.wait()
    assert pair.dialler.losses == 0
    pair.open_stream.send(0, b"hello?")
    pair.wait()
    assert pair.dialler.losses == 1
