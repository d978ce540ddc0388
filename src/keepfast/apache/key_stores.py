"""Key and trust stores: PEM, PKCS12 and JKS files, as Apache's configuration names them.

A key store holds one private key and the chain of its certificate; a trust store the certificates
that vouch for the other side. Whatever is wrong with one is a ConfigError that names the setting to
look at, and never shows a password.

Java takes a PKCS12 file where JKS is configured, and the other way round: keytool has made PKCS12
files under the name .jks since Java 9. The first bytes show which of the two it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from keepfast.apache.config_errors import ConfigError
from keepfast.apache.config_security import StoreType, TlsConfig
from keepfast.apache.jks import JksError, JksStore, WrongPasswordError, load_jks, unprotected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_PEM_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_X509: Final = "X.509"

T = TypeVar("T")


class KeyStore(NamedTuple):
    """A file to read, and the settings to blame if that fails."""

    location: str
    type: StoreType | None
    password: Callable[[], str]
    key: str
    password_key: str

    @classmethod
    def of_keys(cls, tls: TlsConfig, prefix: str) -> KeyStore:
        """The key store of one side's settings; `prefix` is theirs, as `ssl.`."""
        return cls(
            tls.key_store_location,
            tls.key_store_type,
            tls.read_key_store_password,
            f"{prefix}keyStore.location",
            f"{prefix}keyStore.password",
        )

    @classmethod
    def of_trust(cls, tls: TlsConfig, prefix: str) -> KeyStore:
        """The trust store of the same."""
        return cls(
            tls.trust_store_location,
            tls.trust_store_type,
            tls.read_trust_store_password,
            f"{prefix}trustStore.location",
            f"{prefix}trustStore.password",
        )

    def error(self, reason: str) -> ConfigError:
        return ConfigError(reason, key=self.key, value=self.location)

    def wrong_password(self) -> ConfigError:
        if self.password():
            return self.error(f"the password does not fit, see {self.password_key}")
        return self.error(f"needs a password, see {self.password_key}")

    def read(self) -> bytes:
        try:
            with open(self.location, "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise self.error("there is no such file") from None
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from error


class Identity(NamedTuple):
    """A private key with its certificate chain, the key's own certificate first."""

    key: PrivateKeyTypes
    chain: Sequence[Certificate]

    def to_pem(self) -> bytes:
        """Everything in one text, the key not encrypted."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + b"".join(one.public_bytes(Encoding.PEM) for one in self.chain)

    def warnings(self, location: str) -> list[str]:
        """What will make clients refuse the certificate."""
        own, now = self.chain[0], datetime.now(UTC)
        if own.not_valid_after_utc < now:
            return [f"{location}: the certificate expired at {_shown(own.not_valid_after_utc)}"]
        if own.not_valid_before_utc > now:
            begin = _shown(own.not_valid_before_utc)
            return [f"{location}: the certificate is not valid before {begin}"]
        return []


def load_identity(store: KeyStore) -> Identity:
    """The private key and its chain. Raises ConfigError."""
    key, certificates = _load(
        store,
        {
            StoreType.PEM: _pem_identity,
            StoreType.PKCS12: _pkcs12_identity,
            StoreType.JKS: _jks_identity,
        },
    )
    return Identity(key, _chain(store, key, certificates))


def load_trust(store: KeyStore) -> list[Certificate]:
    """The certificates that vouch for others. Raises ConfigError, also if there are none."""
    certificates = _load(
        store,
        {
            StoreType.PEM: _pem_certificates,
            StoreType.PKCS12: lambda store, data: _load_pkcs12(store, data)[2],
            StoreType.JKS: lambda store, data: _der_certificates(
                store, _load_jks(store, data).certificates
            ),
        },
    )
    if not certificates:
        raise store.error("there is no certificate in it")
    return certificates


def _load(store: KeyStore, loaders: Mapping[StoreType, Callable[[KeyStore, bytes], T]]) -> T:
    data = store.read()
    try:
        return loaders[_type_of(store, data)](store, data)
    except ImportError as error:
        reason = f"needs the packages of keepfast[tls], {error.name} is not installed"
        raise store.error(reason) from error


def _type_of(store: KeyStore, data: bytes) -> StoreType:
    if store.type is None:
        reason = "must end with .jks, .pem or .p12 unless a type is set"
        raise store.error(reason)
    if store.type is StoreType.PEM:
        return StoreType.PEM
    return StoreType.JKS if data.startswith(_JKS_MAGIC) else StoreType.PKCS12


def _chain(
    store: KeyStore, key: PrivateKeyTypes, certificates: Sequence[Certificate]
) -> list[Certificate]:
    """The certificates from the key's own up to the last issuer that is there, in that order."""
    public = key.public_key()
    own = next((one for one in certificates if one.public_key() == public), None)
    if own is None:
        raise store.error("none of its certificates belongs to its private key")
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        issuer = chain[-1].issuer
        above = next((one for one in certificates if one.subject == issuer), None)
        if above is None or above in chain:
            break
        chain.append(above)
    return chain


# -- PEM -----------------------------------------------------------------------------------------


def _pem_identity(store: KeyStore, data: bytes) -> tuple[PrivateKeyTypes, list[Certificate]]:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    match = _PEM_KEY.search(data)
    if match is None:
        raise store.error("there is no private key in it")
    password = store.password().encode() or None
    try:
        try:
            key = load_pem_private_key(match[0], password)
        except TypeError:
            if password is None:
                raise store.wrong_password() from None
            # A password that is not needed does no harm.
            key = load_pem_private_key(match[0], None)
    except ValueError as error:
        is_encrypted = b"ENCRYPTED" in match[0]
        problem = store.wrong_password() if is_encrypted else _unreadable(store, "private key")
        raise problem from error
    certificates = _pem_certificates(store, data)
    if not certificates:
        raise store.error("there is no certificate in it")
    return key, certificates


def _pem_certificates(store: KeyStore, data: bytes) -> list[Certificate]:
    from cryptography.x509 import InvalidVersion, load_pem_x509_certificates

    if _PEM_CERTIFICATE not in data:
        return []
    try:
        return load_pem_x509_certificates(data)
    except (ValueError, InvalidVersion) as error:
        raise _unreadable(store, "certificate") from error


def _unreadable(store: KeyStore, what: str) -> ConfigError:
    return store.error(f"a {what} in it cannot be read: it is damaged, or of an unknown kind")


# -- PKCS12 --------------------------------------------------------------------------------------


def _pkcs12_identity(store: KeyStore, data: bytes) -> tuple[PrivateKeyTypes, list[Certificate]]:
    key, own, others = _load_pkcs12(store, data)
    if key is None or own is None:
        raise store.error("there is no private key with a certificate in it")
    return key, [own, *others]


def _load_pkcs12(
    store: KeyStore, data: bytes
) -> tuple[PrivateKeyTypes | None, Certificate | None, list[Certificate]]:
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates
    from cryptography.x509 import InvalidVersion

    if not data.startswith(b"\x30"):
        raise store.error("it is neither a PKCS12 nor a JKS file")
    password = store.password().encode()
    try:
        return load_key_and_certificates(data, password)
    except (ValueError, InvalidVersion) as error:
        # The library does not distinguish damage from a wrong password; nor does the format.
        raise store.wrong_password() from error


# -- JKS -----------------------------------------------------------------------------------------


def _jks_identity(store: KeyStore, data: bytes) -> tuple[PrivateKeyTypes, list[Certificate]]:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    entries = _load_jks(store, data).keys
    if not entries:
        raise store.error("there is no private key in it")
    entry = entries[0]
    try:
        key = load_der_private_key(unprotected(entry.protected, store.password()), None)
    except WrongPasswordError as error:
        # The store opened, so it is the key's own password that differs.
        reason = f"its key's password must be the store's, see {store.password_key}"
        raise store.error(reason) from error
    except (ValueError, JksError) as error:
        raise _unreadable(store, "private key") from error
    return key, _der_certificates(store, entry.chain)


def _load_jks(store: KeyStore, data: bytes) -> JksStore:
    try:
        return load_jks(data, store.password())
    except WrongPasswordError as error:
        raise store.wrong_password() from error
    except JksError as error:
        raise store.error(f"it cannot be read as JKS: {error}") from error


def _der_certificates(store: KeyStore, entries: Sequence[tuple[str, bytes]]) -> list[Certificate]:
    from cryptography.x509 import InvalidVersion, load_der_x509_certificate

    try:
        return [load_der_x509_certificate(data) for kind, data in entries if kind == _X509]
    except (ValueError, InvalidVersion) as error:
        raise _unreadable(store, "certificate") from error


def _shown(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
