"""What others get to see: no password, no answer to a foreign page, no command for a terminal.

On one real server for each door; behind the secured one the admin server speaks HTTPS alone.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha1

import pytest

from keepfast.server.session_secret import held_secret
from tests.apache import wait_until, words
from tests.differential import requests as wire
from tests.differential.requests import Op
from tests.differential.scripts import OPEN
from tests.hostile.doors import DOORS, PASSWORD, Door, door_of
from tests.hostile.offenders import HUNG_UP, TIMEOUT, Offender, is_whole
from tests.hostile.test_unreadable import ask
from tests.keepfast_server import KeepfastServer

_SUPER_PASSWORD = "super's own secret"
_SUPER = "super:" + b64encode(sha1(f"super:{_SUPER_PASSWORD}".encode()).digest()).decode()
_STORE_PASSWORD = "hunter2-secret"
# ESC, BEL, a CSI of one byte, line separators, overrides of direction.
_ATTACK = "\x1b]0;owned\x07\x9b31m\u2028\u202e\u2066"
# What a path may not have is left out of it.
_NAME = "/n\u2028\u202e\u2066\u200b"
_WORDS = ("conf", "cons", "dump", "envi", "srvr", "stat", "wchs", "wchc", "wchp", "mntr", "dirs")
_EPHEMERAL = 1


@pytest.fixture(scope="module", params=DOORS)
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Door:
    return door_of(request.param, tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def server(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeepfastServer]:
    store = door.configuration.get("ssl.keyStore.location", "")
    settings = {
        "tickTime": "500",
        "audit.enable": "true",
        "admin.serverPort": "0",
        "DigestAuthenticationProvider.superDigest": _SUPER,
        "ssl.trustStore.password": _STORE_PASSWORD,
        "SASLAuthenticationProvider.superPassword": _SUPER_PASSWORD,
    }
    if store:
        settings |= {"admin.forceHttps": "true", "ssl.quorum.keyStore.location": store}
    properties = {
        "zookeeper.admin.enableServer": "true",
        "zookeeper.DigestAuthenticationProvider.superDigest": "",
    }
    place = tmp_path_factory.mktemp("pages") / "data"
    with door.server(place, settings, properties) as found:
        yield found
    assert is_whole(found.data_dir)


def admin_port(server: KeepfastServer) -> int:
    wait_until(lambda: "admin-server" in server.output(), "the admin server")
    match = re.search(r"admin-server .*url=\"?https?://127\.0\.0\.1:(\d+)", server.output())
    assert match is not None
    return int(match[1])


def admin_line(server: KeepfastServer, door: Door) -> http.client.HTTPConnection:
    port = admin_port(server)
    if door.tls is None:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT, context=door.tls)


def get(
    server: KeepfastServer, door: Door, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    line = admin_line(server, door)
    try:
        line.request("GET", path, headers=dict(headers or {}))
        response = line.getresponse()
        return response.status, response.read().decode()
    finally:
        line.close()


def commands(server: KeepfastServer, door: Door) -> list[str]:
    """All commands that show something."""
    _, listed = get(server, door, "/commands")
    found = re.findall(r'href="/?commands/(\w+)"', listed)
    assert len(found) > 20
    return [name for name in found if name not in ("snapshot", "restore", "hand_over")]


def everything_shown(server: KeepfastServer, door: Door) -> str:
    """What words, commands, metrics, the log and a check of the configuration say."""
    said = [words.ask(server.port, word) for word in _WORDS] if door.tls is None else []
    said += [get(server, door, f"/commands/{name}")[1] for name in commands(server, door)]
    said += [get(server, door, "/metrics")[1]]
    file = server.work_dir / "zoo.cfg"
    check = [sys.executable, "-m", "keepfast", "serve", "--check", str(file)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    return "\n".join([*said, done.stdout, done.stderr, server.output()])


def test_passwords__are_shown_nowhere(server: KeepfastServer, door: Door) -> None:
    with door.enter(server.port) as owner:
        assert ask(owner, Op.CREATE, wire.create("/mine", b"data of mine", OPEN, 0)) == 0
        shown = everything_shown(server, door)
    held = held_secret(str(server.data_dir))
    assert held is not None
    _, _, digest = _SUPER.partition(":")
    for secret in (_SUPER_PASSWORD, digest, _STORE_PASSWORD, held.secret.hex(), PASSWORD):
        assert secret not in shown
    assert "data of mine" not in shown


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "pages.example:8080"},
        {"Host": "localhost", "Origin": "https://pages.example"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_foreign_page__gets_neither_commands_nor_the_database(
    server: KeepfastServer, door: Door, headers: dict[str, str]
) -> None:
    proof = {"Authorization": f"digest super:{_SUPER_PASSWORD}"}
    for command in ("srvr", "snapshot?streaming=true", "initial_configuration"):
        status, text = get(server, door, f"/commands/{command}", {**headers, **proof})
        assert status == 403
        assert "tickTime" not in text
    assert get(server, door, "/livez", {"Host": headers["Host"]})[0] == 200


def test_target_that_is_none__400(server: KeepfastServer, door: Door) -> None:
    line = socket.create_connection(("127.0.0.1", admin_port(server)), TIMEOUT)
    if door.tls is not None:
        line = door.tls.wrap_socket(line, server_hostname="127.0.0.1")
    with line:
        line.sendall(b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize("has_shaken_hands", [True, False])
def test_half_open_requests__probes_are_answered(
    server: KeepfastServer, door: Door, has_shaken_hands: bool
) -> None:
    """More than may be open at one time; inside TLS, also those that do not get that far."""
    port = admin_port(server)
    with ExitStack() as stack:
        for _ in range(300):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT))
            if door.tls is not None and has_shaken_hands:
                # Those that come when all places are taken are cut off, the oldest first.
                try:
                    half = door.tls.wrap_socket(half, server_hostname="127.0.0.1")
                except (*HUNG_UP, ssl.SSLError):
                    continue
                stack.enter_context(half)
            try:
                half.sendall(b"GET /commands/srvr HTTP/1.1\r\n"[: None if has_shaken_hands else 1])
            except (*HUNG_UP, ssl.SSLError):
                continue
        assert get(server, door, "/livez") == (200, "ok\n")
        assert get(server, door, "/readyz") == (200, "ok\n")
    assert get(server, door, "/livez") == (200, "ok\n")


def is_safe(text: str) -> bool:
    return re.sub("[\n\t\r]", "", text).isprintable()


def become(offender: Offender, user: str) -> None:
    credentials = f"{user}:password".encode()
    assert ask(offender, Op.AUTH, wire.auth("digest", credentials)) == 0


def test_names_and_users_that_attack__are_escaped_wherever_they_are_shown(
    server: KeepfastServer, door: Door
) -> None:
    with door.enter(server.port) as offender:
        become(offender, f"user{_ATTACK}")
        everybody = [(31, "auth", "")]
        # A path with ESC is refused, and the refusal is in the audit log.
        refused = wire.create(f"/p{_ATTACK}", b"", OPEN, 0)
        assert ask(offender, Op.CREATE, refused) != 0
        assert ask(offender, Op.CREATE, wire.create(_NAME, b"\x1b[2J", everybody, _EPHEMERAL)) == 0
        assert ask(offender, Op.GET_DATA, wire.with_flag(_NAME, True)) == 0
        shown = everything_shown(server, door)
        unsafe = [line for line in shown.split("\n") if not is_safe(line)]
        assert not unsafe
        assert "\\u202e" in shown
    for command in (["verify"], ["inspect"]):
        done = subprocess.run(
            [sys.executable, "-m", "keepfast", *command, str(server.data_dir)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert is_safe(done.stdout + done.stderr)
