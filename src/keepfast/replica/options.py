"""Settings of one replica."""

from __future__ import annotations

from dataclasses import dataclass, field

from keepfast.replica.authentication import AuthenticationOptions
from keepfast.replica.throttle import ThrottleOptions
from keepfast.tree import PrepareOptions
from keepfast.wire import DEFAULT_MAX_FIELD, DEFAULT_MAX_FRAME


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What a server allows its clients, and how patient it is."""

    server_id: int = 1
    # Unit of session deadlines. Small: more timer work. Large: dead sessions live longer.
    tick_ms: int = 3000
    # Bounds of a session's timeout. Low: a short pause ends sessions. High: dead ones hold locks.
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 60_000
    # The longest frame, and the longest field inside one, that a client may send.
    max_frame_bytes: int = DEFAULT_MAX_FRAME
    max_field_bytes: int = DEFAULT_MAX_FIELD
    # Writes under way at which no more requests are read from the connections that made them.
    # Low: the disk idles. High: memory and latency grow without more throughput.
    outstanding_limit: int = 1000
    # Bytes that wait to be sent to one client at which it is cut off: it does not read. Low: a slow
    # reader of large znodes is cut off. High: a stuck client costs memory.
    max_unsent_bytes: int = 64 << 20
    # Bytes of replies to reads after which a client has to take them before more are made. Low: a
    # reader of large znodes waits for the network between them. High: each such reader costs it.
    max_burst_bytes: int = 1 << 20
    # Requests of one connection that wait behind its writes. Bounds memory only: a client that
    # pipelines more is cut off.
    max_queued_requests: int = 100_000
    # Whether new sessions are known to their server alone, and whether one becomes a global one
    # when it creates an ephemeral. On: clients that only read cost no txns. Without upgrading,
    # their ephemerals are refused.
    has_local_sessions: bool = False
    has_session_upgrades: bool = False
    # `user:hash` of the superuser, who may do anything; None: there is none.
    super_digest: str | None = None
    # How often containers and TTL znodes are looked at, and how many may go in a minute.
    container_check_ms: int = 60_000
    container_max_per_minute: int = 10_000
    # A container that never had a child goes after this long; 0: it stays.
    container_max_never_used_ms: int = 0
    # Whether `Replica.audits` tells of every change: costs a record and a log line a write.
    is_audited: bool = False
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    throttle: ThrottleOptions = field(default_factory=ThrottleOptions)
    prepare: PrepareOptions = field(default_factory=PrepareOptions)
