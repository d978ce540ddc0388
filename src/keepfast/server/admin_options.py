"""Builds a server's admin and metrics options from the configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from keepfast.apache import ClientAuth, ConfigError, ServerConfig


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """Where the admin server listens and what it allows."""

    # Off: only the listener of `metrics_address` is opened.
    is_on: bool = True
    # Loopback: only this machine. Anything else: whoever reaches it may read and run commands.
    host: str = "127.0.0.1"
    # 0: the system chooses.
    port: int = 8080
    # Whether a server whose admin port is in use refuses to start. If not, it runs without one and
    # logs that: the default port is everybody's default port.
    is_required: bool = False
    command_url: str = "/commands"
    # Names by which it may be asked, besides addresses and the machine's own; "*": any.
    allowed_hosts: frozenset[str] = frozenset()
    # Short: slow readers are cut off. Long: abandoned connections stay open.
    idle_timeout_ms: int = 30_000
    is_snapshot_enabled: bool = True
    # Between two snapshots by command. Short: snapshots in a row fill the disk.
    snapshot_interval_ms: int = 300_000
    # A second listener for /metrics and the probes, where Apache's Prometheus provider is.
    metrics_address: tuple[str, int] | None = None
    # What the commands initial_configuration and system_properties show.
    initial_configuration: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    # None: plain HTTP.
    tls: ssl.SSLContext | None = None


def admin_options(config: ServerConfig) -> AdminOptions | None:
    """Where and how it and the metrics are served; None: nowhere. Raises ConfigError."""
    admin, metrics = config.admin, config.metrics
    address = (metrics.http_host, metrics.http_port) if metrics.has_own_listener else None
    if not admin.enable_server and address is None:
        return None
    return AdminOptions(
        is_on=admin.enable_server,
        host=admin.server_address,
        port=admin.server_port,
        is_required="admin.serverPort" in config.origins or address is not None,
        command_url=admin.command_url,
        allowed_hosts=_names(config),
        idle_timeout_ms=admin.idle_timeout_ms,
        is_snapshot_enabled=admin.snapshot_enabled,
        snapshot_interval_ms=admin.rate_limiter_interval_ms,
        metrics_address=address,
        initial_configuration=config.initial_text,
        properties={key: value for key, value, _ in config.describe() if value},
        tls=_tls(config) if admin.enable_server else None,
    )


def _names(config: ServerConfig) -> frozenset[str]:
    """The host names of this server: as configured, or as the ensemble names its members."""
    admin = config.admin
    members = config.ensemble.membership.members
    hosts = (address.host for member in members for address in member.quorum)
    return frozenset((*admin.allowed_hosts, admin.server_address, *hosts))


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS only, or none at all; it has the stores of the quorum's TLS, as in Apache."""
    admin = config.admin
    if not admin.force_https:
        if admin.admin_port_unification:
            reason = "is not supported: use admin.forceHttps, or plain HTTP on a loopback address"
            raise ConfigError(reason, key="admin.portUnification", value="true")
        return None
    # Loads `cryptography`, which a server without TLS need not have.
    from keepfast.server.tls_context import server_context

    asked = ClientAuth.NEED if admin.need_client_auth else ClientAuth.NONE
    return server_context(replace(config.quorum_tls, client_auth=asked), "ssl.quorum.").context
