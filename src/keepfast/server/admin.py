"""The HTTP admin server: Apache's commands, probes and metrics.

    /commands, /commands/<name>    as Apache's AdminServer (see admin_commands)
    /livez                         200 while the process can do its work; else restart it
    /readyz[?verbose]              200 if the data is proven whole and clients are served; else 503
    /metrics                       Prometheus' text format, under Apache's names

It starts before the data is read, so that probes can see what the server is waiting for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from keepfast.apache import NOT_SERVING
from keepfast.server.admin_commands import (
    COMMANDS,
    CommandAnswer,
    CommandContext,
    RateLimit,
    command_names,
)
from keepfast.server.admin_options import AdminOptions
from keepfast.server.http import HttpRequest, HttpResponse, HttpServer
from keepfast.server.metrics import collect, exposition
from keepfast.server.readiness import conditions
from keepfast.server.running_server import RunningServer
from keepfast.server.web_guard import WebGuard
from keepfast.wire import StorageError, safe_json

_PROBES: Final = frozenset(("/livez", "/readyz"))
_METRICS: Final = "/metrics"
_OPEN_PATHS: Final = _PROBES | {_METRICS}
_KNOWN: Final = "/livez\n/readyz?verbose\n/metrics"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class AdminServer:
    """The listener of one server's admin port."""

    def __init__(self, server: RunningServer, options: AdminOptions) -> None:
        self._server = server
        self.options = options
        self._context = CommandContext(options, RateLimit(options.snapshot_interval_ms))
        idle_seconds = options.idle_timeout_ms / 1000
        self._guard = WebGuard(options.allowed_hosts, _OPEN_PATHS)
        self._http = HttpServer(self._answer, idle_seconds, options.tls, _PROBES)
        self._metrics_http = HttpServer(self._answer_monitoring, idle_seconds, None, _PROBES)

    @property
    def url(self) -> str | None:
        """Where its commands are; None: nowhere."""
        return self._http.address + self.options.command_url if self.options.is_on else None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    @property
    def metrics_port(self) -> int:
        """The port of the second listener; 0: there is none."""
        return self._metrics_http.port

    async def start(self) -> None:
        """Listen. Raises OSError."""
        if self.options.is_on:
            await self._http.start(self.options.host, self.options.port)
        if self.options.metrics_address is not None:
            await self._metrics_http.start(*self.options.metrics_address)

    async def stop(self) -> None:
        """Close the ports."""
        await self._http.stop()
        await self._metrics_http.stop()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        refusal = self._guard.refusal(request)
        if refusal is not None:
            return _text(refusal, HTTPStatus.FORBIDDEN)
        try:
            return await self._route(request)
        except (OSError, StorageError) as error:
            # For example, a directory that cannot be listed; the client must be informed.
            self._server.log.error("admin-failed", path=request.path, reason=error)
            return _text(f"failed: {error}", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _route(self, request: HttpRequest) -> HttpResponse:
        commands = self.options.command_url
        path = request.path
        if path == commands or path.startswith(f"{commands}/"):
            return await self._run(request, path[len(commands) + 1 :])
        if request.method not in ("GET", "HEAD"):
            return _text("only GET", HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
        if path in _OPEN_PATHS:
            return await self._monitoring(request)
        known = f"{commands}\n{_KNOWN}"
        return _text(known, HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND)

    async def _answer_monitoring(self, request: HttpRequest) -> HttpResponse:
        """The second listener: what shows no data and runs no command, for any network."""
        if request.path not in _OPEN_PATHS:
            return _text(_KNOWN, HTTPStatus.NOT_FOUND)
        return await self._monitoring(request)

    async def _monitoring(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/livez":
            return self._live()
        if request.path == "/readyz":
            return self._ready(request)
        return await self._metrics()

    # -- probes and metrics ----------------------------------------------------------------------

    def _live(self) -> HttpResponse:
        failure = self._server.failure
        if failure is not None:
            return _text(str(failure), HTTPStatus.SERVICE_UNAVAILABLE)
        return _text("ok")

    def _ready(self, request: HttpRequest) -> HttpResponse:
        found = conditions(self._server)
        missing = [condition for condition in found if not condition.is_met]
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        if "verbose" in request.query:
            lines = [
                f"[{'+' if condition.is_met else '-'}] {condition.name}: {condition.detail}"
                for condition in found
            ]
            return _text("\n".join([*lines, "not ready" if missing else "ready"]), status)
        if missing:
            return _text(f"not ready: {missing[0].name}: {missing[0].detail}", status)
        return _text("ok")

    async def _metrics(self) -> HttpResponse:
        if not self._server.is_loaded:
            return _text(self._server.loading, HTTPStatus.SERVICE_UNAVAILABLE)
        metrics = collect(self._server)
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(None, exposition, metrics)
        return HttpResponse(body, _METRICS_TYPE)

    # -- commands --------------------------------------------------------------------------------

    async def _run(self, request: HttpRequest, name: str) -> HttpResponse:
        if request.method not in ("GET", "HEAD", "POST"):
            return _text("only GET and POST", HTTPStatus.METHOD_NOT_ALLOWED)
        if not name:
            return self._links()
        command = COMMANDS.get(name)
        # Apache answers the next two with 200: scripts check the field "error".
        if command is None:
            return _json(CommandAnswer(error=f"Unknown command: {name}"), name)
        if command.needs_data and not (self._server.is_loaded and self._server.is_serving):
            return _json(CommandAnswer(error=NOT_SERVING), name)
        if command.method != request.method and not (
            command.method == "GET" and request.method == "HEAD"
        ):
            answer = CommandAnswer(
                error=f"{command.name} wants {command.method}",
                status=HTTPStatus.METHOD_NOT_ALLOWED,
            )
            return _json(answer, name)
        answer = await command.run(self._server, self._context, request)
        shown = name if answer.is_refused else command.name
        # Beside the loop: it may be megabytes.
        return await asyncio.get_running_loop().run_in_executor(None, _json, answer, shown)

    def _links(self) -> HttpResponse:
        url = self.options.command_url
        lines = (f'<a href="{url}/{name}">{name}</a>\n<br/>\n' for name in command_names())
        return HttpResponse("".join(lines).encode(), "text/html; charset=utf-8")


def _text(
    text: str, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    return HttpResponse(f"{text}\n".encode(), status=status, headers=headers or {})


def _json(answer: CommandAnswer, name: str) -> HttpResponse:
    if answer.stream is not None:
        return HttpResponse(
            content_type="application/octet-stream",
            headers=answer.headers,
            stream=answer.stream,
            stream_bytes=answer.stream_bytes,
        )
    document = {**answer.fields, "command": name, "error": answer.error}
    # The separators are those of Apache's printer.
    # People read it on terminals: names of znodes and users must not contain escape sequences.
    body = safe_json(json.dumps(document, indent=2, separators=(",", " : "), ensure_ascii=False))
    # Paths may contain invalid characters, which must not break the reply.
    data = body.encode("utf-8", "replace")
    return HttpResponse(data, "application/json", answer.status, answer.headers)
