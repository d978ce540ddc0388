"""A learner, as its leader sees it."""

from __future__ import annotations

from collections import deque
from enum import Enum

from keepfast.quorum.hello import LearnerHello
from keepfast.quorum.links import Link
from keepfast.quorum.planner import LearnerHistory, Plan
from keepfast.wire import ServerId, Zxid


class Step(Enum):
    """The state of a learner, up to having all of the leader's history."""

    NEW = 0
    WAITING = 1  # has sent its epoch; the leader's is not known yet
    ASKED = 2  # was sent the leader's epoch
    PROMISED = 3  # has promised it, and waits for its plan
    CATCHING_UP = 4  # was sent what it lacks, and NEWLEADER
    CURRENT = 5  # has all of it on disk


class LearnerLink:
    """One learner, as its leader sees it."""

    __slots__ = (
        "acked",
        "confirmed",
        "has_promised",
        "heard_ms",
        "heard_up_to_ms",
        "hello",
        "history",
        "is_told",
        "link",
        "pings",
        "plan",
        "step",
        "unacked",
    )

    def __init__(self, link: Link, now_ms: int) -> None:
        self.link = link
        self.step = Step.NEW
        self.heard_ms = now_ms
        self.hello: LearnerHello | None = None
        self.history = LearnerHistory(Zxid(-1))
        # It promised our epoch to us. A learner that had promised it before may have promised it
        # to another server, which then leads in the same epoch: it must not count for both.
        self.has_promised = False
        self.plan: Plan | None = None
        self.acked = Zxid(-1)
        # When the unanswered pings were sent, and when the last answered one was: answers carry the
        # sessions that the learner has heard from.
        self.pings: deque[int] = deque()
        self.heard_up_to_ms = now_ms
        # The last round in which it said that it still follows (confirmations.py).
        self.confirmed = 0
        # It has confirmed that it holds the secret sent with pings (replica/secret_exchange.py).
        self.is_told = False
        # The oldest proposal that it was sent and has not acknowledged, and when it was sent.
        self.unacked: deque[tuple[Zxid, int]] = deque()

    @property
    def server_id(self) -> ServerId:
        return ServerId(-1) if self.hello is None else self.hello.server_id

    @property
    def is_keepfast(self) -> bool:
        """Whether it is a server of our kind."""
        return self.hello is not None and self.hello.ensemble is not None

    @property
    def wants_saying(self) -> bool:
        """Whether to send it what only our own servers understand."""
        return self.is_keepfast and not self.is_told

    @property
    def is_follower(self) -> bool:
        return self.hello is not None and self.hello.is_follower

    def lag_ms(self, now_ms: int) -> int:
        """How long its oldest outstanding ack has been due."""
        return now_ms - self.unacked[0][1] if self.unacked else 0

    @property
    def gets_proposals(self) -> bool:
        """Whether its stream has begun: what is proposed from then on follows."""
        return self.step is Step.CATCHING_UP or self.step is Step.CURRENT
