"""An S3-compatible store on loopback: moto's server, in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from moto.core.authorization import enable_iam_authentication
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

_DENIED: Final = b"<Error><Code>AccessDenied</Code><Message>no more</Message></Error>"
_CHANGING: Final = ("PUT", "POST", "DELETE")

Answer = Callable[..., Any]


class Store:
    """The store; `variables` are those by which everybody finds it."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever)
        # How many more requests that change something are carried out; None: all.
        self.changes_left: int | None = None
        self.changes = 0
        self.read: list[str] = []
        # Objects whose names hold this are given back with another first byte.
        self.garbled: str | None = None

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], start: Answer) -> Iterable[bytes]:
        method = request["REQUEST_METHOD"]
        if method in _CHANGING:
            if self.changes_left is not None:
                if self.changes_left == 0:
                    request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
                    start("403 Forbidden", [("Content-Type", "application/xml")])
                    return [_DENIED]
                self.changes_left -= 1
            self.changes += 1
        elif method == "GET":
            self.read.append(request["PATH_INFO"])
        found: Iterable[bytes] = self._app(request, start)
        if method == "GET" and self.garbled is not None and self.garbled in request["PATH_INFO"]:
            body = b"".join(found)
            return [bytes([body[0] ^ 0xFF]) + body[1:]]
        return found


@contextmanager
def running_store(*, checks_credentials: bool = False) -> Iterator[Store]:
    """An empty store."""
    store = Store()
    store.start()
    try:
        if checks_credentials:
            with enable_iam_authentication():
                yield store
        else:
            yield store
    finally:
        store.stop()
