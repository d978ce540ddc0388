"""Settings of what operators see: the admin server, four-letter words, metrics, audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.apache.config_settings import (
    MAX_INT,
    MAX_PORT,
    TRUE_FALSE,
    FreeText,
    HostName,
    OneOf,
    Whole,
    Words,
    decimal,
    setting,
)

# Apache 3.9.5's words on the client port.
FOUR_LETTER_WORDS: Final = frozenset(
    (
        *("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "mntr"),
        *("ruok", "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs"),
    )
)
EVERY_WORD: Final = "*"

PROMETHEUS: Final = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
_PROVIDERS: Final = {
    name: name
    for name in (
        "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
        "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
        PROMETHEUS,
    )
}


@dataclass(frozen=True, slots=True)
class AdminConfig:
    """The HTTP admin server, and the four-letter words of the client port."""

    whitelist: tuple[str, ...] = setting(
        "4lw.commands.whitelist", Words("four-letter words, separated by commas, or *"), ()
    )
    enable_server: bool = setting("admin.enableServer", TRUE_FALSE, True)
    server_address: str = setting("admin.serverAddress", HostName(), "127.0.0.1")
    server_port: int = setting("admin.serverPort", Whole(0, MAX_PORT), 8080)
    command_url: str = setting(
        "admin.commandURL",
        FreeText("a path that begins with / and does not end with it", r"/(?:[!-~]*[!-.0-~])"),
        "/commands",
    )
    allowed_hosts: tuple[str, ...] = setting(
        "keepfast.admin.allowedHosts", Words("host names, separated by commas, or *"), ()
    )
    idle_timeout_ms: int = setting("admin.idleTimeout", Whole(1, MAX_INT, "ms"), 30_000)
    admin_port_unification: bool = setting("admin.portUnification", TRUE_FALSE, False)
    force_https: bool = setting("admin.forceHttps", TRUE_FALSE, False)
    need_client_auth: bool = setting("admin.needClientAuth", TRUE_FALSE, False)
    snapshot_enabled: bool = setting("admin.snapshot.enabled", TRUE_FALSE, True)
    rate_limiter_interval_ms: int = setting(
        "admin.rateLimiterIntervalInMS", Whole(0, MAX_INT, "ms"), 300_000
    )

    def four_letter_words(self, *, is_read_only_mode: bool) -> frozenset[str]:
        """The words that are answered: those asked for, and those that Apache always adds."""
        asked = FOUR_LETTER_WORDS if EVERY_WORD in self.whitelist else frozenset(self.whitelist)
        return (asked & FOUR_LETTER_WORDS) | {"srvr"} | ({"isro"} if is_read_only_mode else set())


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """A listener for /metrics and probes alone; the admin server has them without it."""

    class_name: str = setting(
        "metricsProvider.className",
        OneOf(_PROVIDERS),
        "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
    )
    http_host: str = setting("metricsProvider.httpHost", HostName(), "0.0.0.0")
    http_port: int = setting("metricsProvider.httpPort", decimal(0, MAX_PORT), 7000)

    @property
    def has_own_listener(self) -> bool:
        return self.class_name == PROMETHEUS


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The log of changes: who, from where, what, with which result."""

    enable: bool = setting("audit.enable", TRUE_FALSE, False)
