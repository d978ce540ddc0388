"""Web pages, half-open requests and secrets at the admin server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from keepfast.apache import load_config
from keepfast.server.admin_options import AdminOptions, admin_options
from tests.server.live import ADMIN, TIMEOUT, Live, live, say

SECRET = "hunter2-secret"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data", admin=replace(ADMIN, allowed_hosts=frozenset(("zk1",)))) as found:
        yield found


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("zk1:8080", 200),
        pytest.param(socket.gethostname(), 200, id="machine"),
        ("pages.example:8080", 403),
        ("zk1.pages.example", 403),
        ("127.0.0.1.pages.example", 403),
        ("[", 403),
    ],
)
def test_host_that_is_not_this_servers__403(server: Live, host: str, status: int) -> None:
    answer = server.http("/commands/srvr", headers={"Host": host})
    assert answer.status == status
    if status == 403:
        assert "keepfast.admin.allowedHosts" in answer.text


def test_rebound_name__the_database_is_not_streamed(server: Live) -> None:
    """A page whose name points here asks as the browser's user would."""
    headers = {"Host": "pages.example:8080", "Authorization": "digest super:test"}
    answer = server.http("/commands/snapshot", headers=headers)
    assert answer.status == 403
    assert "last_zxid" not in answer.headers


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
def test_probes_and_metrics_come_under_any_name(server: Live, path: str) -> None:
    assert server.http(path, headers={"Host": "lb.example"}).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://pages.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://localhost:8080"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        (
            {
                "Sec-Fetch-Site": "cross-site",
                "Sec-Fetch-Mode": "navigate",
                "Sec-Fetch-Dest": "document",
            },
            200,
        ),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_request_of_a_foreign_page__403(server: Live, headers: dict[str, str], status: int) -> None:
    found = server.http("/commands/srvr", headers={"Host": "localhost:8080", **headers})
    assert found.status == status


def test_any_host_may_be_allowed(tmp_path: Path) -> None:
    admin = AdminOptions(port=0, allowed_hosts=frozenset("*"))
    with live(tmp_path / "data", admin=admin) as server:
        assert server.http("/commands/srvr", headers={"Host": "pages.example"}).status == 200


@pytest.mark.parametrize("target", ["//[", "http://[", "//[x]/"])
def test_malformed_target__400(server: Live, target: str) -> None:
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    assert say(server.admin_port, request).startswith(b"HTTP/1.1 400 ")
    assert server.http("/livez").status == 200


def test_half_open_requests_take_every_connection__probes_are_answered(server: Live) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            half = socket.create_connection(("127.0.0.1", server.admin_port), TIMEOUT)
            stack.enter_context(half)
            half.sendall(b"GET /commands/srvr HTTP/1.1\r\n")
        assert server.http("/livez").text == "ok\n"
        assert server.http("/readyz").text == "ok\n"
        assert server.http("/commands/srvr").status == 503
    # Nothing of it stays.
    assert server.http("/livez").status == 200


def test_request_that_comes_byte_by_byte__ends_at_its_deadline(tmp_path: Path) -> None:
    with (
        live(tmp_path / "data", admin=replace(ADMIN, idle_timeout_ms=1000)) as server,
        socket.create_connection(("127.0.0.1", server.admin_port), TIMEOUT) as slow,
    ):
        slow.settimeout(0.05)
        sent = 0
        ended = False
        # A byte every 50 ms would keep a limit on silence alone waiting forever.
        while not ended and sent < 1000:
            try:
                slow.sendall(b"G" if sent else b"GET /")
                ended = slow.recv(1) == b""
            except TimeoutError:
                sent += 1
            except ConnectionError:
                ended = True
        assert ended


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text(
        f"dataDir={tmp_path}\n"
        "clientPort=0\n"
        f"ssl.keyStore.password={SECRET}\n"
        f"ssl.quorum.trustStore.password = \\\n   {SECRET}\n"
        f"ssl.keyStore.p\\u0061ssword={SECRET}\n"
        f"DigestAuthenticationProvider.superDigest=super:{SECRET}\n"
        f"SASLAuthenticationProvider.superPassword {SECRET}\n"
        f"some.other.password={SECRET}\n"
        f"# ssl.keyStore.password={SECRET}\n"
        "tickTime=2000\n"
        "ssl.keyStore.passwordPath=/etc/keepfast/password\n"
    )
    config = load_config(file)
    options = admin_options(config)
    assert options is not None
    shown = options.initial_configuration
    assert SECRET not in shown
    assert SECRET not in str(options.properties)
    assert SECRET not in repr(config)
    assert not any(SECRET in str(warning) for warning in config.warnings)
    # The rest stays as it was written.
    assert "tickTime=2000\n" in shown
    assert "ssl.keyStore.passwordPath=/etc/keepfast/password\n" in shown
    assert shown.count("***") == 7


def test_secrets_come_from_a_file_of_their_own(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"zookeeper.ignored=1\nssl.keyStore.password={SECRET}\n")
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}\nclientPort=0\nkeepfast.secretsFile={secrets}\n")
    with pytest.raises(Exception, match="only passwords and superDigest may stand"):
        load_config(file)
    secrets.write_text(f"ssl.keyStore.password={SECRET}\n")
    secrets.chmod(0o644)
    config = load_config(file)
    assert config.tls.key_store_password == SECRET
    assert any("chmod 600" in str(warning) for warning in config.warnings)
    secrets.chmod(0o600)
    assert load_config(file).warnings == ()
    secrets.unlink()
    with pytest.raises(Exception, match="the file of secrets cannot be read"):
        load_config(file)


def test_secret_on_the_command_line__is_warned_of(tmp_path: Path) -> None:
    definitions = {"zookeeper.DigestAuthenticationProvider.superDigest": "super:x"}
    config = load_config(None, overrides=definitions, data_dir=tmp_path)
    assert any("keepfast.secretsFile" in str(warning) for warning in config.warnings)
    variables = {"KEEPFAST_DIGEST_AUTHENTICATION_PROVIDER_SUPER_DIGEST": "super:x"}
    config = load_config(None, environment=variables, data_dir=tmp_path)
    assert config.auth.super_digest == "super:x"
    assert config.warnings == ()
