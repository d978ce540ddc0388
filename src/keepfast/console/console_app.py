"""Assembles the console: what it watches, what it keeps, and the web application around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from keepfast.console.audit_jobs import Proofs
from keepfast.console.change_log import ChangeLog
from keepfast.console.change_routes import CHANGE_ROUTES
from keepfast.console.children_cache import ChildrenCache
from keepfast.console.console_options import ConsoleOptions
from keepfast.console.ensemble_overview import overview_of
from keepfast.console.ensemble_session import EnsembleSession
from keepfast.console.gatekeeper import Gatekeeper
from keepfast.console.hub import Hub
from keepfast.console.live_routes import LIVE_ROUTES
from keepfast.console.page_changes import Changes
from keepfast.console.past import Past
from keepfast.console.past_routes import PAST_ROUTES
from keepfast.console.server_watching import EnsembleWatch, Picture
from keepfast.console.session_list import SessionList
from keepfast.console.txn_feed import Feed
from keepfast.console.viewers import Viewers
from keepfast.pipeline import report_asset

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# Served from the report: one component, not a copy.
_OF_THE_REPORT = ("palette.css", "lanes.css", "lanes.js")


class Console:
    """Everything that requests need; started and stopped with the web server."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Nothing is asked yet."""
        self.options = options
        self.hub = Hub()
        self.children_cache = ChildrenCache()
        self._session = EnsembleSession(options.target)
        self.viewers = Viewers(options, self._session)
        self.changes = Changes()
        self.change_log = ChangeLog(options.audit_log)
        self.sessions = SessionList()
        self.past = Past(options.places) if options.places else None
        self.proofs: Proofs | None = None
        if options.places:
            self.proofs = Proofs(self.hub, options.places, options.audits_dir, options.master)
        self.feed = Feed(self.hub, self.past, options.target)
        self.watch = EnsembleWatch(
            options.target.addresses, self._session, self._on_round, options.interval_s
        )

    @property
    def connect_text(self) -> str:
        """What a client connects to."""
        names = ",".join(map(str, self.watch.addresses))
        return names + self.options.target.chroot

    async def start(self) -> None:
        """Begin to watch."""
        self.hub.attach(asyncio.get_running_loop())
        self.watch.start()

    async def stop(self) -> None:
        """Let go of the ensemble."""
        self.hub.close()
        if self.proofs is not None:
            await asyncio.to_thread(self.proofs.close)
        await asyncio.to_thread(self.feed.stop)
        await asyncio.to_thread(self.watch.stop)
        await asyncio.to_thread(self.viewers.close)

    def look(self, change: int, *, wants_feed: bool) -> None:
        """A page was opened (+1) or closed (-1)."""
        self.watch.look(change)
        if wants_feed:
            self.feed.look(change)

    def _on_round(self, picture: Picture) -> None:
        local = {} if self.past is None else self.past.local_facts(picture.servers)
        self.hub.publish("overview", overview_of(picture, self.connect_text, local))


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
