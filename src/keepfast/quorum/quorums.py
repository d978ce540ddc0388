"""The quorums that decide now: those of the membership, and of the one that may replace it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from keepfast.quorum.member_spec import MemberSpec
from keepfast.quorum.membership import Membership
from keepfast.wire import ServerId


@dataclass(frozen=True, slots=True)
class Quorums:
    """While a membership changehip is proposed and not decided, both sides have to agree.

    `next` is the proposed membership, None if nothing is proposed; one that is not newer than
    `current` is the same as None.
    """

    current: Membership
    next: Membership | None = None
    voters: frozenset[ServerId] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        voters = self.current.voters
        if self.next is not None:
            if self.next.version <= self.current.version:
                object.__setattr__(self, "next", None)
            else:
                voters = voters | self.next.voters
        object.__setattr__(self, "voters", voters)

    def is_quorum(self, ids: Collection[ServerId]) -> bool:
        """Whether these servers may decide, by every membership that has a say."""
        return self.current.is_quorum(ids) and (self.next is None or self.next.is_quorum(ids))

    def may_follow(self, ids: Collection[ServerId]) -> bool:
        """Whether a leader that these servers follow is worth joining: it counts by itself.

        By one membership is enough: a change that we have and they lack was never committed.
        """
        return self.current.is_quorum(ids) or (self.next is not None and self.next.is_quorum(ids))

    def weight(self, server_id: ServerId) -> int:
        """What this server's vote counts; 0: it never leads."""
        if server_id in self.current.voters or self.next is None:
            return self.current.weight(server_id)
        return self.next.weight(server_id)

    @property
    def members(self) -> list[MemberSpec]:
        """All members, also those to be; where both memberships know one, as it is now."""
        memberships = (self.current,) if self.next is None else (self.next, self.current)
        known = {spec.server_id: spec for one in memberships for spec in one.members}
        return [known[server_id] for server_id in sorted(known)]

    def find(self, server_id: ServerId) -> MemberSpec | None:
        """The member of that id; where both memberships know it, as it is now."""
        found = self.current.find(server_id)
        return found if found is not None or self.next is None else self.next.find(server_id)
