"""Settings of the client side: listeners, time, sessions, limits and throttling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.server.config_settings import (
    MAX_INT,
    MAX_PORT,
    TRUE_FALSE,
    Host,
    Number,
    Scope,
    Whole,
    decimal,
    derive,
    setting,
)

_MIN_TIMEOUT_TICKS: Final = 2
_MAX_TIMEOUT_TICKS: Final = 20


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where clients connect.

    The defaults are those of a server without a file: loopback only. With a file they are
    Apache's: every address, and no port unless one is given.
    """

    host: str = setting(
        "clientPortAddress",
        Host(),
        "127.0.0.1",
        "address of the plain client port",
        low="loopback: only clients on this machine get in",
        high="0.0.0.0: whoever reaches the machine gets in",
        default_text="127.0.0.1 without a file, 0.0.0.0 with one",
    )
    port: int | None = setting(
        "clientPort",
        decimal(0, MAX_PORT),
        2181,
        "plain client port; 0: the system chooses a free one",
        low="below 1024 the system may want privileges",
        high="a port of the system's dynamic range may be taken at the next start",
        default_text="2181 without a file, none with one",
    )
    secure_host: str = setting(
        "secureClientPortAddress",
        Host(),
        "0.0.0.0",
        "address of the TLS client port",
        low="loopback: only clients on this machine get in",
        high="0.0.0.0: whoever reaches the machine may try its certificate",
    )
    secure_port: int | None = setting(
        "secureClientPort",
        decimal(0, MAX_PORT),
        None,
        "TLS client port; switches on the x509 scheme. Needs ssl.keyStore.location",
        low="below 1024 the system may want privileges",
        high="as for clientPort",
    )
    backlog: int = setting(
        "clientPortListenBacklog",
        decimal(-1, MAX_INT),
        -1,
        "connections that wait to be accepted; -1: 1024, or less if the system limits it",
        low="a burst of connections is refused",
        high="clients wait for a server that is too busy instead of trying another",
    )
    port_unification: bool = setting(
        "client.portUnification",
        TRUE_FALSE,
        False,
        "TLS and plain connections on clientPort; needs ssl.keyStore.location",
        low="off: two ports",
        high="on: a client that forgets TLS gets in all the same",
    )
    cert_reload: bool = setting(
        "client.certReload",
        TRUE_FALSE,
        False,
        "key and trust store of the client port are read again when their files change",
        low="off: a renewed certificate needs a restart",
        high="on: a half-written file is seen, and is refused with a warning",
    )
    tcp_keep_alive: bool = setting(
        "clientTcpKeepAlive",
        TRUE_FALSE,
        False,
        "TCP keep-alive on client sockets",
        low="off: connections that a firewall dropped are noticed by the session timeout alone",
        high="on: a little traffic on idle connections",
    )
    sessionless_timeout_ms: int = setting(
        "nio.sessionlessCnxnTimeout",
        Whole(1, MAX_INT, "ms"),
        10_000,
        "a connection that has not opened a session by then is closed",
        low="slow clients never get a session",
        high="connections that do nothing hold places under maxClientCnxns and maxCnxns",
    )
    outstanding_handshake_limit: int = setting(
        "netty.server.outstandingHandshake.limit",
        Whole(-1, MAX_INT),
        -1,
        "TLS handshakes under way at which new ones are refused; 0 or less: no limit",
        low="many clients that reconnect at once are refused and try again",
        high="a storm of handshakes takes all processor time",
    )


@dataclass(frozen=True, slots=True)
class TimingConfig:
    """The tick and everything counted in it."""

    tick_time_ms: int = setting(
        "tickTime",
        decimal(1, MAX_INT, "ms"),
        3000,
        "the unit of the other time limits, and how exact session timeouts are",
        low="heartbeats and expiry cost processor time, and a short pause ends sessions",
        high="dead servers and dead clients are noticed late",
    )
    min_session_timeout_ms: int = setting(
        "minSessionTimeout",
        decimal(-1, MAX_INT, "ms"),
        -1,
        "the shortest timeout that a session gets; -1: 2 x tickTime",
        low="clients may ask for timeouts that one slow reply exceeds",
        high="locks of dead clients are held long",
        derived="2 x tickTime",
    )
    max_session_timeout_ms: int = setting(
        "maxSessionTimeout",
        decimal(-1, MAX_INT, "ms"),
        -1,
        "the longest timeout that a session gets; -1: 20 x tickTime",
        low="clients lose sessions in pauses that they had asked to survive",
        high="ephemerals of dead clients may stay for as long",
        derived="20 x tickTime",
    )
    init_limit: int = setting(
        "initLimit",
        decimal(0, MAX_INT, "ticks"),
        0,
        "time for a learner to connect to the leader and to catch up; an ensemble must set it",
        low="a learner with much to catch up on never gets in",
        high="a leader that nobody can follow is given up late",
    )
    sync_limit: int = setting(
        "syncLimit",
        decimal(0, MAX_INT, "ticks"),
        0,
        "time that a learner may lag behind; an ensemble must set it",
        low="a slow disk or network costs servers their place, and leaders their quorum",
        high="a dead leader or learner is noticed late",
    )
    connect_to_learner_master_limit: int = setting(
        "connectToLearnerMasterLimit",
        decimal(0, MAX_INT, "ticks"),
        0,
        "time for connecting to the leader alone; 0: as initLimit",
        low="elections are repeated while the network is slow",
        high="a dead leader is tried for long",
        derived="initLimit",
    )

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms == -1:
            derive(self, "min_session_timeout_ms", _MIN_TIMEOUT_TICKS * self.tick_time_ms)
        if self.max_session_timeout_ms == -1:
            derive(self, "max_session_timeout_ms", _MAX_TIMEOUT_TICKS * self.tick_time_ms)
        if self.connect_to_learner_master_limit == 0:
            derive(self, "connect_to_learner_master_limit", self.init_limit)

    @property
    def init_limit_ms(self) -> int:
        return self.init_limit * self.tick_time_ms

    @property
    def sync_limit_ms(self) -> int:
        return self.sync_limit * self.tick_time_ms


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Sessions that only the server they are connected to knows."""

    local_sessions_enabled: bool = setting(
        "localSessionsEnabled",
        TRUE_FALSE,
        False,
        "new sessions stay on their server until they need the ensemble",
        low="off: every session costs two txns",
        high="on: a session is lost with its server, and does not move",
    )
    local_sessions_upgrading_enabled: bool = setting(
        "localSessionsUpgradingEnabled",
        TRUE_FALSE,
        False,
        "a local session becomes a global one when it creates an ephemeral",
        low="off: ephemerals of local sessions are refused (-120)",
        high="on: the first ephemeral of a session takes longer",
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one client, and all of them together, may use."""

    jute_max_buffer: int = setting(
        "jute.maxbuffer",
        Whole(1024, MAX_INT, "bytes"),
        0xFFFFF,
        "the largest request, and the largest record between servers. The same on all servers",
        low="requests and txns that other servers accept are refused; the sender is cut off",
        high="one request may take this much memory, and replication stalls behind it",
        scope=Scope.PROPERTY,
    )
    jute_max_buffer_extra_size: int = setting(
        "jute.maxbuffer.extrasize",
        Whole(-1, MAX_INT, "bytes"),
        -1,
        "what a txn may add to its request; -1: as jute.maxbuffer",
        low="a large request becomes a txn that no server can read back",
        high="damage that claims a great length is noticed late",
        derived="jute.maxbuffer",
    )
    global_outstanding_limit: int = setting(
        "globalOutstandingLimit",
        Whole(1, MAX_INT, "requests"),
        1000,
        "requests under way on the server at which no more are read from clients",
        low="the disk idles while clients wait",
        high="memory and latency grow without more throughput",
    )
    max_client_cnxns: int = setting(
        "maxClientCnxns",
        decimal(-1, MAX_INT, "connections"),
        60,
        "connections from one address; 0 or less: no limit",
        low="clients behind one gateway shut each other out",
        high="one faulty host takes all connections",
    )
    max_cnxns: int = setting(
        "maxCnxns",
        Whole(-1, MAX_INT, "connections"),
        0,
        "connections in all; 0 or less: no limit",
        low="clients are refused while the server is idle",
        high="the process runs out of file descriptors",
    )
    large_request_threshold: int = setting(
        "largeRequestThreshold",
        Whole(-1, MAX_INT, "bytes"),
        -1,
        "requests above this size count as large; 0 or less: none does",
        low="ordinary requests count as large",
        high="no request counts",
    )
    large_request_max_bytes: int = setting(
        "largeRequestMaxBytes",
        Whole(1, MAX_INT, "bytes"),
        100 * 1024 * 1024,
        "bytes of large requests under way at which further ones are refused",
        low="two large requests at once are too many",
        high="large requests fill the memory",
    )

    def __post_init__(self) -> None:
        if self.jute_max_buffer_extra_size == -1:
            derive(self, "jute_max_buffer_extra_size", self.jute_max_buffer)


@dataclass(frozen=True, slots=True)
class RequestThrottleConfig:
    """The request throttler, and what happens to requests that waited for too long."""

    max_requests: int = setting(
        "request_throttle_max_requests",
        Whole(0, MAX_INT, "requests"),
        0,
        "writes under way at which further ones are held back; 0: off",
        low="the server idles",
        high="has no effect",
    )
    throttled_op_wait_time_ms: int = setting(
        "throttled_op_wait_time",
        Whole(0, MAX_INT, "ms"),
        0,
        "a request that was held back for longer is answered with -127; 0: off",
        low="a short pause fails requests",
        high="has no effect",
    )


@dataclass(frozen=True, slots=True)
class ConnectionThrottleConfig:
    """A token bucket on new connections, with BLUE's random drops on top."""

    tokens: int = setting(
        "connection_throttle_tokens",
        Whole(0, MAX_INT, "tokens"),
        0,
        "size of the bucket: connections that may come at once; 0: off",
        low="clients that come back together are refused",
        high="has no effect",
    )
    fill_time_ms: int = setting(
        "connection_throttle_fill_time",
        Whole(1, MAX_INT, "ms"),
        1,
        "how often tokens are added",
        low="has little effect",
        high="few connections come through",
    )
    fill_count: int = setting(
        "connection_throttle_fill_count",
        Whole(1, MAX_INT, "tokens"),
        1,
        "tokens that are added each time",
        low="few connections come through",
        high="the bucket is always full",
    )
    freeze_time_ms: int = setting(
        "connection_throttle_freeze_time",
        Whole(-1, MAX_INT, "ms"),
        -1,
        "how often the probability of a drop changes; -1: no random drops",
        low="the probability swings",
        high="it follows the load late",
    )
    drop_increase: float = setting(
        "connection_throttle_drop_increase",
        Number(0, 1),
        0.02,
        "added to the probability of a drop when the bucket is empty",
        low="a storm is met late",
        high="clients are dropped at the first burst",
    )
    drop_decrease: float = setting(
        "connection_throttle_drop_decrease",
        Number(0, 1),
        0.002,
        "taken from the probability of a drop when the bucket is fuller than the ratio",
        low="clients are dropped long after a storm",
        high="drops end before the storm does",
    )
    decrease_ratio: float = setting(
        "connection_throttle_decrease_ratio",
        Number(0, 1),
        0.0,
        "how full the bucket has to be for the probability to fall",
        low="drops end early",
        high="drops end late",
    )
    weight_enabled: bool = setting(
        "connection_throttle_weight_enabled",
        TRUE_FALSE,
        False,
        "kinds of sessions cost different numbers of tokens",
        low="off: all cost one",
        high="on: tokens and fill count are multiplied by the weight of a global session",
    )
    global_session_weight: int = setting(
        "connection_throttle_global_session_weight",
        Whole(1, MAX_INT, "tokens"),
        3,
        "what a new global session costs",
        low="global sessions are let in as if they were cheap",
        high="few of them come through",
    )
    local_session_weight: int = setting(
        "connection_throttle_local_session_weight",
        Whole(1, MAX_INT, "tokens"),
        1,
        "what a new local session costs",
        low="1 is the least",
        high="few of them come through",
    )
    renew_session_weight: int = setting(
        "connection_throttle_renew_session_weight",
        Whole(1, MAX_INT, "tokens"),
        2,
        "what a reconnect costs",
        low="reconnects are let in as if they were cheap",
        high="sessions expire while they wait to come back",
    )
