"""TLS as configured by `ssl.*`: builds a context of Python's ssl from key and trust stores."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from keepfast.apache import ClientAuth, ConfigError, KeyStore, TlsConfig, load_identity, load_trust

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_ASKS: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.WANT: ssl.CERT_OPTIONAL,
    ClientAuth.NEED: ssl.CERT_REQUIRED,
}

# Java's names of cipher suites of TLS 1.2 are made of these; OpenSSL has its own words.
_KEY_EXCHANGES: Final = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "RSA": "",
}
_CIPHERS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
}
_SUITES: Final = {
    f"TLS_{exchange}_WITH_{cipher}": word + name
    for exchange, word in _KEY_EXCHANGES.items()
    for cipher, name in _CIPHERS.items()
}
_SUITES_13: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)
# Java's way to say that renegotiation is secured; OpenSSL always does.
_NO_SUITE: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"


class ServerContext(NamedTuple):
    """A server's context for connections, and what the operator should know about it."""

    context: ssl.SSLContext
    warnings: tuple[str, ...]


def server_context(tls: TlsConfig, prefix: str = "ssl.") -> ServerContext:
    """The context for connections that others make to this server.

    `prefix` is that of the settings, for messages. Raises ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client could make the server compute handshakes endlessly.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _set_versions(context, tls.enabled_protocols)
    warnings = _set_suites(context, tls, prefix)
    warnings += _set_identity(context, tls, prefix)
    if tls.client_auth is ClientAuth.NONE:
        return ServerContext(context, tuple(warnings))
    if not tls.trust_store_location:
        if tls.client_auth is ClientAuth.NEED:
            reason = f"needed to check clients' certificates, as {prefix}clientAuth is need"
            raise ConfigError(reason, key=f"{prefix}trustStore.location")
        warnings.append(
            f"{prefix}clientAuth=want without {prefix}trustStore.location: "
            "no client is asked for a certificate"
        )
        return ServerContext(context, tuple(warnings))
    _trust(context, load_trust(KeyStore.of_trust(tls, prefix)))
    context.verify_mode = _ASKS[tls.client_auth]
    return ServerContext(context, tuple(warnings))


def client_context(tls: TlsConfig, prefix: str) -> ServerContext:
    """The context for connections that this server makes to others.

    The other side has to show a certificate that is trusted; whether it names its host is for the
    caller to check. Raises ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Done by the caller, which knows the settings for host names.
    context.check_hostname = False
    _set_versions(context, tls.enabled_protocols)
    warnings = _set_suites(context, tls, prefix)
    warnings += _set_identity(context, tls, prefix)
    if not tls.trust_store_location:
        reason = "needed to check the certificates of other servers"
        raise ConfigError(reason, key=f"{prefix}trustStore.location")
    _trust(context, load_trust(KeyStore.of_trust(tls, prefix)))
    return ServerContext(context, tuple(warnings))


def _set_identity(context: ssl.SSLContext, tls: TlsConfig, prefix: str) -> list[str]:
    """Give the context this server's key and certificates; returns warnings."""
    keys = KeyStore.of_keys(tls, prefix)
    identity = load_identity(keys)
    with _private_file(identity.to_pem()) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            raise keys.error(f"refused by the TLS library: {error.reason or error}") from error
    return identity.warnings(keys.location)


def _trust(context: ssl.SSLContext, certificates: list[Certificate]) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    context.load_verify_locations(
        cadata=b"".join(one.public_bytes(Encoding.DER) for one in certificates)
    )
    # As in Java, whatever is in the store is trusted: also a certificate of a client itself, or an
    # authority whose own issuer is not there.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _set_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    versions = sorted(_VERSIONS[name] for name in names)
    context.minimum_version = versions[0]
    context.maximum_version = versions[-1]


def _set_suites(context: ssl.SSLContext, tls: TlsConfig, prefix: str) -> list[str]:
    """Restrict the context to the suites that are named, if any are; returns warnings."""
    names = [name for name in tls.ciphersuites if name != _NO_SUITE]
    if not names:
        return []
    key = f"{prefix}ciphersuites"
    unknown = [name for name in names if name not in _SUITES and name not in _SUITES_13]
    if unknown:
        raise ConfigError(f"not known or not safe: {', '.join(unknown)}", key=key)
    old = [_SUITES[name] for name in names if name in _SUITES]
    new = [name for name in names if name in _SUITES_13]
    # A version without any suite must not be committed.
    spoken = [
        name
        for name, suites in (("TLSv1.2", old), ("TLSv1.3", new))
        if suites and name in tls.enabled_protocols
    ]
    if not spoken:
        versions = ", ".join(tls.enabled_protocols)
        raise ConfigError(f"none of them is one of {versions}", key=key)
    _set_versions(context, tuple(spoken))
    if old:
        try:
            context.set_ciphers(":".join(old))
        except ssl.SSLError as error:
            raise ConfigError("the TLS library knows none of them", key=key) from error
    if not new or len(set(new)) == len(_SUITES_13):
        return []
    if hasattr(context, "set_ciphersuites"):
        context.set_ciphersuites(":".join(new))
        return []
    return [f"{key}: this Python cannot choose among the suites of TLS 1.3, all are accepted"]


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A file that nobody else can read, for the duration of the block.

    The ssl module takes a key from a file only. In memory where the system can: then the key never
    reaches a disk, and no directory has to be writable.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("keepfast")
        path = f"/proc/self/fd/{descriptor}"
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="keepfast-")
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if not path.startswith("/proc/"):
            os.unlink(path)
