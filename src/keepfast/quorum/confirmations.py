"""Whether a leader still leads: rounds in which a quorum of its followers confirms it.

A leader that was deposed may not know it for up to `sync_ms`. So before it answers a `sync`, or
declares an unknown session expired, it asks its followers, and counts the answers to questions that
were sent after the request arrived (R15). A server that has promised another leader's epoch has
already left its old one, and no longer answers it; so when a quorum answers, nobody led a later
epoch when the question was sent, and all that was acknowledged to any client by then was committed
here.

The question is a PING with a negative number in the zxid field: every kind of server echoes that
number. What is proposed later follows the question on the same links. So its acks come after the
answers, and a `sync` delays nothing after it.
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
        """`followers`: those that count now. `is_quorum`: whether they and the leader are one."""
        self._followers = followers
        self._is_quorum = is_quorum
        self._send = send
        self._asked = 0
        self._question = b""
        # All rounds up to this one are confirmed.
        self.last = 0

    def ask(self) -> int:
        """Begin a round, or join one that is not sent yet; returns its number."""
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
        """Send the last question, if it is open, to new followers as well."""
        if self.last < self._asked:
            for learner in self._followers():
                self._send(learner.link, self._question)
            self._count()

    def on_reply(self, learner: LearnerLink, number: int) -> None:
        """An answer: it may complete a round."""
        learner.confirmed = max(learner.confirmed, min(-number, self._asked))
        self._count()

    def _count(self) -> None:
        followers = self._followers()
        for number in sorted({self._asked, *(one.confirmed for one in followers)}, reverse=True):
            if number <= self.last:
                return
            if self._is_quorum({one.server_id for one in followers if one.confirmed >= number}):
                self.last = number
                return
