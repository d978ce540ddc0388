"""The shell as a script uses it: single commands, files of commands, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.harness import HeldPorts
from tests.apache import ApacheServer, free_ports
from tests.client.fake_server import FakeServer
from tests.shell.transcripts import capture, ours


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheServer]:
    with ApacheServer(tmp_path_factory.mktemp("apache") / "data") as server:
        script = "create /a hello\ncreate /a/b\ncreate /bytes x\nset /bytes /wA= -b\n"
        assert capture(server.hosts, script=script).returncode == 0
        yield server


def documents(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_no_server__one_sentence_and_exit_code_4() -> None:
    with HeldPorts(1) as held:
        (port,) = held.numbers
        done = capture(f"127.0.0.1:{port}", "ls", "/")
        again = capture(f"127.0.0.1:{port}", "ls", "/", "--json")
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr == (f"no connection to 127.0.0.1:{port}: Connection refused\n")
    (document,) = documents(again.stdout)
    assert document["ok"] is False
    assert document["error"]["name"] == "CONNECTIONLOSS"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nosuch"],
        ["host:port", "ls", "/"],
        ["-timeout", "x", "ls", "/"],
    ],
)
def test_bad_usage__one_sentence_and_exit_code_2(arguments: list[str]) -> None:
    done = capture(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_help_and_version__need_no_server() -> None:
    (port,) = free_ports(1)
    assert capture("--help").stdout.startswith("Usage: keepfast shell ")
    done = capture(f"127.0.0.1:{port}", "help")
    assert done.returncode == 0
    assert "\tls [-s] [-w] [-R] path\n" in done.stdout
    assert capture("help", "ls").stdout == "ls [-s] [-w] [-R] path\n"
    assert capture("help", "quit").stdout == "quit\n"
    assert capture("help", "nosuch").returncode == 2
    assert capture("version").stdout.startswith("Keepfast shell version: 0.")


def test_server_that_loses_the_connection__exit_code_4_and_the_rest_is_not_run() -> None:
    with FakeServer() as fake:
        fake.answer = lambda type, body: fake.drop()
        done = capture(fake.host, script="delete /a\ndelete /b\n")
        assert done.returncode == 4
        assert "KeeperErrorCode = ConnectionLoss for /a" in done.stderr
        assert len(fake.types()) == 1


@pytest.mark.conformance
def test_single_command__answers_on_standard_output_and_complains_on_the_other(
    server: ApacheServer,
) -> None:
    done = capture(server.hosts, "ls", "/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[a, bytes, zookeeper]\n", "")
    done = capture("-server", server.hosts, "get", "/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Node does not exist: /none\n"
    done = capture(server.hosts, "create", "-s", "/n-")
    assert done.stdout.startswith("Created /n-00000")
    assert capture(server.hosts, "get").returncode == 2
    assert capture(server.hosts, "get", "no-path").returncode == 2
    assert capture(server.hosts, "addauth", "nosuch", "x").returncode == 1
    assert capture(server.hosts, "listquota", "/a").returncode == 1
    assert capture(server.hosts, "delquota", "/a").returncode == 1
    assert capture(server.hosts, "deleteall", "/zookeeper").returncode == 1
    assert capture(server.hosts, "set", "/a", "x", "-v", "abc").returncode == 2
    assert capture(server.hosts, "set", "/a", "???", "-b").returncode == 2
    assert capture(f"{server.hosts}/a", "setquota", "-n", "5", "/b").returncode == 1


@pytest.mark.conformance
def test_old_form_of_delete__heeds_the_version(server: ApacheServer) -> None:
    capture(server.hosts, "create", "/old")
    done = capture(server.hosts, "delete", "/old", "7")
    assert done.returncode == 1
    assert "has been deprecated" in done.stderr
    assert capture(server.hosts, "stat", "/old").returncode == 0


@pytest.mark.conformance
def test_recursive_acl__says_how_many_znodes_kept_theirs(server: ApacheServer) -> None:
    script = "create /acl\ncreate /acl/x\nsetAcl /acl/x world:anyone:r\n"
    assert capture(server.hosts, script=script).returncode == 0
    done = capture(server.hosts, "setAcl", "-R", "/acl", "world:anyone:cdrwa")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "KeeperErrorCode = NoAuth for /acl/x",
        "Failed to set the ACL of 1 of 2 znodes",
    ]


@pytest.mark.conformance
def test_commands_from_a_file__all_run_and_the_first_failure_is_the_exit_code(
    server: ApacheServer,
) -> None:
    done = capture(
        server.hosts, script="# a comment\n\nls /a\nget /none\nnosuch\nget /a\nquit\nget /a\n"
    )
    assert done.returncode == 1
    assert done.stdout == "[b]\nhello\n"
    assert done.stderr.startswith("Node does not exist: /none\n")


@pytest.mark.conformance
def test_ephemeral_of_a_single_command__goes_with_it(server: ApacheServer) -> None:
    assert capture(server.hosts, "create", "-e", "/gone").returncode == 0
    assert capture(server.hosts, "stat", "/gone").returncode == 1


@pytest.mark.conformance
def test_credentials__on_the_command_line(server: ApacheServer) -> None:
    done = capture("--auth", "digest:u:p", server.hosts, "whoami")
    assert done.stdout == "Auth scheme: User\nip: 127.0.0.1\ndigest: u\n"
    done = capture("--auth", "nosuch:p", server.hosts, "whoami")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Authentication failed; the session is closed\n"


@pytest.mark.conformance
def test_json__one_document_a_command(server: ApacheServer) -> None:
    script = "get /a\nget /bytes\nget /a/b\nls -s /a\nls -R /a\nget /none\nls\nnosuch\nwhoami\n"
    script += "get -w /a\nset /a hello\nhistory\n"
    done = capture("--json", server.hosts, script=script)
    assert done.returncode == 1
    answers = documents(done.stdout)
    assert {one["schema"] for one in answers} == {"keepfast.shell/1"}
    text, binary, null, listing, recursive, missing, usage, unknown, whoami = answers[:9]
    assert text["command"] == "get"
    assert text["ok"] is True
    assert text["data"] == {"length": 5, "text": "hello"}
    assert text["stat"]["czxid"] == "0x2"
    assert binary["data"] == {"length": 2, "base64": "/wA="}
    assert null["data"] is None
    assert listing["children"] == ["b"]
    assert recursive["paths"] == ["/a", "/a/b"]
    assert missing["ok"] is False
    assert missing["error"] == {
        "code": -101,
        "name": "NONODE",
        "path": "/none",
        "message": "Node does not exist: /none",
    }
    assert usage["error"]["message"] == "ls [-s] [-w] [-R] path"
    assert unknown["error"]["message"].startswith("Command not found: nosuch")
    assert whoami["identities"] == [{"scheme": "ip", "user": "127.0.0.1"}]
    (event,) = [one["event"] for one in answers if "event" in one]
    assert (event["type"], event["path"]) == ("NodeDataChanged", "/a")
    assert len(answers[-1]["lines"]) == 11


@pytest.mark.conformance
@pytest.mark.parametrize(
    "command",
    [
        "ls /",
        "ls -R /",
        "get /a",
        "stat /a",
        "create -s /json-",
        "set /a hello",
        "delete /json-gone",
        "deleteall /json-tree",
        "getAcl /a",
        "setAcl /a world:anyone:cdrwa",
        "setAcl -R /a world:anyone:cdrwa",
        "setquota -n 1 /a",
        "listquota /a",
        "delquota -n /a",
        "delquota /a",
        "addauth digest u:p",
        "whoami",
        "addWatch /a",
        "sync /",
        "getAllChildrenNumber /",
        "getEphemerals",
        "config",
        "connect",
        "close",
        "printwatches",
        "version",
        "help",
        "history",
    ],
)
def test_json__of_every_command(server: ApacheServer, command: str) -> None:
    capture(server.hosts, script="create /json-gone\ncreate /json-tree\ncreate /json-tree/a\n")
    if command.startswith(("listquota", "delquota")):
        capture(server.hosts, "setquota", "-n", "5", "/a")
    done = capture("--json", server.hosts, *command.split())
    (document,) = documents(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True), document
    assert document["command"] == command.split(maxsplit=1)[0]


@pytest.mark.conformance
def test_reader_that_goes_away__ends_the_shell_quietly(server: ApacheServer) -> None:
    with subprocess.Popen(
        ours(server.hosts),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write("ls -R /\n" * 100)
        process.stdin.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


@pytest.mark.conformance
def test_terminal_without_unicode__shows_escapes_and_does_not_fail(server: ApacheServer) -> None:
    done = capture(
        server.hosts,
        "get",
        "/umlaut",
        environment={"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1
    assert capture(server.hosts, "create", "/umlaut", "ä").returncode == 0
    done = capture(server.hosts, "get", "/umlaut", environment={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "\\xe4\n")


@pytest.mark.conformance
def test_bytes_that_are_no_text__come_through(server: ApacheServer) -> None:
    as_arguments: list[str | bytes] = ["set", "/bytes", b"\xff\x01"]
    for arguments, lines in ((as_arguments, b""), ([], b"set /bytes \xff\x01\n")):
        done = subprocess.run(
            [*ours(server.hosts), *arguments], input=lines, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert capture(server.hosts, "get", "-b", "/bytes").stdout == "/wE=\n"
        assert capture(server.hosts, "set", "/bytes", "x").returncode == 0
    done = subprocess.run(
        [*ours(server.hosts), "ls", b"/\xff"], input=b"", capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"invalid character @1" in done.stderr


@pytest.mark.conformance
def test_members_from_a_file(server: ApacheServer, tmp_path: Path) -> None:
    file = tmp_path / "members"
    file.write_text(os.linesep)
    assert capture(server.hosts, "reconfig", "-file", str(file)).returncode == 2
    assert capture(server.hosts, "reconfig", "-file", str(tmp_path / "none")).returncode == 2
    file.write_text("server.1=127.0.0.1:1:2:participant;3\n")
    done = capture(server.hosts, "reconfig", "-file", str(file))
    assert (done.returncode, done.stderr) == (1, "KeeperErrorCode = Reconfig is disabled\n")
