"""What a request has to be before anything looks at it: for this host, from this page.

A browser will send requests to 127.0.0.1 for any page on the internet. Three things keep those out:
the Host header has to be one of ours (a name that somebody points to 127.0.0.1 is not), the Origin
and Sec-Fetch-Site headers, which a page cannot set, have to be of this page, and whatever changes
something has to carry a token that only a page of this origin can read. The policy on content lets
no script or style in that is not a file of the console, and no string become markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keepfast.console.console_options import ConsoleOptions

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_USUAL_PORTS: Final = {"http": 80, "https": 443}


class Gatekeeper:
    """ASGI middleware; the outermost one."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions, port: int) -> None:
        """`port`: the one that is really listened on."""
        self._app = app
        scheme = "https" if options.has_tls else "http"
        self._hosts = allowed_hosts(options, port, scheme)
        self._origins = {f"{scheme}://{host}" for host in self._hosts}
        self._has_tls = options.has_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
                if self._has_tls:
                    headers["strict-transport-security"] = "max-age=31536000"
            await send(message)

        reason = self._refusal(scope)
        if reason:
            response = JSONResponse({"error": reason}, 403)
            await response(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; "" if it is not."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.lower() not in self._hosts:
            return f"this console is not {host}; open it under the address that it printed"
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins:
            return "a page of another origin may not use this console"
        site = headers.get("sec-fetch-site", "none")
        if site in ("same-origin", "none"):
            return ""
        # A link to the page may stand anywhere; nothing else may be asked for from there.
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _SAFE_METHODS
        if is_link and scope["path"] == "/":
            return ""
        return "a page of another origin may not use this console"


def allowed_hosts(options: ConsoleOptions, port: int, scheme: str) -> set[str]:
    """The Host headers that mean this console."""
    host = options.listen.host
    names = [f"[{host}]" if ":" in host else host, *options.host_names]
    if options.is_loopback:
        names += _LOOPBACK_NAMES
    found = {f"{name.lower()}:{port}" for name in names}
    if port == _USUAL_PORTS[scheme]:
        found |= {name.lower() for name in names}
    # A name that was given with a port is behind its own proxy.
    return found | {name.lower() for name in options.host_names if ":" in name}
