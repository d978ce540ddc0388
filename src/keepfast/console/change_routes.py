"""Requests that change something, and what is shown before and after."""

from __future__ import annotations

import getpass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from keepfast.console.console_options import ConsoleRefused
from keepfast.console.endpoints import body_of, in_thread, refuse, reply, route
from keepfast.console.page_changes import ChangeForm, Done, EditConflict
from keepfast.console.viewers import Viewer
from keepfast.wire import KeepfastError

if TYPE_CHECKING:
    from collections.abc import Callable

    from keepfast.console.running_console import Console


class UndoForm(msgspec.Struct):
    """Which change is to be undone."""

    id: int


def _refuse_reading_only(console: Console) -> None:
    if not console.options.allows_writes:
        raise ConsoleRefused("this console only reads; start it with --allow-writes to change")


async def _make(console: Console, request: Request, viewer: Viewer) -> Response:
    _refuse_reading_only(console)
    form = await body_of(request, ChangeForm)

    def work() -> Done:
        return console.changes.make(viewer.client(), viewer.owner, form)

    return await _logged(console, request, viewer, (form.kind, form.path), work)


async def _undo(console: Console, request: Request, viewer: Viewer) -> Response:
    _refuse_reading_only(console)
    form = await body_of(request, UndoForm)

    def work() -> Done:
        return console.changes.undo(viewer.client(), viewer.owner, form.id)

    return await _logged(console, request, viewer, ("undo", str(form.id)), work)


async def _logged(
    console: Console,
    request: Request,
    viewer: Viewer,
    asked: tuple[str, str],
    work: Callable[[], Done],
) -> Response:
    """Do it, and write it to the audit log whatever the outcome."""
    address = request.client.host if request.client is not None else "-"
    user = viewer.name or f"console:{getpass.getuser()}"
    console.change_log.check()
    try:
        done = await in_thread(work)
    except KeepfastError as error:
        console.change_log.write(user, address, *asked, "failure")
        if isinstance(error, EditConflict):
            return refuse(str(error), HTTPStatus.CONFLICT, theirs=error.theirs)
        raise
    console.change_log.write(user, address, done.operation, done.path, "success")
    undo = None if done.undo is None else done.undo.document()
    return reply({"sentence": done.sentence, "path": done.path, "undo": undo})


async def _preview(console: Console, request: Request, viewer: Viewer) -> Response:
    path = request.query_params.get("path", "/")
    return reply(await in_thread(lambda: console.changes.preview(viewer.client(), path)))


async def _undos(console: Console, _: Request, viewer: Viewer) -> Response:
    return reply({"undos": console.changes.undos(viewer.owner)})


CHANGE_ROUTES: Final = (
    route("/api/change", _make, "POST"),
    route("/api/undo", _undo, "POST"),
    route("/api/undos", _undos),
    route("/api/preview", _preview),
)
