"""The file with the secret of session passwords, and sessions that outlive their servers."""

from __future__ import annotations

import socket
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from keepfast.apache import ConfigError
from keepfast.quorum import Membership, SharedSecret
from keepfast.replica import SessionPasswords
from keepfast.server.peer_network import EnsembleOptions
from keepfast.server.server_options import ServerOptions
from keepfast.server.session_secret import (
    SECRET_NAME,
    passwords_at_start,
    passwords_of,
    read_secret,
    write_secret,
)
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
from tests.server.secured import running

TIMEOUT_SECONDS = 60.0


def write(folder: Path, text: str) -> str:
    file = folder / "secret"
    file.write_text(text)
    return str(file)


def test_file__is_read(tmp_path: Path) -> None:
    file = write(tmp_path, f"since=2026-11-17T07:00:00+01:00\n\nsecret={'ab' * 16}\n")
    since = datetime(2026, 11, 17, 6, tzinfo=UTC)
    expected = SessionPasswords(b"\xab" * 16, int(since.timestamp() * 1000))
    assert read_secret(file) == expected
    assert passwords_of(file, "") == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "since=2026-11-17T07:00:00+00:00\n",
        f"since=2026-11-17T07:00:00\nsecret={'ab' * 16}",
        f"since=yesterday\nsecret={'ab' * 16}",
        "since=2026-11-17T07:00:00+00:00\nsecret=abcd",
        "since=2026-11-17T07:00:00+00:00\nsecret=no hex",
        "no line",
    ],
)
def test_file_that_is_none__is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="must hold since=") as caught:
        read_secret(write(tmp_path, text))
    assert "abab" not in str(caught.value)


def test_missing_file__is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        passwords_of(str(tmp_path / "missing"), str(tmp_path))


def test_server_alone__makes_its_own_for_its_owner_alone(tmp_path: Path) -> None:
    made = passwords_of("", str(tmp_path))
    file = tmp_path / SECRET_NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert passwords_of("", str(tmp_path)) == made
    assert len(made.secret) == 32


def test_what_a_member_holds__is_kept_and_counts_once_it_is_in_use(tmp_path: Path) -> None:
    file = tmp_path / SECRET_NAME
    ensemble = EnsembleOptions(1, Membership(()), (), ())
    options = ServerOptions(str(tmp_path), ensemble=ensemble)
    assert passwords_at_start(options) == (SessionPasswords(), None)
    held = SharedSecret(b"s" * 32)
    write_secret(file, held)
    assert passwords_at_start(options) == (SessionPasswords(), held)
    assert "since" not in file.read_text()
    used = held._replace(since_ms=1_700_000_000_123)
    write_secret(file, used)
    assert passwords_at_start(options) == (SessionPasswords(), used)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # As Apache's, if the operator says so.
    apaches = replace(options, has_session_secret=False)
    assert passwords_at_start(apaches) == (SessionPasswords(), None)


def test_server_that_was_a_member_and_is_alone__uses_what_it_holds(tmp_path: Path) -> None:
    write_secret(tmp_path / SECRET_NAME, SharedSecret(b"s" * 32))
    found = passwords_of("", str(tmp_path))
    assert found.secret == b"s" * 32
    assert found.since_ms > 0
    assert passwords_of("", str(tmp_path)) == found


def new_session(port: int) -> ConnectResponse:
    """A session whose client is gone without a farewell."""
    request = ConnectRequest(
        0, Zxid(0), int(TIMEOUT_SECONDS * 1000), SessionId(0), bytes(16), False
    )
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as line:
        line.sendall(encode_frame(encode(request)))
        frames = FrameParser(1 << 20)
        while True:
            for payload in frames.feed(line.recv(4096)):
                return codec_of(ConnectResponse).decode(payload)


def test_session__outlives_its_server_and_not_by_apaches_password(tmp_path: Path) -> None:
    with running(tmp_path, "") as server:
        session = new_session(server.port)
    id = session.session_id
    assert session.password != session_password(id)
    with running(tmp_path, "") as server:
        with server.client(client_id=(id, session_password(id))) as stranger:
            assert stranger.client_id[0] != id
        with server.client(client_id=(id, session.password)) as again:
            assert again.client_id == (id, session.password)
