"""Requests about sessions, the feed, the past and the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from keepfast.console.console_options import ConsoleRefused
from keepfast.console.endpoints import in_thread, reply, route
from keepfast.console.hub import Document
from keepfast.console.past import Past
from keepfast.console.txn_feed import feed_filter
from keepfast.console.viewers import Viewer

if TYPE_CHECKING:
    from keepfast.console.audit_jobs import Proofs
    from keepfast.console.running_console import Console


def past_of(console: Console) -> Past:
    """The past, or a sentence on why there is none."""
    if console.past is None:
        raise ConsoleRefused("the past needs the servers' files: start the console with --data")
    return console.past


def _proofs_of(console: Console) -> Proofs:
    if console.proofs is None:
        raise ConsoleRefused("a proof needs the servers' files: start the console with --data")
    return console.proofs


async def _sessions(console: Console, request: Request, _: Viewer) -> Response:
    text = request.query_params.get("filter", "")
    addresses = console.watch.addresses
    return reply(await in_thread(lambda: console.sessions.document(addresses, text)))


async def _feed(console: Console, request: Request, viewer: Viewer) -> Response:
    """The newest rows; those that come are events."""
    shape = feed_filter(request.query_params, viewer)
    rows = [shown for row in console.feed.rows() if (shown := shape(row)) is not None]
    return reply({"source": console.feed.source, "rows": rows})


async def _timeline(console: Console, request: Request, viewer: Viewer) -> Response:
    path = request.query_params.get("path", "/")
    if console.past is not None:
        past = console.past
        return reply(await in_thread(lambda: past.timeline(path, viewer)))
    shape = feed_filter({}, viewer)
    seen = [shape(row) for row in console.feed.rows() if row["path"] == path]
    document: Document = {
        "path": path,
        "is_whole": False,
        "end": "seen since the feed was opened; --data shows all that the logs hold",
        "total": len(seen),
        "changes": list(reversed(seen)),
    }
    return reply(document)


async def _range(console: Console, _: Request, __: Viewer) -> Response:
    return reply(await in_thread(past_of(console).range))


async def _about(console: Console, request: Request, _: Viewer) -> Response:
    at = request.query_params.get("at", "")
    past = past_of(console)
    return reply(await in_thread(lambda: past.about(at)))


async def _compare(console: Console, request: Request, viewer: Viewer) -> Response:
    query = request.query_params
    first, second = query.get("from", ""), query.get("to", "")
    past, top = past_of(console), query.get("path", "/")
    return reply(await in_thread(lambda: past.compare(first, second, top, viewer)))


async def _audits(console: Console, _: Request, __: Viewer) -> Response:
    proofs = _proofs_of(console)
    listed = await in_thread(proofs.listed)
    return reply({"audits": listed, "progress": proofs.progress()})


async def _audit(console: Console, request: Request, _: Viewer) -> Response:
    proofs, name = _proofs_of(console), request.path_params["name"]
    return reply(await in_thread(lambda: proofs.overview(name)))


async def _start_audit(console: Console, _: Request, __: Viewer) -> Response:
    return reply(await in_thread(_proofs_of(console).start))


async def _cancel_audit(console: Console, _: Request, __: Viewer) -> Response:
    await in_thread(_proofs_of(console).cancel)
    return reply({})


async def _report(console: Console, request: Request, viewer: Viewer) -> Response:
    """The report as a file: it holds values, so that it is for those who can read the files."""
    if viewer.ids is not None:
        raise ConsoleRefused("the report shows values of all znodes; keepfast audit --out makes it")
    proofs, name = _proofs_of(console), request.path_params["name"]
    text = await in_thread(lambda: proofs.report(name))
    headers = {"content-disposition": f'attachment; filename="keepfast-audit-{name}.html"'}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


PAST_ROUTES: Final = (
    route("/api/sessions", _sessions),
    route("/api/feed", _feed),
    route("/api/timeline", _timeline),
    route("/api/range", _range),
    route("/api/about", _about),
    route("/api/compare", _compare),
    route("/api/audits", _audits),
    route("/api/audits", _start_audit, "POST"),
    route("/api/audits/cancel", _cancel_audit, "POST"),
    route("/api/audits/{name}", _audit),
    route("/api/audits/{name}/report", _report),
)
