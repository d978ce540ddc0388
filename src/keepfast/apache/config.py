"""Reads the configuration of a server: the only module that does.

    load_config("zoo.cfg", overrides={"zookeeper.snapCount": "1000"}, environment=os.environ)

Precedence, from the highest: command-line flags, -D, KEEPFAST_* variables, the file of secrets,
-D in JVMFLAGS, the file (or, without one, the official image's ZOO_* variables), the default. In
two steps: first every value is read by itself, then they are checked against each other. All errors
of a step are reported together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from keepfast.apache import config_keys as keys
from keepfast.apache.config_checks import check_config
from keepfast.apache.config_client import ClientConfig
from keepfast.apache.config_data import SNAP_ZNODE_PERCENT_KEY, DataConfig
from keepfast.apache.config_ensemble import MY_ID_KEY, EnsembleConfig
from keepfast.apache.config_errors import ConfigError, ConfigWarning
from keepfast.apache.config_members import add_dynamic_file, parse_members, read_my_id
from keepfast.apache.config_security import (
    AUTH_PROVIDER_FAMILY,
    AUTH_PROVIDER_PREFIX,
    AUTH_PROVIDERS,
    SUPER_USER_KEY,
    AuthConfig,
)
from keepfast.apache.config_server import Row, ServerConfig
from keepfast.apache.config_settings import Setting, Words, is_any_address, settings_of
from keepfast.apache.config_sources import (
    GivenValue,
    Rank,
    Sources,
    parse_text,
    read_text,
    split_definitions,
    without_secrets,
)
from keepfast.quorum import Address, MemberSpec, canonical_host

__all__ = [
    "ConfigError",
    "ConfigWarning",
    "Row",
    "ServerConfig",
    "load_config",
    "split_definitions",
]

_UNSAFE_KEYS: Final = {key for key, declared in keys.SETTINGS.items() if declared.prose.danger}
_ANY: Final = "0.0.0.0"


def load_config(
    path: str | os.PathLike[str] | None,
    *,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    port: int | None = None,
) -> ServerConfig:
    """The configuration from all sources; reads the file, the dynamic file and myid.

    `overrides` are Java system properties by their full names; `data_dir` and `port` are the
    command line's flags. Raises ConfigError if the server could not work with it.
    """
    file = None if path is None else os.fspath(path)
    sources = Sources(file)
    text = b""
    if file is not None:
        text = read_text(file, "the configuration file")
        sources.add_properties(parse_text(text, file), file)
    sources.add_environment(environment or {}, has_file=file is not None)
    sources.add_definitions(overrides or {})
    if data_dir is not None:
        sources.add_flag("dataDir", os.fspath(data_dir), "--data-dir")
    if port is not None:
        sources.add_flag("clientPort", str(port), "--port")
    _add_secrets(sources)
    sources.finish()

    config = _read_groups(sources, file, without_secrets(text.decode("iso-8859-1")))
    sources.raise_errors()
    config = replace(config, data=_complete_data(sources, config.data))
    config = _read_ensemble(sources, config)
    sources.raise_errors()
    config = replace(config, client=_complete_client(sources, config))
    config = replace(config, auth=_read_auth(sources, config))
    check_config(config, sources)
    sources.raise_errors()
    return replace(config, origins=sources.origins(), warnings=tuple(sources.warnings))


def _add_secrets(sources: Sources) -> None:
    named = sources.find(keys.SECRETS_FILE_KEY)
    if named is None or not named.value:
        return
    path = named.value
    sources.add_secrets(parse_text(read_text(path, "the file of secrets"), path), path)
    if os.name == "posix" and os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        sources.remark(keys.SECRETS_FILE_KEY, f"others may read {path}: chmod 600 it")


def _read_groups(sources: Sources, file: str | None, text: str) -> ServerConfig:
    """Every setting by itself."""
    accepted = _read_accepted(sources)
    groups: dict[str, Any] = {}
    for item in fields(ServerConfig):
        if "prefix" not in item.metadata:
            continue
        kind: Any = type(item.default)
        values = dict(item.metadata["defaults"])
        if kind is ClientConfig and file is not None:
            # Apache's own defaults; those of the class are for a server without a file.
            values.update(host=_ANY, port=None)
        for name, declared in settings_of(kind):
            key = item.metadata["prefix"] + declared.key
            given = sources.find(key)
            if given is not None:
                values |= _read_setting(sources, name, declared, given, accepted)
        groups[item.name] = kind(**values)
    if file is not None and sources.find("dataDir") is None:
        sources.complain("dataDir", "must be set")
    return ServerConfig(**groups, accepted_unsafe=accepted, file=file, initial_text=text)


def _read_accepted(sources: Sources) -> frozenset[str]:
    """The unsafe settings that were acknowledged."""
    given = sources.find(keys.ACCEPT_UNSAFE_KEY)
    if given is None:
        return frozenset()
    try:
        choices = {key: key for key in sorted(_UNSAFE_KEYS)}
        return frozenset(Words("unsafe keys, separated by commas", choices).parse(given.value))
    except ValueError:
        unsafe = ", ".join(sorted(_UNSAFE_KEYS))
        sources.complain(keys.ACCEPT_UNSAFE_KEY, f"must be some of {unsafe}")
        return frozenset(_UNSAFE_KEYS)


def _read_setting(
    sources: Sources, name: str, declared: Setting, given: GivenValue, accepted: frozenset[str]
) -> dict[str, Any]:
    """The field and its value; nothing if the value is not allowed, which is noted."""
    key = given.key
    try:
        value = declared.kind.parse(given.value)
    except ValueError:
        sources.complain(key, f"must be {declared.kind.allowed}")
        return {}
    if declared.prose.danger and value is declared.unsafe:
        if key not in accepted:
            sources.complain(
                key,
                f"refused: {declared.prose.danger}. If that is meant, "
                f"acknowledge it with {keys.ACCEPT_UNSAFE_KEY}={key}",
            )
            return {}
        sources.remark(key, f"unsafe, and acknowledged: {declared.prose.danger}")
    if declared.floor is not None and value < declared.floor:
        sources.remark(key, f"{given.value} is too small, {declared.floor} is used")
        value = declared.floor
    return {name: value}


def _read_auth(sources: Sources, config: ServerConfig) -> AuthConfig:
    """The families of keys about authentication."""
    schemes = set()
    providers = list(sources.family(AUTH_PROVIDER_PREFIX))
    for rest, given in providers:
        scheme = AUTH_PROVIDERS.get(given.value)
        if scheme is None:
            known = ", ".join(AUTH_PROVIDERS)
            reason = f"must be one of {known}: other Java classes cannot be loaded"
            sources.complain(AUTH_PROVIDER_PREFIX + rest, reason)
        else:
            schemes.add(scheme)
    sources.set_family_origin(AUTH_PROVIDER_FAMILY, [given for _, given in providers])
    if config.client.secure_port is not None or config.client.port_unification:
        schemes.add("x509")
    users = [given for _, given in sources.family(f"{SUPER_USER_KEY}.")]
    one = sources.find(SUPER_USER_KEY)
    if one is not None:
        users.append(one)
    sources.set_family_origin(SUPER_USER_KEY, users)
    names = frozenset(given.value for given in users) - {""}
    return replace(config.auth, providers=frozenset(schemes), super_users=names)


def _complete_data(sources: Sources, data: DataConfig) -> DataConfig:
    """A `snapCount` that was given applies as it is, however large the tree is."""
    is_exact = sources.find("snapCount") is not None
    if is_exact and sources.find(SNAP_ZNODE_PERCENT_KEY) is None:
        sources.set_origin(SNAP_ZNODE_PERCENT_KEY, "snapCount")
        return replace(data, snap_znode_percent=0)
    return data


def _read_ensemble(sources: Sources, config: ServerConfig) -> ServerConfig:
    """The members and this server's id."""
    ensemble = config.ensemble
    dynamic = ensemble.dynamic_config_file
    version = add_dynamic_file(sources, dynamic) if dynamic else 0
    membership = parse_members(sources, version, ensemble.multi_address_enabled)
    ensemble = replace(ensemble, membership=membership)
    ensemble = _read_my_id_file(sources, config, ensemble)
    me = ensemble.me
    if me is not None and me.role is not ensemble.peer_type:
        if sources.find("peerType") is not None:
            sources.remark("peerType", f"the line server.{me.server_id} says {me.role.value}")
        ensemble = replace(ensemble, peer_type=me.role)
        sources.set_origin("peerType", f"server.{me.server_id}")
    return replace(config, ensemble=ensemble)


def _read_my_id_file(
    sources: Sources, config: ServerConfig, ensemble: EnsembleConfig
) -> EnsembleConfig:
    stored = read_my_id(config.data.data_dir)
    if stored is None:
        return ensemble
    if ensemble.my_id is not None and ensemble.my_id != stored:
        # The wrong directory was mounted, or the wrong server was started: either way one
        # server would vote with another one's history.
        sources.complain(MY_ID_KEY, f"{config.data.data_dir}/myid says {stored}")
    sources.set_origin(MY_ID_KEY, f"{config.data.data_dir}/myid")
    return replace(ensemble, my_id=stored, is_my_id_stored=True)


def _complete_client(sources: Sources, config: ServerConfig) -> ClientConfig:
    """Where clients connect: combines the file and this server's own line."""
    client = config.client
    me = config.ensemble.me
    members = config.ensemble.membership.members
    if me is None and len(members) == 1 and not config.is_distributed:
        # A standalone server needs no id to know which line is its own.
        me = members[0]
    for key in ("clientPortAddress", "secureClientPortAddress"):
        port_key = key.removesuffix("Address")
        if sources.find(key) and not sources.find(port_key) and config.file is not None:
            sources.complain(key, f"needs {port_key}")
    if me is None:
        return client
    plain = _listening_address(sources, "clientPort", config.client_address, me, me.client)
    secure = _listening_address(
        sources, "secureClientPort", config.secure_client_address, me, me.secure_client
    )
    if plain is not None:
        client = replace(client, host=plain.host, port=plain.port)
    if secure is not None:
        client = replace(client, secure_host=secure.host, secure_port=secure.port)
    return client


def _listening_address(
    sources: Sources, key: str, own: Address | None, me: MemberSpec, line: Address | None
) -> Address | None:
    """The address to listen on, by the file and by the server's line; an error if they differ."""
    given = sources.find(key)
    if line is None:
        return own
    if given is None or own is None:
        sources.set_origin(key, f"server.{me.server_id}")
        sources.set_origin(key + "Address", f"server.{me.server_id}")
        return line
    has_host = sources.find(key + "Address") is not None
    if given.rank > Rank.FILE:
        return Address(own.host if has_host else line.host, own.port)
    is_any = not has_host or is_any_address(own.host)
    if own.port != line.port or (
        not is_any and canonical_host(own.host) != canonical_host(line.host)
    ):
        sources.complain(key, f"the line server.{me.server_id} has {line} for clients, not {own}")
    return line
