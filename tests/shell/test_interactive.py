"""The shell on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.harness import HeldPorts
from tests.apache import ApacheEnsemble, ApacheServer, wait_until
from tests.apache.words import ask
from tests.shell.terminal import Terminal
from tests.shell.transcripts import capture, ours

pytestmark = pytest.mark.conformance

# The `input` of Python in place of prompt-toolkit.
_WITHOUT_TOOLKIT = (
    "import sys; sys.modules['prompt_toolkit'] = None; import importlib.util as u; "
    "f = u.find_spec; u.find_spec = lambda n, *r: None if n == 'prompt_toolkit' else f(n, *r); "
    "from keepfast.shell import run_shell; sys.exit(run_shell(sys.argv[1:]))"
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApacheServer]:
    with HeldPorts(1) as held, ApacheServer(tmp_path / "data", port=held.numbers[0]) as server:
        yield server


def test_session_at_the_prompt(server: ApacheServer, tmp_path: Path) -> None:
    with Terminal(ours(server.hosts), {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("state:SyncConnected type:None path:null zxid: -1")
        terminal.wait_for(f"[zk: {server.hosts}(CONNECTED) 0]")
        terminal.write("create /somewhere x\r")
        terminal.wait_for("Created /somewhere")
        terminal.wait_for("(CONNECTED) 1]")

        # The Tab key, for a path and for a command.
        terminal.write("get -w /some\t")
        terminal.wait_for("where")
        terminal.write("\r")
        terminal.wait_for("\nx\n")
        terminal.wait_for("(CONNECTED) 2]")
        terminal.write("getAllC\t")
        terminal.wait_for("hildrenNumber")
        terminal.write(" /somewhere\r")
        terminal.wait_for("\n0\n")
        terminal.wait_for("(CONNECTED) 3]")

        # An event while the prompt waits.
        assert capture(server.hosts, "set", "/somewhere", "y").returncode == 0
        terminal.wait_for("WATCHER::")
        terminal.wait_for("type:NodeDataChanged path:/somewhere")
        # While it is printed, the terminal treats keys as it likes.
        terminal.wait_for("(CONNECTED) 3]")

        # Ctrl-C drops the line, an error does not end the shell, the arrow key fetches a line.
        terminal.write("delete /somewh")
        terminal.wait_for("delete /somewh")
        terminal.interrupt("(CONNECTED) 3]")
        terminal.write("get /none\r")
        terminal.wait_for("Node does not exist: /none")
        terminal.wait_for("(CONNECTED) 4]")
        terminal.write("addauth digest user:secret\r")
        terminal.wait_for("(CONNECTED) 5]")
        terminal.write("history\r")
        terminal.wait_for("0 - create /somewhere x")
        terminal.wait_for("(CONNECTED) 6]")
        terminal.write("close\r")
        terminal.wait_for("(CLOSED) 7]")
        terminal.write("connect\r")
        terminal.wait_for("(CONNECTED) 8]")
        terminal.write("quit\r")
        assert terminal.wait_for_end() == 0

    kept = (tmp_path / "keepfast" / "shell_history").read_text()
    assert "+get -w /somewhere\n" in kept
    assert "secret" not in kept
    assert (tmp_path / "keepfast" / "shell_history").stat().st_mode & 0o077 == 0

    # The next session knows the lines of the one before.
    with Terminal(ours(server.hosts), {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("(CONNECTED) 0]")
        terminal.write("\x1b[A\x1b[A\x1b[A")
        terminal.wait_for("close")
        terminal.interrupt("(CONNECTED) 0]")
        assert terminal.end_input() == 0


def test_server_goes_and_comes_back__the_prompt_shows_it(
    server: ApacheServer, tmp_path: Path
) -> None:
    with Terminal(ours(server.hosts), {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("(CONNECTED) 0]")
        server.kill()
        terminal.wait_for("state:Disconnected")
        terminal.wait_for("(CONNECTING) 0]")
        terminal.write("ls /\r")
        terminal.wait_for("KeeperErrorCode = ConnectionLoss for /")
        server.start()
        terminal.wait_for("state:SyncConnected")
        terminal.wait_for("(CONNECTED) 1]")
        terminal.write("ls /\r")
        terminal.wait_for("[zookeeper]")
        terminal.write("quit\r")
        assert terminal.wait_for_end() == 0


def test_no_server_at_the_start__the_shell_says_why_and_goes_on_trying(tmp_path: Path) -> None:
    held = HeldPorts(1)
    (port,) = held.numbers
    host = f"127.0.0.1:{port}"
    with held, Terminal(ours(host), {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("Connection refused")
        terminal.wait_for("(CONNECTING) 0]")
        with ApacheServer(tmp_path / "data", port=port):
            terminal.wait_for("(CONNECTED) 0]")
            terminal.write("ls /\r")
            terminal.wait_for("[zookeeper]")
            terminal.write("quit\r")
            assert terminal.wait_for_end() == 0


def test_without_prompt_toolkit__pythons_own_input_is_used(
    server: ApacheServer, tmp_path: Path
) -> None:
    command = [ours()[0], "-c", _WITHOUT_TOOLKIT, server.hosts]
    with Terminal(command, {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("(CONNECTED) 0] ")
        terminal.write("create /a x\r")
        terminal.wait_for("Created /a")
        terminal.wait_for("(CONNECTED) 1] ")
        terminal.write("get /no")
        # Ctrl-C throws typed keys away that were not read yet, and readline would wait for them.
        terminal.wait_for("get /no")
        terminal.interrupt("(CONNECTED) 1] ")
        terminal.write("get /a\r")
        terminal.wait_for("x\n")
        terminal.wait_for("(CONNECTED) 2] ")
        terminal.write("quit\r")
        assert terminal.wait_for_end() == 0


def test_read_only_server__serves_reads_until_a_quorum_forms(tmp_path: Path) -> None:
    ensemble = ApacheEnsemble(
        tmp_path,
        properties={"readonlymode.enabled": "true"},
        configuration={"localSessionsEnabled": "true"},
    )
    lonely = ensemble.servers[1]
    try:
        lonely.launch()
        wait_until(lambda: _is_read_only(lonely), "the server serves reads only")
        refused = capture(lonely.hosts, "ls", "/")
        assert refused.returncode == 4
        with Terminal(
            ours("-r", lonely.hosts), {"XDG_STATE_HOME": str(tmp_path / "state")}
        ) as terminal:
            terminal.wait_for("state:ConnectedReadOnly")
            terminal.wait_for("(CONNECTEDREADONLY) 0]")
            terminal.write("ls /\r")
            terminal.wait_for("[zookeeper]")
            terminal.wait_for("(CONNECTEDREADONLY) 1]")
            terminal.write("create /a\r")
            terminal.wait_for("Not a read-only call: /a")
            ensemble.start()
            terminal.wait_for("(CONNECTED) 2]")
            terminal.write("create /a\r")
            terminal.wait_for("Created /a")
    finally:
        ensemble.kill()


def _is_read_only(server: ApacheServer) -> bool:
    try:
        # One that is about to serve may never answer.
        return ask(server.port, "isro", timeout=2) == "ro"
    except OSError:
        return False
