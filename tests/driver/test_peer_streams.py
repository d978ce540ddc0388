"""What waits for a peer that does not read: in its order, and not without end."""

from __future__ import annotations

from typing import Any, cast

from keepfast.driver.guard import Guard
from keepfast.driver.peer_streams import PeerSender, StreamSource
from keepfast.driver.server_world import ServerWorld
from keepfast.quorum import Link

MAX_WAITING = 100


class SlowWorld:
    """Takes what it is given, and has room for one piece at a time."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_peer(self, _link: Link, packets: bytes) -> bool:
        self.sent.append(packets)
        return False


class Sending:
    """A sender in that world, and why it gave up."""

    def __init__(self) -> None:
        self.world = SlowWorld()
        self.failures: list[object] = []
        self.sender = PeerSender(
            Link(1),
            cast(ServerWorld, self.world),
            cast(Guard, None),
            cast(StreamSource, None),
            self._failed,
            MAX_WAITING,
        )

    def _failed(self, _link: Link, reason: object) -> None:
        self.failures.append(reason)

    def send(self, *items: Any) -> None:
        self.sender.send(list(items))


def test_peer_that_reads__is_sent_all_in_order() -> None:
    sending = Sending()
    for number in range(5):
        sending.send(b"%d" % number, b",")
    assert sending.world.sent == [b"0,"]
    sending.sender.drained()
    assert sending.world.sent == [b"0,", b"1,2,3,4,"]
    sending.sender.drained()
    sending.send(b"5")
    assert sending.world.sent[-1] == b"5"


def test_peer_that_does_not_read__is_given_up() -> None:
    sending = Sending()
    for _ in range(MAX_WAITING + 1):
        sending.send(b"x")
    assert sending.failures == []
    for _ in range(10):
        sending.send(b"x")
    assert sending.failures == [f"it does not read: {MAX_WAITING + 1} bytes wait"]
    sending.sender.drained()
    assert sending.world.sent == [b"x"]
