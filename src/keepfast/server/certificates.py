"""What a client's certificate says: whose it is, and from which hosts it may come."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# The attributes that RFC 2253 has names for; Java writes all others by their numbers.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# UTF8, Printable, Teletex, IA5, General, Universal and BMP strings.
_TEXT_TAGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_MANY_BYTES: Final = 0x80
_CONTINUED: Final = 0x80
_ANY_LABEL: Final = "*"


class _Element(NamedTuple):
    """A value in DER: its tag, its content, and both together with the length."""

    tag: int
    content: bytes
    whole: bytes


def read_certificate(der: bytes) -> Certificate:
    """A certificate from the wire. Raises ValueError if it is not one."""
    from cryptography.x509 import InvalidVersion, load_der_x509_certificate

    try:
        return load_der_x509_certificate(der)
    except InvalidVersion as error:
        raise ValueError(str(error)) from error


def distinguished_name(certificate: Certificate) -> str:
    """The subject as Java's X500Principal.getName() writes it: this is what ACLs hold.

    RFC 2253: the last part first, `CN=bob,O=Acme`. Raises ValueError if it cannot be read.
    """
    (name,) = _elements(certificate.subject.public_bytes())
    return ",".join(
        "+".join(_attribute(part.content) for part in _elements(relative.content))
        for relative in reversed(list(_elements(name.content)))
    )


def names_host(certificate: Certificate, host: str) -> bool:
    """Whether a certificate is for a host, given by its name or its address.

    Its alternative names count; without any, its common name does.
    """
    from cryptography.x509 import (
        DNSName,
        ExtensionNotFound,
        IPAddress,
        NameOID,
        SubjectAlternativeName,
    )

    try:
        extension = certificate.extensions.get_extension_for_class(SubjectAlternativeName)
    except ExtensionNotFound:
        commons = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return any(_name_matches(str(common.value), host) for common in commons)
    try:
        address = ip_address(host)
    except ValueError:
        names = extension.value.get_values_for_type(DNSName)
        return any(_name_matches(name, host) for name in names)
    return address in extension.value.get_values_for_type(IPAddress)


def _name_matches(pattern: str, host: str) -> bool:
    """`*` stands for one whole label, the first one, and never for a top-level domain's child."""
    pattern, host = pattern.lower().rstrip("."), host.lower().rstrip(".")
    first, _, rest = pattern.partition(".")
    if first == _ANY_LABEL and "." in rest:
        return host.partition(".")[2] == rest
    return pattern == host


def _attribute(data: bytes) -> str:
    """One attribute: type and value."""
    kind, value = _elements(data)
    oid = _object_identifier(kind.content)
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    # Java reads every kind of string as UTF-8 here.
    text = value.content.decode("utf-8", "replace")
    escaped = "".join(_escaped(character) for character in text)
    stripped = escaped.strip(" ")
    if not stripped:
        return f"{keyword}=" + "\\ " * len(escaped)
    leading = len(escaped) - len(escaped.lstrip(" "))
    trailing = len(escaped) - len(escaped.rstrip(" "))
    return f"{keyword}=" + "\\ " * leading + stripped + "\\ " * trailing


def _escaped(character: str) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in _ESCAPED else character


def _object_identifier(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & ~_CONTINUED
        if not byte & _CONTINUED:
            numbers.append(number)
            number = 0
    # The first two are in one: 40 x the first, which is 0, 1 or 2, plus the second.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[_Element]:
    """A sequence of values; the bytes were decoded and re-encoded by a library."""
    position = 0
    while position < len(data):
        length, start = data[position + 1], position + 2
        if length >= _MANY_BYTES:
            size = length - _MANY_BYTES
            length = int.from_bytes(data[start : start + size])
            start += size
        end = start + length
        yield _Element(data[position], data[start:end], data[position:end])
        position = end


async def confirmed_name(address: str) -> str:
    """The host name of an address, if that name has the address; OSError if not.

    Whoever owns an address may claim any name for it; the name's owner has to agree.
    """
    loop = asyncio.get_running_loop()
    name, _ = await loop.getnameinfo((address, 0), socket.NI_NAMEREQD)
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    if ip_address(address) not in (ip_address(place[0]) for *_, place in found):
        raise OSError(f"{name} has another address")
    return name
