"""The web application around a console: its routes, its page and its files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from keepfast.console.change_routes import CHANGE_ROUTES
from keepfast.console.gatekeeper import Gatekeeper
from keepfast.console.live_routes import LIVE_ROUTES
from keepfast.console.past_routes import PAST_ROUTES
from keepfast.console.running_console import Console
from keepfast.pipeline import report_asset

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# Served from the report: one component, not a copy.
_OF_THE_REPORT = ("palette.css", "lanes.css", "lanes.js")


def application(console: Console, port: int) -> ASGIApp:
    """The web application, behind its gatekeeper."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await console.start()
        try:
            yield
        finally:
            await console.stop()

    routes = [
        Route("/", _page),
        Route("/static/{name}", _static),
        *LIVE_ROUTES,
        *PAST_ROUTES,
        *CHANGE_ROUTES,
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.state.console = console
    return Gatekeeper(app, console.options, port)


async def _page(_: Request) -> Response:
    return Response(_asset("index.html"), media_type="text/html; charset=utf-8")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None or name not in _static_names():
        return Response("there is no such file", 404, media_type="text/plain")
    return Response(
        _asset(name), media_type=f"{kind}; charset=utf-8", headers={"cache-control": "no-cache"}
    )


@cache
def _static_names() -> frozenset[str]:
    own = (entry.name for entry in files("keepfast.console").joinpath("static").iterdir())
    return frozenset((*own, *_OF_THE_REPORT))


@cache
def _asset(name: str) -> str:
    if name in _OF_THE_REPORT:
        return report_asset(name)
    return files("keepfast.console").joinpath("static", name).read_text(encoding="utf-8")
