"""Settings of what operators see: the admin server, four-letter words, metrics, audit log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keepfast.server.config_settings import (
    MAX_INT,
    MAX_PORT,
    TRUE_FALSE,
    Choice,
    Host,
    Text,
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
        "4lw.commands.whitelist",
        Words("four-letter words, separated by commas, or *"),
        (),
        "four-letter words that are answered besides srvr (and isro in read-only mode)",
        low="monitoring that uses them sees nothing",
        high="*: whoever reaches the client port sees sessions, paths and watches",
    )
    enable_server: bool = setting(
        "admin.enableServer",
        TRUE_FALSE,
        True,
        "the HTTP admin server, which also answers /metrics, /livez and /readyz",
        low="off: none of them answers",
        high="on: whoever reaches it may read and run its commands",
    )
    server_address: str = setting(
        "admin.serverAddress",
        Host(),
        "127.0.0.1",
        "its address (Apache's default is 0.0.0.0)",
        low="loopback: monitoring on other machines sees nothing",
        high="0.0.0.0: whoever reaches the machine may run its commands",
    )
    server_port: int = setting(
        "admin.serverPort",
        Whole(0, MAX_PORT),
        8080,
        "its port; 0: the system chooses a free one",
        low="below 1024 the system may want privileges",
        high="as for clientPort",
    )
    command_url: str = setting(
        "admin.commandURL",
        Text("a path that begins with / and does not end with it", r"/(?:[!-~]*[!-.0-~])"),
        "/commands",
        "where its commands are",
    )
    idle_timeout_ms: int = setting(
        "admin.idleTimeout",
        Whole(1, MAX_INT, "ms"),
        30_000,
        "an idle connection to it is closed after this long",
        low="slow readers are cut off",
        high="forgotten connections stay",
    )
    port_unification: bool = setting(
        "admin.portUnification",
        TRUE_FALSE,
        False,
        "TLS and plain HTTP on one port, with the stores of ssl.quorum.*",
        low="off: plain HTTP only",
        high="on: passwords may still be sent in the clear",
    )
    force_https: bool = setting(
        "admin.forceHttps",
        TRUE_FALSE,
        False,
        "TLS only, with the stores of ssl.quorum.*",
        low="off: passwords may be sent in the clear",
        high="on: probes need the certificate",
    )
    need_client_auth: bool = setting(
        "admin.needClientAuth",
        TRUE_FALSE,
        False,
        "TLS connections to it need a client certificate",
        low="off: everybody may connect",
        high="on: probes need a certificate of their own",
    )
    snapshot_enabled: bool = setting(
        "admin.snapshot.enabled",
        TRUE_FALSE,
        True,
        "the command snapshot, for those with all permissions on /",
        low="off: backups have to read the disk",
        high="on: who holds such a password may copy all data",
    )
    restore_enabled: bool = setting(
        "admin.restore.enabled",
        TRUE_FALSE,
        True,
        "the command restore, for those with all permissions on /",
        low="off: a restore needs a stop",
        high="on: who holds such a password may replace all data",
    )
    rate_limiter_interval_ms: int = setting(
        "admin.rateLimiterIntervalInMS",
        Whole(0, MAX_INT, "ms"),
        300_000,
        "time between two snapshots, and two restores, that the commands ask for",
        low="snapshots in a row fill the disk",
        high="a second backup is refused for long",
    )

    def four_letter_words(self, *, is_read_only_mode: bool) -> frozenset[str]:
        """The words that are answered: those asked for, and those that Apache always adds."""
        asked = FOUR_LETTER_WORDS if EVERY_WORD in self.whitelist else frozenset(self.whitelist)
        return (asked & FOUR_LETTER_WORDS) | {"srvr"} | ({"isro"} if is_read_only_mode else set())


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """A listener for Prometheus alone. /metrics of the admin server is there without it."""

    class_name: str = setting(
        "metricsProvider.className",
        Choice(_PROVIDERS),
        "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
        "Prometheus' class name opens a listener for /metrics beside the admin server's",
    )
    http_host: str = setting(
        "metricsProvider.httpHost",
        Host(),
        "0.0.0.0",
        "its address",
        low="loopback: monitoring on other machines sees nothing",
        high="0.0.0.0: whoever reaches the machine reads the metrics",
    )
    http_port: int = setting(
        "metricsProvider.httpPort",
        decimal(0, MAX_PORT),
        7000,
        "its port; 0: the system chooses a free one",
        low="below 1024 the system may want privileges",
        high="as for clientPort",
    )

    @property
    def has_own_listener(self) -> bool:
        return self.class_name == PROMETHEUS


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The log of changes: who, from where, what, with which result."""

    enable: bool = setting(
        "audit.enable",
        TRUE_FALSE,
        False,
        "every change is written to the audit log",
        low="off: who did it cannot be told",
        high="on: a log line for each write",
    )
