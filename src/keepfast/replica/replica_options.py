"""Settings of one replica."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from keepfast.replica.authentication import AuthenticationOptions
from keepfast.replica.session_passwords import SessionPasswords
from keepfast.tree import PrepareOptions
from keepfast.wire import DEFAULT_MAX_FIELD, DEFAULT_MAX_FRAME


class ThrottleOptions(msgspec.Struct, frozen=True):
    """Apache's settings of the same purpose; the defaults throttle nothing."""

    # Connections that may come at once; 0: no limit. Low: clients that come back together wait.
    connection_tokens: int = 0
    # This many tokens are added per interval in ms.
    fill_count: int = 1
    fill_ms: int = 1
    # How often the chance of a refusal changes; -1: nobody is refused by chance.
    freeze_ms: int = -1
    drop_increase: float = 0.02
    drop_decrease: float = 0.002
    # The chance falls when at most this share of the tokens is gone.
    decrease_ratio: float = 0.0
    # What a new session and a session that comes back cost, in tokens.
    new_session_weight: int = 1
    renewal_weight: int = 1
    # A connection that has no session by then is closed. Low: slow clients never get one. High:
    # connections that do nothing hold places.
    sessionless_ms: int = 10_000
    # Writes under way, of all clients, at which further ones are held; 0: no limit.
    max_requests: int = 0
    # A held request that waited longer is not done, but answered by THROTTLED_OP; 0: never.
    max_wait_ms: int = 0
    # Requests above this size are large; 0 or less: none is.
    large_request_bytes: int = -1
    # Bytes of large requests at one time.
    large_requests_max_bytes: int = 100 << 20

    @property
    def is_strict(self) -> bool:
        """Whether each write is looked at, and not only their number."""
        return self.large_request_bytes > 0 or self.max_requests > 0


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Limits and timeouts for a server's clients."""

    server_id: int = 1
    # Unit of session deadlines. Small: more timer work. Large: dead sessions live longer.
    tick_ms: int = 3000
    # Bounds of a session's timeout. Low: a short pause ends sessions. High: dead ones hold locks.
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 60_000
    # The longest frame, and the longest field inside one, that a client may send.
    max_frame_bytes: int = DEFAULT_MAX_FRAME
    max_field_bytes: int = DEFAULT_MAX_FIELD
    # Connections from one address, and in all; 0: no limit. Low: a busy host is shut out.
    max_connections_per_address: int = 60
    max_connections: int = 0
    # Writes under way at which no more requests are read from the connections that made them.
    # Low: the disk idles. High: memory and latency grow without more throughput.
    outstanding_limit: int = 1000
    # Bytes that wait to be sent to one client at which it is cut off: it does not read. Low: a slow
    # reader of large znodes is cut off. High: a stuck client costs memory.
    max_unsent_bytes: int = 64 << 20
    # Bytes of replies to reads after which a client has to take them before more are made. Low: a
    # reader of large znodes waits for the network between them. High: each such reader costs it.
    max_burst_bytes: int = 1 << 20
    # Replies up to this size are not counted there: as many as one read of a socket can ask for are
    # no burden. Low: counting shows in the cost of every read. High: the limit has no effect.
    uncounted_reply_bytes: int = 1024
    # About how many bytes of replies, and of work that takes as long, may wait between the writes
    # that one client has under way. Low: clients that send reads and writes together wait for each
    # write. High: others wait while all of it is answered at once.
    max_parked_bytes: int = 1 << 20
    # The longest reply to a multiRead; what would be longer is refused with -5. Low: clients have
    # to ask for less at once. High: a short request costs so much memory.
    max_multi_reply_bytes: int = 16 << 20
    # Reads in one multiRead; more are refused with -5. High: others wait for all of them.
    max_multi_reads: int = 10_000
    # Requests of one connection that wait after its writes. Bounds memory only: a client that
    # pipelines more is cut off.
    max_queued_requests: int = 100_000
    # What the watches of one connection may take, about; more are refused with -125. Low: clients
    # that watch a lot are refused. High: each connection can take so much memory.
    max_watch_bytes: int = 128 << 20
    # Whether new sessions are known to their server alone, and whether one becomes a global one
    # when it creates an ephemeral. On: clients that only read cost no txns. Without upgrading,
    # their ephemerals are refused.
    has_local_sessions: bool = False
    has_session_upgrades: bool = False
    # Whether the leader of an ensemble serves clients. Off: it does its own work only, and with one
    # server left nobody is served.
    is_leader_serving: bool = True
    # Which refusal a server alone gives to `reconfig`; in an ensemble QuorumOptions decides.
    is_reconfig_enabled: bool = False
    # `user:hash` of the superuser, who may do anything; None: there is none.
    super_digest: str | None = None
    # How often containers and TTL znodes are looked at, and how many may go in a minute.
    container_check_ms: int = 60_000
    container_max_per_minute: int = 10_000
    # A container that never had a child goes after this long; 0: it stays.
    container_max_never_used_ms: int = 0
    # Whether `Service.audits` reports every change: costs a record and a log line per write.
    is_audited: bool = False
    passwords: SessionPasswords = field(default_factory=SessionPasswords)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    throttle: ThrottleOptions = field(default_factory=ThrottleOptions)
    prepare: PrepareOptions = field(default_factory=PrepareOptions)
