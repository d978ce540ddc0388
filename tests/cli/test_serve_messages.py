"""What `keepfast serve` says: only what is so."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast.harness import LocalProcess
from tests.apache.words import wait_until
from tests.cases import load_case
from tests.chaos.processes import RealEnsemble
from tests.cli.runs import call, run


def test_check__shows_what_was_configured_and_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "zoo.cfg"
    path.write_text(f"dataDir={tmp_path}/data\nclientPort=2181\n")
    short = call(capsys, "serve", "--check", str(path))
    full = call(capsys, "serve", "--check", "--all", str(path))

    assert short.code == full.code == 0
    assert "clientPort" in short.out
    assert "tickTime" not in short.out
    assert "tickTime" in full.out
    for out in (short.out, full.out):
        assert out.splitlines()[-1].startswith("A server starts with this configuration")


def test_member_without_a_leader__does_not_say_that_it_serves(tmp_path: Path) -> None:
    with RealEnsemble(tmp_path) as ensemble:
        ensemble.servers[1].start()
        wait_until(lambda: "keepfast: listening on" in ensemble.log_text(1), "it listens")
        assert "serving" not in ensemble.log_text(1).replace("not-serving", "")

        ensemble.servers[2].start()
        ensemble.servers[3].start()
        wait_until(lambda: " serving " in ensemble.log_text(1), "it says when it serves")
        # The role by the word that all other lines have, and the state that clients see.
        assert re.search(r" serving .*role=(leader|follower) epoch=1 zxid=0x", ensemble.log_text(1))


@contextmanager
def served(tmp_path: Path, *lines: str, notify: str = "") -> Iterator[LocalProcess]:
    path = tmp_path / "zoo.cfg"
    common = ("clientPort=0", "clientPortAddress=127.0.0.1", "admin.enableServer=false")
    path.write_text("\n".join((f"dataDir={tmp_path}/data", *common, *lines)) + "\n")
    process = LocalProcess(tmp_path / "server.log")
    process.environment = {"NOTIFY_SOCKET": notify}
    process.launch([sys.executable, "-m", "keepfast", "serve", str(path)])
    try:
        yield process
    finally:
        process.kill()


def test_directory_of_another_program__one_line_says_that_it_was_adopted(tmp_path: Path) -> None:
    load_case("healthy-plain-3.9.5").copy_server("2", tmp_path / "data")
    with served(tmp_path) as process:
        wait_until(lambda: " serving " in process.log_path.read_text(), "it serves")
    lines = process.log_path.read_text().splitlines()
    (line,) = [line for line in lines if " adopted " in line]
    assert "zxid=0x200000040" in line
    # The id of a server alone is 0, as `status` and Apache's `srvr` have it.
    assert "server=0 role=standalone" in line


def test_own_name_that_has_no_address_yet__is_named_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "myid").write_text("1\n")
    members = ("server.1=a.invalid:1:2", "server.2=b.invalid:1:2", "server.3=c.invalid:1:2")
    notify = str(tmp_path / "notify")
    reason = "the host name a.invalid cannot be resolved"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(notify)
    with (
        manager,
        served(tmp_path, *members, "initLimit=5", "syncLimit=2", notify=notify) as process,
    ):
        wait_until(lambda: "not-listening" in process.log_path.read_text(), "it waits")
        assert reason in process.log_path.read_text()
        assert process.is_running
        manager.settimeout(60)
        # What `systemctl status` shows.
        wait_until(lambda: f"STATUS={reason}" in manager.recv(4096).decode(), "it says why")


def test_check__warns_of_open_ports_once(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("1")
    members = "\n".join(f"server.{id}=192.0.2.{id}:2888:3888;2181" for id in (1, 2, 3))
    config = tmp_path / "zoo.cfg"
    config.write_text(f"dataDir={tmp_path}\ntickTime=2000\ninitLimit=5\nsyncLimit=2\n{members}\n")
    result = run("serve", "--check", str(config))
    assert result.code == 0, result
    assert result.err.count("the quorum and election ports") == 1
    assert "1 warning;" in result.out


def test_port_that_is_taken__is_named_in_plain_words(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = tmp_path / "zoo.cfg"
        config.write_text(
            f"dataDir={tmp_path}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
        )
        result = run("serve", str(config))
    assert result.code == 4
    sentence = f"keepfast: cannot start: 127.0.0.1:{port}: address already in use\n"
    assert result.err.endswith(sentence)


def test_file_for_a_data_directory__is_not_called_a_failed_disk(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    result = run("serve", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert result.code == 4
    assert "cannot start: not a directory" in result.err
