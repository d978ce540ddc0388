"""Builds a server's TLS and authentication options from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from keepfast.apache import (
    AuthConfig,
    ClientAuth,
    ConfigError,
    KerberosLogin,
    NameRuleError,
    NameRules,
    ServerConfig,
    digest_users,
    kerberos_login,
    read_jaas,
)
from keepfast.replica import AuthenticationOptions, Exchange
from keepfast.server.logs import EventLog
from keepfast.server.server_options import TlsOptions
from keepfast.server.session_secret import read_secret
from keepfast.server.tls_context import server_context

if TYPE_CHECKING:
    from keepfast.server.election_links import LinkSecurity

log = logging.getLogger("keepfast.server")

_SUPER_USER: Final = "super"
_JAAS_KEY: Final = "java.security.auth.login.config"


def tls_options(config: ServerConfig) -> TlsOptions | None:
    """Where and how TLS clients connect; None: nowhere."""
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
    """How clients may authenticate. Reads the JAAS file; raises ConfigError."""
    users, new_exchange = _sasl_logins(auth) if "sasl" in auth.providers else (None, None)
    return AuthenticationOptions(
        schemes=auth.schemes,
        digest_algorithm=auth.digest_algorithm,
        x509_super_user=auth.x509_super_user or None,
        sasl_users=users,
        new_slow_exchange=new_exchange,
        sasl_super_users=auth.super_users,
        is_sasl_failure_allowed=auth.allow_sasl_failed_clients,
        required_schemes=auth.required_schemes,
    )


def peer_security(config: ServerConfig) -> LinkSecurity | None:
    """What protects the connections between servers. Reads stores and files; raises ConfigError.

    A start on open ports says so in the log.
    """
    is_open = open_port_warning(config)
    if is_open is not None:
        _peer_events(config).warning("open-quorum-ports", reason=is_open)
    return _load_peer_security(config)


def _peer_events(config: ServerConfig) -> EventLog:
    return EventLog(lambda: {"server": config.ensemble.my_id}, "keepfast.server")


def _load_peer_security(config: ServerConfig) -> LinkSecurity | None:
    if not config.is_distributed:
        return None
    # A standalone server has no peers, and does not load the code that talks to them.
    from keepfast.server.election_links import LinkSecurity
    from keepfast.server.peer_sasl import load_peer_sasl
    from keepfast.server.peer_tls import load_peer_tls

    events = _peer_events(config)
    return LinkSecurity(
        load_peer_tls(config.ensemble, config.quorum_tls, events),
        load_peer_sasl(
            config.quorum_auth,
            config.auth.jaas_file,
            events,
            [one.host for member in config.ensemble.membership.members for one in member.quorum],
            config.auth.krb5_config_file,
        ),
    )


def has_closed_quorum_ports(config: ServerConfig) -> bool:
    """Whether the ports between servers require authentication."""
    ensemble, auth = config.ensemble, config.quorum_auth
    is_tls = ensemble.ssl_quorum and not ensemble.quorum_port_unification
    # Without a certificate of whoever connects, TLS proves nothing of it.
    is_proven = is_tls and config.quorum_tls.client_auth is ClientAuth.NEED
    return is_proven or (auth.enable_sasl and auth.server_require_sasl)


def open_port_warning(config: ServerConfig) -> str | None:
    """The warning for quorum ports that are open to other machines; None: no warning."""
    me = config.ensemble.me
    if me is None or not config.is_distributed or has_closed_quorum_ports(config):
        return None
    hosts = [address.host for address in me.quorum]
    if config.ensemble.quorum_listen_on_all_ips:
        hosts = ["0.0.0.0"]
    if all(_is_loopback(host) for host in hosts):
        return None
    return (
        f"the quorum and election ports at {', '.join(hosts)} are open: whoever reaches them can "
        "read and change everything. Close them by sslQuorum=true or quorum.auth.* "
        "(docs/security.md), or by a firewall"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_files(config: ServerConfig) -> list[str]:
    """Read the stores and the JAAS file as a start would; returns warnings. Raises ConfigError."""
    tls = tls_options(config)
    authentication_options(config.auth)
    _load_peer_security(config)
    if config.auth.session_secret_file:
        read_secret(config.auth.session_secret_file)
    warnings = [] if tls is None else list(server_context(tls.config).warnings)
    is_open = open_port_warning(config)
    return warnings if is_open is None else [*warnings, is_open]


def _sasl_logins(
    auth: AuthConfig,
) -> tuple[dict[str, str] | None, Callable[[], Exchange] | None]:
    """The users who may log in by DIGEST-MD5, or what checks logins by Kerberos; at most one."""
    section = auth.sasl_login_context
    modules = read_jaas(auth.jaas_file).get(section) if auth.jaas_file else None
    if modules is None:
        if "sasl" in auth.required_schemes and auth.jaas_file:
            # Every client would be turned away, and its log would speak of a wrong password.
            # Without a file the server starts, as Apache's does; a start warns of that, too.
            reason = f"has no section {section}, and clients have to log in by SASL"
            raise ConfigError(reason, key=_JAAS_KEY, value=auth.jaas_file)
        if auth.jaas_file:
            log.warning("no-sasl file=%s reason=no-section section=%s", auth.jaas_file, section)
        return None, None
    login = kerberos_login(modules, section, auth.jaas_file)
    if login is not None:
        return None, _kerberos_exchanges(auth, login)
    users = digest_users(modules)
    if not users:
        log.warning("no-sasl file=%s reason=no-users section=%s", auth.jaas_file, section)
    if auth.sasl_super_password and _SUPER_USER in users:
        users[_SUPER_USER] = auth.sasl_super_password
    return users, None


def _kerberos_exchanges(auth: AuthConfig, login: KerberosLogin) -> Callable[[], Exchange]:
    """What begins an exchange with a client. Raises ConfigError."""
    # Without it, a server starts without a library that it does not need.
    from keepfast.server.kerberos import GssapiServer, Realm, client_judge

    if login.ticket_cache is not None:
        reason = f"section {auth.sasl_login_context} needs useKeyTab=true, and keyTab"
        raise ConfigError(reason, file=auth.jaas_file)
    try:
        rules = NameRules(
            auth.name_rules,
            keeps_host=not auth.is_host_removed,
            keeps_realm=not auth.is_realm_removed,
        )
    except NameRuleError as error:
        raise ConfigError(str(error), key="security.auth_to_local") from None
    realm = Realm(auth.krb5_config_file)
    realm.check(login, auth.sasl_login_context, auth.jaas_file)
    return partial(GssapiServer, realm, login, client_judge(rules, realm.default))
