"""What a server may do with the data that it has."""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """The standing of a server's data.

    Only a *whole* server may vote, serve and count in a commit quorum.
    """

    WHOLE = "whole"  # one contiguous history, proven from a base to its head
    CATCHING_UP = "catching up"  # has a leader's tree, and not all that follows it
    UNPROVEN = "unproven"  # contiguous as far as the format shows, but not proven
    DAMAGED = "damaged"  # something is missing or wrong, and no crash explains it
    EMPTY = "empty"  # no history at all: new, or wiped

    @property
    def may_vote(self) -> bool:
        """Whether this data may be counted on in an election and in a commit."""
        return self is Standing.WHOLE
