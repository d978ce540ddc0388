"""Keeps web pages from using somebody's browser to talk to the admin server.

A browser that can reach the server runs third-party pages, and these can make it send requests:

- A page whose name its owner lets point to this server (DNS rebinding) may read the answers. Such a
  request carries the page's name as its Host: only names that are known to be this server's, and
  addresses, which nobody can rebind, are answered.
- Any page may send a request without reading the answer. The browser says so in Origin or
  Sec-Fetch-Site: requests of other pages are refused. Following a link is not one of these.

Probes and metrics hold neither data nor commands, and monitoring comes under any name: they are
answered whatever the Host is.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from keepfast.server.http import HttpRequest

ANY_HOST: Final = "*"
ALLOWED_HOSTS_KEY: Final = "keepfast.admin.allowedHosts"
_LOCAL: Final = "localhost"
_OWN_SITES: Final = ("same-origin", "none")


class WebGuard:
    """Decides whether a request's claimed origin is acceptable."""

    def __init__(self, allowed_hosts: Iterable[str], open_paths: frozenset[str]) -> None:
        machine = socket.gethostname()
        names = (_LOCAL, machine, machine.partition(".")[0], *allowed_hosts)
        self._hosts = {name.lower().rstrip(".") for name in names}
        self._open_paths = open_paths

    def refusal(self, request: HttpRequest) -> str | None:
        """Why a request is refused; None if it may be answered."""
        host = request.headers.get("host", "")
        if request.path not in self._open_paths and not self._is_known(host):
            return (
                f"{host[:255]!a} is not a name of this server: "
                f"add it to {ALLOWED_HOSTS_KEY}, or ask by address"
            )
        origin = request.headers.get("origin")
        if origin is not None and not _is_same(origin, host):
            return f"requests of pages from {origin[:255]!a} are not answered"
        site = request.headers.get("sec-fetch-site")
        if origin is None and site is not None and site not in _OWN_SITES:
            is_link = (
                request.headers.get("sec-fetch-mode") == "navigate"
                and request.headers.get("sec-fetch-dest") == "document"
            )
            if not is_link:
                return "requests of pages from other places are not answered"
        return None

    def _is_known(self, host: str) -> bool:
        # No Host at all is HTTP/1.0: no browser sends that.
        if not host or ANY_HOST in self._hosts:
            return True
        name = _name_of(f"//{host}")
        return name is not None and (name in self._hosts or _is_address(name))


def _name_of(address: str) -> str | None:
    """The host of an address in lower case; None if there is none."""
    try:
        name = urlsplit(address).hostname
    except ValueError:
        return None
    return None if name is None else name.rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    """Whether a page was served by this server itself."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
