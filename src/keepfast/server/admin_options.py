"""What the settings of the admin server and of metrics mean for a server."""

from __future__ import annotations

import ssl
from dataclasses import replace

from keepfast.server.admin import AdminOptions
from keepfast.server.config_errors import ConfigError
from keepfast.server.config_security import ClientAuth
from keepfast.server.config_server import ServerConfig


def admin_options(config: ServerConfig) -> AdminOptions | None:
    """Where and how the admin server listens; None: there is none. Raises ConfigError."""
    admin, metrics = config.admin, config.metrics
    if not admin.enable_server:
        return None
    address = (metrics.http_host, metrics.http_port) if metrics.has_own_listener else None
    return AdminOptions(
        host=admin.server_address,
        port=admin.server_port,
        is_required="admin.serverPort" in config.origins or address is not None,
        command_url=admin.command_url,
        idle_timeout_ms=admin.idle_timeout_ms,
        is_snapshot_enabled=admin.snapshot_enabled,
        snapshot_interval_ms=admin.rate_limiter_interval_ms,
        metrics_address=address,
        initial_configuration=config.initial_text,
        properties={key: value for key, value, _ in config.describe() if value},
        tls=_tls(config),
    )


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    """TLS only, or none at all; it has the stores of the quorum's TLS, as in Apache."""
    admin = config.admin
    if not admin.force_https:
        if admin.port_unification:
            reason = "is not supported: use admin.forceHttps, or plain HTTP on a loopback address"
            raise ConfigError(reason, key="admin.portUnification", value="true")
        return None
    # Loads `cryptography`, which a server without TLS need not have.
    from keepfast.server.tls_context import server_context

    asked = ClientAuth.NEED if admin.need_client_auth else ClientAuth.NONE
    return server_context(replace(config.quorum_tls, client_auth=asked), "ssl.quorum.").context
