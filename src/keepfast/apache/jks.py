"""JKS, Java's old key store format: reading only.

    0    4   magic feedfeed
    4    4   version, 1 or 2
    8    4   number of entries; each:
             tag (4): 1 a private key, 2 a trusted certificate
             alias: length (2), modified UTF-8; time (8)
             tag 1: protected key: length (4), bytes; number of certificates (4), certificates
             tag 2: one certificate
             certificate: (version 2) type: length (2), text; length (4), DER
    -20  20  SHA-1 of the password in UTF-16, "Mighty Aphrodite" and everything before

A protected key is an EncryptedPrivateKeyInfo whose data is a salt (20), the key xor a stream, and a
SHA-1 check (20); the stream is SHA-1 of the password and the block before, from the salt on. Sun's
own invention, kept here because stores of this kind are still in use. The one library for it has
not been maintained since 2020 and needs a C compiler to install.
"""

from __future__ import annotations

import struct
from hashlib import sha1
from typing import Final, NamedTuple

_MAGIC: Final = 0xFEEDFEED
_WHITENER: Final = b"Mighty Aphrodite"
_HASH_SIZE: Final = 20
_PRIVATE_KEY: Final = 1
_CERTIFICATE: Final = 2
_X509: Final = "X.509"
# 1.3.6.1.4.1.42.2.17.1.1, Sun's key protector, as DER.
_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")
_SEQUENCE: Final = 0x30
_OCTETS: Final = 0x04


class JksError(Exception):
    """The bytes are not a JKS file that can be read."""


class WrongPasswordError(JksError):
    """The checksum does not fit the password; or the file is damaged, which looks the same."""


class KeyEntry(NamedTuple):
    """A private key, still protected, and its certificates as (type, DER)."""

    protected: bytes
    chain: list[tuple[str, bytes]]


class JksStore(NamedTuple):
    """What a store holds, in the order of the file."""

    keys: list[KeyEntry]
    certificates: list[tuple[str, bytes]]


def load_jks(data: bytes, password: str) -> JksStore:
    """Read a store; its checksum is checked first."""
    secret = password.encode("utf-16-be")
    body, check = data[:-_HASH_SIZE], data[-_HASH_SIZE:]
    if _sha1(secret + _WHITENER + body) != check:
        raise WrongPasswordError("the checksum does not fit the password")
    try:
        return _parse(_Cursor(body))
    except (struct.error, UnicodeDecodeError) as error:
        raise JksError(f"it ends early or is damaged: {error}") from error


def unprotected(protected: bytes, password: str) -> bytes:
    """The PKCS8 form of a protected key."""
    secret = password.encode("utf-16-be")
    data = _protected_data(protected)
    salt, hidden, check = (
        data[:_HASH_SIZE],
        data[_HASH_SIZE:-_HASH_SIZE],
        data[-_HASH_SIZE:],
    )
    stream, block = b"", salt
    while len(stream) < len(hidden):
        block = _sha1(secret + block)
        stream += block
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if _sha1(secret + key) != check:
        raise WrongPasswordError("the key's check does not fit the password")
    return key


def _sha1(data: bytes) -> bytes:
    # The format's own choice; there is no other.
    return sha1(data, usedforsecurity=False).digest()


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, form: str) -> int:
        value: int = struct.unpack_from(f">{form}", self._data, self._position)[0]
        self._position += struct.calcsize(f">{form}")
        return value

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._data):
            raise JksError("a length reaches beyond the end of the file")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def text(self) -> str:
        return self.take(self.number("H")).decode()


def _parse(cursor: _Cursor) -> JksStore:
    if cursor.number("I") != _MAGIC:
        raise JksError("it is a JCEKS file; convert it with keytool -importkeystore")
    version = cursor.number("I")
    if version not in (1, 2):
        raise JksError(f"its version is {version}")
    store = JksStore([], [])
    for _ in range(cursor.number("I")):
        tag = cursor.number("I")
        cursor.text()
        cursor.number("Q")
        if tag == _PRIVATE_KEY:
            protected = cursor.take(cursor.number("I"))
            chain = [_certificate(cursor, version) for _ in range(cursor.number("I"))]
            store.keys.append(KeyEntry(protected, chain))
        elif tag == _CERTIFICATE:
            store.certificates.append(_certificate(cursor, version))
        else:
            raise JksError(f"it has an entry of the unknown kind {tag}")
    return store


def _certificate(cursor: _Cursor, version: int) -> tuple[str, bytes]:
    kind = cursor.text() if version > 1 else _X509
    return kind, cursor.take(cursor.number("I"))


def _protected_data(info: bytes) -> bytes:
    """The octets inside an EncryptedPrivateKeyInfo of Sun's protector."""
    outer = _der(info, _SEQUENCE)[0]
    algorithm, rest = _der(outer, _SEQUENCE)
    data = _der(rest, _OCTETS)[0]
    if not algorithm.startswith(_PROTECTOR) or len(data) < 2 * _HASH_SIZE:
        raise JksError("its key is protected in a way that is not JKS's own")
    return data


def _der(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """The content of the DER value at the start of `data`, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise JksError("a key's DER encoding is damaged")
    size, start = data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, start = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if start + size > len(data):
        raise JksError("a key's DER encoding is cut short")
    return data[start : start + size], data[start + size :]
