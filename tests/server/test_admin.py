"""The HTTP admin server: Apache's commands, probes, and what happens to strange requests."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keepfast.client import Client
from keepfast.driver import Failure
from keepfast.server import AdminOptions, ListeningServer
from keepfast.server.admin_commands import COMMANDS, RateLimit, command_names
from keepfast.storage import RealDisk, Standing, data_directory, load_tree
from keepfast.testing.fillable_disk import FullableDisk
from keepfast.tree import DataWatches
from keepfast.wire import ACL, CreateMode, DiskFailed, Id, safe_json
from tests.apache import ApacheCommands, wait_until
from tests.server.live import (
    ADMIN,
    SUPER_DIGEST,
    TIMEOUT,
    Live,
    live,
    say,
    server_options,
)

SUPER = {"Authorization": "digest super:test"}


@pytest.fixture(autouse=True)
def _no_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets are counted, and a client that is slow pings in between."""
    monkeypatch.setattr("keepfast.client.client_session._MAX_PING_INTERVAL_S", 3600.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "data", admin=ADMIN) as found:
        yield found


# -- probes --------------------------------------------------------------------------------------


def test_server_that_serves_whole_data_is_ready(server: Live) -> None:
    assert server.http("/livez").text == "ok\n"
    assert server.http("/readyz").text == "ok\n"
    lines = server.http("/readyz?verbose").text.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == [
        "[+] loaded",
        "[+] whole",
        "[+] serving",
        "[+] space",
    ]
    assert lines[-1] == "ready"


def test_while_the_data_is_read__probes_and_commands_say_so(server: Live) -> None:
    server.call(lambda s: setattr(s.running, "is_loaded", False))
    try:
        assert server.http("/livez").status == 200
        answer = server.http("/readyz")
        assert answer.status == 503
        assert answer.text == "not ready: loaded: reading the data directory\n"
        assert server.http("/metrics").status == 503
        refused = server.http("/commands/srvr")
        assert refused.status == 200
        error = "This ZooKeeper instance is not currently serving requests"
        assert refused.document == {"command": "srvr", "error": error}
        assert server.http("/commands/envi").document["error"] is None
    finally:
        server.call(lambda s: setattr(s.running, "is_loaded", True))


def test_slow_disk_at_the_start__probes_are_answered_meanwhile(tmp_path: Path) -> None:
    is_quick = threading.Event()

    class SlowDisk(RealDisk):
        def lock(self, path: str) -> None:
            is_quick.wait(TIMEOUT)
            super().lock(path)

    found = Live(server_options(tmp_path / "data", admin=ADMIN), SlowDisk())
    try:
        starting = asyncio.run_coroutine_threadsafe(found.server.start(), found.loop)
        wait_until(lambda: found.server.admin is not None, "the admin server listens")
        assert found.http("/livez").status == 200
        assert found.http("/readyz").status == 503
        is_quick.set()
        starting.result(TIMEOUT)
        assert found.http("/readyz").status == 200
        found.wait(found.server.stop())
    finally:
        is_quick.set()
        found.end_loop()


def test_full_disk__not_ready_and_back(tmp_path: Path) -> None:
    disk = FullableDisk()
    with live(tmp_path / "data", disk=disk, admin=ADMIN) as server:
        disk.is_full = True
        server.call(lambda s: s.running.driver.look_for_space())
        answer = server.http("/readyz?verbose")
        assert answer.status == 503
        assert "[-] space: 0 bytes are free, less than the reserve of 1048576" in answer.text
        assert server.http("/livez").status == 200
        disk.is_full = False
        server.call(lambda s: s.running.driver.look_for_space())
        assert server.http("/readyz").status == 200


def test_data_that_is_not_proven__not_ready(server: Live) -> None:
    def doubt(found: ListeningServer) -> None:
        found.running.store.standing = Standing.UNPROVEN

    server.call(doubt)
    answer = server.http("/readyz")
    assert answer.status == 503
    assert answer.text == "not ready: whole: the data is unproven\n"


def test_disk_that_failed__neither_live_nor_ready(server: Live) -> None:
    def fail(found: ListeningServer) -> None:
        found.running.failure = Failure(DiskFailed("write: Input/output error", "log.1"))
        found.running.is_up = False

    server.call(fail)
    assert server.http("/livez").status == 503
    answer = server.http("/readyz")
    assert answer.status == 503
    assert "serving: the disk failed: " in answer.text


# -- commands ------------------------------------------------------------------------------------


def test_answer_is_pretty_printed_as_apaches(server: Live) -> None:
    answer = server.http("/commands/ruok")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.text == '{\n  "command" : "ruok",\n  "error" : null\n}'


def test_aliases_answer_with_the_first_name(server: Live) -> None:
    for name, command in COMMANDS.items():
        if command.method == "GET" and command.name != "snapshot":
            answer = server.http(f"/commands/{name}").document
            assert answer["command"] == command.name


def test_unknown_command__200_with_an_error(server: Live) -> None:
    answer = server.http("/commands/nosuch")
    assert answer.status == 200
    assert answer.document == {"command": "nosuch", "error": "Unknown command: nosuch"}


def test_commands_are_listed_as_links(server: Live) -> None:
    text = server.http("/commands").text
    assert text == server.http("/commands/").text
    assert text.startswith('<a href="/commands/configuration">configuration</a>\n<br/>\n')
    assert text.count("<a href=") == len(command_names())


def test_another_command_url(tmp_path: Path) -> None:
    with live(tmp_path / "data", admin=replace(ADMIN, command_url="/zk/run")) as server:
        assert server.http("/zk/run/ruok").document["command"] == "ruok"
        assert server.http("/commands/ruok").status == 404


def test_trace_mask(server: Live) -> None:
    wanted = "setTraceMask requires long traceMask argument"
    assert server.http("/commands/stmk").document["error"] == wanted
    assert server.http("/commands/stmk?traceMask=x").document["error"] == f"{wanted}, got x"
    assert server.http(f"/commands/stmk?traceMask={1 << 63}").document["error"] is not None
    assert server.http("/commands/stmk?traceMask=5").document["tracemask"] == 5
    assert server.http("/commands/gtmk").document["tracemask"] == 5


def test_resets(server: Live) -> None:
    with server.client() as client:
        client.exists("/")
        assert server.http("/commands/cons").document["connections"][0]["packets_received"] == 2
        server.http("/commands/crst")
        assert server.http("/commands/cons").document["connections"][0]["packets_received"] == 0
        server.http("/commands/srst")
        assert server.http("/commands/srvr").document["server_stats"]["packets_received"] == 0


def test_what_is_configured_is_shown(tmp_path: Path) -> None:
    admin = replace(ADMIN, initial_configuration="tickTime=2000\n", properties={"b": "2", "a": "1"})
    with live(tmp_path / "data", admin=admin) as server:
        shown = server.http("/commands/icfg").document
        assert shown["initial_configuration"] == "tickTime=2000\n"
        properties = server.http("/commands/sysp").document
        assert list(properties) == ["a", "b", "command", "error"]
        assert server.http("/commands/conf").document["client_port"] == server.port


# -- snapshots -----------------------------------------------------------------------------------


def test_snapshot_is_streamed__and_a_server_could_start_on_it(server: Live, tmp_path: Path) -> None:
    with server.client() as client:
        client.create("/a", b"1" * 300_000)
        client.create("/a/b", b"2")
        answer = server.http("/commands/snapshot", headers=SUPER)
        client.set_data("/a/b", b"3")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["last_zxid"] == "0x3"
    assert answer.headers["snapshot_size"] == str(len(answer.body))
    folder = tmp_path / "copy" / "version-2"
    folder.mkdir(parents=True)
    (folder / "snapshot.3").write_bytes(answer.body)
    disk = RealDisk()
    place = data_directory(disk, str(tmp_path / "copy"))
    tree, *_ = load_tree(disk, place.in_snapshots("snapshot.3"))
    node = tree.find("/a/b")
    assert node is not None
    assert node.data == b"2"
    shown = server.http("/commands/lsnp").document
    assert shown["zxid"] == "3"
    assert shown["timestamp"] > 1_500_000_000


def test_snapshot_without_stream__only_says_which(server: Live) -> None:
    answer = server.http("/commands/snap?streaming=false", headers=SUPER)
    assert answer.headers["last_zxid"] == "0x0"
    assert answer.document == {"command": "snapshot", "error": None}


@pytest.mark.parametrize(
    ("authorization", "error"),
    [
        (None, "Auth info is missing for the command"),
        ("digest", "Not authenticated"),
        ("digest a b", "Not authenticated"),
        ("foo bar", "Not authenticated"),
        ("world anyone", "Not authenticated"),
        ("x509", "Not authenticated"),
    ],
)
def test_snapshot_without_proof__401(server: Live, authorization: str | None, error: str) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = server.http("/commands/snap", headers=headers)
    assert answer.status == 401
    assert answer.document == {"command": "snap", "error": error}


def test_snapshot_needs_every_permission_on_the_root(server: Live) -> None:
    with server.client() as client:
        client.set_acl("/", (ACL(31, Id("ip", "127.0.0.1")), ACL(30, Id("digest", "bob:x"))))
    assert server.http("/commands/snapshot", headers={"Authorization": "ip"}).status == 200
    refused = server.http("/commands/snapshot", headers={"Authorization": "digest bob:pw"})
    assert refused.status == 403
    assert refused.document["error"] == "Not authorized"


def test_snapshots_are_rate_limited(server: Live) -> None:
    assert server.http("/commands/snapshot", headers=SUPER).status == 200
    assert server.http("/commands/snapshot", headers=SUPER).status == 429
    assert server.http("/commands/mntr").document["snapshot_rate_limited_count"] == 1


def test_snapshot_that_is_switched_off__503(tmp_path: Path) -> None:
    with live(tmp_path / "data", admin=replace(ADMIN, is_snapshot_enabled=False)) as server:
        assert server.http("/commands/snapshot", headers=SUPER).status == 503


def test_snapshot_that_cannot_be_written__500_and_the_server_goes_on(tmp_path: Path) -> None:
    disk = FullableDisk()
    with live(tmp_path / "data", disk=disk, admin=ADMIN) as server:
        disk.is_full = True
        assert server.http("/commands/snapshot", headers=SUPER).status == 500
        disk.is_full = False
        assert server.http("/commands/mntr").document["snapshot_error_count"] == 1
        with server.client() as client:
            client.create("/a")


def test_restore_is_not_supported__and_says_so(server: Live) -> None:
    assert server.http("/commands/restore", method="POST", body=b"x").status == 401
    answer = server.http("/commands/restore", method="POST", headers=SUPER, body=b"x")
    assert answer.status == 501
    assert "stop it" in answer.document["error"]


def test_rate_limit() -> None:
    limit = RateLimit(100)
    assert limit.allows(5)
    assert not limit.allows(104)
    assert limit.allows(105)
    assert RateLimit(0).allows(0)


def test_directory_that_cannot_be_read__500_with_the_reason(tmp_path: Path) -> None:
    with live(tmp_path / "data", admin=ADMIN) as server:

        def hide(found: ListeningServer) -> None:
            found.running.directory = msgspec.structs.replace(
                found.running.directory, logs=str(tmp_path / "gone")
            )

        kept = server.server.running.directory
        server.call(hide)
        answer = server.http("/commands/dirs")
        assert answer.status == 500
        assert "gone" in answer.text
        server.call(lambda s: setattr(s.running, "directory", kept))


def test_client_that_leaves_during_a_stream__costs_nothing(server: Live) -> None:
    with server.client() as client:
        for number in range(40):
            client.create(f"/a{number}", b"1" * 1_000_000)
    request = b"GET /commands/snapshot HTTP/1.1\r\nHost: localhost\r\nAuthorization: ip\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.admin_port), TIMEOUT) as connection:
        connection.sendall(request)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")
    assert server.http("/livez").status == 200


# -- HTTP ----------------------------------------------------------------------------------------


def test_connection_is_kept_for_more_requests(server: Live) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.admin_port, timeout=TIMEOUT)
    connection.request("GET", "/livez")
    first = connection.getresponse()
    first.read()
    held = connection.sock
    connection.request("HEAD", "/commands/ruok")
    second = connection.getresponse()
    assert (second.status, second.read()) == (200, b"")
    assert connection.sock is held
    connection.close()


def test_strange_requests_are_refused_and_others_served(server: Live) -> None:
    port = server.admin_port
    assert b"HTTP/1.1 400 " in say(port, b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
    assert b"HTTP/1.1 431 " in say(port, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
    body = b"x" * 200_000
    assert server.http("/commands/restore", method="POST", body=body).status == 413
    assert server.http("/commands/ruok", method="DELETE").status == 405
    assert server.http("/readyz", method="POST", body=b"").status == 405
    assert server.http("/commands/ruok", method="POST", body=b"x").status == 405
    assert server.http("/nosuch").status == 404
    assert server.http("/").status == 200


def test_refused_in_the_middle_of_a_request__the_answer_is_read_all_the_same(server: Live) -> None:
    with socket.create_connection(("127.0.0.1", server.admin_port), TIMEOUT) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000)
        # Not before it is refused: a server that hangs up at once would reset the connection now.
        answer = connection.recv(1000)
        for _ in range(3):
            connection.sendall(b"x" * 100_000)
        connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(1000):
            answer += more
    assert b"HTTP/1.1 431 " in answer


def test_client_that_says_nothing__is_cut_off(tmp_path: Path) -> None:
    with live(tmp_path / "data", admin=replace(ADMIN, idle_timeout_ms=2000)) as server:
        assert say(server.admin_port, b"GET / HT") == b""


def test_paths_in_any_script_are_shown(server: Live) -> None:
    with server.client() as client:
        client.exists("/schlüssel", True)
        answer = server.http("/commands/wchp")
    assert list(answer.document["path_to_session_ids"]) == ["/schlüssel"]


def test_very_many_watches__are_sorted_out_beside_the_loop(
    server: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 of them would hold clients for half a second."""
    in_loop: list[bool] = []

    def noting(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def noted(argument: Any) -> Any:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                in_loop.append(False)
            else:
                in_loop.append(True)
            return work(argument)

        return noted

    monkeypatch.setattr(DataWatches, "by_path", noting(DataWatches.by_path))
    monkeypatch.setattr("keepfast.server.admin.safe_json", noting(safe_json))
    monkeypatch.setattr("keepfast.server.reports._SORTED_AT_ONCE", 10)
    names = [f"/{number:03}" for number in range(99)]
    with server.client() as client:
        for name in reversed(names):
            client.exists(name, True)
        by_path = server.http("/commands/watches_by_path").document["path_to_session_ids"]
        by_session = server.http("/commands/watches").document["session_id_to_watched_paths"]
        summary = server.http("/commands/watch_summary").document
    assert list(by_path) == names
    assert list(by_session.values()) == [names]
    assert summary["num_paths"] == summary["num_total_watches"] == len(names)
    assert in_loop == [False] * 6


# -- start and stop ------------------------------------------------------------------------------


def test_taken_port__the_server_starts_without_or_not_at_all(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with live(tmp_path / "data", admin=AdminOptions(port=port)) as server:
            assert server.server.admin is None
            assert server.ask("ruok") == "imok"
        options = server_options(
            tmp_path / "other", admin=AdminOptions(port=port, is_required=True)
        )
        found = Live(options)
        try:
            with pytest.raises(OSError, match="admin server") as raised:
                found.wait(found.server.start())
            assert raised.value.errno == errno.EADDRINUSE
        finally:
            found.end_loop()


def test_port_is_free_again_after_the_stop(tmp_path: Path) -> None:
    with live(tmp_path / "data", admin=ADMIN) as server:
        port = server.admin_port
    with live(tmp_path / "data", admin=AdminOptions(port=port, is_required=True)) as server:
        assert server.http("/livez").status == 200


# -- against Apache ------------------------------------------------------------------------------

# Java's and Python's facts about themselves.
DIFFERENT_KEYS = ("environment", "system_properties", "monitor")


def shape(value: object) -> object:
    """The keys of a JSON value, all the way down, and the types of what they lead to."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def prepare(client: Client) -> None:
    """An ephemeral, a watch, and more than 128 txns."""
    client.create("/e", mode=CreateMode.EPHEMERAL)
    for number in range(130):
        client.set_data("/e", b"%d" % number)
    client.get_data("/e", True)


@pytest.mark.conformance
def test_commands_have_apaches_names_keys_and_types(server: Live, tmp_path: Path) -> None:
    with ApacheCommands(tmp_path / "apache") as apache:
        own = ("hand_over", "standing")
        assert apache.names() == [name for name in command_names() if name not in own]
        with Client(f"127.0.0.1:{apache.port}") as client:
            prepare(client)
            names = {f'"{client.session_id}"': "SESSION"}
            expected = {name: apache.run(name) for name in apache.names()}
    with server.client() as client:
        prepare(client)
        names[f'"{client.session_id}"'] = "SESSION"
        for name, answer in expected.items():
            if name in DIFFERENT_KEYS or name == "restore":
                continue
            found = server.http(f"/commands/{name}").document
            assert shape(_named(found, names)) == shape(_named(answer, names)), name
    assert len(expected["hash"]["digests"]) == 1


def _named(document: dict[str, object], names: dict[str, str]) -> object:
    """The document with names for what differs from run to run among its keys."""
    text = json.dumps(document)
    for key, name in names.items():
        text = text.replace(key, f'"{name}"')
    found = json.loads(text)
    times = found.get("expiry_time_to_session_ids")
    if times:
        # Apache shows buckets that have become empty, too.
        found["expiry_time_to_session_ids"] = {"TIME": [max(times.values(), key=len)]}
    return found


def test_superuser_of_these_tests_is_apaches() -> None:
    from tests.apache import SUPER_DIGEST as APACHES

    assert SUPER_DIGEST == APACHES
