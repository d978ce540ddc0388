"""Sessions that move between servers by their passwords: of ours alone, and of both kinds."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from keepfast.server.session_secret import SECRET_NAME, held_secret
from keepfast.wire import (
    ConnectRequest,
    ConnectResponse,
    FrameParser,
    SessionId,
    Zxid,
    codec_of,
    encode,
    encode_frame,
    session_password,
)
from tests.apache import words
from tests.apache.server import ApacheServer
from tests.keepfast_server import KeepfastServer
from tests.mixed.servers import APACHE, KEEPFAST, PATIENCE_SECONDS, MixedEnsemble

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

# The secret is in use when this much has passed since all servers have it.
_LIMITS = {"tickTime": "500", "initLimit": "60", "syncLimit": "12", "maxSessionTimeout": "120000"}
_NEW = ConnectResponse(0, 120_000, SessionId(0), bytes(16), False)


def connect(port: int, session: ConnectResponse = _NEW) -> ConnectResponse:
    """Begin a session, or come back to one; its client is gone without a farewell."""
    request = ConnectRequest(
        0, Zxid(0), session.timeout_ms, session.session_id, session.password, False
    )
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as line:
        line.sendall(encode_frame(encode(request)))
        frames = FrameParser(1 << 20)
        while data := line.recv(4096):
            for payload in frames.feed(data):
                return codec_of(ConnectResponse).decode(payload)
    raise ConnectionError("no answer")


def assert_moves_everywhere(ensemble: MixedEnsemble, session: ConnectResponse) -> None:
    for server in ensemble.servers.values():
        assert connect(server.port, session).session_id == session.session_id


def is_apaches(session: ConnectResponse) -> bool:
    return session.password == session_password(session.session_id)


def in_use_since(root: Path) -> list[int]:
    """When each server that holds a secret begins to use it, in ms."""
    found = [held_secret(str(root / str(id))) for id in (1, 2, 3)]
    return [held.since_ms for held in found if held is not None and held.since_ms]


def wait_used(root: Path) -> None:
    words.wait_until(
        lambda: [len(since := in_use_since(root)), len(set(since))] == [3, 1],
        "all servers hold one secret",
        timeout=PATIENCE_SECONDS,
    )
    words.wait_until(
        lambda: time.time() * 1000 > in_use_since(root)[0],
        "it is in use",
        timeout=PATIENCE_SECONDS,
    )


def test_session_of_an_apache_ensemble__moves_when_all_servers_are_ours_and_use_a_secret(
    tmp_path: Path,
) -> None:
    kinds = dict.fromkeys((1, 2, 3), APACHE)
    with MixedEnsemble(tmp_path, kinds, configuration=_LIMITS) as ensemble:
        ensemble.start()
        session = connect(ensemble.servers[1].port)
        for id in kinds:
            ensemble.servers[id].stop()
        for id in kinds:
            ensemble.place(id, KEEPFAST)
        ensemble.start()
        wait_used(tmp_path)
        assert_moves_everywhere(ensemble, session)
        assert not is_apaches(connect(ensemble.servers[3].port))


def test_all_servers_are_ours__a_secret_is_made_and_sessions_move_by_it(tmp_path: Path) -> None:
    kinds = dict.fromkeys((1, 2, 3), KEEPFAST)
    with MixedEnsemble(tmp_path, kinds, configuration=_LIMITS) as ensemble:
        ensemble.start()
        before = connect(ensemble.servers[1].port)
        assert is_apaches(before)
        wait_used(tmp_path)
        session = connect(ensemble.servers[2].port)
        assert not is_apaches(session)
        assert_moves_everywhere(ensemble, session)
        assert_moves_everywhere(ensemble, before)
        guess = session._replace(password=session_password(session.session_id))
        assert not any(connect(one.port, guess).session_id for one in ensemble.servers.values())
        for id in (1, 2, 3):
            ensemble.servers[id].kill()
            ensemble.start(id)
            assert connect(ensemble.servers[id].port, session).session_id == session.session_id
        for id in (1, 2, 3):
            assert (tmp_path / str(id) / SECRET_NAME).stat().st_mode & 0o777 == 0o600
            secret = held_secret(str(tmp_path / str(id)))
            assert secret is not None
            assert secret.secret.hex() not in ensemble.servers[id].output()


def test_session_of_an_apache_server__lives_on_when_ours_takes_its_directory(
    tmp_path: Path,
) -> None:
    settings = {"maxSessionTimeout": "60000"}
    with ApacheServer(tmp_path / "data", configuration=settings) as theirs:
        session = connect(theirs.port)
    assert is_apaches(session)
    for _ in range(2):
        with KeepfastServer(tmp_path / "data", configuration=settings) as ours:
            assert connect(ours.port, session).session_id == session.session_id
            assert not is_apaches(connect(ours.port))


@pytest.mark.parametrize("apaches", [1, 3])
def test_one_server_is_apaches__no_secret_and_sessions_move_to_it(
    tmp_path: Path, apaches: int
) -> None:
    kinds = {id: APACHE if id == apaches else KEEPFAST for id in (1, 2, 3)}
    with MixedEnsemble(tmp_path, kinds, configuration=_LIMITS) as ensemble:
        ensemble.start()
        for server in ensemble.servers.values():
            session = connect(server.port)
            assert is_apaches(session)
            assert_moves_everywhere(ensemble, session)
    assert not in_use_since(tmp_path)
