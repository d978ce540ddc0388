"""Connection strings: `host:port,host:port/chroot`, IPv6 addresses in brackets."""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple

from keepfast.client.client_errors import InvalidPath
from keepfast.client.client_paths import validate_path

DEFAULT_PORT: Final = 2181

_HOST_AND_PORT = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5})?)?")
_MAX_PORT = 65535


class ServerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Target(NamedTuple):
    """Where to connect to. `chroot` is "" or a path that stands before every other path."""

    addresses: tuple[ServerAddress, ...]
    chroot: str = ""


def parse_target(text: str) -> Target:
    """Read a connection string; ValueError says what is wrong with it."""
    hosts, slash, rest = text.partition("/")
    chroot = slash + rest
    if chroot in ("", "/"):
        chroot = ""
    else:
        try:
            validate_path(chroot)
        except InvalidPath as error:
            raise ValueError(f"the chroot of {text!r}: {error.detail}") from error
    addresses = tuple(_parse_address(part.strip()) for part in hosts.split(",") if part.strip())
    if not addresses:
        raise ValueError(f"{text!r} names no server; expected host:port")
    return Target(addresses, chroot)


def _parse_address(text: str) -> ServerAddress:
    if _is_ipv6(text):
        return ServerAddress(text, DEFAULT_PORT)
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not text.isprintable() or " " in text:
        raise ValueError(f"{text!r} is not host:port")
    in_brackets, name, port = match.groups()
    number = int(port) if port else DEFAULT_PORT
    if not 0 < number <= _MAX_PORT:
        raise ValueError(f"{text!r}: there is no port {number}")
    return ServerAddress(in_brackets or name, number)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
