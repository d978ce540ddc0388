"""`keepfast ensemble`: real processes from the command line, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keepfast.client import Client, ServerAddress, look_at
from tests.apache.words import wait_until
from tests.chaos.processes import free_base_port
from tests.cli.runs import KEEPFAST, plain_environment, run

HOST = "127.0.0.1"
PATIENCE_SECONDS = 90.0
CONSOLE = "in a browser: "


class Running:
    """A running `keepfast ensemble`, its lines and its input."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line.rstrip("\n"))

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def wait_line(self, text: str) -> None:
        wait_until(
            lambda: any(text in line for line in self._about_servers()[-1:]),
            f"a line with {text!r}, not {self.lines[-1:]}",
            timeout=PATIENCE_SECONDS,
        )

    def _about_servers(self) -> list[str]:
        """The console says once where it is, whenever it is there."""
        return [line for line in self.lines if not line.startswith(CONSOLE)]

    def wait_console(self) -> str:
        """The address of the page."""
        wait_until(
            lambda: any(line.startswith(CONSOLE) for line in self.lines),
            "the console tells its address",
            timeout=PATIENCE_SECONDS,
        )
        return next(line.removeprefix(CONSOLE) for line in self.lines if line.startswith(CONSOLE))

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def running(*arguments: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [*KEEPFAST, "ensemble", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=plain_environment(),
    )
    found = Running(process)
    try:
        yield found
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        found._reader.join()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def test_life__kill_start_ctrl_c_and_again_on_the_same_directory(tmp_path: Path) -> None:
    base = free_base_port()
    addresses = [ServerAddress(HOST, base + number) for number in range(3)]
    hosts = ",".join(map(str, addresses))
    directory = tmp_path / "e"
    with running(str(directory), "--base-port", str(base)) as first:
        first.wait_line("3 of 3 serve")
        assert first.lines[0] == f"connect to {hosts}"
        with urllib.request.urlopen(first.wait_console(), timeout=60) as page:
            assert b"Keepfast console" in page.read()
        with Client(hosts) as client:
            client.create("/a", b"1")
        first.type("kill 2")
        first.wait_line("2 stopped")
        first.wait_line("2 of 3 serve")
        # Not at once: the new leader may be ahead of its follower, or is asked between the two.
        wait_until(
            lambda: {found.kind for found in look_at(addresses).findings} == {"down"},
            "server 2 alone is down",
            timeout=PATIENCE_SECONDS,
        )
        status = run("status", hosts, "--json")
        assert (status.code, status.document["exit_code"]) == (1, 1)
        assert "down" in {finding["kind"] for finding in status.document["findings"]}
        taken = run("ensemble", str(directory))
        taken.check_sentence("another keepfast ensemble runs on")
        assert not any("2 stopped" in line and "3 of 3" in line for line in first.lines)
        first.type(f"start {addresses[1]}")
        first.wait_line("3 of 3 serve")
        first.type("pause leader")
        first.wait_line("paused")
        for number in range(1, 4):
            first.type(f"resume {number}")
        wait_until(lambda: run("status", hosts).code == 0, "all is well", timeout=PATIENCE_SECONDS)
        assert first.end() == 0
    assert _pids_below(directory) == []
    with running(str(directory)) as second:
        second.wait_line("3 of 3 serve")
        with Client(hosts) as client:
            assert client.get_data("/a").data == b"1"
        assert second.end(signal.SIGTERM) == 0
    assert _pids_below(directory) == []
    run("ensemble", str(directory), "-n", "5").check_sentence("an ensemble of 3 servers", "-n")
    run("ensemble", str(directory), "--base-port", str(base + 1)).check_sentence("--base-port")


def _pids_below(directory: Path) -> list[str]:
    """Processes whose command line names the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{directory}/".encode() in command:
                found.append(entry.name)
    return found


def test_directory_of_another_kind__is_refused_untouched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "version-2").mkdir(parents=True)
    run("ensemble", str(data)).check_sentence("the data directory of one server")
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("x")
    run("ensemble", str(other)).check_sentence("not empty", "name a new directory")
    assert [path.name for path in other.iterdir()] == ["file"]
    file = other / "file"
    run("ensemble", str(file)).check_sentence("is a file")


def test_port_taken__says_which_and_whose(tmp_path: Path) -> None:
    base = free_base_port()
    with socket.socket() as holder:
        holder.bind((HOST, base + 11))
        holder.listen()
        result = run("ensemble", str(tmp_path / "e"), "--base-port", str(base))
    result.check_sentence(f"{base + 11} (quorum port of server 2)", "--base-port")
    assert result.code == 4


def test_status__nobody_there_and_bad_address() -> None:
    base = free_base_port(1)
    result = run("status", f"{HOST}:{base}")
    assert result.code == 1
    assert "connection refused" in result.out
    run("status", "host:99999").check_sentence("99999")
