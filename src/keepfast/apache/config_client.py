"""Settings of the client side: listeners, time, sessions, limits and throttling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.apache.config_settings import (
    MAX_INT,
    MAX_PORT,
    TRUE_FALSE,
    HostName,
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

    host: str = setting("clientPortAddress", HostName(), "127.0.0.1")
    port: int | None = setting("clientPort", decimal(0, MAX_PORT), 2181)
    secure_host: str = setting("secureClientPortAddress", HostName(), "0.0.0.0")
    secure_port: int | None = setting("secureClientPort", decimal(0, MAX_PORT), None)
    backlog: int = setting("clientPortListenBacklog", decimal(-1, MAX_INT), -1)
    port_unification: bool = setting("client.portUnification", TRUE_FALSE, False)
    cert_reload: bool = setting("client.certReload", TRUE_FALSE, False)
    tcp_keep_alive: bool = setting("clientTcpKeepAlive", TRUE_FALSE, False)
    sessionless_timeout_ms: int = setting(
        "nio.sessionlessCnxnTimeout", Whole(1, MAX_INT, "ms"), 10_000
    )
    outstanding_handshake_limit: int = setting(
        "netty.server.outstandingHandshake.limit", Whole(-1, MAX_INT), -1
    )


@dataclass(frozen=True, slots=True)
class TimingConfig:
    """The tick and everything counted in it."""

    tick_time_ms: int = setting("tickTime", decimal(1, MAX_INT, "ms"), 3000)
    min_session_timeout_ms: int = setting("minSessionTimeout", decimal(-1, MAX_INT, "ms"), -1)
    max_session_timeout_ms: int = setting("maxSessionTimeout", decimal(-1, MAX_INT, "ms"), -1)
    init_limit: int = setting("initLimit", decimal(0, MAX_INT, "ticks"), 0)
    sync_limit: int = setting("syncLimit", decimal(0, MAX_INT, "ticks"), 0)

    def __post_init__(self) -> None:
        if self.min_session_timeout_ms == -1:
            derive(self, "min_session_timeout_ms", _MIN_TIMEOUT_TICKS * self.tick_time_ms)
        if self.max_session_timeout_ms == -1:
            derive(self, "max_session_timeout_ms", _MAX_TIMEOUT_TICKS * self.tick_time_ms)

    @property
    def init_limit_ms(self) -> int:
        return self.init_limit * self.tick_time_ms

    @property
    def sync_limit_ms(self) -> int:
        return self.sync_limit * self.tick_time_ms


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Sessions that only the server they are connected to knows."""

    local_sessions_enabled: bool = setting("localSessionsEnabled", TRUE_FALSE, False)
    local_sessions_upgrading_enabled: bool = setting(
        "localSessionsUpgradingEnabled", TRUE_FALSE, False
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one client, and all of them together, may use."""

    jute_max_buffer: int = setting(
        "jute.maxbuffer", Whole(1024, MAX_INT, "bytes"), 0xFFFFF, scope=Scope.PROPERTY
    )
    jute_max_buffer_extra_size: int = setting(
        "jute.maxbuffer.extrasize", Whole(-1, MAX_INT, "bytes"), -1
    )
    max_path_bytes: int = setting(
        "keepfast.maxPathBytes", Whole(1024, MAX_INT, "bytes"), 131_071, scope=Scope.OWN
    )
    max_acl_entries: int = setting(
        "keepfast.maxAclEntries", Whole(1, MAX_INT, "entries"), 2048, scope=Scope.OWN
    )
    max_ephemeral_bytes: int = setting(
        "keepfast.maxEphemeralBytes", Whole(0, MAX_INT, "bytes"), 0, scope=Scope.OWN
    )
    max_ephemerals: int = setting(
        "keepfast.maxEphemerals", Whole(1, MAX_INT, "ephemerals"), 20_000, scope=Scope.OWN
    )
    max_id_bytes: int = setting(
        "keepfast.maxIdBytes", Whole(1024, MAX_INT, "bytes"), 524_288, scope=Scope.OWN
    )
    max_watch_bytes: int = setting(
        "keepfast.maxWatchBytes", Whole(1024, MAX_INT, "bytes"), 134_217_728, scope=Scope.OWN
    )
    global_outstanding_limit: int = setting(
        "globalOutstandingLimit", Whole(1, MAX_INT, "requests"), 1000
    )
    max_client_cnxns: int = setting("maxClientCnxns", decimal(-1, MAX_INT, "connections"), 60)
    max_cnxns: int = setting("maxCnxns", Whole(-1, MAX_INT, "connections"), 0)
    large_request_threshold: int = setting("largeRequestThreshold", Whole(-1, MAX_INT, "bytes"), -1)
    large_request_max_bytes: int = setting(
        "largeRequestMaxBytes", Whole(1, MAX_INT, "bytes"), 100 * 1024 * 1024
    )

    def __post_init__(self) -> None:
        if self.jute_max_buffer_extra_size == -1:
            derive(self, "jute_max_buffer_extra_size", self.jute_max_buffer)


@dataclass(frozen=True, slots=True)
class RequestThrottleConfig:
    """The request throttler, and what happens to requests that waited for too long."""

    max_requests: int = setting("request_throttle_max_requests", Whole(0, MAX_INT, "requests"), 0)
    throttled_op_wait_time_ms: int = setting("throttled_op_wait_time", Whole(0, MAX_INT, "ms"), 0)


@dataclass(frozen=True, slots=True)
class ConnectionThrottleConfig:
    """A token bucket on new connections, with BLUE's random drops on top."""

    tokens: int = setting("connection_throttle_tokens", Whole(0, MAX_INT, "tokens"), 0)
    fill_time_ms: int = setting("connection_throttle_fill_time", Whole(1, MAX_INT, "ms"), 1)
    fill_count: int = setting("connection_throttle_fill_count", Whole(1, MAX_INT, "tokens"), 1)
    freeze_time_ms: int = setting("connection_throttle_freeze_time", Whole(-1, MAX_INT, "ms"), -1)
    drop_increase: float = setting("connection_throttle_drop_increase", Number(0, 1), 0.02)
    drop_decrease: float = setting("connection_throttle_drop_decrease", Number(0, 1), 0.002)
    decrease_ratio: float = setting("connection_throttle_decrease_ratio", Number(0, 1), 0.0)
    weight_enabled: bool = setting("connection_throttle_weight_enabled", TRUE_FALSE, False)
    global_session_weight: int = setting(
        "connection_throttle_global_session_weight", Whole(1, MAX_INT, "tokens"), 3
    )
    local_session_weight: int = setting(
        "connection_throttle_local_session_weight", Whole(1, MAX_INT, "tokens"), 1
    )
    renew_session_weight: int = setting(
        "connection_throttle_renew_session_weight", Whole(1, MAX_INT, "tokens"), 2
    )
