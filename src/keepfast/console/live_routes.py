"""Requests about what is there now: logins, the overview as it changes, the tree."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from keepfast import __version__
from keepfast.client import OperationFailed
from keepfast.console.console_options import ConsoleRefused
from keepfast.console.endpoints import (
    TOKEN_HEADER,
    answered,
    body_of,
    cookie_name,
    in_thread,
    number_of,
    refuse,
    reply,
    route,
    viewer_of,
)
from keepfast.console.ensemble_session import Credential
from keepfast.console.hub import Document, Subscriber, json_text
from keepfast.console.live_tree import LiveTree
from keepfast.console.past_routes import past_of
from keepfast.console.txn_feed import feed_filter
from keepfast.console.viewers import Viewer
from keepfast.console.znode_documents import MAX_PAGE, SHORT_BYTES, PageAsked
from keepfast.shell import failure_message

if TYPE_CHECKING:
    from keepfast.console.running_console import Console

_MAX_VALUE_BYTES: Final = 2 << 20
_MAX_FIRST: Final = 1 << 31
# Of somebody who is not known yet: 500 of them must not fill the memory.
_MAX_LOGIN_BYTES: Final = 16 << 10
_SCHEMES: Final = ("digest", "sasl")


class LoginForm(msgspec.Struct):
    """What the login form sends."""

    scheme: str
    user: str
    password: str


# -- who asks --------------------------------------------------------------------------------------


async def _hello(request: Request) -> Response:
    """What a page has to know first; also the answer to somebody who has to log in."""
    console: Console = request.app.state.console
    viewer = viewer_of(console, request)
    options = console.options
    known: Document = {"version": __version__, "needs_login": options.needs_login}
    if viewer is None:
        return reply({**known, "is_in": False})
    return reply(
        {
            **known,
            "is_in": True,
            "user": viewer.name,
            "token": viewer.csrf_token,
            "allows_writes": options.allows_writes,
            "has_data": bool(options.places),
            "places": list(options.places) if viewer.ids is None else len(options.places),
            "connect": console.connect_text,
            "chroot": options.target.chroot,
        }
    )


async def _log_in(request: Request) -> Response:
    console: Console = request.app.state.console

    async def work() -> Response:
        form = await body_of(request, LoginForm, _MAX_LOGIN_BYTES)
        if form.scheme not in _SCHEMES or not form.user or ":" in form.user:
            raise ConsoleRefused("give a user without a colon, and digest or sasl")
        credential = Credential(form.scheme, form.user, form.password)
        token, viewer = await in_thread(console.viewers.log_in, credential)
        response = reply({"user": viewer.name, "token": viewer.csrf_token})
        response.set_cookie(
            cookie_name(console),
            token,
            httponly=True,
            samesite="strict",
            secure=console.options.has_tls,
            path="/",
        )
        return response

    # A form on another page cannot set this header; there is no token before a login.
    if TOKEN_HEADER not in request.headers:
        return refuse("log in through the page", HTTPStatus.FORBIDDEN)
    return await answered(work())


async def _log_out(console: Console, request: Request, _: Viewer) -> Response:
    name = cookie_name(console)
    await in_thread(console.viewers.log_out, request.cookies.get(name, ""))
    response = reply({})
    response.delete_cookie(name, path="/", secure=console.options.has_tls, httponly=True)
    return response


# -- as it happens ---------------------------------------------------------------------------------


async def _events(console: Console, request: Request, viewer: Viewer) -> Response:
    """The overview after each round, audits, and the feed where it is asked for."""
    wants_feed = request.query_params.get("feed") == "1"
    row_of = feed_filter(request.query_params, viewer)

    def shape(kind: str, document: Document) -> Document | None:
        if viewer.is_over:
            return None
        if kind != "feed":
            return document
        return row_of(document) if wants_feed else None

    subscriber = console.hub.subscribe(shape)
    if subscriber is None:
        return refuse("too many pages are open", HTTPStatus.SERVICE_UNAVAILABLE)
    return StreamingResponse(
        _stream(console, viewer, subscriber, wants_feed=wants_feed), media_type="text/event-stream"
    )


async def _stream(
    console: Console, viewer: Viewer, subscriber: Subscriber, *, wants_feed: bool
) -> AsyncIterator[bytes]:
    console.look(1, wants_feed=wants_feed)
    try:
        async for part in subscriber.stream():
            if viewer.is_over:
                break
            # Whoever has the page open is there.
            viewer.used_s = time.monotonic()
            yield part
    finally:
        console.hub.unsubscribe(subscriber)
        console.look(-1, wants_feed=wants_feed)


# -- the tree --------------------------------------------------------------------------------------


def _path_of(request: Request) -> str:
    return request.query_params.get("path", "/")


def _moment_of(request: Request) -> str:
    """A moment of the past; "": now."""
    return request.query_params.get("at", "")


def _tree(console: Console, viewer: Viewer) -> LiveTree:
    # By the login, not by its name: the digest scheme takes any password for a name.
    return LiveTree(viewer.client(), console.children_cache, viewer.csrf_token)


def page_asked(request: Request) -> PageAsked:
    """Which page of a list a request is about."""
    query = request.query_params
    return PageAsked(
        query.get("filter", ""),
        number_of(request, "first", 0, 0, _MAX_FIRST),
        number_of(request, "count", MAX_PAGE, 1, MAX_PAGE),
        query.get("around", ""),
    )


async def _znode(console: Console, request: Request, viewer: Viewer) -> Response:
    limit = _MAX_VALUE_BYTES if request.query_params.get("whole") == "1" else SHORT_BYTES

    path, at = _path_of(request), _moment_of(request)

    def work() -> Document:
        if at:
            return past_of(console).znode(at, path, limit, viewer)
        return _tree(console, viewer).znode(path, limit)

    return reply(await in_thread(work))


async def _children(console: Console, request: Request, viewer: Viewer) -> Response:
    asked, path, at = page_asked(request), _path_of(request), _moment_of(request)

    def work() -> Document:
        if at:
            return past_of(console).children(at, path, asked, viewer)
        return _tree(console, viewer).children(path, asked)

    return reply(await in_thread(work))


async def _mark(console: Console, request: Request, viewer: Viewer) -> Response:
    return reply(await in_thread(lambda: _tree(console, viewer).stat_mark(_path_of(request))))


async def _count(console: Console, request: Request, viewer: Viewer) -> Response:
    path, at = _path_of(request), _moment_of(request)

    def work() -> int:
        if at:
            return past_of(console).count_below(at, path)
        return _tree(console, viewer).count_below(path)

    return reply({"below": await in_thread(work)})


async def _data(console: Console, request: Request, viewer: Viewer) -> Response:
    """The whole value as a file: never as something that a browser shows."""
    data = await in_thread(lambda: _tree(console, viewer).data(_path_of(request)))
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"content-disposition": 'attachment; filename="znode.bin"'},
    )


async def _search(console: Console, request: Request, viewer: Viewer) -> Response:
    """Found znodes as lines of JSON, as they are found."""
    query = request.query_params
    text, by = query.get("text", ""), query.get("by", "path")
    if not text or by not in ("path", "value"):
        raise ConsoleRefused("say what to look for, by path or by value")
    found = _tree(console, viewer).search(text, query.get("under", "/"), by)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for document in iterate_in_threadpool(found):
                if await request.is_disconnected():
                    break
                yield f"{json_text(document)}\n".encode()
        except OperationFailed as error:
            # The answer has begun: what is wrong is its last line.
            yield f"{json_text({'error': failure_message(error)})}\n".encode()
        finally:
            found.close()

    return StreamingResponse(lines(), media_type="application/x-ndjson")


LIVE_ROUTES: Final = (
    Route("/api/hello", _hello),
    Route("/api/login", _log_in, methods=["POST"]),
    route("/api/logout", _log_out, "POST"),
    route("/api/events", _events),
    route("/api/znode", _znode),
    route("/api/children", _children),
    route("/api/mark", _mark),
    route("/api/count", _count),
    route("/api/data", _data),
    route("/api/search", _search),
)
