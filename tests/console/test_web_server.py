"""Clients of the console that never say what they want."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from keepfast.console import web_server

_TIMEOUT = 60.0
_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
_SHORT_REQUEST = _REQUEST.replace(b"/", b"/short", 1)


class _Page:
    """An application whose answer waits until it is let go, except to a short request."""

    def __init__(self) -> None:
        self.is_free = threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        if scope["path"] != "/short":
            await asyncio.to_thread(self.is_free.wait)
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def page() -> _Page:
    return _Page()


@pytest.fixture
def port(page: _Page) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            page, http=web_server.PatientProtocol, log_config=None, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield listener.getsockname()[1]
        page.is_free.set()
        server.should_exit = True
        thread.join()


def _connect(port: int, said: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), _TIMEOUT)
    line.sendall(said)
    return line


def _is_cut_off(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


def _heard(line: socket.socket, end: bytes) -> bytes:
    found = b""
    while end not in found:
        more = line.recv(1 << 16)
        assert more, found
        found += more
    return found


@pytest.mark.parametrize("said", [b"", _REQUEST[:20]])
def test_request_that_never_ends__is_cut_off(
    port: int, page: _Page, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(web_server, "_REQUEST_SECONDS", 0.2)
    page.is_free.set()
    with _connect(port, said) as line:
        assert _is_cut_off(line)
    # After an answer as well.
    with _connect(port, _REQUEST) as line:
        _heard(line, b"done")
        line.sendall(_REQUEST[:20])
        while line.recv(1 << 16):
            pass


def test_long_answer__is_not_cut_off(
    port: int, page: _Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "_REQUEST_SECONDS", 0.2)
    with _connect(port, _REQUEST) as reader:
        _heard(reader, b"begun")
        with _connect(port, b"") as silent:
            assert _is_cut_off(silent)
        page.is_free.set()
        _heard(reader, b"done")


def test_very_many_connections__who_keeps_a_request_waiting_longest_goes(
    port: int, page: _Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "_MAX_CONNECTIONS", 3)
    # The limit on connections alone may cut one off here.
    monkeypatch.setattr(web_server, "_REQUEST_SECONDS", 10 * _TIMEOUT)
    reader = _connect(port, _REQUEST)
    _heard(reader, b"begun")
    silent = [_connect(port, _SHORT_REQUEST) for _ in range(2)]
    for line in silent:
        # Answered, so their wait began before the reader's: an accept alone may come later.
        _heard(line, b"done\r\n0\r\n\r\n")
        line.sendall(b"G")
    page.is_free.set()
    _heard(reader, b"done")
    reader.sendall(_REQUEST[:20])
    late = _connect(port, _REQUEST)
    _heard(late, b"done")
    assert _is_cut_off(silent[0])
    assert not select.select(silent[1:], [], [], 0)[0]
    for line in (reader, *silent, late):
        line.close()
