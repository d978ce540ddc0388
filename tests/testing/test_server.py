"""The server in a test's process: what a user of `keepfast.testing` relies on."""

from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.protocol.states import KazooState

from keepfast.testing import Server
from tests.apache.words import wait_until


def test_fixtures__client_reads_what_it_wrote(keepfast_client: Any) -> None:
    keepfast_client.create("/a", b"1")
    assert keepfast_client.get("/a")[0] == b"1"


def test_start__waits_for_no_tick() -> None:
    # Ten minutes: a start that waited for one would not return.
    with Server(tick_ms=600_000) as server:
        assert server.port


def test_restart__data_and_sessions_survive() -> None:
    with Server() as server:
        client = server.client()
        client.create("/a", b"1")
        client.create("/e", ephemeral=True)
        session = client.client_id
        server.restart()
        # With retries: the client may not have noticed yet that its connection is gone.
        assert client.retry(client.get, "/a")[0] == b"1"
        assert client.retry(client.exists, "/e")
        assert client.client_id == session


def test_expire__ephemerals_go_and_the_client_is_told() -> None:
    with Server() as server:
        client, other = server.client(), server.client()
        states: list[str] = []
        client.add_listener(states.append)
        client.create("/e", ephemeral=True)
        server.expire(client)
        wait_until(lambda: KazooState.LOST in states, "loss of the session")
        wait_until(lambda: other.exists("/e") is None, "the end of its ephemeral")


def test_drop_connections__the_session_survives() -> None:
    with Server() as server:
        client = server.client()
        session = client.client_id
        states: list[str] = []
        client.add_listener(states.append)
        server.drop_connections()
        wait_until(lambda: KazooState.SUSPENDED in states, "loss of the connection")
        wait_until(lambda: client.state == KazooState.CONNECTED, "reconnection")
        assert client.client_id == session


def test_full_disk__writes_are_refused_reads_continue_and_all_resumes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "keepfast.server")
    with Server() as server:
        client = server.client()
        client.create("/a", b"1")
        assert "disk-" not in caplog.text
        server.fill_disk()
        assert "ERROR    keepfast.server" in caplog.text
        assert "disk-full" in caplog.text
        with pytest.raises(KazooException):
            client.set("/a", b"2")
        assert client.get("/a")[0] == b"1"
        server.free_disk()
        assert "disk-has-space" in caplog.text
        client.set("/a", b"3")
        assert client.get("/a")[0] == b"3"


def test_pause__requests_wait_and_sessions_survive() -> None:
    with Server() as server:
        client = server.client(timeout=60)
        server.pause()
        pending = client.create_async("/a", b"1")
        assert not pending.ready()
        server.resume()
        assert pending.get(timeout=60) == "/a"


def test_own_directory__is_kept(tmp_path: Path) -> None:
    with Server(str(tmp_path / "data")) as server:
        server.client().create("/a", b"1")
    with Server(str(tmp_path / "data")) as server, pytest.raises(NodeExistsError):
        server.client().create("/a", b"1")
