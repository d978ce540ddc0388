"""Settings of who may connect and as whom: TLS, authentication, SASL between servers."""

# ruff: noqa: RUF009 - setting() makes a field of a dataclass

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Final

from keepfast.server.config_errors import ConfigError
from keepfast.server.config_settings import (
    MAX_INT,
    PATH,
    TRUE_FALSE,
    Choice,
    Scope,
    Text,
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

    key_store_location: str = setting(
        "keyStore.location",
        PATH,
        "",
        "file of the private key and its certificate chain",
    )
    key_store_password: str = setting(
        "keyStore.password",
        Text("some text", r".*"),
        "",
        "password of that file; better in a file of its own",
        is_secret=True,
    )
    key_store_password_path: str = setting(
        "keyStore.passwordPath",
        PATH,
        "",
        "file that holds the password; counts more than the password itself",
    )
    key_store_type: StoreType | None = setting(
        "keyStore.type",
        Choice(_STORE_TYPES),
        None,
        "format of the file: JKS, PEM or PKCS12",
        derived="the file name: .jks, .pem, .p12",
    )
    trust_store_location: str = setting(
        "trustStore.location",
        PATH,
        "",
        "file of the certificates that vouch for the other side",
    )
    trust_store_password: str = setting(
        "trustStore.password",
        Text("some text", r".*"),
        "",
        "password of that file",
        is_secret=True,
    )
    trust_store_password_path: str = setting(
        "trustStore.passwordPath",
        PATH,
        "",
        "file that holds the password; counts more than the password itself",
    )
    trust_store_type: StoreType | None = setting(
        "trustStore.type",
        Choice(_STORE_TYPES),
        None,
        "format of the file: JKS, PEM or PKCS12",
        derived="the file name: .jks, .pem, .p12",
    )
    protocol: str = setting(
        "protocol",
        Choice({"TLS": "TLS", **_TLS_VERSIONS}),
        "",
        "the only TLS version spoken, unless enabledProtocols names some; TLS: all of them",
        low="TLSv1.2: newer clients lose the better handshake",
        high="TLSv1.3: older clients cannot connect",
    )
    enabled_protocols: tuple[str, ...] = setting(
        "enabledProtocols",
        Words("TLS versions", _TLS_VERSIONS),
        (),
        "the TLS versions spoken",
        low="one: clients that cannot speak it are refused",
        high="both: what Apache on old Java speaks is accepted",
        derived="protocol; both if that is not set",
    )
    ciphersuites: tuple[str, ...] = setting(
        "ciphersuites",
        Words("cipher suites by Java's names, separated by commas"),
        (),
        "cipher suites accepted; nothing: the TLS library's own choice",
        low="clients without any of them are refused",
        high="weak ones are accepted",
    )
    client_auth: ClientAuth = setting(
        "clientAuth",
        Choice({value.value: value for value in ClientAuth}),
        ClientAuth.NEED,
        "whether the other side has to show a certificate: none, want or need",
        low="none: everybody may connect, and nobody has an x509 id",
        high="need: clients without one are refused; needs a trust store",
    )
    hostname_verification: bool = setting(
        "hostnameVerification",
        TRUE_FALSE,
        True,
        "the name in the other server's certificate must be its host's",
        low="off: any certificate of the same authority will do",
        high="on: servers without names in their certificates are refused",
    )
    client_hostname_verification: bool = setting(
        "clientHostnameVerification",
        TRUE_FALSE,
        False,
        "the name in a client's certificate must be its host's; needs hostnameVerification",
        low="off: a stolen client certificate works from anywhere",
        high="on: clients without names in their certificates are refused",
        default_text="false for clients, true between servers",
    )
    allow_reverse_dns_lookup: bool = setting(
        "allowReverseDnsLookup",
        TRUE_FALSE,
        False,
        "an address is looked up to find the host name to compare",
        low="off: certificates need the address in them",
        high="on: who controls the name service controls the answer",
        default_text="false for clients, true between servers",
    )
    handshake_detection_timeout_ms: int = setting(
        "handshakeDetectionTimeoutMillis",
        Whole(1, MAX_INT, "ms"),
        5000,
        "how long the first bytes are waited for where TLS and plain share a port",
        low="slow clients are cut off",
        high="connections that say nothing stay",
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

    digest_enabled: bool = setting(
        "DigestAuthenticationProvider.enabled",
        TRUE_FALSE,
        True,
        "the scheme digest (user and password)",
        low="off: znodes with such ACLs are locked up",
        high="on: passwords cross the network in the clear without TLS",
    )
    digest_algorithm: str = setting(
        "DigestAuthenticationProvider.digestAlg",
        Choice(_DIGEST_ALGORITHMS),
        "sha1",
        "hash of passwords in ACLs. The same on all servers; a change locks up existing ACLs",
        low="MD5, SHA1: guessed faster",
        high="SHA-512: ACLs made with another one do not match",
    )
    super_digest: str = setting(
        "DigestAuthenticationProvider.superDigest",
        Text("user:base64 hash", r"[^:]+:[^:]+"),
        "",
        "`super:<hash>` of the user who may do anything",
        is_secret=True,
    )
    session_require_client_sasl_auth: bool = setting(
        "sessionRequireClientSASLAuth",
        TRUE_FALSE,
        False,
        "every client has to authenticate by SASL, else -124",
        low="off: clients without a name get in",
        high="on: clients without SASL are refused",
    )
    enforce_auth_enabled: bool = setting(
        "enforce.auth.enabled",
        TRUE_FALSE,
        False,
        "every client has to authenticate by one of enforce.auth.schemes, else -124",
        low="off: clients without a name get in",
        high="on: clients without such a scheme are refused",
    )
    enforce_auth_schemes: tuple[str, ...] = setting(
        "enforce.auth.schemes",
        Words("schemes, separated by commas"),
        (),
        "the schemes that satisfy enforce.auth.enabled",
        low="few: clients that use others are refused",
        high="ip among them: every client satisfies it",
    )
    allow_sasl_failed_clients: bool = setting(
        "allowSaslFailedClients",
        TRUE_FALSE,
        False,
        "a client whose SASL login failed may go on without a name",
        low="off: it is cut off",
        high="on: a wrong password goes unnoticed",
    )
    sasl_super_password: str = setting(
        "SASLAuthenticationProvider.superPassword",
        Text(),
        "",
        "password of the SASL user `super`, who may do anything",
        is_secret=True,
    )
    x509_super_user: str = setting(
        "X509AuthenticationProvider.superUser",
        Text("a distinguished name"),
        "",
        "subject of the certificate whose owner may do anything",
    )
    jaas_file: str = setting(
        "java.security.auth.login.config",
        PATH,
        "",
        "JAAS file with the SASL users",
        scope=Scope.PROPERTY,
    )
    sasl_login_context: str = setting(
        "sasl.serverconfig",
        Text("a section's name"),
        "Server",
        "section of that file for clients' logins",
    )
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

    enable_sasl: bool = setting(
        "quorum.auth.enableSasl",
        TRUE_FALSE,
        False,
        "servers log in to each other where both sides can",
        low="off: whoever reaches the quorum ports may join",
        high="on: servers without a password cannot join once it is required",
    )
    learner_require_sasl: bool = setting(
        "quorum.auth.learnerRequireSasl",
        TRUE_FALSE,
        False,
        "this server follows only leaders that it could log in to; needs enableSasl",
        low="off: a leader without SASL is followed",
        high="on: leaders that are not upgraded yet are refused",
    )
    server_require_sasl: bool = setting(
        "quorum.auth.serverRequireSasl",
        TRUE_FALSE,
        False,
        "this server accepts only servers that logged in; needs learnerRequireSasl",
        low="off: servers without SASL are accepted",
        high="on: servers that are not upgraded yet are refused",
    )
    learner_login_context: str = setting(
        "quorum.auth.learner.saslLoginContext",
        Text("a section's name"),
        "QuorumLearner",
        "section of the JAAS file for logging in",
    )
    server_login_context: str = setting(
        "quorum.auth.server.saslLoginContext",
        Text("a section's name"),
        "QuorumServer",
        "section of the JAAS file for accepting logins",
    )
    service_principal: str = setting(
        "quorum.auth.kerberos.servicePrincipal",
        Text("a principal"),
        "zkquorum/localhost",
        "name of the service in a login",
    )
    fips_mode: bool = setting(
        "fips-mode",
        TRUE_FALSE,
        True,
        "no DIGEST-MD5 when logging in to other servers",
        low="off: MD5 is used where FIPS forbids it",
        high="on: servers that know DIGEST-MD5 alone cannot be joined",
    )


def store_type_of(location: str) -> StoreType | None:
    """The format that a file name's ending tells; None for any other ending."""
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
