"""What all requests have in common: the viewer, tokens, arguments, and failures as one sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keepfast.client import InvalidPath, OperationFailed
from keepfast.console.console_options import ConsoleRefused
from keepfast.console.hub import json_text
from keepfast.console.viewers import LoginRefused, Viewer
from keepfast.shell import failure_message
from keepfast.wire import ErrorCode, KeepfastError

if TYPE_CHECKING:
    from keepfast.console.running_console import Console

COOKIE: Final = "keepfast-console"
TOKEN_HEADER: Final = "x-keepfast-token"
# A znode holds at most a megabyte, and base64 and JSON add to it.
_MAX_BODY_BYTES: Final = 4 << 20
_STATUS_OF: Final = {
    ErrorCode.NO_NODE: HTTPStatus.NOT_FOUND,
    ErrorCode.NO_AUTH: HTTPStatus.FORBIDDEN,
    ErrorCode.BAD_VERSION: HTTPStatus.CONFLICT,
    ErrorCode.NODE_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.NOT_EMPTY: HTTPStatus.CONFLICT,
}

Endpoint = Callable[["Console", Request, Viewer], Awaitable[Response]]
S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


def reply(document: object, status: int = HTTPStatus.OK) -> Response:
    """A JSON answer."""
    return Response(json_text(document), status, media_type="application/json")


def refuse(sentence: str, status: int, **more: Any) -> Response:
    """An answer that says what is wrong."""
    return reply({"error": sentence, **more}, status)


def cookie_name(console: Console) -> str:
    """Of a name that browsers only take over TLS and for the whole host, where there is TLS."""
    return f"__Host-{COOKIE}" if console.options.has_tls else COOKIE


def viewer_of(console: Console, request: Request) -> Viewer | None:
    """Who asks; None: nobody who may."""
    return console.viewers.find(request.cookies.get(cookie_name(console), ""))


def route(path: str, endpoint: Endpoint, method: str = "GET") -> Route:
    """A route of the interface: checked, and with every failure as a sentence."""

    async def run(request: Request) -> Response:
        console: Console = request.app.state.console
        viewer = viewer_of(console, request)
        if viewer is None:
            return refuse("log in first", HTTPStatus.UNAUTHORIZED)
        if method != "GET" and not viewer.has_token(request.headers.get(TOKEN_HEADER, "")):
            return refuse(
                "the token of the page is missing or old; load the page again",
                HTTPStatus.FORBIDDEN,
            )
        return await answered(endpoint(console, request, viewer))

    return Route(path, run, methods=[method])


async def answered(work: Awaitable[Response]) -> Response:
    """The answer, or what is wrong in one sentence."""
    try:
        return await work
    except InvalidPath as error:
        return refuse(f"{error.path}: {error.detail}", HTTPStatus.BAD_REQUEST)
    except OperationFailed as error:
        if error.is_connection_failure:
            sentence = f"no server answers: {error.detail or error}"
            return refuse(sentence, HTTPStatus.SERVICE_UNAVAILABLE, code=error.code.name)
        status = _STATUS_OF.get(error.code, HTTPStatus.BAD_GATEWAY)
        return refuse(failure_message(error), status, code=error.code.name)
    except LoginRefused as error:
        return refuse(str(error), HTTPStatus.FORBIDDEN)
    except KeepfastError as error:
        return refuse(str(error), HTTPStatus.BAD_REQUEST)


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Do what waits or computes on a thread of its own."""
    return await run_in_threadpool(work, *arguments)


def number_of(request: Request, name: str, default: int, minimum: int, maximum: int) -> int:
    """A number among the arguments; one that is out of bounds becomes the nearest that is not."""
    try:
        given = int(request.query_params.get(name, default))
    except ValueError as error:
        raise ConsoleRefused(f"{name} is not a number") from error
    return min(max(given, minimum), maximum)


async def body_of(request: Request, form: type[S], max_bytes: int = _MAX_BODY_BYTES) -> S:
    """The document that a page sent."""
    size = 0
    parts = []
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise ConsoleRefused(f"the request is longer than {max_bytes} bytes")
        parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=form)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ConsoleRefused(f"the request is malformed: {error}") from error
