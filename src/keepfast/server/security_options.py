"""What the settings of TLS and authentication mean for a server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from keepfast.replica import AuthenticationOptions
from keepfast.server.config_errors import ConfigError
from keepfast.server.config_security import AuthConfig
from keepfast.server.config_server import ServerConfig
from keepfast.server.jaas import digest_users, read_jaas, wants_kerberos
from keepfast.server.logs import EventLog
from keepfast.server.tls_context import server_context
from keepfast.server.tls_port import TlsOptions

if TYPE_CHECKING:
    from keepfast.server.election_links import LinkSecurity

log = logging.getLogger("keepfast.server")

_SUPER_USER: Final = "super"
_JAAS_KEY: Final = "java.security.auth.login.config"


def tls_options(config: ServerConfig) -> TlsOptions | None:
    """Where and how TLS clients get in; None: nowhere."""
    client = config.client
    address = config.secure_client_address
    if address is None and not client.port_unification:
        return None
    options = TlsOptions(
        config.tls,
        is_on_client_port=client.port_unification,
        is_reloading=client.cert_reload,
        max_handshakes=max(client.outstanding_handshake_limit, 0),
    )
    if address is None:
        return options
    return replace(options, host=address.host, port=address.port)


def authentication_options(auth: AuthConfig) -> AuthenticationOptions:
    """Who may prove what. Reads the JAAS file; raises ConfigError."""
    return AuthenticationOptions(
        schemes=auth.schemes,
        digest_algorithm=auth.digest_algorithm,
        x509_super_user=auth.x509_super_user or None,
        sasl_users=_sasl_users(auth) if "sasl" in auth.providers else None,
        sasl_super_users=auth.super_users,
        is_sasl_failure_allowed=auth.allow_sasl_failed_clients,
        required_schemes=auth.required_schemes,
    )


def peer_security(config: ServerConfig) -> LinkSecurity | None:
    """What guards the connections between servers. Reads stores and files; raises ConfigError."""
    if not config.is_distributed:
        return None
    # A server alone has no peers, and starts without what speaks to them.
    from keepfast.server.election_links import LinkSecurity
    from keepfast.server.peer_sasl import load_peer_sasl
    from keepfast.server.peer_tls import load_peer_tls

    events = EventLog(lambda: {"server": config.ensemble.my_id}, "keepfast.server")
    return LinkSecurity(
        load_peer_tls(config.ensemble, config.quorum_tls, events),
        load_peer_sasl(config.quorum_auth, config.auth.jaas_file, events),
    )


def check_files(config: ServerConfig) -> list[str]:
    """Read the stores and the JAAS file as a start would; gives warnings. Raises ConfigError."""
    tls = tls_options(config)
    authentication_options(config.auth)
    peer_security(config)
    return [] if tls is None else list(server_context(tls.config).warnings)


def _sasl_users(auth: AuthConfig) -> dict[str, str] | None:
    """The users who may log in by SASL; None if no login is configured at all."""
    section = auth.sasl_login_context
    modules = read_jaas(auth.jaas_file).get(section) if auth.jaas_file else None
    if modules is None:
        if "sasl" in auth.required_schemes:
            # Every client would be turned away, and its log would speak of a wrong password.
            reason = f"has no section {section}, and clients have to log in by SASL"
            raise ConfigError(reason, key=_JAAS_KEY, value=auth.jaas_file)
        if auth.jaas_file:
            log.warning("no-sasl file=%s reason=no-section section=%s", auth.jaas_file, section)
        return None
    if wants_kerberos(modules):
        reason = f"section {section} wants Kerberos; only DIGEST-MD5 logins are supported"
        raise ConfigError(reason, key=_JAAS_KEY, value=auth.jaas_file)
    users = digest_users(modules)
    if not users:
        log.warning("no-sasl file=%s reason=no-users section=%s", auth.jaas_file, section)
    if auth.sasl_super_password and _SUPER_USER in users:
        users[_SUPER_USER] = auth.sasl_super_password
    return users
