"""Limits on the claims of an unauthenticated peer.

Where the ports between servers are open, anyone can claim anything there. These limits keep one
false claim from doing lasting harm; they do not make an open port safe (docs/security.md).

    epochs      a promise far ahead of ours is refused: the next epoch would be above it, on every
                disk, and there are only so many
    rounds      a vote far ahead of our round is not joined
    addresses   where the membership names a member's addresses, it comes from one of them
    patience    a term does not end because somebody says it has promised a later epoch. If a voter
                that does not follow says so for long, it is let in by a new election, but seldom
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from keepfast.wire import MAX_EPOCH, PeerProtocolError, ServerId

# How far an epoch may be ahead of what is known here. An epoch is one attempt to lead: this many
# failed ones, with this server absent, are no accident. Low: a server that was away for long and is
# elected cannot lead the others. High: fewer false claims use up all epochs.
MAX_EPOCH_JUMP: Final = 1 << 16
# The same for the rounds of elections, of which there are many more.
MAX_ROUND_JUMP: Final = 1 << 24

# Packets of a learner that has not introduced itself, and of one that has not caught up: its chain
# of epochs. Low: a genuine one is refused. High: strangers cost memory.
MAX_HELLO_BYTES: Final = 4 << 10
MAX_CHAIN_BYTES: Final = 16 << 20
# Connections of learners that have not introduced themselves; the oldest goes for one more.
MAX_NEW_LEARNERS: Final = 64
# Learners that are no members, where the membership may change.
MAX_STRANGERS: Final = 16


# Between two elections that are held to let a voter in that promised a later epoch. Low: who poses
# as a voter that is down can hold up the ensemble more often. High: two such voters wait for long.
MIN_YIELD_INTERVAL_MS: Final = 600_000
# It doubles with each such election up to this: one that has to be held again and again lets nobody
# in.
MAX_YIELD_INTERVAL_MS: Final = 86_400_000


EPOCHS_USED_UP: Final = (
    f"epoch {MAX_EPOCH} was promised, and there is none after it: all epochs are used up. "
    "Restore the data into a new ensemble (docs/security.md)"
)


class AheadVoters:
    """Voters that cannot follow because they promised a later epoch than this term's."""

    def __init__(self, patience_ms: int, pause_ms: int, knocking_ms: int) -> None:
        self._patience_ms = patience_ms
        self._pause_ms = pause_ms
        # How long a refused voter keeps retrying before it looks for another leader.
        self._knocking_ms = knocking_ms
        # Until when a leader that yielded takes no part in elections. It would be elected again
        # before the voter that it yielded to is heard.
        self.quiet_until_ms = 0
        # Voter -> when it was refused first, and last, without a long pause between.
        self._refused: dict[ServerId, tuple[int, int]] = {}
        self._yielded_ms: int | None = None
        self._interval_ms = MIN_YIELD_INTERVAL_MS
        # What the voter promised for which a term ended: the next one has to be above it.
        self.promised = 0

    def is_due(self, server_id: ServerId, promised: int, now_ms: int) -> bool:
        """Record that a voter was refused; True: the term should end for it, this time."""
        first_ms, last_ms = self._refused.get(server_id, (now_ms, now_ms))
        if now_ms - last_ms > self._patience_ms:
            first_ms = now_ms
        self._refused[server_id] = (first_ms, now_ms)
        yielded_ms = self._yielded_ms
        if now_ms - first_ms <= self._patience_ms or (
            yielded_ms is not None and now_ms - yielded_ms < self._interval_ms
        ):
            return False
        if yielded_ms is not None:
            self._interval_ms = min(2 * self._interval_ms, MAX_YIELD_INTERVAL_MS)
        self._yielded_ms = now_ms
        self.promised = promised
        self._refused.clear()
        self.let_others_lead(now_ms + self._knocking_ms)
        return True

    def let_others_lead(self, now_ms: int) -> None:
        """Take no part in elections for a moment: a voter that knows more has to be heard."""
        self.quiet_until_ms = now_ms + self._pause_ms


def check_promise(server_id: int, promised: int, known: int) -> None:
    """Refuse a promise of an epoch that nobody can have asked for."""
    if not 0 <= promised <= min(known + MAX_EPOCH_JUMP, MAX_EPOCH):
        raise PeerProtocolError(
            f"server {server_id} says it promised epoch {promised}; {known} is the last one known "
            "here. If that server is genuine, its acceptedEpoch was tampered with: give it a new "
            "data directory"
        )


def is_plausible_round(election_epoch: int, ours: int) -> bool:
    """Whether a vote may be of this round."""
    return 0 <= election_epoch <= ours + MAX_ROUND_JUMP


def comes_from(address: str, hosts: Iterable[str]) -> bool:
    """Whether a connection from an address may be that of a server with these hosts.

    True also where it cannot be known: without an address, or where a host is a name.
    """
    source = _literal(address)
    if source is None:
        return True
    known = [_literal(host) for host in hosts]
    return not known or any(host is None or host.is_unspecified or host == source for host in known)


def _literal(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped
