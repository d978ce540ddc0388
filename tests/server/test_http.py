"""The HTTP server of the admin port, and clients that do not take what they asked for."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from keepfast.server import http
from keepfast.server.http import HttpRequest, HttpResponse, HttpServer
from tests.server.voters import Run, run_on

SIZE = 20 << 20
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine, on both kinds of loop."""
    return partial(run_on, request.param)


def test_client_that_does_not_read__is_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its place, the memory of what it was sent is free again."""
    monkeypatch.setattr(http, "_REQUEST_SECONDS", 0.2)

    async def play() -> None:
        asked = asyncio.Event()

        async def answer(_: HttpRequest) -> HttpResponse:
            asked.set()
            return HttpResponse(bytes(SIZE))

        server = HttpServer(answer, idle_seconds=0.2)
        await server.start("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", server.port))
        await loop.sock_sendall(client, REQUEST)
        await asked.wait()
        await asyncio.wait(server._tasks)
        told = 0
        try:
            while data := await loop.sock_recv(client, 1 << 20):
                told += len(data)
        except ConnectionError:
            pass
        assert told < SIZE
        client.close()
        await server.stop()

    run(play())


def test_client_that_reads_late__is_answered(run: Run) -> None:
    async def play() -> None:
        async def answer(_: HttpRequest) -> HttpResponse:
            return HttpResponse(bytes(SIZE))

        server = HttpServer(answer, idle_seconds=30.0)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        await asyncio.sleep(0.3)
        assert len(await reader.read()) > SIZE
        writer.close()
        await server.stop()

    run(play())
