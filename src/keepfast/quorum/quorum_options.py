"""Timeouts and limits between the servers of an ensemble."""

from __future__ import annotations

from dataclasses import dataclass, field

from keepfast.quorum.election import ElectionOptions


@dataclass(frozen=True, slots=True)
class QuorumOptions:
    """Times of an ensemble; as in Apache, most are counted in ticks."""

    tick_ms: int = 3000
    # Ticks within which a learner must have caught up. Low: large trees never get through. High: a
    # leader that nobody can follow is waited for.
    init_limit: int = 10
    # Ticks after which a silent peer is dropped. Low: a pause ends a term. High: late after one.
    sync_limit: int = 5
    # Log that a learner is sent at most, as a part of the size of a tree. 0 or less: no limit.
    snapshot_size_factor: float = 0.33
    # Observers that are sent a snapshot, or missed txns, at the same time; one more is turned away
    # and comes back. Low: they wait for each other. High: the leader's network and memory.
    max_snapshot_catch_ups: int = 10
    max_diff_catch_ups: int = 100
    # What may wait for a peer that does not read, or is still being sent a tree. Low: a server that
    # catches up while much is written never gets through. High: each such peer costs this memory.
    max_unsent_bytes: int = 1 << 30
    # Bytes of one learner that are handled before others have their turn. Low: a follower that
    # forwards many writes needs many turns. High: one that sends without end holds up everybody.
    learner_turn_bytes: int = 16 << 10
    # Whether a voter with an empty directory votes at once, as its operator says that the ensemble
    # is new. On in an old ensemble: servers whose disks were wiped may outvote the others.
    is_empty_trusted: bool = False
    # How often, and at what interval, a learner retries a leader that is not ready yet.
    dial_attempts: int = 20
    dial_interval_ms: int = 100
    # Whether clients may change the membership, and whether one voter may be left.
    is_reconfig_enabled: bool = False
    is_standalone_enabled: bool = True
    # Whether a member has to come from an address that the membership names for it. Off: whoever
    # reaches an open port may pose as any member. On: servers behind address translation, or with
    # another address for outgoing connections, are refused.
    is_address_checked: bool = True
    # Whether a server without a leader serves read-only clients.
    is_read_only_enabled: bool = False
    # Whether servers make a secret for session passwords by themselves, once all members are ours.
    # Off: passwords are Apache's, which follow from a session's id, or those of an operator's file.
    is_secret_shared: bool = False
    election: ElectionOptions = field(default_factory=ElectionOptions)

    @property
    def init_ms(self) -> int:
        """Until a learner has to have caught up."""
        return self.init_limit * self.tick_ms

    @property
    def sync_ms(self) -> int:
        """Until a silent peer is given up."""
        return self.sync_limit * self.tick_ms

    @property
    def dial_ms(self) -> int:
        """How long a learner tries to reach a leader that is not there, at most."""
        return self.dial_attempts * self.dial_interval_ms
