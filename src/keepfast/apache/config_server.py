"""The whole configuration of a server, as one value.

`ServerConfig()` is the server that `keepfast serve` without arguments runs. Tests and in-process
use build others from it; `load_config` builds one from a file, flags and variables.
"""

# ruff: noqa: RUF009 - _group() makes a field of a dataclass

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from keepfast.apache.config_client import (
    ClientConfig,
    ConnectionThrottleConfig,
    LimitsConfig,
    RequestThrottleConfig,
    SessionConfig,
    TimingConfig,
)
from keepfast.apache.config_data import DataConfig, FeatureConfig
from keepfast.apache.config_ensemble import EnsembleConfig
from keepfast.apache.config_errors import ConfigWarning
from keepfast.apache.config_operations import AdminConfig, AuditConfig, MetricsConfig
from keepfast.apache.config_security import (
    AUTH_PROVIDER_FAMILY,
    SUPER_USER_KEY,
    AuthConfig,
    QuorumAuthConfig,
    TlsConfig,
)
from keepfast.apache.config_settings import Setting, settings_of
from keepfast.quorum import Address

DEFAULT_ORIGIN: Final = "default"


class Row(NamedTuple):
    """One line of `serve --check`: a key, its value for people, and where that came from."""

    key: str
    value: str
    origin: str


def _group(kind: type[Any], prefix: str = "", **defaults: Any) -> Any:
    """A group of settings whose keys begin with `prefix`; `defaults` that are not the class's."""
    return field(default=kind(**defaults), metadata={"prefix": prefix, "defaults": defaults})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything that was configured, resolved and checked."""

    client: ClientConfig = _group(ClientConfig)
    timing: TimingConfig = _group(TimingConfig)
    data: DataConfig = _group(DataConfig)
    sessions: SessionConfig = _group(SessionConfig)
    limits: LimitsConfig = _group(LimitsConfig)
    request_throttle: RequestThrottleConfig = _group(RequestThrottleConfig)
    connection_throttle: ConnectionThrottleConfig = _group(ConnectionThrottleConfig)
    features: FeatureConfig = _group(FeatureConfig)
    auth: AuthConfig = _group(AuthConfig)
    tls: TlsConfig = _group(TlsConfig, "ssl.")
    admin: AdminConfig = _group(AdminConfig)
    metrics: MetricsConfig = _group(MetricsConfig)
    audit: AuditConfig = _group(AuditConfig)
    ensemble: EnsembleConfig = _group(EnsembleConfig)
    quorum_auth: QuorumAuthConfig = _group(QuorumAuthConfig)
    quorum_tls: TlsConfig = _group(
        TlsConfig,
        "ssl.quorum.",
        client_hostname_verification=True,
        allow_reverse_dns_lookup=True,
    )
    # Unsafe values that were acknowledged (keepfast.acceptUnsafe), by key.
    accepted_unsafe: frozenset[str] = frozenset()
    # The file that was read and its text, which Apache's admin command icfg shows.
    file: str | None = None
    initial_text: str = field(default="", repr=False)
    warnings: tuple[ConfigWarning, ...] = ()
    # Where the value of a key came from; a key that is not here has its default.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def is_distributed(self) -> bool:
        """Whether this server is a member of an ensemble."""
        membership = self.ensemble.membership
        return bool(membership.members) and (
            not self.features.standalone_enabled or len(membership.voters) > 1
        )

    @property
    def client_address(self) -> Address | None:
        """Where plain clients connect; None: nowhere."""
        return None if self.client.port is None else Address(self.client.host, self.client.port)

    @property
    def secure_client_address(self) -> Address | None:
        """Where TLS clients connect; None: nowhere of their own."""
        port = self.client.secure_port
        return None if port is None else Address(self.client.secure_host, port)

    @property
    def four_letter_words(self) -> frozenset[str]:
        """The four-letter words that are answered."""
        return self.admin.four_letter_words(is_read_only_mode=self.features.read_only_mode)

    def describe(self) -> list[Row]:
        """Every key with its value and origin, in the order of docs/configuration.md.

        Secrets are hidden; a value that is not set is empty.
        """
        rows = [
            Row(key, declared.show(getattr(group, name)), self._origin(key, declared))
            for group, name, key, declared in group_settings(self)
        ]
        auth = self.auth
        rows += [
            Row(key, value, self.origins.get(key, DEFAULT_ORIGIN))
            for key, value in (
                (AUTH_PROVIDER_FAMILY, ",".join(sorted(auth.providers))),
                (SUPER_USER_KEY, ",".join(sorted(auth.super_users))),
                ("keepfast.acceptUnsafe", ",".join(sorted(self.accepted_unsafe))),
                *self.ensemble.membership.lines(),
            )
        ]
        return rows

    def _origin(self, key: str, declared: Setting) -> str:
        default = (
            f"{DEFAULT_ORIGIN} ({declared.prose.derived})"
            if declared.prose.derived
            else DEFAULT_ORIGIN
        )
        return self.origins.get(key, default)


def group_settings(config: ServerConfig) -> Iterator[tuple[object, str, str, Setting]]:
    """Every setting of a configuration: its group, its field, its full key, its declaration."""
    for item in fields(config):
        if "prefix" in item.metadata:
            group = getattr(config, item.name)
            for name, declared in settings_of(group):
                yield group, name, item.metadata["prefix"] + declared.key, declared
