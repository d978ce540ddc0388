"""Listening and peer addresses as in Java, on both IP families.

A listener on every address takes IPv4 and IPv6, whichever of the two wildcards was given. On such
a listener an IPv4 client has an address of IPv6 (`::ffff:10.0.0.7`); everything that compares,
counts or shows addresses must see the plain one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from keepfast.apache import is_any_address
from keepfast.quorum import Address, canonical_host

_RETRY_SECONDS: Final = 1.0
_MAPPED: Final = "::ffff:"
# What a system without IPv6, or with it switched off, says.
_NO_IPV6: Final = frozenset((errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL))


class UnresolvedHostError(OSError):
    """A name of a host that has no address now; it may have one soon."""

    def __init__(self, host: str, error: socket.gaierror) -> None:
        reason = error.strerror or str(error)
        super().__init__(error.errno, f"the host name {host} cannot be resolved: {reason}")

    def __str__(self) -> str:
        return str(self.strerror)


async def when_resolved(
    work: Callable[[], Awaitable[None]], report: Callable[[UnresolvedHostError], None]
) -> None:
    """Run something as soon as this server's own host names can be resolved.

    `report` is called with each new reason why they cannot.

    Where a scheduler starts servers before their names are known (Kubernetes does), giving up would
    only be a restart loop.
    """
    reported = ""
    while True:
        try:
            await work()
        except UnresolvedHostError as error:
            if str(error) != reported:
                reported = str(error)
                report(error)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return


async def open_listeners(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host. Raises OSError; then nothing listens.

    With port 0 the system chooses one, which is used for all of them.
    """
    if is_any_address(host):
        return [_everywhere(port, backlog)]
    loop = asyncio.get_running_loop()
    try:
        places = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise UnresolvedHostError(host, error) from None
    listeners: list[socket.socket] = []
    try:
        for family, _, _, _, place in dict.fromkeys(places):
            # The scope of a link-local address is part of the place.
            at: tuple[Any, ...] = (place[0], port, *place[2:])
            listeners.append(_listen(family, at, backlog))
            port = listeners[0].getsockname()[1]
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def peer_address(name: object) -> tuple[str, int]:
    """Address and port of the other side by its socket's name; the address as Java writes it.

    A socket that has lost its other side has no name: such a client has an address of nobody.
    """
    if not isinstance(name, tuple):
        return "0.0.0.0", 0
    address = str(name[0])
    bare = address.removeprefix(_MAPPED)
    return bare if "." in bare else canonical_host(address), int(name[1])


def _everywhere(port: int, backlog: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _listen(socket.AF_INET6, ("::", port), backlog, is_dual=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return _listen(socket.AF_INET, ("0.0.0.0", port), backlog)


def _listen(
    family: int, place: tuple[Any, ...], backlog: int, *, is_dual: bool = False
) -> socket.socket:
    try:
        listener = socket.create_server(
            place, family=family, backlog=backlog, dualstack_ipv6=is_dual
        )
    except OSError as error:
        # Not its own words: they name the place as a Python tuple.
        reason = os.strerror(error.errno or errno.EIO).lower()
        raise OSError(error.errno, f"{Address(place[0], place[1])}: {reason}") from None
    listener.setblocking(False)
    return listener
