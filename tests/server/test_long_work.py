"""Work that the loop does in pieces, through a real server: long lists, many clients gone."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from keepfast.driver import ServerLoop
from keepfast.replica import Connection, ReplicaOptions
from tests.apache import words
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.hostile.offenders import Offender
from tests.replica.plain_frames import greeting_of
from tests.server.live import TIMEOUT, live

# More than are forgotten in one turn.
CLIENTS = 250


def test_long_list_of_children__comes_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.replica.child_lists._SLICE", 10)
    with live(tmp_path) as server, server.client() as client:
        client.create("/p")
        names = {f"name-{number}" for number in range(95)}
        for name in names:
            client.create(f"/p/{name}")
        assert set(client.get_children("/p")) == names
        client.create("/p/new")
        assert set(client.get_children("/p")) == names | {"new"}


def test_events_of_watches_that_are_set_again__one_piece_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, count = 10, 400
    monkeypatch.setattr("keepfast.replica.reads._WATCHES_AT_ONCE", size)
    turns = []
    continued = ServerLoop.client_drained

    def counted(loop: ServerLoop, connection: Connection) -> None:
        turns.append(connection)
        continued(loop, connection)

    monkeypatch.setattr(ServerLoop, "client_drained", counted)
    with live(tmp_path) as server, Offender(server.port).greet() as client:
        gone = [f"/gone-{number}" for number in range(count)]
        client.send(struct.pack(">ii", -8, Op.SET_WATCHES) + wire.set_watches(0, gone, [], []))
        for _ in range(count + 1):
            assert client.frame()
    # Half as many to read the paths as to tell of them. Twice as many: each turn called for two.
    assert len(turns) <= count * 3 // 2 // size + 2


def test_many_clients_gone_at_once__all_are_forgotten(tmp_path: Path) -> None:
    with live(tmp_path, replica=ReplicaOptions(max_connections_per_address=0)) as server:
        hello = greeting_of(None, 600_000, read_only=False, last_zxid=0)
        frame = len(hello).to_bytes(4, "big") + hello
        lines = []
        for _ in range(CLIENTS):
            line = socket.create_connection(("127.0.0.1", server.port), TIMEOUT)
            lines.append(line)
            line.sendall(frame)
        for line in lines:
            assert line.recv(1000)
        assert server.call(lambda found: len(found.running.replica.service.greeted)) == CLIENTS
        for line in lines:
            line.close()
        words.wait_until(
            lambda: not server.call(lambda found: found.running.replica.service.greeted),
            "all connections are forgotten",
            timeout=TIMEOUT,
        )
        assert not server.call(lambda found: found.running.replica.service.connections)
        words.wait_until(
            lambda: not server.call(lambda found: found.running.world.leaving),
            "their sockets are closed",
            timeout=TIMEOUT,
        )


def test_client_that_says_nothing_more__its_socket_is_closed(tmp_path: Path) -> None:
    hello = greeting_of(None, 600_000, read_only=False, last_zxid=0)
    with (
        live(tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.port), TIMEOUT) as line,
    ):
        line.sendall(len(hello).to_bytes(4, "big") + hello)
        assert line.recv(1000)
        line.shutdown(socket.SHUT_WR)
        assert line.recv(1000) == b""
