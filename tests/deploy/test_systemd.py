"""The units, and what a server tells the service manager."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from keepfast.client import Client
from keepfast.harness import HeldPorts
from tests.apache.words import serving_mode, wait_until
from tests.chaos.processes import RealEnsemble
from tests.deploy.kit import DEPLOY, find_tool, run_tool

UNITS = sorted((DEPLOY / "systemd").glob("keepfast*.service"))
TO_STORE = DEPLOY / "systemd" / "backup-to-object-store.conf"
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
PROGRAM = "/opt/keepfast/bin/keepfast"
PATIENCE_SECONDS = 60.0


class Manager:
    """The side of sd_notify that systemd has."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(PATIENCE_SECONDS)
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def wait_for(self, line: str) -> None:
        """Read notifications until one has this line; TimeoutError if none comes."""
        while line not in self.lines:
            self.lines += self._socket.recv(4096).decode().splitlines()


def exec_start(unit: Path) -> list[str]:
    """The words of a unit's command."""
    found = re.search(r"^ExecStart=(.+)$", unit.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def zoo_cfg(folder: Path, ports: list[int]) -> Path:
    path = folder / "zoo.cfg"
    path.write_text(
        f"dataDir={folder}/data\nclientPort={ports[0]}\nclientPortAddress=127.0.0.1\n"
        f"admin.serverPort={ports[1]}\n"
    )
    return path


def start(unit: Path, config: Path, manager: Manager, **environment: str) -> subprocess.Popen[str]:
    """Run the command of a unit as systemd would, on another configuration."""
    words = [str(config) if word == "/etc/keepfast/zoo.cfg" else word for word in exec_start(unit)]
    assert words[0] == PROGRAM
    return subprocess.Popen(
        [sys.executable, "-m", "keepfast", *words[1:]],
        env=os.environ | {"NOTIFY_SOCKET": manager.address} | environment,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_to(port: int) -> None:
    """Wait for a server, and have it write."""
    wait_until(lambda: serving_mode(port) is not None, "it serves")
    with Client(f"127.0.0.1:{port}") as client:
        client.create("/a")


def test_server__is_ready_when_it_serves_lives_and_says_that_it_stops(tmp_path: Path) -> None:
    held = HeldPorts(2)
    unit = DEPLOY / "systemd" / "keepfast.service"
    with Manager(tmp_path) as manager:
        config = zoo_cfg(tmp_path, held.numbers)
        process = start(unit, config, manager, WATCHDOG_USEC="300000")
        try:
            manager.wait_for("READY=1")
            with Client(f"127.0.0.1:{held.numbers[0]}") as client:
                client.create("/a")
            assert "STATUS=serving as standalone" in manager.lines
            manager.lines.clear()
            manager.wait_for("WATCHDOG=1")
            process.send_signal(signal.SIGTERM)
            manager.wait_for("STOPPING=1")
            assert process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0
        finally:
            process.kill()
            process.wait()
            held.close()


def test_member__is_ready_only_with_a_quorum(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager, RealEnsemble(tmp_path / "servers") as ensemble:
        ensemble.servers[1].environment = {"NOTIFY_SOCKET": manager.address}
        ensemble.servers[1].start()
        wait_until(lambda: "keepfast: listening on" in ensemble.log_text(1), "it listens")
        manager.wait_for("STATUS=reading the data directory")
        assert "READY=1" not in manager.lines
        for id in (2, 3):
            ensemble.servers[id].start()
        manager.wait_for("READY=1")
        assert [line for line in manager.lines if line.startswith("STATUS=serving as ")]


def test_nobody_listens__the_server_serves_and_logs_it_once(tmp_path: Path) -> None:
    held = HeldPorts(2)
    config = zoo_cfg(tmp_path, held.numbers)
    with Manager(tmp_path) as manager:
        manager.address += "-that-is-not-there"
        process = start(UNITS[-1], config, manager, WATCHDOG_USEC="100000")
        try:
            write_to(held.numbers[0])
            process.terminate()
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.wait()
            held.close()
    assert process.returncode == 0
    assert errors.count("no-notification") == 1


@pytest.mark.parametrize("unit", [*UNITS, *TIMERS], ids=lambda path: str(path.name))
def test_unit__is_sound(unit: Path, tmp_path: Path) -> None:
    analyze = find_tool("systemd-analyze", "Debian's systemd")
    for path in (*UNITS, *TIMERS):
        text = path.read_text().replace(PROGRAM, sys.executable)
        # A file that only exists where the unit is installed.
        (tmp_path / path.name).write_text(text)
    assert run_tool(analyze, "verify", "--man=no", tmp_path / unit.name) == ""


def test_wrong_configuration__is_not_tried_again_forever() -> None:
    """systemd compares RestartPreventExitStatus with the exit code of ExecStart alone."""
    text = (DEPLOY / "systemd" / "keepfast.service").read_text()
    assert "\nRestartPreventExitStatus=1 2\n" in text
    assert "\nExecStartPre=" not in text


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: str(path.name))
def test_data_directory__is_the_servers_alone(unit: Path) -> None:
    """systemd sets the mode of every directory that a unit lists, each time the unit starts."""
    text = unit.read_text()
    listed = {
        word for line in re.findall(r"^StateDirectory=(.+)$", text, re.M) for word in line.split()
    }
    assert "keepfast" not in listed or "\nStateDirectoryMode=0700\n" in text


def test_backup_to_an_object_store__is_sound(tmp_path: Path) -> None:
    analyze = find_tool("systemd-analyze", "Debian's systemd")
    unit = tmp_path / "keepfast-backup.service"
    unit.write_text((DEPLOY / "systemd" / unit.name).read_text().replace(PROGRAM, sys.executable))
    (tmp_path / f"{unit.name}.d").mkdir()
    changed = TO_STORE.read_text().replace(PROGRAM, sys.executable)
    (tmp_path / f"{unit.name}.d" / "object-store.conf").write_text(changed)
    assert run_tool(analyze, "verify", "--man=no", unit) == ""
    names = set(re.findall(r"^([A-Z_]+)=", (DEPLOY / "systemd" / "backup.env").read_text(), re.M))
    assert set(re.findall(r"\$\{(\w+)\}", changed)) <= names


@pytest.mark.parametrize("unit", [*UNITS, TO_STORE], ids=lambda path: str(path.name))
def test_command_of_a_unit__has_options_that_exist(unit: Path) -> None:
    words = exec_start(unit)
    shown = subprocess.run(
        [sys.executable, "-m", "keepfast", words[1], "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for word in words:
        if word.startswith("--"):
            assert word in shown


@pytest.mark.slow
def test_server__makes_no_call_that_its_unit_forbids(tmp_path: Path) -> None:
    strace = find_tool("strace", "Debian's strace")
    analyze = find_tool("systemd-analyze", "Debian's systemd")
    allowed = system_calls(analyze, "@system-service")
    for name in ("@privileged", "@resources"):
        allowed -= system_calls(analyze, name)
    held, trace = HeldPorts(2), tmp_path / "trace"
    command = [strace, "-f", "-qq", "-o", str(trace), sys.executable, "-m", "keepfast", "serve"]
    command.append(str(zoo_cfg(tmp_path, held.numbers)))
    process = subprocess.Popen(command, start_new_session=True)
    try:
        write_to(held.numbers[0])
    finally:
        # Both of them: strace alone would leave the server behind.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
        held.close()
    text = trace.read_text()
    if not text:
        pytest.skip("strace may not trace here")
    used = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", text, re.MULTILINE))
    assert used - allowed <= {"resumed", "exited", "killed"}


def system_calls(analyze: str, group: str) -> set[str]:
    """What a group of systemd's allows, with the groups inside it."""
    found: set[str] = set()
    for line in run_tool(analyze, "syscall-filter", "--no-pager", group).splitlines():
        word = line.strip()
        if word.startswith("@") and word != group:
            found |= system_calls(analyze, word)
        elif re.fullmatch(r"\w+", word):
            found.add(word)
    return found
