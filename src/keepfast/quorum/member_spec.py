"""One member of an ensemble, and the line that describes it in zoo.cfg and in the config text.

    server.N = address [ "|" address ]... [ ";" client [ ";" secure client ] ]
    address  = host ":" quorum port ":" election port [ ":" ( "participant" | "observer" ) ]
    client   = [ host ":" ] port

Names of hosts are not resolved here: they are looked up at every attempt to connect.
"""

from __future__ import annotations

import ipaddress
import re
from enum import Enum
from typing import Final, NamedTuple

from keepfast.wire import ServerId

_ANY: Final = "0.0.0.0"
_MAX_PORT: Final = 0xFFFF
_MAX_ID: Final = (1 << 63) - 1
_PARTS_OF_ADDRESS: Final = (3, 4)
_MAX_PARTS_OF_LINE: Final = 3
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_PORT: Final = re.compile(r"[0-9]{1,10}\Z")
_FORM: Final = (
    "must be host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort],"
    " several addresses joined by |"
)


class BadNumberError(ValueError):
    """An invalid or out-of-range number. Apache answers it differently from other mistakes."""


class MemberRole(Enum):
    """Whether a member votes; the values are those of the config text."""

    PARTICIPANT = "participant"
    OBSERVER = "observer"


class Address(NamedTuple):
    """A host, by name or number (as of `canonical_host`, without brackets), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MemberSpec(NamedTuple):
    """One member: where it accepts learners and votes, and what it may do.

    `quorum` and `election` are of the same length, one entry for each network that the member is
    on. `client` None: the member's own file says where its clients connect.
    """

    server_id: ServerId
    quorum: tuple[Address, ...]
    election: tuple[Address, ...]
    role: MemberRole = MemberRole.PARTICIPANT
    client: Address | None = None
    secure_client: Address | None = None

    def text(self) -> str:
        """The line of the config text after `server.N=`."""
        pairs = sorted(zip(self.quorum, self.election, strict=True))
        addresses = "|".join(f"{quorum}:{election.port}" for quorum, election in pairs)
        client = "" if self.client is None else f";{self.client}"
        if self.secure_client is not None:
            client = f"{client or ';'};{self.secure_client}"
        return f"{addresses}:{self.role.value}{client}"


def canonical_host(host: str) -> str:
    """A host as Java writes it: IPv6 addresses in full, everything else unchanged."""
    if "%" in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def parse_member(server_id: ServerId, text: str) -> MemberSpec:
    """A member from the text after `server.N=`; ValueError says what is wrong with it."""
    parts = text.strip().rstrip(";").split(";")
    if len(parts) > _MAX_PARTS_OF_LINE:
        raise ValueError(_FORM)
    quorum, election, roles = [], [], set()
    for address in parts[0].split("|"):
        fields = _split_address(address)
        if len(fields) not in _PARTS_OF_ADDRESS:
            raise ValueError(_FORM)
        if not fields[0]:
            raise ValueError('"" must be a host name or an IP address')
        quorum.append(Address(fields[0], _port(fields[1], lowest=1)))
        election.append(Address(fields[0], _port(fields[2], lowest=1)))
        if quorum[-1].port == election[-1].port:
            raise ValueError("quorum port and election port must be different")
        if len(fields) == max(_PARTS_OF_ADDRESS):
            roles.add(_role(fields[3]))
    if len(roles) > 1:
        raise ValueError("all addresses of a server must have the same role")
    role = roles.pop() if roles else MemberRole.PARTICIPANT
    client, secure = (_client(part) for part in [*parts[1:], "", ""][:2])
    return MemberSpec(server_id, tuple(quorum), tuple(election), role, client, secure)


def parse_whole(text: str) -> int:
    """An id or a weight; BadNumberError if Apache would not accept it."""
    if not _WHOLE.match(text) or abs(int(text)) > _MAX_ID:
        raise BadNumberError(f'"{text}" is not a whole number')
    return int(text)


def _role(text: str) -> MemberRole:
    try:
        return MemberRole(text.strip().lower())
    except ValueError:
        raise ValueError(f'"{text}" must be participant or observer') from None


def _split_address(text: str) -> list[str]:
    """Host without brackets, and what follows, by colons."""
    text = text.strip()
    if not text.startswith("["):
        return [part.strip() for part in text.split(":")]
    host, bracket, rest = text[1:].partition("]")
    if not bracket or not rest.startswith(":"):
        raise ValueError(_FORM)
    return [canonical_host(host), *rest[1:].split(":")]


def _client(text: str) -> Address | None:
    if not text.strip():
        return None
    fields = _split_address(text)
    if len(fields) == 1:
        return Address(_ANY, _port(fields[0], lowest=0))
    if len(fields) == len(Address._fields):
        return Address(fields[0], _port(fields[1], lowest=0))
    raise ValueError(_FORM)


def _port(text: str, *, lowest: int) -> int:
    text = text.strip()
    reason = f'"{text}" must be a port from {lowest} to {_MAX_PORT}'
    if not _PORT.match(text) or int(text) < lowest:
        raise ValueError(reason)
    if int(text) > _MAX_PORT:
        raise BadNumberError(reason)
    return int(text)
