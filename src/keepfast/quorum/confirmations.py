"""Whether a leader still leads: rounds in which a quorum of its followers says so.

A leader that was deposed may not know it for up to `sync_ms`. So before it answers a `sync`, or
says of a session that it does not know that it has ended, it asks its followers, and counts the
answers to questions that were sent after the request came (R15). A
server that has promised another leader's epoch has left its old one before, and answers it no more;
so when a quorum answers, nobody led a later epoch when the question was sent, and all that was
acknowledged to any client by then was committed here.

The question is a PING with a negative number where the zxid stands: every kind of server sends that
number back. What is proposed later follows the question on the same links. So its acknowledgements
come after the answers, and a sync holds up nothing that comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from keepfast.quorum.learner_link import LearnerLink
from keepfast.quorum.links import Link, encode_packet
from keepfast.wire import PacketType, QuorumPacket, ServerId, Zxid


class Confirmations:
    """The rounds of one term."""

    def __init__(
        self,
        followers: Callable[[], Collection[LearnerLink]],
        is_quorum: Callable[[Collection[ServerId]], bool],
        send: Callable[[Link, bytes], None],
    ) -> None:
        """`followers`: those that count now. `is_quorum`: whether these are one with the leader."""
        self._followers = followers
        self._is_quorum = is_quorum
        self._send = send
        self._asked = 0
        self._question = b""
        # All rounds up to this one are confirmed.
        self.last = 0

    def ask(self) -> int:
        """Begin a round, or take part in one that is not sent yet; gives its number."""
        followers = self._followers()
        is_unsent = self.last < self._asked and all(
            any(item is self._question for item in one.link.out) for one in followers
        )
        if not is_unsent:
            self._asked += 1
            number = Zxid(-self._asked)
            self._question = encode_packet(QuorumPacket(PacketType.PING.value, number))
            self.ask_again()
        return self._asked

    def ask_again(self) -> None:
        """Send the last question, if it is open, also to those that follow since."""
        if self.last < self._asked:
            for learner in self._followers():
                self._send(learner.link, self._question)
            self._count()

    def on_reply(self, learner: LearnerLink, number: int) -> bool:
        """An answer; gives whether it completes a round."""
        before = self.last
        learner.confirmed = max(learner.confirmed, min(-number, self._asked))
        self._count()
        return self.last > before

    def _count(self) -> None:
        followers = self._followers()
        for number in sorted({self._asked, *(one.confirmed for one in followers)}, reverse=True):
            if number <= self.last:
                return
            if self._is_quorum({one.server_id for one in followers if one.confirmed >= number}):
                self.last = number
                return
