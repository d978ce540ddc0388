"""Settings of who may connect and as whom: TLS, authentication, SASL between servers."""

# ruff: noqa: RUF009 - setting() makes a field of a dataclass

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_settings import (
    MAX_INT,
    PATH,
    TRUE_FALSE,
    FreeText,
    OneOf,
    Scope,
    Whole,
    Words,
    derive,
    setting,
)

_TLS_VERSIONS: Final = {"TLSv1.2": "TLSv1.2", "TLSv1.3": "TLSv1.3"}
_EVERY_TLS_VERSION: Final = tuple(_TLS_VERSIONS)

# Java's names of digest algorithms and hashlib's.
_DIGEST_ALGORITHMS: Final = {
    "SHA1": "sha1",
    "SHA-1": "sha1",
    "SHA-224": "sha224",
    "SHA-256": "sha256",
    "SHA-384": "sha384",
    "SHA-512": "sha512",
    "SHA3-256": "sha3_256",
    "SHA3-384": "sha3_384",
    "SHA3-512": "sha3_512",
    "MD5": "md5",
}

_PACKAGE: Final = "org.apache.zookeeper.server.auth."
# Apache's providers that there is a counterpart of, and the scheme that each one brings.
AUTH_PROVIDERS: Final = {
    f"{_PACKAGE}SASLAuthenticationProvider": "sasl",
    f"{_PACKAGE}X509AuthenticationProvider": "x509",
    f"{_PACKAGE}DigestAuthenticationProvider": "digest",
    f"{_PACKAGE}IPAuthenticationProvider": "ip",
}
AUTH_PROVIDER_PREFIX: Final = "authProvider."
AUTH_PROVIDER_FAMILY: Final = "authProvider.*"
SUPER_USER_KEY: Final = "superUser"


class StoreType(Enum):
    """The formats of key and trust stores; the value is the file name's usual ending."""

    JKS = ".jks"
    PEM = ".pem"
    PKCS12 = ".p12"


class ClientAuth(Enum):
    """Whether the other side of a TLS connection has to show a certificate."""

    NONE = "none"
    WANT = "want"
    NEED = "need"


_STORE_TYPES: Final[dict[str, StoreType | None]] = {
    "": None,
    **{kind.name: kind for kind in StoreType},
}


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """One side's certificates and rules: `ssl.*` for clients, `ssl.quorum.*` between servers.

    The keys are written here without that prefix.
    """

    key_store_location: str = setting("keyStore.location", PATH, "")
    key_store_password: str = setting(
        "keyStore.password", FreeText("some text", r".*"), "", is_secret=True
    )
    key_store_password_path: str = setting("keyStore.passwordPath", PATH, "")
    key_store_type: StoreType | None = setting("keyStore.type", OneOf(_STORE_TYPES), None)
    trust_store_location: str = setting("trustStore.location", PATH, "")
    trust_store_password: str = setting(
        "trustStore.password", FreeText("some text", r".*"), "", is_secret=True
    )
    trust_store_password_path: str = setting("trustStore.passwordPath", PATH, "")
    trust_store_type: StoreType | None = setting("trustStore.type", OneOf(_STORE_TYPES), None)
    protocol: str = setting("protocol", OneOf({"TLS": "TLS", **_TLS_VERSIONS}), "")
    enabled_protocols: tuple[str, ...] = setting(
        "enabledProtocols", Words("TLS versions", _TLS_VERSIONS), ()
    )
    ciphersuites: tuple[str, ...] = setting(
        "ciphersuites", Words("cipher suites by Java's names, separated by commas"), ()
    )
    client_auth: ClientAuth = setting(
        "clientAuth", OneOf({value.value: value for value in ClientAuth}), ClientAuth.NEED
    )
    hostname_verification: bool = setting("hostnameVerification", TRUE_FALSE, True)
    client_hostname_verification: bool = setting("clientHostnameVerification", TRUE_FALSE, False)
    allow_reverse_dns_lookup: bool = setting("allowReverseDnsLookup", TRUE_FALSE, False)
    handshake_detection_timeout_ms: int = setting(
        "handshakeDetectionTimeoutMillis", Whole(1, MAX_INT, "ms"), 5000
    )

    def __post_init__(self) -> None:
        if not self.enabled_protocols:
            is_one = self.protocol in _TLS_VERSIONS
            derive(self, "enabled_protocols", (self.protocol,) if is_one else _EVERY_TLS_VERSION)
        if self.key_store_type is None:
            derive(self, "key_store_type", store_type_of(self.key_store_location))
        if self.trust_store_type is None:
            derive(self, "trust_store_type", store_type_of(self.trust_store_location))

    def read_key_store_password(self) -> str:
        """The password of the key store, from its file if one is named; read each time.

        Raises ConfigError if the file cannot be read.
        """
        return _read_password(self.key_store_password, self.key_store_password_path)

    def read_trust_store_password(self) -> str:
        """The same for the trust store."""
        return _read_password(self.trust_store_password, self.trust_store_password_path)


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """How clients prove who they are, and which of them have to."""

    digest_enabled: bool = setting("DigestAuthenticationProvider.enabled", TRUE_FALSE, True)
    digest_algorithm: str = setting(
        "DigestAuthenticationProvider.digestAlg", OneOf(_DIGEST_ALGORITHMS), "sha1"
    )
    super_digest: str = setting(
        "DigestAuthenticationProvider.superDigest",
        FreeText("user:base64 hash", r"[^:]+:[^:]+"),
        "",
        is_secret=True,
    )
    session_require_client_sasl_auth: bool = setting(
        "sessionRequireClientSASLAuth", TRUE_FALSE, False
    )
    enforce_auth_enabled: bool = setting("enforce.auth.enabled", TRUE_FALSE, False)
    enforce_auth_schemes: tuple[str, ...] = setting(
        "enforce.auth.schemes", Words("schemes, separated by commas"), ()
    )
    allow_sasl_failed_clients: bool = setting("allowSaslFailedClients", TRUE_FALSE, False)
    sasl_super_password: str = setting(
        "SASLAuthenticationProvider.superPassword", FreeText(), "", is_secret=True
    )
    x509_super_user: str = setting(
        "X509AuthenticationProvider.superUser", FreeText("a distinguished name"), ""
    )
    jaas_file: str = setting("java.security.auth.login.config", PATH, "", scope=Scope.PROPERTY)
    secrets_file: str = setting("keepfast.secretsFile", PATH, "")
    krb5_config_file: str = setting("java.security.krb5.conf", PATH, "", scope=Scope.PROPERTY)
    name_rules: str = setting("security.auth_to_local", FreeText("a list of rules"), "DEFAULT")
    is_host_removed: bool = setting("kerberos.removeHostFromPrincipal", TRUE_FALSE, False)
    is_realm_removed: bool = setting("kerberos.removeRealmFromPrincipal", TRUE_FALSE, False)
    session_secret_file: str = setting("keepfast.sessionSecretFile", PATH, "")
    has_session_secret: bool = setting(
        "keepfast.sessionPasswords", OneOf({"secret": True, "apache": False}), True
    )
    sasl_login_context: str = setting("sasl.serverconfig", FreeText("a section's name"), "Server")
    # Schemes that authProvider.* switches on, besides ip, digest and what TLS brings.
    providers: frozenset[str] = frozenset()
    # SASL ids that may do anything: superUser and superUser.*.
    super_users: frozenset[str] = frozenset()

    @property
    def schemes(self) -> frozenset[str]:
        """The schemes that clients may authenticate by."""
        return self.providers | {"ip"} | ({"digest"} if self.digest_enabled else set())

    @property
    def required_schemes(self) -> frozenset[str]:
        """The schemes of which every client has to use one; empty: none has to."""
        if self.session_require_client_sasl_auth:
            return frozenset(("sasl",))
        return frozenset(self.enforce_auth_schemes if self.enforce_auth_enabled else ())


@dataclass(frozen=True, slots=True)
class QuorumAuthConfig:
    """SASL between servers."""

    enable_sasl: bool = setting("quorum.auth.enableSasl", TRUE_FALSE, False)
    learner_require_sasl: bool = setting("quorum.auth.learnerRequireSasl", TRUE_FALSE, False)
    server_require_sasl: bool = setting("quorum.auth.serverRequireSasl", TRUE_FALSE, False)
    learner_login_context: str = setting(
        "quorum.auth.learner.saslLoginContext", FreeText("a section's name"), "QuorumLearner"
    )
    server_login_context: str = setting(
        "quorum.auth.server.saslLoginContext", FreeText("a section's name"), "QuorumServer"
    )
    service_principal: str = setting(
        "quorum.auth.kerberos.servicePrincipal",
        FreeText("a principal, or service/_HOST"),
        "zkquorum/localhost",
    )
    fips_mode: bool = setting("fips-mode", TRUE_FALSE, True)


def store_type_of(location: str) -> StoreType | None:
    """The format that a file name's ending implies; None for any other ending."""
    ending = PurePath(location).suffix
    return next((kind for kind in StoreType if kind.value == ending), None)


def _read_password(password: str, path: str) -> str:
    if not path:
        return password
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the password file cannot be read: {error}", file=path) from error
    # One line end goes, as in Apache: most editors put one there.
    return text.removesuffix("\n")
