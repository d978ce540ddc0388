"""Who else knocks at the client port, and what they are told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import stat
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from keepfast.server import ListeningServer
from tests.server.live import ADMIN, TIMEOUT, Live, live, server_options
from tests.server.secured import LOOPS, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data", admin=ADMIN) as found:
        yield found


@pytest.mark.parametrize(
    "request_line",
    [
        "GET / HTTP/1.1",
        "HEAD /x HTTP/1.0",
        "POST /commands/snapshot HTTP/1.1",
        "PUT /x HTTP/1.1",
        "OPTIONS * HTTP/1.1",
        "DELETE / HTTP/1.1",
        "PRI * HTTP/2.0",
    ],
)
def test_browser__is_told_where_the_admin_server_is(server: Live, request_line: str) -> None:
    answer = server.say(f"{request_line}\r\nHost: localhost\r\n\r\n".encode()).decode()
    head, _, text = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(text)}" in head
    assert f"at {server.server.admin_url}\n" in text


def test_browser_without_admin_server__is_told_that_it_is_off(tmp_path: Path) -> None:
    with live(tmp_path / "data") as server:
        text = server.say(b"GET / HTTP/1.1\r\n\r\n").decode()
    assert "admin.enableServer" in text


def test_tls_client__gets_an_alert_and_the_log_names_the_port(
    server: Live, caplog: pytest.LogCaptureFixture
) -> None:
    server.call(lambda s: setattr(s.gate, "secure_port", 2281))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        caplog.at_level(logging.WARNING, "keepfast.server"),
        socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as plain,
        pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    (line,) = caplog.messages
    assert 'reason="it speaks TLS"' in line
    assert 'advice="use the secure client port; it is 2281"' in line


def test_first_bytes_one_by_one__are_put_together(server: Live) -> None:
    assert server.say(b"r", b"u", b"o", b"k") == b"imok"
    assert server.say(b"GE", b"T", b" / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_strangers_do_not_disturb_a_stock_client(server: Live) -> None:
    client = KazooClient(hosts=f"127.0.0.1:{server.port}")
    client.start(timeout=TIMEOUT)
    try:
        client.create("/a", b"1")
        server.say(b"GET / HTTP/1.1\r\n\r\n")
        server.ask("stat")
        assert client.get("/a")[0] == b"1"
    finally:
        client.stop()
        client.close()


def test_stranger_is_not_counted_as_a_client(server: Live) -> None:
    server.say(b"GET / HTTP/1.1\r\n\r\n")
    server.say(b"\x16\x03\x01\x00\x00")
    monitor = dict(line.split("\t") for line in server.ask("mntr").splitlines())
    assert monitor["zk_connection_request_count"] == "0"
    assert monitor["zk_connection_drop_count"] == "0"
    # The word's own connection.
    assert monitor["zk_num_alive_connections"] == "1"


def test_connection_that_is_cut__counts_as_dropped(server: Live) -> None:
    client = KazooClient(hosts=f"127.0.0.1:{server.port}")
    client.start(timeout=TIMEOUT)
    try:
        server.call(lambda s: s.gate.abort_all())
        client.retry(client.exists, "/")
        monitor = dict(line.split("\t") for line in server.ask("mntr").splitlines())
        assert monitor["zk_connection_drop_count"] == "1"
        assert monitor["zk_connection_revalidate_count"] == "1"
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("is_admin_port", [False, True])
def test_who_comes_when_the_server_stops__is_cut_off(
    tmp_path: Path, turns: int, is_admin_port: bool
) -> None:
    async def dial(server: Live) -> socket.socket:
        port = server.admin_port if is_admin_port else server.port
        # On the loop, so that it is accepted this many turns before the stop and not earlier.
        connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.server.stop()
        return connection

    options = server_options(tmp_path / "data", admin=ADMIN)
    server = Live(options)
    try:
        server.wait(server.server.start())
        connection = server.wait(dial(server))
    finally:
        server.end_loop()
    with connection:
        assert has_ended(connection)


def has_ended(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection, in order or not."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


_LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's tables are read")


def _own_sockets(port: int) -> list[socket.socket]:
    """The sockets of this process at a port, as copies; the server is in the same process."""
    found: list[socket.socket] = []
    for number in map(int, os.listdir("/proc/self/fd")):
        # Not every file is a socket of the internet, and one may be closed meanwhile: the listing
        # itself, whose number the first copy gets.
        with contextlib.suppress(OSError):
            is_copy = any(number == line.fileno() for line in found)
            if is_copy or not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            line = socket.socket(fileno=os.dup(number))
            if line.family == socket.AF_INET and line.getsockname()[1] == port:
                found.append(line)
            else:
                line.close()
    return found


def _is_listening(line: socket.socket) -> bool:
    return bool(line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


@_LINUX_ONLY
@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize(("text", "expected"), [("clientPortListenBacklog=7", 7), ("", 1024)])
def test_listen_backlog__is_the_configured_one(
    tmp_path: Path, loop_kind: str, text: str, expected: int
) -> None:
    with running(tmp_path, text, loop_kind=loop_kind) as server, contextlib.ExitStack() as lines:
        found = [lines.enter_context(line) for line in _own_sockets(server.port)]
        listener, *_ = filter(_is_listening, found)
        # Of a socket that listens, tcpi_sacked is how many may wait.
        facts = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    most = int(Path("/proc/sys/net/core/somaxconn").read_text())
    assert struct.unpack_from("=I", facts, 28)[0] == min(expected, most)


@pytest.mark.parametrize("loop_kind", LOOPS)
def test_clients_that_come_together__are_accepted_in_one_turn(
    tmp_path: Path, loop_kind: str
) -> None:
    async def turns(server: ListeningServer, lines: contextlib.ExitStack) -> int:
        place = ("127.0.0.1", server.running.port)
        for _ in range(8):
            lines.enter_context(socket.create_connection(place, TIMEOUT))
        count = 0
        while len(server.gate.clients) < 8:
            await asyncio.sleep(0)
            count += 1
        return count

    with running(tmp_path, "", loop_kind=loop_kind) as server, contextlib.ExitStack() as lines:
        # One to accept them, some from the socket to its protocol.
        assert server.run(turns(server.server, lines)) < 6


@_LINUX_ONLY
@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize("wanted", [True, False])
def test_keep_alive_of_clients__is_the_configured_one(
    tmp_path: Path, loop_kind: str, wanted: bool
) -> None:
    text = f"clientTcpKeepAlive={str(wanted).lower()}"
    with (
        running(tmp_path, text, loop_kind=loop_kind) as server,
        server.client(),
        contextlib.ExitStack() as lines,
    ):
        found = [lines.enter_context(line) for line in _own_sockets(server.port)]
        (client,) = (line for line in found if not _is_listening(line))
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == int(wanted)
