"""Values that are valid individually but cannot work together.

Each check notes errors and warnings in the sources, at the place of the key that is most likely to
be the wrong one.
"""

from __future__ import annotations

import os
from typing import Final

from keepfast.apache.config_ensemble import SERVER_PREFIX, colliding_addresses
from keepfast.apache.config_keys import closest
from keepfast.apache.config_operations import EVERY_WORD, FOUR_LETTER_WORDS
from keepfast.apache.config_security import AUTH_PROVIDER_FAMILY, ClientAuth, TlsConfig
from keepfast.apache.config_server import ServerConfig
from keepfast.apache.config_settings import MAX_INT, is_any_address
from keepfast.apache.config_sources import Sources
from keepfast.quorum import Address

# Session ids begin with the server's id, of which there is room for one byte.
_IDS: Final = 256
_LARGEST_ID_WITH_TTL: Final = 254
_FEWEST_VOTERS_FOR_ONE_FAILURE: Final = 3


def check_config(config: ServerConfig, sources: Sources) -> None:
    """Note everything that cannot work, or will probably not work as meant."""
    _check_timing(config, sources)
    _check_members(config, sources)
    if config.is_distributed:
        _check_distributed(config, sources)
    elif config.client_address is None and config.secure_client_address is None:
        sources.complain("clientPort", "must be set: nobody could connect")
    _check_listeners(config, sources)
    _check_tls(config, sources)
    _check_auth(config, sources)
    _check_words(config, sources)
    _check_paths(config, sources)


def _check_timing(config: ServerConfig, sources: Sources) -> None:
    timing = config.timing
    if timing.max_session_timeout_ms > MAX_INT:
        limit = MAX_INT // (timing.max_session_timeout_ms // timing.tick_time_ms)
        sources.complain(
            "tickTime", f"must not be above {limit} ms unless maxSessionTimeout is set"
        )
    elif timing.min_session_timeout_ms > timing.max_session_timeout_ms:
        has_minimum = sources.find("minSessionTimeout") is not None
        sources.complain(
            "minSessionTimeout" if has_minimum else "maxSessionTimeout",
            f"the shortest session timeout, {timing.min_session_timeout_ms} ms, must not be above "
            f"the longest, {timing.max_session_timeout_ms} ms",
        )
    for key, limit_ms in (("initLimit", timing.init_limit_ms), ("syncLimit", timing.sync_limit_ms)):
        if limit_ms > MAX_INT:
            sources.complain(key, f"must not be above {MAX_INT // timing.tick_time_ms} ticks")
    ensemble = config.ensemble
    if ensemble.min_notification_interval_ms > ensemble.max_notification_interval_ms:
        has_minimum = sources.find("fastleader.minNotificationInterval") is not None
        sources.complain(
            f"fastleader.{'min' if has_minimum else 'max'}NotificationInterval",
            f"the shortest interval, {ensemble.min_notification_interval_ms} ms, must not be above "
            f"the longest, {ensemble.max_notification_interval_ms} ms",
        )


def _check_members(config: ServerConfig, sources: Sources) -> None:
    membership = config.ensemble.membership
    for member, place in colliding_addresses(membership.members):
        reason = f"{place} is the address of another server, too"
        sources.complain(f"{SERVER_PREFIX}{member.server_id}", reason)
    first_by_byte: dict[int, int] = {}
    for member in membership.members:
        first = first_by_byte.setdefault(member.server_id % _IDS, member.server_id)
        if first != member.server_id:
            reason = f"session ids of servers {first} and {member.server_id} would be the same"
            sources.complain(f"{SERVER_PREFIX}{member.server_id}", reason)
        if config.features.extended_types and member.server_id > _LARGEST_ID_WITH_TTL:
            reason = f"with extendedTypesEnabled an id must not be above {_LARGEST_ID_WITH_TTL}"
            sources.complain(f"{SERVER_PREFIX}{member.server_id}", reason)
    voters, observers = membership.voters, membership.observers
    if observers and (not voters or not config.is_distributed):
        key = f"{SERVER_PREFIX}{min(observers)}"
        sources.complain(key, "observers need an ensemble: two voters, or standaloneEnabled=false")


def _check_distributed(config: ServerConfig, sources: Sources) -> None:
    timing, ensemble = config.timing, config.ensemble
    for key, limit in (("initLimit", timing.init_limit), ("syncLimit", timing.sync_limit)):
        if limit == 0:
            sources.complain(key, "must be set, to 1 or more, in an ensemble")
    if ensemble.my_id is None:
        sources.complain("keepfast.myId", f"there must be a file {config.data.data_dir}/myid")
    elif ensemble.me is None:
        ids = ", ".join(str(member.server_id) for member in ensemble.membership.members)
        key = f"{SERVER_PREFIX}{ensemble.my_id}"
        sources.complain(key, f"there must be such a line: this server's id is not among {ids}")
    voters = len(ensemble.membership.voters)
    if voters == 0:
        return
    key = f"{SERVER_PREFIX}{max(ensemble.membership.voters)}"
    if voters < _FEWEST_VOTERS_FOR_ONE_FAILURE:
        sources.remark(key, f"with {voters} voters no failure is tolerated; 3 tolerate one")
    elif voters % 2 == 0:
        sources.remark(key, f"{voters} voters tolerate no more failures than {voters - 1}")
    if config.client_address is None and config.secure_client_address is None:
        sources.remark("clientPort", "not set: this server takes no clients")
    auth = config.quorum_auth
    for name, is_on, needed, has_it in (
        ("learnerRequireSasl", auth.learner_require_sasl, "enableSasl", auth.enable_sasl),
        ("serverRequireSasl", auth.server_require_sasl, "enableSasl", auth.enable_sasl),
        (
            *("serverRequireSasl", auth.server_require_sasl),
            *("learnerRequireSasl", auth.learner_require_sasl),
        ),
    ):
        if is_on and not has_it:
            sources.complain(f"quorum.auth.{name}", f"needs quorum.auth.{needed}=true")


def _listeners(config: ServerConfig) -> list[tuple[str, Address]]:
    """Every address that this server will listen on, with the key to blame."""
    found = [
        ("clientPort", config.client_address),
        ("secureClientPort", config.secure_client_address),
    ]
    admin, metrics, ensemble = config.admin, config.metrics, config.ensemble
    if admin.enable_server:
        found.append(("admin.serverPort", Address(admin.server_address, admin.server_port)))
    if metrics.has_own_listener:
        found.append(("metricsProvider.httpPort", Address(metrics.http_host, metrics.http_port)))
    me = ensemble.me
    if config.is_distributed and me is not None:
        for host, port in (*me.quorum, *me.election):
            place = "0.0.0.0" if ensemble.quorum_listen_on_all_ips else host
            found.append((f"{SERVER_PREFIX}{me.server_id}", Address(place, port)))
    return [(key, address) for key, address in found if address is not None and address.port]


def _check_listeners(config: ServerConfig, sources: Sources) -> None:
    listeners = _listeners(config)
    for index, (key, address) in enumerate(listeners):
        for other_key, other in listeners[:index]:
            is_same = address.host == other.host
            is_any = is_any_address(address.host) or is_any_address(other.host)
            if key != other_key and address.port == other.port and (is_same or is_any):
                # The default of a port that was not configured must not be blamed on the file.
                blamed, taken_by = (key, other_key)
                if sources.find(key) is None and sources.find(other_key) is not None:
                    blamed, taken_by = (other_key, key)
                sources.complain(blamed, f"port {address.port} is taken by {taken_by}")


def _check_tls(config: ServerConfig, sources: Sources) -> None:
    client, ensemble, admin = config.client, config.ensemble, config.admin
    for is_on, key, tls, prefix in (
        (client.secure_port is not None, "secureClientPort", config.tls, "ssl."),
        (client.port_unification, "client.portUnification", config.tls, "ssl."),
        (ensemble.ssl_quorum, "sslQuorum", config.quorum_tls, "ssl.quorum."),
        (ensemble.quorum_port_unification, "portUnification", config.quorum_tls, "ssl.quorum."),
        (admin.force_https, "admin.forceHttps", config.quorum_tls, "ssl.quorum."),
        (admin.admin_port_unification, "admin.portUnification", config.quorum_tls, "ssl.quorum."),
    ):
        if not is_on:
            continue
        if not tls.key_store_location:
            sources.complain(key, f"needs {prefix}keyStore.location")
        needs_trust = tls.client_auth is ClientAuth.NEED
        if key.startswith("admin."):
            needs_trust = admin.need_client_auth
        if needs_trust and not tls.trust_store_location:
            sources.complain(
                key,
                f"needs {prefix}trustStore.location: without it no certificate of the other side "
                f"can be checked, and {prefix}clientAuth is need",
            )
    _check_store_types(config.tls, "ssl.", sources)
    _check_store_types(config.quorum_tls, "ssl.quorum.", sources)


def _check_store_types(tls: TlsConfig, prefix: str, sources: Sources) -> None:
    for name, location, kind in (
        ("keyStore", tls.key_store_location, tls.key_store_type),
        ("trustStore", tls.trust_store_location, tls.trust_store_type),
    ):
        if location and kind is None:
            reason = f"must end with .jks, .pem or .p12 unless {prefix}{name}.type is set"
            sources.complain(f"{prefix}{name}.location", reason)


def _check_auth(config: ServerConfig, sources: Sources) -> None:
    auth = config.auth
    if auth.session_require_client_sasl_auth:
        key = "sessionRequireClientSASLAuth"
    else:
        key = "enforce.auth.schemes"
        if auth.enforce_auth_enabled and not auth.enforce_auth_schemes:
            sources.complain(key, "must be set if enforce.auth.enabled is true")
    missing = sorted(auth.required_schemes - auth.schemes)
    if missing:
        known = ", ".join(sorted(auth.schemes))
        reason = f"{', '.join(missing)}: no such scheme is switched on, there are {known}"
        sources.complain(key, f"{reason}; nobody could connect")
    if "sasl" in auth.providers and not auth.jaas_file:
        without = "SASL without -Djava.security.auth.login.config: nobody can log in"
        sources.remark(AUTH_PROVIDER_FAMILY, without)


def _check_words(config: ServerConfig, sources: Sources) -> None:
    for word in config.admin.whitelist:
        if word not in FOUR_LETTER_WORDS and word != EVERY_WORD:
            near = closest(word, sorted(FOUR_LETTER_WORDS))
            hint = "" if near is None else f"; did you mean {near}?"
            sources.remark("4lw.commands.whitelist", f"{word} is no four-letter word{hint}")


def _check_paths(config: ServerConfig, sources: Sources) -> None:
    for key, path in (("dataDir", config.data.data_dir), ("dataLogDir", config.data.data_log_dir)):
        given = sources.find(key)
        if given is None or given.origin.file is None:
            continue
        # ./ in front says that it is meant.
        if not os.path.isabs(path) and not path.startswith(("./", "../")):
            sources.remark(key, "relative: another working directory means other data")
