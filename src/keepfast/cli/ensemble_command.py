"""`keepfast ensemble`: real server processes on this machine, watched until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from keepfast.cli.ensemble_console import ConsoleProcess
from keepfast.cli.output import CommandFailed, ExitCode
from keepfast.cli.status import HEADS, row_of, summary_of
from keepfast.client import EnsembleStatus, Gravity, ServerAddress, judge, probe
from keepfast.harness import (
    LOCAL_HOST,
    EnsembleLayout,
    LocalEnsembleError,
    ServerProcess,
    check_ports,
    held,
    open_layout,
    stop_all,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

_LOOK_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 1.0
_HELP: Final = "1-9 choose a server, then k kill, s stop or start, r restart, p pause; q quit"
_WORDS: Final = ("kill", "stop", "start", "restart", "pause", "resume")
_KEYS: Final = {"k": "kill", "r": "restart"}


@dataclass(frozen=True, slots=True)
class EnsembleArguments:
    """The command line of `keepfast ensemble`."""

    directory: str
    size: int | None
    base_port: int | None


def ensemble(arguments: EnsembleArguments) -> int:
    """Run the servers until Ctrl-C, SIGTERM or `quit`; nothing is left running."""
    try:
        layout = open_layout(Path(arguments.directory), arguments.size, arguments.base_port)
        if layout.size % 2 == 0:
            _say(
                f"warning: {layout.size} servers tolerate no more failures than {layout.size - 1}; "
                "an odd number is better"
            )
        with held(layout):
            check_ports(layout)
            return _Runner(layout).run()
    except LocalEnsembleError as error:
        code = ExitCode.UNUSABLE if error.is_usage else ExitCode.REFUSED
        raise CommandFailed(str(error), code) from error


def _say(text: str) -> None:
    print(f"keepfast: {text}", file=sys.stderr, flush=True)


class _Runner:
    """Watches the processes, polls the servers, and handles typed commands."""

    def __init__(self, layout: EnsembleLayout) -> None:
        self.layout = layout
        self.servers = {id: ServerProcess(layout, id, dies_with_us=True) for id in layout.ports}
        # The last status, and the state of the processes at that time.
        self._seen: tuple[EnsembleStatus, list[str]] = (judge([]), [])
        self._console = ConsoleProcess(
            layout.root, layout.connect_string, [layout.directory(id) for id in layout.ports]
        )
        self._is_over = threading.Event()
        # Requested by keys or lines; done on the main thread, which owns the processes.
        self._orders: queue.Queue[tuple[str, str]] = queue.Queue()
        self._chosen = 1

    def run(self) -> int:
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sign, lambda _number, _frame: self._is_over.set())
        asking = threading.Thread(target=self._ask, name="asking", daemon=True)
        try:
            for server in self.servers.values():
                server.start()
            if self._console.is_possible:
                self._console.start()
            asking.start()
            if sys.stdout.isatty():
                self._show_page()
            else:
                self._print_lines()
        finally:
            self._is_over.set()
            # A second Ctrl-C must not leave servers behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            stop_all([*self.servers.values(), self._console])
        _say(f"all servers are stopped; keepfast ensemble {self.layout.root} continues from here")
        return ExitCode.OK

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        while not self._is_over.wait(_LOOK_SECONDS):
            states = self._states()
            found = [
                probe(
                    ServerAddress(LOCAL_HOST, server.ports.client), _ASK_SECONDS, server.ports.admin
                )
                for server in self.servers.values()
            ]
            if states == self._states():
                # Otherwise part of it is from a server that was killed or started meanwhile.
                self._seen = (judge(found), states)

    def _states(self) -> list[str]:
        return [self._state_of(server) for server in self.servers.values()]

    def _state_of(self, server: ServerProcess) -> str:
        if server.is_paused:
            return "paused"
        if server.is_running:
            return f"pid {server.pid}"
        if not server.is_wanted:
            return "stopped"
        return f"ended with code {server.exit_code}: {server.last_words()}"

    # -- a terminal ------------------------------------------------------------------------------

    def _show_page(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console()
        with _keys(self._press), Live(console=console, screen=True, auto_refresh=False) as live:
            while not self._is_over.is_set():
                self._obey()
                live.update(self._page(self._seen[0]), refresh=True)
                self._is_over.wait(0.2)

    def _page(self, verdict: EnsembleStatus) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for head in ("", *HEADS[1:-1], "client port", "process"):
            table.add_column(head)
        rows = {server.address.port: row_of(server, verdict) for server in verdict.servers}
        blank = ["-"] * len(HEADS)
        for id, server in self.servers.items():
            cells = rows.get(server.ports.client, blank)
            mark = ">" if id == self._chosen else " "
            style = "bold green" if cells[2] == "leader" else ""
            shown = (mark, str(id), *cells[2:-1], str(server.ports.client), self._state_of(server))
            table.add_row(*shown, style=style)
        colours = {Gravity.WRONG: "red", Gravity.UNKNOWN: "yellow"}
        findings = [
            Text(f"{finding.gravity.value}: {finding.sentence}", colours[finding.gravity])
            for finding in verdict.findings
        ]
        return Group(
            Text(f"Ensemble in {self.layout.root}   connect to {self.layout.connect_string}"),
            Text(),
            table,
            Text(),
            Text(summary_of(verdict), "bold"),
            *findings,
            Text(),
            Text(self._console.sentence(), "dim"),
            Text(f"{_HELP}   logs: {self.layout.root}/N/server.log", "dim"),
        )

    def _press(self, key: str) -> None:
        """A key was pressed."""
        server = self.servers[self._chosen]
        if key in ("q", "\x03"):
            self._is_over.set()
        elif key.isdecimal() and int(key) in self.servers:
            self._chosen = int(key)
        elif key == "s":
            self._orders.put(("stop" if server.is_running else "start", str(self._chosen)))
        elif key == "p":
            self._orders.put(("resume" if server.is_paused else "pause", str(self._chosen)))
        elif key in _KEYS:
            self._orders.put((_KEYS[key], str(self._chosen)))

    # -- no terminal -----------------------------------------------------------------------------

    def _print_lines(self) -> None:
        """One line whenever something changes; commands are lines: `kill 2`, `pause leader`."""
        threading.Thread(target=self._read_lines, name="lines", daemon=True).start()
        print(f"connect to {self.layout.connect_string}", flush=True)
        printed = place = ""
        while not self._is_over.is_set():
            self._obey()
            if not place and (place := self._console.sentence()):
                print(place, flush=True)
            verdict, states = self._seen
            line = self._line(verdict)
            if line != printed and states in ([], self._states()):
                printed = line
                print(line, flush=True)
            self._is_over.wait(0.2)

    def _line(self, verdict: EnsembleStatus) -> str:
        parts = []
        known = {server.address.port: server for server in verdict.servers}
        for id, server in self.servers.items():
            found = known.get(server.ports.client)
            if not server.is_running or server.is_paused:
                text = self._state_of(server)
            elif found is None or not found.is_reached:
                text = "starting"
            else:
                # The first clause: a line has room for one from each server.
                why = re.split("[:;]", found.problem, maxsplit=1)[0]
                text = found.role if found.is_serving else f"not serving ({why})"
            parts.append(f"{id} {text}")
        return "; ".join(parts) + (f" - {summary_of(verdict)}" if verdict.servers else "")

    def _read_lines(self) -> None:
        for line in sys.stdin:
            words = line.split()
            if words == ["quit"]:
                self._is_over.set()
            elif len(words) == 2 and words[0] in _WORDS:
                self._orders.put((words[0], words[1]))
            elif words:
                _say(
                    f"not a command: {line.strip()}; {', '.join(_WORDS)} and a server (its id, "
                    "role or address), or quit"
                )

    def _find(self, name: str) -> ServerProcess | None:
        """The server with this id or address, or the first of this role."""
        if name.isdecimal() and int(name) in self.servers:
            return self.servers[int(name)]
        roles = {found.address.port: found.role for found in self._seen[0].servers}
        for server in self.servers.values():
            port = server.ports.client
            if name in (str(port), f"{LOCAL_HOST}:{port}", f"localhost:{port}", roles.get(port)):
                return server
        return None

    # -- orders ----------------------------------------------------------------------------------

    def _obey(self) -> None:
        while not self._orders.empty():
            word, name = self._orders.get()
            server = self._find(name)
            if server is None:
                _say(f"there is no server {name}; give an id, a role or an address")
                continue
            if word == "restart":
                server.stop()
                word = "start"
            if word == "start" and server.is_running:
                continue
            actions: dict[str, Callable[[], None]] = {
                "kill": server.kill,
                "stop": server.stop,
                "start": server.start,
                "pause": server.pause,
                "resume": server.resume,
            }
            actions[word]()


@contextlib.contextmanager
def _keys(press: Callable[[str], None]) -> Iterator[None]:
    """Call `press` for each key while the block runs; the terminal is restored at its end."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def read() -> None:
        while key := os.read(sys.stdin.fileno(), 1):
            press(key.decode("latin-1"))

    threading.Thread(target=read, name="keys", daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
